#!/bin/sh
# Shows what a chapter changed in the kernel: the files of common/course/diff.txt for a pair of
# chapters, the one before and the one after, as git shows differences. Marks of exercises, which are
# in either file, are left out. Colours only on a terminal.
#
# usage: sh common/course/diff.sh M-N       (from the repository's folder)
table=common/course/diff.txt
pair=$1
rows=$(sed -n "s/^$pair \(.*\)/\1/p" $table)
if [ -z "$rows" ]; then
    echo "diff-$pair: no such pair of chapters; there are: $(sed -n 's/^\([1-9]-[1-9]\) .*/diff-\1/p' $table |
        uniq | tr '\n' ' ')" >&2
    exit 2
fi
copies=$(mktemp -d) || exit 1
trap 'rm -rf "$copies"' EXIT
colour=never
[ -t 1 ] && colour=always

# A file as it stands, without marks, under its own name.
copy() {
    mkdir -p "$copies/$(dirname "$1")"
    sed '/^ *\/\/ exercise [0-9]: \(begin\|end\)$/d' "$1" >"$copies/$1"
}

echo "$rows" | while read -r before after; do
    copy "$before"
    copy "$after"
    printf '%s → %s\n\n' "$before" "$after"
    (cd "$copies" && git --no-pager diff --no-index --no-prefix --ignore-all-space --histogram \
        --color=$colour --stat=100 --patch "$before" "$after")
    echo
done | { if [ -t 1 ]; then ${PAGER:-less -R}; else cat; fi; }
