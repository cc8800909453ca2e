#!/bin/sh
# Prints a Python that can import matplotlib: the system's, or a virtual environment in BUILD_DIR,
# made if need be. Prints nothing and says why on stderr if neither can be had.
# usage: plot_python.sh BUILD_DIR
build=$1
here=$(dirname "$0")
has_matplotlib() { "$1" -c 'import matplotlib' >/dev/null 2>&1; }

if has_matplotlib python3; then
    echo python3
    exit 0
fi
venv=$build/venv
if has_matplotlib "$venv/bin/python"; then
    echo "$venv/bin/python"
    exit 0
fi
# Of two chapters that are built at once one installs it, and the other waits.
if [ -z "$INSTALLING_ALONE" ] && command -v flock >/dev/null 2>&1 && mkdir -p "$build"; then
    INSTALLING_ALONE=1 exec flock "$build/.venv.lock" sh "$0" "$build"
fi
echo "setup: matplotlib is missing; installing it into $venv" >&2
rm -rf "$venv"
if python3 -m venv "$venv" >/dev/null 2>&1 ||
   { sh "$here/system_package.sh" "venv (for matplotlib)" python3-venv &&
     rm -rf "$venv" && python3 -m venv "$venv" >/dev/null; }; then
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check matplotlib >&2
fi
if has_matplotlib "$venv/bin/python"; then
    echo "$venv/bin/python"
    exit 0
fi
rm -rf "$venv"
echo "setup: no matplotlib, so no plots; this command would install it:" \
     "python3 -m venv $venv && $venv/bin/python -m pip install matplotlib" >&2
