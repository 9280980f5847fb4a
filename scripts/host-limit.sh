#!/bin/sh
# A model that does not fit into host memory: `engine` against llama.cpp without a cache, which maps the file and leaves it to the system which
# pages stay. Each runs alone in a control group with the same memory limit, in which the page cache it fills counts; in turns, the file's
# pages dropped before each. Decoding only, a warm-up left out. Prints times and their ratios as they are.
#
#   BUILD=build MODEL=big.gguf sh scripts/host-limit.sh
#
# Needs root, since it makes a control group (of memory, version 1 or 2); without, it says "skipped". The CPU computes, so slots and host cache
# lie in the same memory: they share what the limit leaves, half each ("half"), or nearly all of it is slots ("slots"). llama.cpp also runs
# with room for all ("roomy"). From the environment:
#
#   MODEL     a GGUF of a Mixture-of-Experts model, on a real disk
#   PERCENT   the limit, of the file's size [60]
#   BESIDE    MB of it that are not for experts [128]
#   TOKENS, WARMUP   tokens that are decoded, and how many of them are not counted [128, 64]
#   ROUNDS    [3]
#
# What a mapped file costs depends on how far the system reads ahead (read_ahead_kb of the disk's queue in /sys/block).
set -eu

bin=$(cd "${BUILD:-build}/bin" && pwd)
model=${MODEL:?a GGUF file}
tokens=${TOKENS:-128}
rounds=${ROUNDS:-3}
limit=$(($(wc -c <"$model") * ${PERCENT:-60} / 100))
experts=$((limit - ${BESIDE:-128} * 1000000))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

skip() {
	echo "host-limit: skipped: $1"
	exit 0
}

if [ -f /sys/fs/cgroup/memory/memory.limit_in_bytes ]; then
	group=/sys/fs/cgroup/memory/gatemass.$$ limit_file=memory.limit_in_bytes peak_file=memory.max_usage_in_bytes
elif grep -qw memory /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null; then
	group=/sys/fs/cgroup/gatemass.$$ limit_file=memory.max peak_file=memory.peak
else
	skip "no control group of memory: /sys/fs/cgroup"
fi

# open_group BYTES: for one run; what an earlier one left in memory does not count in it
open_group() {
	mkdir "$group" 2>/dev/null && echo "$1" >"$group/$limit_file" 2>/dev/null || return 1
	[ ! -f "$group/memory.swap.max" ] || echo 0 >"$group/memory.swap.max"
}
close_group() {
	[ ! -f "$group/memory.force_empty" ] || echo 0 >"$group/memory.force_empty"
	rmdir "$group"
}
trap 'rm -rf "$work"; [ ! -d "$group" ] || close_group' EXIT
open_group "$limit" || skip "a control group cannot be made: $group: root can"
close_group

sed -n 's/.*"text": "\([^"]*\)".*/\1/p' tests/tinymoe/prompts.jsonl | head -n 3 >"$work/text"

# run NAME BYTES BENCH_OPTION...: one turn under this limit; a line "NAME µs peak slots fetches-a-token mass" in rounds
run() {
	name=$1 bytes=$2
	shift 2
	dd if="$model" iflag=nocache count=0 status=none
	open_group "$bytes"
	# shellcheck disable=SC2016
	status=0
	sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$bin/engine" bench -m "$model" -f "$work/text" -t 1 --no-repack --quiet \
		--tokens "$tokens" --warmup "${WARMUP:-64}" --rounds 1 --csv "$work/csv" "$@" >"$work/log" 2>&1 || status=$?
	peak=$(cat "$group/$peak_file" 2>/dev/null || echo 0)
	close_group
	[ "$status" -eq 0 ] || {
		echo "host-limit: $name ended with $status: $(tail -n 1 "$work/log")" >&2
		exit 1
	}
	awk -F, -v name="$name" -v peak="$peak" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } NR == 2 {
		print name, $at["measured_us"], peak, $at["cache_slots"] + 0, $at["tokens"] ? $at["fetches"] / $at["tokens"] : 0,
			$at["substituted_mass"] + 0 }' "$work/csv" >>"$work/rounds"
}

half="--vram-experts $((experts / 2)) --host-experts $((experts / 2))"
most="--vram-experts $((experts - experts / 20)) --host-experts $((experts / 20))"
for _ in $(seq "$rounds"); do
	run llama.cpp "$limit" --only stock
	run llama.cpp,roomy "$((4 * limit))" --only stock
	for policy in fetch-all rule-0.15; do
		# shellcheck disable=SC2086
		run "$policy,half" "$limit" --only policies --experts read $half --policy "$policy"
		# shellcheck disable=SC2086
		run "$policy,slots" "$limit" --only policies --experts read $most --policy "$policy"
	done
done

echo "limit $((limit / 1000000)) MB, model $(($(wc -c <"$model") / 1000000)) MB, $rounds rounds; as many times as fast as llama.cpp"
awk '
function sort(v, n,    i, j, t) {
	for (i = 2; i <= n; i++)
		for (j = i; j > 1 && v[j] < v[j - 1]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
}
function median(v, n) { return (v[int((n + 1) / 2)] + v[int(n / 2) + 1]) / 2 }
{
	if (!($1 in n)) order[++n_name] = $1
	us[$1, ++n[$1]] = $2; slots[$1] = $4; fetches[$1] = $5; mass[$1] = $6
	if ($3 > peak[$1]) peak[$1] = $3
}
END {
	printf "%-18s %5s %9s %9s %6s %9s %21s %6s %15s\n", "", "slots", "MB, most", "fetch/tok", "mass %", "us/token", "(least - most)",
		"times", "(least - most)"
	for (i = 1; i <= n_name; i++) {
		name = order[i]
		for (r = 1; r <= n[name]; r++) { time[r] = us[name, r]; ratio[r] = us[order[1], r] / us[name, r] }
		sort(time, n[name]); sort(ratio, n[name])
		printf "%-18s %5d %9.0f %9.2f %6.2f %9.0f (%8.0f - %8.0f) %6.2f (%5.2f - %5.2f)\n", name, slots[name], peak[name] / 1e6,
			fetches[name], 100 * mass[name], median(time, n[name]), time[1], time[n[name]], median(ratio, n[name]), ratio[1],
			ratio[n[name]]
	}
}' "$work/rounds"

# What the rule's substitutes cost in quality, with as many slots.
awk '/^rule/ { print $4 }' "$work/rounds" | sort -un | while read -r slots; do
	"$bin/emulate" -m "$model" -f "$work/text" -t 1 --no-repack --ubatch 1 --max-tokens "$tokens" --quiet --policy rule-0.15 --cache "$slots"
done
