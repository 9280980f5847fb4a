#!/bin/sh
# How the cost of a replay grows with tokens, layers and configurations: measures, fits a line to each (least squares), prints a table and, where gnuplot is installed, draws docs/scaling.svg. Called by `make scaling`.
#
#	scripts/scaling.sh [OUT.svg]
set -eu
build=${BUILD:-build}
out=${1:-docs/scaling.svg}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$build/bin/traces" synth --preset qwen3-next-80b --tokens 4000 --seed 1 --tail none --quiet -o "$work/all.gmt"

# measure KIND X TRACE SCENARIO [OPTIONS]: a line "X<tab>ms" in $work/KIND
measure() {
	kind=$1 x=$2 trace=$3 name=$4
	shift 4
	"$build/bench/replay" "$trace" --only "$name" "$@" |
		awk -F '\t' -v x="$x" '{ printf "%s\t%.4f\n", x, $2 * $4 / 1e6 }' >>"$work/$kind"
}

for n in 500 1000 1500 2000 2500 3000 3500 4000; do
	"$build/bin/traces" cut --tokens "0..$((n - 1))" --quiet -o "$work/cut.gmt" "$work/all.gmt"
	measure tokens "$n" "$work/cut.gmt" 'quality-first, time model'
done
"$build/bin/traces" cut --tokens 0..1999 --quiet -o "$work/cut.gmt" "$work/all.gmt"
for n in 6 12 18 24 30 36 42 48; do
	"$build/bin/traces" cut --layers "0..$((n - 1))" --quiet -o "$work/layers.gmt" "$work/cut.gmt"
	measure layers "$n" "$work/layers.gmt" 'quality-first, time model'
done
for n in 2 4 6 8 10 12 14 16; do
	measure configurations "$n" "$work/cut.gmt" '16 thresholds, time model' --points "$n"
done

printf '%-16s %12s %12s %8s\n' 'against' 'ms for one' 'ms at 0' 'R^2'
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
gnuplot -e "dir='$work'; out='$out'" scripts/scaling.gp
echo "picture: $out"
