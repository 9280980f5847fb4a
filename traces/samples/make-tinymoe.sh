#!/bin/sh
# Records traces/samples/tinymoe.gmt again (README.md beside this file says what it is). The trace is committed, so that nobody needs
# this to use gatemass. On another kind of CPU the last bits of the logits may differ.
#
#   traces/samples/make-tinymoe.sh [BUILD]       where the programs were built, with llama.cpp (default build)
set -eu

build=${1:-build}
here=$(cd "$(dirname "$0")" && pwd)
model=$here/../../tests/tinymoe
texts=$(mktemp)
trap 'rm -f "$texts"' EXIT

head -n 24 "$model/prompts.jsonl" >"$texts"
"$build/bin/record-traces" --model "$model/tinymoe-F16.gguf" --prompts "$texts" --threads 1 --verify --out "$here/tinymoe.gmt"
"$build/bin/traces" verify --quiet "$here/tinymoe.gmt"
