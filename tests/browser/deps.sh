#!/bin/sh
# Installs Chromium for `make test-browser` where it is missing and there is an apt-get; elsewhere says what is needed.
set -eu

for name in chromium chromium-browser google-chrome; do
	command -v "$name" >/dev/null 2>&1 && exit 0
done
if ! command -v apt-get >/dev/null 2>&1; then
	echo 'The test of the page needs Chromium: please install it.' >&2
	exit 1
fi
root=
[ "$(id -u)" -eq 0 ] || root=sudo
echo 'Installing: chromium fonts-dejavu-core'
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { $root apt-get update -q && $root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
	chromium fonts-dejavu-core; } >"$log" 2>&1; then
	tail -n 5 "$log" >&2
	exit 1
fi
