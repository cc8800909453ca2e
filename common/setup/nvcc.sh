#!/bin/sh
# Prints the nvcc to use: the first of PATH, $CUDA_HOME, /usr/local/cuda that is release 13, else the
# place where `make` will install one from Python packages.
# usage: nvcc.sh BUILD_DIR
build=$1
for candidate in "$(command -v nvcc 2>/dev/null)" "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" \
                 /usr/local/cuda/bin/nvcc; do
    [ -n "$candidate" ] && [ -x "$candidate" ] || continue
    if "$candidate" --version 2>/dev/null | grep -q 'release 13\.'; then
        printf '%s\n' "$candidate"
        exit 0
    fi
done
printf '%s\n' "$build/toolkit/nvidia/cu13/bin/nvcc"
