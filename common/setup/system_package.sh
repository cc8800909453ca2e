#!/bin/sh
# Installs system packages as root or with `sudo -n`; otherwise names the one command that would.
# usage: system_package.sh WHAT_FOR PACKAGE...      (Debian's names; others are translated)
what=$1
shift
if [ "$(id -u)" = 0 ]; then
    as_root=
elif sudo -n true 2>/dev/null; then
    as_root="sudo -n"
else
    as_root="sudo"
    cannot=1
fi

if command -v apt-get >/dev/null 2>&1; then
    command="$as_root apt-get install -y --no-install-recommends $*"
    update="$as_root apt-get update -qq"
elif command -v dnf >/dev/null 2>&1; then
    names=$(echo " $* " | sed 's/ check / check-devel /; s/ g++ / gcc-c++ /; s/ python3-venv / /')
    command="$as_root dnf install -y $names"
    update=true
elif command -v pacman >/dev/null 2>&1; then
    names=$(echo " $* " | sed 's/ g++ / gcc /; s/ python3-/ python-/g; s/ python-venv / /')
    command="$as_root pacman -S --noconfirm --needed $names"
    update=true
else
    echo "setup: $what is missing; install the package(s): $*" >&2
    exit 1
fi

if [ -n "$cannot" ]; then
    echo "setup: $what is missing; this command installs it: $command" >&2
    exit 1
fi
echo "setup: installing $* ($what)" >&2
log=$(mktemp)
if { $update && DEBIAN_FRONTEND=noninteractive $command; } >"$log" 2>&1; then
    rm -f "$log"
    exit 0
fi
tail -n 5 "$log" >&2
rm -f "$log"
echo "setup: $what could not be installed; this command was tried: $command" >&2
exit 1
