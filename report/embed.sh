#!/bin/sh
# Writes a C file that holds other files as arrays, so that a program needs no folder beside it: report/embed.sh FILE... > OUT.c
# The arrays are listed in gm_embedded_files (report/embedded.h) under the files' names.
set -eu

echo '#include "report/embedded.h"'
echo
n=0
for file; do
	printf 'static const char file%d[] = {\n' "$n"
	# Decimal with a sign: a char of either kind takes it.
	od -An -v -td1 "$file" | sed 's/\([0-9]\)\( \|$\)/\1,\2/g'
	printf '0};\n'
	n=$((n + 1))
done
printf '\nconst struct gm_embedded_file gm_embedded_files[] = {\n'
n=0
for file; do
	printf '\t{"%s", file%d, sizeof(file%d) - 1},\n' "$(basename "$file")" "$n" "$n"
	n=$((n + 1))
done
printf '\t{0},\n};\n'
