#!/bin/sh
# What only a real GPU can show (`make check-gpu`): the capture's tests against CUDA's runtime, a recording of our own program and
# one of llama.cpp, what capturing costs, a hardware profile that sim takes, and the engine: its text with and without evictions, its times beside
# those of llama.cpp, and beside what sim predicts.
#
#   BUILD=build MODEL=FILE.gguf scripts/check-gpu.sh      MODEL: default tests/tinymoe's
#
# N_CPU_MOE: layers whose experts llama.cpp keeps in host memory in the comparison [4, of tinymoe's 6: about the engine's 25 %].
#
# Exit status: 0 all was checked and holds; 1 something failed; 77 there is no GPU, nothing was checked. What is left out is said.
set -u

BUILD=${BUILD:-build}
MODEL=${MODEL:-tests/tinymoe/tinymoe-F16.gguf}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
left_out=

skip() {
	echo "check-gpu: SKIPPED, nothing was checked: $*" >&2
	exit 77
}

# check NAME COMMAND...: runs it, and keeps going
check() {
	name=$1
	shift
	echo "== $name"
	if "$@"; then
		return 0
	fi
	echo "check-gpu: FAILED: $name" >&2
	failed=$((failed + 1))
	return 1
}

leave_out() {
	echo "== left out: $*"
	left_out="$left_out
  $*"
}

command -v nvidia-smi >/dev/null 2>&1 || skip 'no GPU here: nvidia-smi is missing, so NVIDIA'\''s driver is'
nvidia-smi -L >"$work/gpus" 2>&1 || skip "no GPU here: nvidia-smi says: $(head -n 1 "$work/gpus")"
cat "$work/gpus"
make --no-print-directory BUILD="$BUILD" cuda || skip 'a GPU, but no nvcc that works: make cuda'

# --- capturing ---

check 'capture tests on the real runtime' "$BUILD/cuda/test_capture"
if command -v compute-sanitizer >/dev/null 2>&1; then
	check 'the same under compute-sanitizer' compute-sanitizer --error-exitcode 1 --leak-check full "$BUILD/cuda/test_capture"
else
	leave_out 'compute-sanitizer: not installed'
fi
check 'example: a router as a cuBLAS product' "$BUILD/cuda/cublas_router" "$work/example.gmt" &&
	check 'its trace' "$BUILD/bin/traces" verify "$work/example.gmt"
check 'what capturing costs a forward pass of cuBLAS products' "$BUILD/cuda/bench_capture" 21

# --- a hardware profile ---

check 'hardware profile' "$BUILD/bin/probe-machine" --name check-gpu --disk . -o "$work/profile.json" && cat "$work/profile.json" &&
	check 'sim takes it' "$BUILD/bin/sim" run traces/samples/tinymoe.gmt --hw "$work/profile.json" --cache 25%

# --- llama.cpp ---

# record MODE OUT: a recording; its tokens/s
record() {
	"$BUILD/bin/record-traces" -m "$MODEL" --prompts tests/tinymoe/prompts.jsonl --max-tokens 4096 --device-capture "$1" \
		-o "$2" 2>"$work/log" || {
		cat "$work/log" >&2
		return 1
	}
	sed -n 's/.*(\([0-9]*\) tokens\/s).*/\1/p' "$work/log"
}

median() {
	sort -n | awk '{ v[NR] = $1 } END { print NR ? v[int((NR + 1) / 2)] : "-" }'
}

# The trace must be the same either way; the header tells the same too.
compare_paths() {
	for round in 1 2 3 4 5; do
		for mode in off on; do
			rm -f "$work/$mode.gmt"
			record "$mode" "$work/$mode.gmt" >>"$work/speed-$mode" || return 1
		done
		cmp "$work/off.gmt" "$work/on.gmt" || return 1
	done
	echo "record-traces, tokens/s, medians of $round, turn by turn:"
	printf '  host path    %s\n  device path  %s\n' "$(median <"$work/speed-off")" "$(median <"$work/speed-on")"
}

verify_device_path() {
	rm -f "$work/v.gmt"
	"$BUILD/bin/record-traces" -m "$MODEL" --prompts tests/tinymoe/prompts.jsonl --max-tokens 2048 --device-capture on --verify \
		-o "$work/v.gmt"
}

# --- the engine ---

# engine_text FILE OPTIONS...
engine_text() {
	file=$1
	shift
	"$BUILD/bin/engine" run -m "$MODEL" -p 'Once upon a time' -n 60 --quiet "$@" >"$file" 2>"$work/log" || {
		cat "$work/log" >&2
		return 1
	}
}

# Whatever is evicted, decoding must give the text that it gives when everything is resident.
engine_is_exact() {
	engine_text "$work/resident" --evict nop || return 1
	for evict in lru lfu fifo; do
		engine_text "$work/text" --cache 25% --evict $evict || return 1
		cmp "$work/resident" "$work/text" || return 1
	done
}

engine_times() {
	sed -n 's/.*"text": "\([^"]*\)".*/\1/p' tests/tinymoe/prompts.jsonl | head -n 3 >"$work/prompt"
	set -- -m "$MODEL" -f "$work/prompt" --tokens 192 --warmup 32 --quiet
	"$BUILD/bin/engine" bench "$@" --only stock &&
		"$BUILD/bin/engine" bench "$@" --only stock --n-cpu-moe "${N_CPU_MOE:-4}" &&
		"$BUILD/bin/engine" bench "$@" --only policies --cache 25% --policy fetch-all,rule-0.15,quality-first,speed-first
}

# --- what needs llama.cpp's CUDA device ---

if [ ! -x "$BUILD/bin/record-traces" ]; then
	leave_out 'record-traces: it is not built (LLAMA_VARIANT=cuda make llama)'
elif [ ! -f "$MODEL" ]; then
	leave_out "record-traces: no model: $MODEL"
elif ! "$BUILD/bin/record-traces" --help 2>&1 | grep -q device-capture; then
	leave_out 'record-traces: it has no --device-capture'
elif "$BUILD/bin/record-traces" -m "$MODEL" -o "$work/a.gmt" --max-tokens 8 --prompts tests/tinymoe/prompts.jsonl 2>&1 | tee "$work/log" |
	grep -q '^CUDA0:'; then
	check 'recording on the device, verified' verify_device_path
	check 'both paths give the same trace' compare_paths
	if [ -x "$BUILD/tests/llama/bench_record" ]; then
		check 'no recording against recording' "$BUILD/tests/llama/bench_record" "$MODEL" 2048 7
	else
		leave_out 'no recording against recording: make BUILD='"$BUILD $BUILD"'/tests/llama/bench_record'
	fi
	check 'engine: the text does not depend on evictions' engine_is_exact
	check 'engine: times, llama.cpp with all experts on the GPU, with those of some layers in host memory, and the engine' engine_times
	check 'engine: what sim predicts' env BUILD="$BUILD" MODEL="$MODEL" sh scripts/engine-predict.sh
else
	cat "$work/log"
	leave_out 'record-traces: its llama.cpp has no CUDA device (LLAMA_VARIANT=cuda make llama)'
fi

[ -z "$left_out" ] || echo "Left out:$left_out"
if [ "$failed" -gt 0 ]; then
	echo "check-gpu: $failed checks FAILED" >&2
	exit 1
fi
echo "check-gpu: all that was run holds"
