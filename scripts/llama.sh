#!/bin/sh
# Brings llama.cpp into reach of the build (`make llama`) and writes its flags to DEPS/llama/llama.mk.
#
#   scripts/llama.sh [DEPS]                      pinned prebuilt libraries from npm (default DEPS: build/deps)
#   LLAMA_VARIANT=cuda scripts/llama.sh [DEPS]   the same with the CUDA backend (143 MB)
#   LLAMA_DIR=TREE scripts/llama.sh [DEPS]       your own install or build tree; nothing is fetched
#
# A package is taken only if its tarball has the SHA-512 written below. What is there already is not fetched again: a second
# run does nothing and needs no network.
set -eu

VERSION=3.21.1
RELEASE=v0.4.0

die() {
	echo "llama.sh: $*" >&2
	exit 1
}

# integrity PACKAGE: the base64 SHA-512 of its tarball at $VERSION
integrity() {
	case $1 in
	node-llama-cpp) echo 'E3N0Ev2Va0wzydvXYFwM9Hvyo07PoWjt8T/9GMc43Cvt8YkV/NU/tYUgEMC1grTPv2o9PRjQi0G3Wb5P/awiMg==' ;;
	@node-llama-cpp/linux-x64) echo 'Totj6RTDMGo3FoK2yNUaz/oGmZD0olAqTrRluFUWmu0kW2i9TOzHSW0OWCAiGkzRCVX0WsU2CyUQo/W2NYtdPA==' ;;
	@node-llama-cpp/linux-x64-cuda) echo 'idsE55VoD/FbvLhnBC9krUJaUoC0XnebseAAnCpm/brKf61HEbu+idgbb5eN6mxkjLSrHtILprJ0nDcUJjVrFg==' ;;
	@node-llama-cpp/linux-arm64) echo 'eI3anSEGzJiwF2rpMpZVTdHzw47LztbvfvuRzlu/fPO18ROnBOd+75RPUBlV6qENPpmNtbov85+3VODwEwBurg==' ;;
	*) die "no hash is pinned for $1" ;;
	esac
}

# tarball PACKAGE: its file name as `npm pack` names it
tarball() {
	echo "$1-$VERSION.tgz" | sed 's/^@//; s,/,-,'
}

sha512_base64() {
	openssl dgst -sha512 -binary "$1" | base64 | tr -d '\n'
}

need() {
	command -v "$1" >/dev/null 2>&1 || die "$1 is missing: apt-get install $2"
}

# fetch PACKAGE: its verified tarball in $DEPS/npm
fetch() {
	file=$DEPS/npm/$(tarball "$1")
	want=$(integrity "$1")
	if [ ! -f "$file" ] || [ "$(sha512_base64 "$file")" != "$want" ]; then
		need npm npm
		rm -f "$file"
		echo "llama.sh: fetching $1@$VERSION" >&2
		npm pack --silent --pack-destination "$DEPS/npm" "$1@$VERSION" >/dev/null ||
			die "npm could not fetch $1@$VERSION: is the registry reachable? (LLAMA_DIR= takes your own llama.cpp)"
	fi
	got=$(sha512_base64 "$file")
	if [ "$got" != "$want" ]; then
		rm -f "$file"
		die "$1@$VERSION is not the pinned package (SHA-512 $got instead of $want): removed"
	fi
}

# first PATTERN DIR...: the first file that matches, shortest name first (libllama.so before libllama.so.0.4.0)
first() {
	pattern=$1
	shift
	for dir in "$@"; do
		[ -d "$dir" ] || continue
		found=$(find "$dir" -maxdepth 1 -name "$pattern" | awk '{ print length($0), $0 }' | sort -n | sed -n '1s/^[0-9]* //p')
		if [ -n "$found" ]; then
			echo "$found"
			return
		fi
	done
}

# write_flags KEY VERSION INCLUDES LIBLLAMA LIBGGML LIBGGML_BASE
write_flags() {
	libdir=$(dirname "$4")
	rpath="-Wl,-rpath,$libdir"
	for lib in "$5" "$6"; do
		dir=$(dirname "$lib")
		[ "$dir" = "$libdir" ] || rpath="$rpath -Wl,-rpath,$dir"
	done
	mkdir -p "$OUT"
	{
		echo "# llama.sh: $1"
		echo "LLAMA_VERSION := $2"
		echo "LLAMA_CPPFLAGS :=$3"
		echo "LLAMA_LIBDIR := $libdir"
		echo "LLAMA_LIBS := $4 $5 $6 $rpath"
		echo "LLAMA_GGML_LIBS := $6 -Wl,-rpath,$(dirname "$6")"
	} >"$OUT/llama.mk.part"
	mv "$OUT/llama.mk.part" "$OUT/llama.mk"
	echo "llama.cpp $2: $libdir"
}

