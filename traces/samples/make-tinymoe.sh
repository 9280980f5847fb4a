#!/bin/sh
# Makes traces/samples/tinymoe.gmt again, from the reference logits of tinymoe (README.md beside this file says what they are).
# The trace is committed, so that nobody needs this to use gatemass.
#
#   traces/samples/make-tinymoe.sh FOLDER [BUILD]
#
# FOLDER holds router_logits_f16.npy and router_logits.meta.json; BUILD is where the programs were built (default build).
set -eu

folder=${1:?give the folder that holds router_logits_f16.npy}
build=${2:-build}
here=$(cd "$(dirname "$0")" && pwd)

# Dense bytes of a layer, as stored in tinymoe-F16.gguf: attention q, k, v and output in F16, norms and router in F32:
# 2*(128*128 + 2*128*64 + 128*128) + 4*(128 + 32 + 32 + 128) + 4*128*128 = 165120.
# The reference ran every text as one forward pass.
"$build/bin/traces" import --format npy --meta "$folder/router_logits.meta.json" \
	--tail f16 --pass sequence --dense-bytes 165120 \
	--source "tinymoe-F16 in PyTorch float32, logits stored as float16; traces/samples/README.md" \
	--out "$here/tinymoe.gmt" "$folder/router_logits_f16.npy"
"$build/bin/traces" verify --quiet "$here/tinymoe.gmt"
