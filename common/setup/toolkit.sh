#!/bin/sh
# Installs the CUDA 13.0 compiler from Python packages into BUILD_DIR/toolkit.
# usage: toolkit.sh BUILD_DIR
set -e
build=$1
here=$(dirname "$0")
packages="nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88
          nvidia-cuda-runtime==13.0.88 nvidia-cuda-cccl==13.0.85"

if ! python3 -m pip --version >/dev/null 2>&1; then
    sh "$here/system_package.sh" "pip (to install the CUDA compiler)" python3-pip
fi
echo "setup: no CUDA 13 compiler found; installing one into $build/toolkit" >&2
rm -rf "$build/toolkit.new"
mkdir -p "$build"
if ! python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
        --no-deps --target "$build/toolkit.new" $packages; then
    rm -rf "$build/toolkit.new"
    echo "setup: the CUDA compiler could not be installed. Install the CUDA Toolkit 13 and put nvcc" \
         "into PATH, or run: python3 -m pip install --target $build/toolkit --no-deps" $packages >&2
    exit 1
fi
chmod +x "$build"/toolkit.new/nvidia/cu13/bin/* "$build"/toolkit.new/nvidia/cu13/nvvm/bin/*
rm -rf "$build/toolkit"
mv "$build/toolkit.new" "$build/toolkit"