# done_before KEY: says so where the flags were written for KEY and the libraries still stand
done_before() {
	[ -f "$OUT/llama.mk" ] && [ "$(sed -n '1s/^# llama.sh: //p' "$OUT/llama.mk")" = "$1" ] || return 1
	for lib in $(sed -n 's/^LLAMA_LIBS := //p' "$OUT/llama.mk"); do
		case $lib in -*) continue ;; esac
		[ -f "$lib" ] || return 1
	done
	echo "llama.cpp $(sed -n 's/^LLAMA_VERSION := //p' "$OUT/llama.mk"): $(sed -n 's/^LLAMA_LIBDIR := //p' "$OUT/llama.mk")"
}

use_tree() {
	tree=$(cd "$1" 2>/dev/null && pwd) || die "LLAMA_DIR=$1: no such directory"
	includes=
	for header in llama.h ggml.h; do
		found=
		for dir in "$tree/include" "$tree/ggml/include" "$tree/../include" "$tree/../ggml/include"; do
			if [ -f "$dir/$header" ]; then
				found=$(cd "$dir" && pwd)
				break
			fi
		done
		[ -n "$found" ] || die "LLAMA_DIR=$1: $header is neither in include/ nor beside a build tree: give the prefix of cmake --install, or the build folder inside the source tree"
		case $includes in *" $found") ;; *) includes="$includes -isystem $found" ;; esac
	done
	set -- "$tree/lib" "$tree/lib64" "$tree/bin" "$tree/lib/$(uname -m)-linux-gnu" "$tree/src" "$tree/ggml/src" "$tree"
	llama=$(first 'libllama.*so*' "$@")
	ggml=$(first 'libggml.*so*' "$@")
	base=$(first 'libggml-base.*so*' "$@")
	[ -n "$llama" ] && [ -n "$ggml" ] && [ -n "$base" ] ||
		die "$tree: no shared libllama, libggml and libggml-base in lib/, lib64/ or bin/: build with -DBUILD_SHARED_LIBS=ON"
	config=$(find "$tree" -maxdepth 4 -name 'llama-version.cmake' 2>/dev/null | sed -n 1p)
	version=
	[ -z "$config" ] || version=$(sed -n 's/^set(PACKAGE_VERSION "\(.*\)").*/\1/p' "$config")
	[ -n "$version" ] || version=$(basename "$(readlink -f "$llama")" | sed -n 's/^libllama[^0-9]*\([0-9][0-9.]*[0-9]\).*/\1/p')
	write_flags "tree $tree" "${version:-of unknown version}" "$includes" "$llama" "$ggml" "$base"
}

use_npm() {
	arch=$(uname -m)
	variant=${LLAMA_VARIANT:-cpu}
	case $arch-$variant in
	x86_64-cpu) binaries=linux-x64 infix= ;;
	x86_64-cuda) binaries=linux-x64-cuda infix=.cuda ;;
	aarch64-cpu) binaries=linux-arm64 infix= ;;
	*-cpu | *-cuda) die "no prebuilt libraries for $arch and LLAMA_VARIANT=$variant: build llama.cpp and give LLAMA_DIR=" ;;
	*) die "LLAMA_VARIANT=$variant: must be cpu or cuda" ;;
	esac
	key="npm $VERSION $binaries"
	if done_before "$key"; then
		return
	fi
	need git git
	need openssl openssl
	mkdir -p "$DEPS/npm"
	fetch node-llama-cpp
	fetch "@node-llama-cpp/$binaries"

	work=$(mktemp -d "$DEPS/llama.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	tar -xzf "$DEPS/npm/$(tarball node-llama-cpp)" -C "$work" package/llama/gitRelease.bundle
	git clone --quiet --bare "$work/package/llama/gitRelease.bundle" "$work/source.git" || die "the source bundle cannot be read by git"
	mkdir -p "$work/source" "$work/llama/include" "$work/llama/lib"
	git --git-dir="$work/source.git" archive HEAD LICENSE include ggml/include ggml/src/ggml-backend-impl.h | tar -x -C "$work/source"
	cp "$work"/source/include/*.h "$work"/source/ggml/include/*.h "$work/source/ggml/src/ggml-backend-impl.h" "$work/llama/include/"
	cp "$work/source/LICENSE" "$work/llama/"
	tar -xzf "$DEPS/npm/$(tarball "@node-llama-cpp/$binaries")" -C "$work" "package/bins/$binaries"
	cp "$work/package/bins/$binaries"/libggml*.so "$work/package/bins/$binaries"/libllama.*so "$work/llama/lib/"
	rm -rf "$OUT"
	mv "$work/llama" "$OUT"

	write_flags "$key" "$RELEASE" " -isystem $OUT/include" \
		"$OUT/lib/libllama$infix.$RELEASE.so" "$OUT/lib/libggml$infix.$RELEASE.so" "$OUT/lib/libggml-base.so"
}

DEPS=${1:-build/deps}
mkdir -p "$DEPS"
DEPS=$(cd "$DEPS" && pwd)
OUT=$DEPS/llama
if [ -n "${LLAMA_DIR:-}" ]; then
	use_tree "$LLAMA_DIR"
else
	use_npm
fi
