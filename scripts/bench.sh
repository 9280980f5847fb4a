#!/bin/sh
# What a replay costs on this machine: ns and, where valgrind is installed, instructions a lookup. Called by `make bench`.
#
#	scripts/bench.sh [--json] [--tokens N]
set -eu
build=${BUILD:-build}
json=no
tokens=2000
while [ $# -gt 0 ]; do
	case $1 in
	--json) json=yes ;;
	--tokens) shift; tokens=$1 ;;
	*) echo "bench: unknown option $1: --json or --tokens N" >&2; exit 2 ;;
	esac
	shift
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$build/bin/traces" synth --preset qwen3-next-80b --tokens "$tokens" --seed 1 --tail f16 --quiet -o "$work/full.gmt"
"$build/bin/traces" cut --tail none --quiet -o "$work/head.gmt" "$work/full.gmt"
"$build/bin/traces" cut --tokens 0..299 --quiet -o "$work/short.gmt" "$work/head.gmt"
"$build/bench/replay" "$work/head.gmt" >"$work/time"
"$build/bench/replay" "$work/full.gmt" --only "decode of head and tail" >>"$work/time"

# Instructions: one round under callgrind, one dump a line of the table.
: >"$work/count"
: >"$work/counted"
path=-
if command -v valgrind >/dev/null; then
	# valgrind 3.19 knows no AVX-512: the scans of 16 keys run plain there
	path="callgrind $(valgrind --version | sed 's/valgrind-//')"
	valgrind --tool=callgrind --collect-atstart=no --callgrind-out-file="$work/cg" "$build/bench/replay" "$work/short.gmt" --once \
		>"$work/counted" 2>/dev/null
	for f in "$work"/cg*; do
		name=$(sed -n 's/^desc: Trigger: Client Request: //p' "$f")
		total=$(sed -n 's/^\(summary\|totals\): //p' "$f" | head -n 1)
		[ -n "$name" ] && printf '%s\t%s\n' "$name" "$total" >>"$work/count"
	done
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
			printf "%-36s %12.2f %14s  a %s\n", name, ns[name], (count < 0 ? "-" : sprintf("%.1f", count)), unit[name]
	}
	if (json == "yes") print "]}"
}' "$work/count" "$work/counted" "$work/time"
