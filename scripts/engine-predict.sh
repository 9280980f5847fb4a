#!/bin/sh
# Does `sim` predict what `engine` takes? A hardware profile is measured and frozen; then a text is decoded under many settings, in turns, and
# each of them is recorded by `emulate` and replayed with that profile. Prints both times a token and a verdict, by which it ends with 0 or 1:
#
#   - with the measured spread: every prediction lies between the least measured time less LIMIT per cent and the greatest and LIMIT per cent;
#   - order: of every two settings whose measured times are more than 10 per cent apart, the slower one was predicted to be slower. Where it was
#     not slower in every round, the measurement does not tell which of them is: such pairs are only counted;
#   - work: where nothing is copied in the background, the engine fetched as often as sim counts.
#
#   BUILD=build sh scripts/engine-predict.sh [ENGINE_OPTION...]
#
# Engine options are those of the link and the disk (--link-gb-s 3). The machine should have a core to spare. From the environment:
#
#   MODEL     a GGUF of a Mixture-of-Experts model [tinymoe, the tests' model]
#   SLOTS     sizes of the cache [16,32,48]
#   POLICIES  presets [fetch-all,rule-0.15,first-choice,quality-first,speed-first]
#   TOKENS, WARMUP   tokens that are decoded, and how many of them are not counted [320, 64]
#   ROUNDS    [7]
#   LIMIT     per cent [10]
#   CSV       a file to write the table to
set -eu

bin=${BUILD:-build}/bin
model=${MODEL:-tests/tinymoe/tinymoe-F16.gguf}
slots=${SLOTS:-16,32,48}
policies=${POLICIES:-fetch-all,rule-0.15,first-choice,quality-first,speed-first}
tokens=${TOKENS:-320}
warmup=${WARMUP:-64}
rounds=${ROUNDS:-7}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

sed -n 's/.*"text": "\([^"]*\)".*/\1/p' tests/tinymoe/prompts.jsonl | head -n 3 >"$work/text"
hook="-m $model -f $work/text -t 1 --no-repack --quiet"

# measure OPTIONS...: a bench of the policies alone
measure() {
	# shellcheck disable=SC2086
	"$bin/engine" bench $hook --only policies --tokens "$tokens" --warmup "$warmup" "$@"
}

# profile FILE ENGINE_OPTION...: everything resident, and waiting for copies
profile() {
	file=$1
	shift
	measure "$@" --rounds "$((rounds + 4))" --evict nop,lru --cache 40 --profile "$file" >"$work/log"
}

profile "$work/profile.json" "$@"
measure "$@" --rounds "$rounds" --policy "$policies" --cache "$slots" --csv "$work/measured.csv" >"$work/log"

profile "$work/afterwards.json" "$@"

# A machine that is faster or slower by now is why predictions are off.
awk '/"[a-z_]*_us":[ \t]*[0-9]/ {
	gsub(/[",:]/, "")
	if (NR == FNR) before[$1] = $2
	else if ($1 in before && before[$1] > 0) printf "%-16s %8.1f, measured again afterwards %8.1f\n", $1, before[$1], $2
}' "$work/profile.json" "$work/afterwards.json"

# In the order of the settings: slots, miss rule, admission, fetches, µs (median, least, most, those of each round).
awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
	{ print $at["cache_slots"], $at["miss"], $at["admit"], $at["fetches"], $at["measured_us"], $at["measured_us_min"], $at["measured_us_max"], $at["measured_us_rounds"] }' \
	"$work/measured.csv" >"$work/measured"

# number NAME: of what sim said
number() {
	sed -n 's/.*"'"$1"'":[[:space:]]*\([0-9.]*\).*/\1/p' "$work/sim.json"
}

while read -r n_slot miss admit measured; do
	settings="--cache $n_slot --evict lfu --miss $miss --admit $admit"
	# shellcheck disable=SC2086
	"$bin/emulate" $hook --ubatch 1 --max-tokens "$tokens" $settings --record "$work/trace.gmt" >"$work/log"
	# shellcheck disable=SC2086
	"$bin/sim" run "$work/trace.gmt" --warmup "$warmup" --hw "$work/profile.json" $settings --json >"$work/sim.json"
	echo "$n_slot $miss $admit $measured $(number fetches) $(number time_per_token_us)"
done <"$work/measured" >"$work/both"

awk -v limit="${LIMIT:-10}" -v csv="${CSV:-}" -f "$(dirname "$0")/engine-predict.awk" "$work/both"
