#!/bin/sh
# What a replay costs on this machine: ns and, where valgrind is installed, instructions a lookup. Called by `make bench`.
#
#	scripts/bench.sh [--json] [--tokens N]
#	scripts/bench.sh --instructions      only instructions, over 100 tokens: NAME, a tab, how many a lookup or token; the first line says with
#	                                     which compiler, libraries and path they were counted (tests/bench/test_instructions.c)
set -eu
build=${BUILD:-build}
json=no
mode=all
tokens=2000
while [ $# -gt 0 ]; do
	case $1 in
	--json) json=yes ;;
	--instructions) mode=instructions ;;
	--tokens) shift; tokens=$1 ;;
	*) echo "bench: unknown option $1: --json, --tokens N or --instructions" >&2; exit 2 ;;
	esac
	shift
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# the widest vectors that are made use of; valgrind 3.19 knows these
if grep -q avx2 /proc/cpuinfo 2>/dev/null; then vectors="AVX2 path"; else vectors="scalar path"; fi

# count TRACE: "NAME<tab>units" in $work/counted and "NAME<tab>instructions" in $work/count: one round, one dump a line of the table
count() {
	: >"$work/count"
	valgrind --tool=callgrind --collect-atstart=no --callgrind-out-file="$work/cg" "$build/bench/replay" "$1" --once \
		>"$work/counted" 2>"$work/errors" || { cat "$work/errors" >&2; return 1; }
	for f in "$work"/cg*; do
		name=$(sed -n 's/^desc: Trigger: Client Request: //p' "$f")
		total=$(sed -n 's/^\(summary\|totals\): //p' "$f" | head -n 1)
		[ -z "$name" ] || printf '%s\t%s\n' "$name" "$total" >>"$work/count"
	done
}

if [ $mode = instructions ]; then
	"$build/bin/traces" synth --preset qwen3-next-80b --tokens 100 --seed 1 --tail none --quiet -o "$work/short.gmt"
	count "$work/short.gmt"
	printf '# %s %s, libzstd %s, glibc %s, %s, %s\n' "$(uname -m)" "$(${CC:-cc} --version | head -n 1)" \
		"$(zstd --version | sed 's/.*v\([0-9.]*\).*/\1/')" "$(getconf GNU_LIBC_VERSION | cut -d' ' -f2)" "$(valgrind --version)" "$vectors"
	awk -F '\t' 'NR == FNR { count[$1] = $2; next } $1 in count { printf "%s\t%.2f\n", $1, count[$1] / $2 }' "$work/count" "$work/counted"
	exit 0
fi

"$build/bin/traces" synth --preset qwen3-next-80b --tokens "$tokens" --seed 1 --tail f16 --quiet -o "$work/full.gmt"
"$build/bin/traces" cut --tail none --quiet -o "$work/head.gmt" "$work/full.gmt"
"$build/bin/traces" cut --tokens 0..299 --quiet -o "$work/short.gmt" "$work/head.gmt"
"$build/bench/replay" "$work/head.gmt" >"$work/time"
"$build/bench/replay" "$work/full.gmt" --only "decode of head and tail" >>"$work/time"

: >"$work/count"
: >"$work/counted"
path=-
if command -v valgrind >/dev/null; then
	path="callgrind $(valgrind --version | sed 's/valgrind-//'), $vectors"
	count "$work/short.gmt"
fi

machine=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)
compiler=$(${CC:-cc} --version | head -n 1)
awk -F '\t' -v json=$json -v machine="$machine" -v compiler="$compiler" -v path="$path" -v tokens="$tokens" '
FILENAME ~ /count$/ { instructions[$1] = $2; next }
FILENAME ~ /counted$/ { units[$1] = $2; next }
{ order[++n] = $1 ; unit[$1] = $3; ns[$1] = $4 }
END {
	if (json == "yes") {
		printf "{\"machine\": \"%s\", \"compiler\": \"%s\", \"counted_by\": \"%s\", \"tokens\": %d, \"lines\": [", machine, compiler, path, tokens
	} else {
		printf "48 layers x 512 experts, top 10, 25 %% resident, %d synthetic tokens, best of 3\n%s; %s; instructions: %s\n\n", tokens, machine, compiler, path
		printf "%-36s %12s %14s\n", "", "ns", "instructions"
	}
	for (i = 1; i <= n; i++) {
		name = order[i]
		count = (name in instructions) && units[name] > 0 ? instructions[name] / units[name] : -1
		if (json == "yes")
			printf "%s{\"name\": \"%s\", \"unit\": \"%s\", \"ns\": %.3f, \"instructions\": %s}", (i > 1 ? ", " : ""), name, unit[name], ns[name], (count < 0 ? "null" : sprintf("%.2f", count))
		else
			printf "%-36s %12.2f %14s  %s %s\n", name, ns[name], (count < 0 ? "-" : sprintf("%.1f", count)),
				(unit[name] ~ /^a/ ? "an" : "a"), unit[name]
	}
	if (json == "yes") print "]}"
}' "$work/count" "$work/counted" "$work/time"
