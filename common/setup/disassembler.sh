#!/bin/sh
# Prints the folder that holds cuobjdump and nvdisasm: the toolkit's, one of PATH, or one in
# BUILD_DIR, where they are installed from Python packages if need be. Prints nothing and says why
# on stderr if they can't be had.
# usage: disassembler.sh BUILD_DIR TOOLKIT_DIR
build=$1
here=$(dirname "$0")
has_both() { [ -x "$1/cuobjdump" ] && [ -x "$1/nvdisasm" ]; }

own=$build/disassembler/nvidia/cu13/bin
for folder in "$2/bin" "$(dirname "$(command -v cuobjdump 2>/dev/null || echo /none/x)")" "$own"; do
    if has_both "$folder"; then
        echo "$folder"
        exit 0
    fi
done
packages="nvidia-cuda-cuobjdump>=13.0 nvidia-cuda-nvdisasm>=13.0"
if ! python3 -m pip --version >/dev/null 2>&1; then
    sh "$here/system_package.sh" "pip (to install the disassembler)" python3-pip >&2 || exit 0
fi
echo "setup: no cuobjdump and nvdisasm found; installing them into $build/disassembler" >&2
rm -rf "$build/disassembler"
if python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps \
        --target "$build/disassembler" $packages >&2; then
    chmod +x "$own"/* 2>/dev/null
fi
if has_both "$own"; then
    echo "$own"
    exit 0
fi
rm -rf "$build/disassembler"
echo "setup: no disassembler, so machine code isn't tested; this command would install it:" \
     "python3 -m pip install --no-deps --target $build/disassembler nvidia-cuda-cuobjdump" \
     "nvidia-cuda-nvdisasm" >&2
