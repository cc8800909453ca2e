"""Holds chapter 9's choice of splits against a sweep, for 30 problems: what `make split-shapes` does.

usage: split_shapes.py BUILD/VARIANT/chapter-9/run

A problem is timed with the number of splits that auto-split chooses, and with each of a sweep:
1, 2, 3, 4, 6, 8, … up to four waves of thread blocks, and as many as fill one wave, and two, to the
last one that fits. The table says how near the choice comes to the best time of these, and its
wave efficiency to the best that any number of splits has (09_decode/heuristic.h). softgpu models a
quarter of an H200 unless a GPU is there. What has run is kept in results/split-shapes/, so a stopped
sweep goes on where it was. Writes results/split-shapes.csv and .json. Needs nothing but Python.
"""

import pathlib
import sys

import runs
from runs import Failed, print_columns, time_text

SMS = 33
HEADS_PER_KV_HEAD = 4
# batch, K/V heads, query tokens, keys, head_dim
SHAPES = (
    [(1, 1, 1, keys, 128) for keys in (512, 2048, 8192, 32768)]
    + [(1, 2, 1, keys, 128) for keys in (1024, 4096, 16384, 65536)]
    + [(2, 2, 1, keys, 128) for keys in (512, 2048, 8192)]
    + [(5, 1, 1, keys, 128) for keys in (1024, 4096)]
    + [(4, 2, 1, keys, 128) for keys in (512, 2048, 8192)]
    + [(6, 2, 1, keys, 128) for keys in (1024, 4096)]
    + [(9, 2, 1, keys, 128) for keys in (512, 2048)]
    + [(12, 2, 1, keys, 128) for keys in (512, 2048)]
    + [(16, 2, 1, 1024, 128), (17, 2, 1, 1024, 128), (20, 2, 1, 1024, 128)]
    + [(1, 2, 4, 4096, 128), (1, 2, 16, 4096, 128), (4, 2, 16, 2048, 128)]
    + [(1, 2, 1, 8192, 64), (4, 2, 1, 4096, 64)]
)
STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
MOST_SPLITS, MOST_WAVES = 128, 4
NEAR_EFFICIENCY, NEAR_TIME = 0.85, 1.10


def tiles_of(shape):
    """Tiles, and thread blocks at a time: one an SM, two of 64 rows (09_decode/plan.h)."""
    batch, kv_heads, tokens, _, _ = shape
    rows = tokens * HEADS_PER_KV_HEAD
    height = 16 if rows <= 16 else 64
    return batch * kv_heads * -(-rows // height), SMS * (1 if height == 16 else 2)


def wave_efficiency(blocks, slots):
    return blocks / (-(-blocks // slots) * slots)


def swept(shape):
    tiles, slots = tiles_of(shape)
    key_blocks = -(-shape[3] // (128 if shape[4] <= 64 else 64))
    full = {wave * slots // tiles for wave in (1, 2)}
    most = min(key_blocks, MOST_SPLITS, max(MOST_WAVES * slots // tiles, 2), 2 * slots)
    return sorted(s for s in full | set(STEPS) if 1 <= s <= most)


def options_of(shape):
    batch, kv_heads, tokens, keys, head_dim = shape
    return ["--steps", "auto-split", "--check", "none", "--sms", SMS, "--batch", batch,
            "--heads", kv_heads * HEADS_PER_KV_HEAD, "--kv-heads", kv_heads, "--seqlen-q", tokens,
            "--seqlen-k", keys, "--head-dim", head_dim]


def chosen_splits(run, shape):
    """How many there were, from the partial results' memory: an fp32 row of O and two sums each."""
    batch, kv_heads, tokens, _, head_dim = shape
    one = batch * kv_heads * HEADS_PER_KV_HEAD * tokens * (head_dim + 2) * 4
    return max(1, round(run["steps"][0]["workspace_bytes"] / one))


def measure(runner, variant, shape):
    """The choice, its time, and the times of the sweep by splits."""
    name = "-".join(map(str, shape))
    free = runner.run(variant, 9, options_of(shape), name)
    sweep = runner.run(variant, 9, [*options_of(shape), "--sweep",
                                    "splits=" + ",".join(map(str, swept(shape)))], f"{name}-swept")
    times = {splits: run["steps"][0]["time_us"] for splits, run in zip(swept(shape), sweep["runs"])}
    return free, chosen_splits(free, shape), free["steps"][0]["time_us"], times


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    variant = pathlib.Path(sys.argv[1]).resolve().parent.parent
    runner = runs.Runner("results/split-shapes")
    heading = ["batch", "kv_heads", "tokens", "keys", "head_dim", "tiles", "slots", "splits", "efficiency",
               "best_efficiency", "time_us", "best_splits", "best_time_us"]
    found = []
    for shape in SHAPES:
        try:
            first, splits, time, times = measure(runner, variant, shape)
        except Failed as failed:
            raise SystemExit(f"split-shapes: {failed}") from None
        tiles, slots = tiles_of(shape)
        most = min(-(-shape[3] // (128 if shape[4] <= 64 else 64)), MOST_SPLITS, slots)
        best = min(times, key=times.get)
        found.append(dict(zip(heading, [*shape, tiles, slots, splits, wave_efficiency(tiles * splits, slots),
                                        max(wave_efficiency(tiles * s, slots) for s in range(1, most + 1)),
                                        time, best, min(time, times[best])])))
    runs.write_results("split-shapes", found, {"device": first["device"], "shapes": found})

    rows = [["batch", "K/V heads", "tokens", "keys", "d", "tiles", "splits", "efficiency", "best", "time",
             "best of the sweep", "÷ best"]]
    for f in found:
        rows.append([str(f["batch"]), str(f["kv_heads"]), str(f["tokens"]), f"{f['keys']:,}", str(f["head_dim"]),
                     str(f["tiles"]), str(f["splits"]), f"{f['efficiency']:.2f}", f"{f['best_efficiency']:.2f}",
                     time_text(f["time_us"]), f"{time_text(f['best_time_us'])} ({f['best_splits']})",
                     f"{f['time_us'] / f['best_time_us']:.2f}"])
    print(f"{runs.device_text(first)} · {SMS} SMs · {HEADS_PER_KV_HEAD} query heads for each K/V head · fp16\n")
    print_columns(rows)
    near = sum(f["time_us"] <= NEAR_TIME * f["best_time_us"] for f in found)
    worst = max(f["time_us"] / f["best_time_us"] for f in found)
    split = [f for f in found if f["splits"] > 1]
    full = sum(f["efficiency"] >= NEAR_EFFICIENCY * f["best_efficiency"] for f in split)
    print(f"\n{near} of {len(found)} within 10% of the best time; the farthest takes {worst:.2f} times as long."
          f"\n{full} of the {len(split)} that are split within 15% of the best efficiency.")
    print("\nresults/split-shapes.csv  results/split-shapes.json")


if __name__ == "__main__":
    main()
