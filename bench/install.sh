#!/bin/sh
# Installs the peers that the benchmarks link or load, on Debian and its kin.
set -e
apt-get install -y --no-install-recommends gcc libc6-dev libdnnl-dev libopenblas0-pthread libblis4-openmp
