#!/bin/sh
# Runs every test program in BUILD/tests and BUILD/tests/llama one after the other and sums up cmocka's counts; the last line is
# "N passed, M failed" (", K skipped" if there are any). A program that dies counts as one failed test.
#
#   tests/run.sh [BUILD]              LLAMA=no leaves BUILD/tests/llama out
set -u

build=$(cd "${1:-build}" && pwd) || exit 1
export GM_BUILD="$build"
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT

# count WORD: the tests that the program's summary counts under WORD
count() {
	sed -n "s/^\[ *$1 *\] \([0-9][0-9]*\) test.*/\1/p" "$log/output" | awk '{ n += $1 } END { print n + 0 }'
}

passed=0
failed=0
skipped=0
for program in "$build"/tests/test_* "$build"/tests/llama/test_*; do
	case $program in
	*.[do]) continue ;;
	*/llama/*) [ "${LLAMA:-}" != no ] || continue ;;
	esac
	[ -x "$program" ] || continue
	name=${program##*/}
	# Not a pipe into tee: its exit status would hide the program's.
	# Nor the terminal: a program that reads it by mistake must end.
	timeout 1200 "$program" </dev/null >"$log/output" 2>&1
	status=$?
	echo "== $name"
	grep -v '^\[ RUN ' "$log/output"
	bad=$(count FAILED)
	if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then
		echo "[  FAILED  ] $name ended with status $status"
		bad=1
	fi
	if [ "$bad" -gt 0 ]; then
		failures="${failures:-} $name"
	fi
	passed=$((passed + $(count PASSED)))
	failed=$((failed + bad))
	skipped=$((skipped + $(count SKIPPED)))
done

if [ $((passed + failed)) -eq 0 ]; then
	echo "no test programs in $build/tests" >&2
	failed=1
fi
[ -z "${failures:-}" ] || echo "failed in:$failures"
if [ "$skipped" -gt 0 ]; then
	echo "$passed passed, $failed failed, $skipped skipped"
else
	echo "$passed passed, $failed failed"
fi
[ "$failed" -eq 0 ]
