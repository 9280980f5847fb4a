#!/bin/sh
# Every finding of the paper that a model here can test, tried on it: runs emulate, sim and report, and writes docs/findings.md. Called by
# `make findings`, from the root of the project. What it takes from the environment:
#
#   BUILD     the build folder
#   OUT       where what is made on the way stays [BUILD/findings]
#   MODEL     a GGUF of a Mixture-of-Experts model [tinymoe, the tests' model]
#   TEXTS     a text, or texts with labels as JSON lines (.jsonl: see emulate --prompts), no comma in the path
#             [72 texts of five topics]
#   PAGE      the page to write [docs/findings.md]
#   TOKENS    end the texts after so many
#   THREADS   CPU threads [1]
#   SEED, SAMPLES   of the bootstrap [1, 2000]
set -eu
build=${BUILD:-build}
model=${MODEL:-tests/tinymoe/tinymoe-F16.gguf}
texts=${TEXTS:-tests/tinymoe/prompts.jsonl}
page=${PAGE:-docs/findings.md}
seed=${SEED:-1}
out=${OUT:-$build/findings}
PATH=$(cd "$build/bin" && pwd):$PATH
presets=fetch-all,rule-0.15,first-choice,quality-first,speed-first,substitute-all

rm -rf "$out"
mkdir -p "$out"
case $texts in
*.jsonl) kind=--prompts ;;
*) kind=--file ;;
esac

# run NAME OPTIONS...: an emulation of a grid, into NAME.csv and NAME-texts.csv
run() {
	name=$1
	shift
	echo "findings: emulate $*" >&2
	emulate --model "$model" "$kind" "$texts" --threads "${THREADS:-1}" ${TOKENS:+--max-tokens "$TOKENS"} --quiet \
		--csv "$out/$name.csv" --per-sequence "$out/$name-texts.csv" "$@" >>"$out/log"
}

# replay NAME OPTIONS...: the same grid on the recording of the undisturbed model, into NAME-open.csv
replay() {
	name=$1
	shift
	sim sweep "$out/base.gmt" --hw instant --quiet --csv "$out/$name-open.csv" "$@" >>"$out/log"
}

# both NAME OPTIONS...
both() {
	run "$@"
	replay "$@"
}

# value FILE COLUMN: of the first row (these files have no quoted field with a comma before the columns that are asked for)
value() {
	awk -F, -v column="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == column) at = i } NR == 2 { print $at }' "$1"
}

# --- the model as it is, recorded; the two cache sizes ---

run base --policy fetch-all --cache 25% --record "$out/base.gmt"
n_text=$(awk 'NR > 1 { n++ } END { print n / 2 }' "$out/base-texts.csv") # each is there without a policy and with one
if [ "$n_text" -lt 2 ]; then
	echo "findings: too few texts: $texts: intervals need two at least, and say little below twenty" >&2
	exit 2
fi
n_expert=$(value "$out/base.csv" n_expert)
quarter=$(awk -v n="$n_expert" 'BEGIN { print int(n / 4 + 0.5) }')

# The paper's regime: the size at which the 0.15 rule substitutes nearest to 8 % of the picks, by replay; at most 128 sizes are tried.
step=$(awk -v n="$n_expert" 'BEGIN { s = int((n - n / 4) / 128); print (s < 1 ? 1 : s) }')
replay sizes --policy rule-0.15 --cache "$quarter..$n_expert/$step"
regime=$(awk -F, '
	NR == 1 { for (i = 1; i <= NF; i++) c[$i] = i; next }
	{ off = $c["substituted_rate"] - 0.08; off = off < 0 ? -off : off
	  if (best == "" || off < least) { best = $c["cache_slots"]; least = off } }
	END { print best }' "$out/sizes-open.csv")
sizes=$quarter
[ "$regime" = "$quarter" ] || sizes=$quarter,$regime

# --- the grid: presets, other thresholds, other evictions, nothing protected, and the same mass made up otherwise ---

run presets --policy $presets --cache "$sizes" --per-token "$out/tokens.csv"
replay presets --policy $presets --cache "$sizes"
both thresholds --miss threshold:0.05,threshold:0.1,threshold:0.2,threshold:0.3 --evict lfu --admit fetch,background:0.5 --cache "$sizes"
both unprotected --miss substitute --evict lfu --admit background:0.5 --cache "$sizes"
both lru --miss threshold:0.15,first-choice --evict lru --cache "$sizes"
for size in $(echo "$sizes" | tr , ' '); do
	# An eighth and a quarter of what the 0.15 rule gives away at this size: few heavy picks must still come up to it.
	masses=$(awk -F, -v size="$size" '
		NR == 1 { for (i = 1; i <= NF; i++) c[$i] = i; next }
		$c["cache_slots"] == size { printf "%.3f %.3f", $c["substituted_mass"] / 8, $c["substituted_mass"] / 4; exit }
		' "$out/sizes-open.csv")
	rules=
	for mass in $masses; do
		rules="$rules${rules:+,}compose:heavy:$mass,compose:random:$mass,compose:light:$mass"
	done
	both "compose-$size" --miss "$rules" --evict lfu --cache "$size"
done

# --- what can be said of it ---

set --
for name in presets thresholds unprotected lru; do
	set -- "$@" "$out/$name.csv" "$out/$name-texts.csv" "$out/$name-open.csv"
done
for size in $(echo "$sizes" | tr , ' '); do
	set -- "$@" "$out/compose-$size.csv" "$out/compose-$size-texts.csv" "$out/compose-$size-open.csv"
done
report stats "$@" "$out/tokens.csv" --seed "$seed" ${SAMPLES:+--samples "$SAMPLES"} --csv "$out/stats.csv" >"$out/stats.txt"

awk -v model="$(value "$out/base.csv" model)" -v texts="$texts" -v tokens="$(value "$out/presets-open.csv" tokens)" \
	-v baseline="$(value "$out/base.csv" perplexity)" -v seed="$seed" -v samples="${SAMPLES:-2000}" \
	-v program="$(emulate --version | awk '{ printf "%s%s", n++ ? ", " : "", $0 }')" -v command="make findings${MODEL:+ MODEL=$MODEL}${TEXTS:+ TEXTS=$TEXTS}" \
	-v n_expert="$n_expert" -f scripts/findings.awk "$out/stats.csv" >"$out/findings.md"
mv "$out/findings.md" "$page"
echo "findings: $page; the numbers: $out/stats.csv, for people $out/stats.txt" >&2
