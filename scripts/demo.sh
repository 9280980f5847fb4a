#!/bin/sh
# The main job on data that comes with the project: what would each policy cost? Called by `make demo`.
set -eu
build=${BUILD:-build}
out=$build/demo
PATH=$build/bin:$PATH
policies=fetch-all,rule-0.15,first-choice,quality-first,speed-first,substitute-all

mkdir -p "$out"
echo
echo "== A really trained model: recorded router logits of tinymoe, 24 texts with topic switches"
echo
sim sweep traces/samples/tinymoe.gmt --policy $policies --cache 12.5%,25%,50% \
	--csv "$out/tinymoe.csv" --html "$out/tinymoe.html"
echo
echo "== The shape of Qwen3-Next-80B-A3B (48 layers x 512 experts, top 10) on an RTX 3090: synthetic logits"
echo
traces synth --preset qwen3-next-80b --tokens 1000 --seed 1 --tail f16 --quiet -o "$out/qwen3-next-80b.gmt"
sim sweep "$out/qwen3-next-80b.gmt" --policy $policies --cache 12.5%,25%,50% \
	--csv "$out/qwen3-next-80b.csv" --html "$out/qwen3-next-80b.html"
if command -v gnuplot >/dev/null; then
	report plot "$out/qwen3-next-80b.csv" --figure pareto -o "$out/pareto.svg"
	report plot "$out/qwen3-next-80b.csv" --figure time -o "$out/time.svg"
fi
echo
echo "Results, one row a policy and cache: $out/tinymoe.csv and $out/qwen3-next-80b.csv"
[ -f "$out/pareto.svg" ] && echo "Figures for a paper: $out/pareto.svg and $out/time.svg"
echo "One policy in detail: $build/bin/sim run traces/samples/tinymoe.gmt --policy quality-first"
echo "The same to look at:  xdg-open $out/qwen3-next-80b.html"
