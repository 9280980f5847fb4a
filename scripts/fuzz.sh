#!/bin/sh
# Runs fuzzers one after the other, each for some seconds, on the corpus in tests/fuzz/corpus/NAME. A crash is kept beside it.
#
#   scripts/fuzz.sh SECONDS FUZZER...
set -eu

seconds=$1
shift
for fuzzer in "$@"; do
	name=${fuzzer##*/fuzz_}
	seeds=tests/fuzz/corpus/$name
	grown=${fuzzer%/*}/corpus-$name # new finds go here, not into the tree
	mkdir -p "$grown" "${fuzzer%/*}/crash"
	[ -d "$seeds" ] || seeds=
	echo "== $name"
	# shellcheck disable=SC2086
	"$fuzzer" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
		-artifact_prefix="${fuzzer%/*}/crash/$name-" "$grown" $seeds
done
