#!/bin/sh
# How fast softgpu is: chapter 1's naive attention on one host thread, timing on, with the checks off
# and on, beside the same attention in plain C on one core. And what each check costs on chapter 5's
# forward passes: all of them together may cost 5 times as much as none; if they do more, this fails.
#
# usage: bench.sh RUN PLAIN HOPPER      RUN, HOPPER: chapter 1's and 5's programs; PLAIN:
#                                       plain_attention
#
# The rate is that of `--stats`: thread-instructions per second of CPU time, over all kernels of the
# step. Of three runs the best counts, as for plain C.
set -eu

run=$1
plain=$2
hopper=$3
batch=1 heads=4 seqlen=${SEQLEN:-1024} head_dim=64
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The kernels' sums in a report of --stats: "CPU-seconds thread-instructions".
sums() {
    sed -n 's/.* CPU \([0-9.]*\) s: \([0-9.]*\) M thread.*/\1 \2/p' "$1" |
        awk '{ s += $1; n += $1 * $2 * 1e6 } END { if (s == 0) exit 1; print s, n }'
}

# The best of three runs: measure PROGRAM STEPS DTYPE CHECKS
measure() {
    for n in 1 2 3; do
        SOFTGPU_THREADS=1 SOFTGPU_STATS=1 "$1" --device softgpu --steps "$2" --batch $batch \
            --heads $heads --seqlen "$seqlen" --head-dim $head_dim --dtype "$3" --check "$4" \
            --csv "$scratch/result.csv" --plot "$scratch/result.png" \
            >"$scratch/table" 2>"$scratch/stats" || { cat "$scratch/stats" >&2; exit 1; }
        sums "$scratch/stats"
    done | sort -n | head -n 1
}

plain_seconds=$("$plain" $batch $heads "$seqlen" $head_dim 2>/dev/null)
echo "naive attention, batch $batch, heads $heads, seqlen $seqlen, head_dim $head_dim; one core"
echo "plain C -O3 (fp32): $plain_seconds s"
echo
printf '%-6s %-16s %10s %22s %12s\n' dtype checks 'CPU time' 'thread-instructions/s' '÷ plain C'
for dtype in fp16 fp32; do
    for checks in none all; do
        result=$(measure "$run" naive $dtype $checks)
        echo "$dtype $checks $result $plain_seconds" | awk '{
            printf "%-6s %-16s %8.3f s %20.0f M %11.1f×\n", $1, $2, $3, $4 / $3 / 1e6, $3 / $5 }'
    done
done

steps=wgmma,tma-ring,warp-specialised,pingpong,intra-warpgroup
echo
echo "chapter 5's forward passes ($steps), fp16, the same sizes"
printf '%-6s %10s %12s\n' checks 'CPU time' '÷ none'
none=
for checks in none mem init sync race all; do
    result=$(measure "$hopper" $steps fp16 $checks)
    none=${none:-$result}
    echo "$checks $result $none" |
        awk '{ printf "%-6s %8.3f s %11.2f×\n", $1, $2, $2 / $4; exit $1 == "all" && $2 > 5 * $4 }' ||
        { echo "all checks cost more than 5 times as much as none" >&2; exit 1; }
done
