#!/bin/sh
# How the cost of a replay grows with tokens, layers and configurations: counts instructions with callgrind (without valgrind: measures ms), fits a line
# to each (least squares), prints a table and, where gnuplot is installed, draws docs/scaling.svg. Called by `make scaling`.
#
#	scripts/scaling.sh [OUT.svg]
set -eu
build=${BUILD:-build}
out=${1:-docs/scaling.svg}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

tokens=400
unit='million instructions'
if ! command -v valgrind >/dev/null; then
	tokens=4000
	unit=ms
fi
"$build/bin/traces" synth --preset qwen3-next-80b --tokens $tokens --seed 1 --tail none --quiet -o "$work/all.gmt"

# cost TRACE SCENARIO [OPTIONS]: what replaying costs, decoding left out
cost() {
	trace=$1 name=$2
	shift 2
	if [ "$unit" = ms ]; then
		"$build/bench/replay" "$trace" --only "$name" "$@" | awk -F '\t' '{ printf "%.6f\n", $2 * $4 / 1e6 }'
		return
	fi
	rm -f "$work"/cg*
	valgrind --tool=callgrind --collect-atstart=no --callgrind-out-file="$work/cg" "$build/bench/replay" "$trace" --once \
		--only "$name" "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
	grep -l '^desc: Trigger: Client Request' "$work"/cg* | xargs sed -n 's/^\(summary\|totals\): //p' | head -n 1 |
		awk '{ printf "%.6f\n", $1 / 1e6 }'
}

# measure KIND X TRACE SCENARIO [OPTIONS]: a line "X<tab>cost" in $work/KIND
measure() {
	kind=$1 x=$2
	shift 2
	printf '%s\t%s\n' "$x" "$(cost "$@")" >>"$work/$kind"
}

for i in 1 2 3 4 5 6 7 8; do
	n=$((tokens * i / 8))
	"$build/bin/traces" cut --tokens "0..$((n - 1))" --quiet -o "$work/cut.gmt" "$work/all.gmt"
	measure tokens "$n" "$work/cut.gmt" 'quality-first, time model'
done
"$build/bin/traces" cut --tokens "0..$((tokens / 2 - 1))" --quiet -o "$work/cut.gmt" "$work/all.gmt"
for n in 6 12 18 24 30 36 42 48; do
	"$build/bin/traces" cut --layers "0..$((n - 1))" --quiet -o "$work/layers.gmt" "$work/cut.gmt"
	measure layers "$n" "$work/layers.gmt" 'quality-first, time model'
done
for n in 2 4 6 8 10 12 14 16; do
	measure configurations "$n" "$work/cut.gmt" '16 thresholds, time model' --points "$n"
done

echo "$unit"
printf '%-16s %12s %12s %8s\n' 'against' 'for one' 'at 0' 'R^2'
for kind in tokens layers configurations; do
	awk -F '\t' -v kind=$kind -v fit="$work/$kind.fit" '
	{ sx += $1; sy += $2; sxx += $1 * $1; sxy += $1 * $2; syy += $2 * $2 }
	END {
		xx = sxx - sx * sx / NR; xy = sxy - sx * sy / NR; yy = syy - sy * sy / NR
		slope = xy / xx; start = (sy - slope * sx) / NR
		printf "%-16s %12.5f %12.3f %8.5f\n", kind, slope, start, xy * xy / (xx * yy)
		printf "%.8f %.8f\n", start, slope > fit
	}' "$work/$kind"
done

command -v gnuplot >/dev/null || { echo "no gnuplot: no picture"; exit 0; }
gnuplot -e "dir='$work'; out='$out'; unit='$unit'" scripts/scaling.gp
echo "picture: $out"
