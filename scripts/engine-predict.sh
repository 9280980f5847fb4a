#!/bin/sh
# Does `sim` predict what `engine` takes? Decodes a text under twelve settings with a slowed-down link, with a profile that was measured
# before, and prints both times a token. About two minutes; the machine should have a core to spare.
#
#   BUILD=build sh scripts/engine-predict.sh [MODEL.gguf [LINK_LATENCY_US [ENGINE_OPTION...]]]
#
# A disk tier: sh scripts/engine-predict.sh tests/tinymoe/tinymoe-F16.gguf 500 --experts read --host-experts 8MB --disk-latency-us 3000
set -eu

bin=${BUILD:-build}/bin
model=${1:-tests/tinymoe/tinymoe-F16.gguf}
latency=${2:-2000}
[ $# -gt 2 ] && shift 2 || shift $#
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
common="-t 1 --no-repack --tokens 128 --warmup 32 --quiet --link-latency-us $latency $*"

sed -n 's/.*"text": "\([^"]*\)".*/\1/p' tests/tinymoe/prompts.jsonl | head -n 3 >"$work/text"
# shellcheck disable=SC2086
"$bin/engine" bench -m "$model" -f "$work/text" $common --rounds 5 --evict nop,lru --cache 40 --profile "$work/profile.json"
sed -n 's/.*"\(.*_us\)":[[:space:]]*\([0-9][0-9.]*\).*/\1 \2/p' "$work/profile.json"
# shellcheck disable=SC2086
"$bin/engine" bench -m "$model" -f "$work/text" $common --rounds 3 --evict lfu --cache 16,32,64,96 \
	--miss fetch,threshold:0.15,first-choice --csv "$work/measured.csv" >/dev/null

# column NAME: its number in the CSV
column() {
	head -n 1 "$work/measured.csv" | tr ',' '\n' | grep -nx "$1" | cut -d : -f 1
}
slots=$(column cache_slots) miss=$(column miss) fetches=$(column fetches)
median=$(column measured_us) least=$(column measured_us_min) most=$(column measured_us_max)

printf '%-6s %-16s %8s %8s   %9s %19s %9s %7s\n' slots 'miss rule' fetches 'of sim' measured '(least - most)' predicted off
tail -n +3 "$work/measured.csv" | while IFS= read -r row; do
	field() {
		printf '%s\n' "$row" | cut -d , -f "$1"
	}
	settings="--cache $(field "$slots") --evict lfu --miss $(field "$miss")"
	# shellcheck disable=SC2086
	"$bin/emulate" -m "$model" -f "$work/text" -t 1 --no-repack --ubatch 1 --max-tokens 128 --quiet $settings \
		--record "$work/trace.gmt" >/dev/null
	# shellcheck disable=SC2086
	"$bin/sim" run "$work/trace.gmt" --warmup 32 --hw "$work/profile.json" $settings --json >"$work/sim.json"
	counted=$(sed -n 's/.*"fetches":[[:space:]]*\([0-9]*\).*/\1/p' "$work/sim.json")
	predicted=$(sed -n 's/.*"time_per_token_us":[[:space:]]*\([0-9.]*\).*/\1/p' "$work/sim.json")
	awk -v slots="$(field "$slots")" -v miss="$(field "$miss")" -v fetches="$(field "$fetches")" -v counted="$counted" \
		-v m="$(field "$median")" -v least="$(field "$least")" -v most="$(field "$most")" -v p="$predicted" 'BEGIN {
		printf "%-6d %-16s %8d %8d   %9.0f (%8.0f - %7.0f) %9.0f %+6.1f%%\n", slots, miss, fetches, counted, m, least, most, p, 100 * (p / m - 1) }'
done
