#!/bin/sh
# Installs what the build needs and is missing, with apt-get where there is one; elsewhere prints what to install.
#
#   scripts/deps.sh            what the build and `make demo` need, and make itself
#   scripts/deps.sh test       also what `make test` needs to count instructions, and to fetch llama.cpp (not with LLAMA=no or LLAMA_DIR=TREE)
#   scripts/deps.sh check      also what `make check` and `make fuzz` need
#
# What counts is whether a program can be compiled with a library, not which package it came from. A second run does nothing.
set -eu

CC=${CC:-cc}
probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT

has_tool() {
	command -v "$1" >/dev/null 2>&1
}

# has_library HEADER NAME: whether a program with this header compiles and links
has_library() {
	printf '#include <setjmp.h>\n#include <stdarg.h>\n#include <stddef.h>\n#include <%s>\nint main(void){return 0;}\n' "$1" \
		>"$probe/probe.c"
	# Flags are lists of words.
	# shellcheck disable=SC2086
	$CC ${CPPFLAGS:-} ${CFLAGS:-} -o "$probe/probe" "$probe/probe.c" ${LDFLAGS:-} "-l$2" >"$probe/log" 2>&1
}

# Both lists hold what is missing: Debian's packages, and lines for people.
packages=
wanted=

missing() {
	packages="$packages $1"
	wanted="$wanted
  $2"
}

look() {
	packages=
	wanted=
	has_tool make || missing make 'GNU make 4'
	if printf 'int main(void){return 0;}' >"$probe/probe.c" && ! $CC -o "$probe/probe" "$probe/probe.c" >"$probe/log" 2>&1; then
		missing 'gcc libc6-dev' 'a C11 compiler (gcc 9 or clang 12, or later) with the C library headers'
	fi
	has_library zstd.h zstd || missing libzstd-dev 'zstd 1.4 or later, with headers'
	has_tool zstd || missing zstd 'the zstd program (for the tests)'
	has_library cjson/cJSON.h cjson || missing libcjson-dev 'cJSON 1.7.14 or later, with headers'
	has_library xxhash.h xxhash || missing libxxhash-dev 'xxHash 0.8 or later, with headers'
	has_library cmocka.h cmocka || missing libcmocka-dev 'cmocka 1.1.5 or later, with headers (for the tests)'
	[ "$1" = build ] || has_tool valgrind || missing valgrind 'valgrind (counts instructions, for the tests of speed)'
	if [ "$1" != build ] && [ "${LLAMA:-}" != no ] && [ -z "${LLAMA_DIR:-}" ]; then
		has_tool npm || missing npm 'npm (fetches llama.cpp; make test LLAMA=no does without)'
		has_tool git || missing git 'git (likewise)'
		has_tool openssl || missing openssl 'openssl (likewise)'
	fi
	needed=$wanted
	has_tool gnuplot || missing gnuplot-nox 'gnuplot 5 (only for the plots of report)'
	[ "$1" = check ] || return 0
	for tool in clang clang-format clang-tidy cppcheck shellcheck; do
		has_tool "$tool" || missing "$tool" "$tool (for make check)"
	done
	needed=$wanted
}

give_up() {
	echo "gatemass needs what is not here: $1. Please install:$wanted" >&2
	if [ -n "$needed" ]; then
		exit 1
	fi
	echo 'The build goes on without.' >&2
	exit 0
}

level=${1:-build}
look "$level"
[ -n "$packages" ] || exit 0

has_tool apt-get || give_up 'and this system has no apt-get'
root=
if [ "$(id -u)" -ne 0 ]; then
	has_tool sudo || give_up "and only root may run: apt-get install$packages"
	root=sudo
fi

echo "Installing:$packages"
# Package names are a list of words; sudo drops the environment, so env sets it again.
# shellcheck disable=SC2086
if ! { $root apt-get update -q && $root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $packages; } \
	>"$probe/apt" 2>&1; then
	tail -n 5 "$probe/apt" >&2
	look "$level"
	give_up 'and apt-get failed (see above)'
fi
look "$level"
[ -z "$packages" ] || give_up 'although apt-get ran'
