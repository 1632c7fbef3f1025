#!/bin/sh
# Installs the peer of bench/llm, llama.cpp as the npm package node-llama-cpp ships it, into bench/.cache/llama (or the folder given),
# and compiles the program that drives its shared library. Needs npm, git and a C compiler.
set -e
here=$(cd "$(dirname "$0")" && pwd)
cache=${1:-$here/../.cache/llama}
mkdir -p "$cache"
cd "$cache"
if [ ! -d node_modules/@node-llama-cpp/linux-x64 ]; then
	[ -f package.json ] || echo '{"private":true}' >package.json
	npm i -E --omit=optional --ignore-scripts --no-audit --no-fund node-llama-cpp@3.21.1 @node-llama-cpp/linux-x64@3.21.1
fi
if [ ! -f source/include/llama.h ]; then # the headers of that very version lie in the package as a git bundle
	git clone -q node_modules/node-llama-cpp/llama/gitRelease.bundle source
fi
ln -sfn node_modules/@node-llama-cpp/linux-x64/bins/linux-x64 libraries
cc -O2 -I source/include -I source/ggml/include -o peer "$here/peer/peer.c" -ldl
