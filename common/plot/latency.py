"""Times decoding over batch and context: what `make latency` does.

usage: latency.py BUILD/VARIANT/chapter-9/run [PICTURE]

auto-split's time for one new token of each sequence, from 1 sequence of 1,024 keys to 64 sequences and
to 131,072 keys, beside the time that HBM needs for K and V alone. softgpu models a quarter of an H200
unless a GPU is there. Problems with more than MOST_KEYS keys in all are left out: their K and V take
gigabytes, and memory is all that binds long before. What has run is kept in results/latency/, so a
stopped one goes on where it was. Writes results/latency.csv and .json, and with PICTURE a picture.
Needs nothing but Python, for the picture matplotlib.
"""

import pathlib
import sys

import runs
from runs import DASH, Failed, print_columns, time_text

SMS, HEADS, KV_HEADS, HEAD_DIM = 33, 8, 2, 128
BATCHES = (1, 4, 16, 64)
KEYS = (1024, 4096, 16384, 65536, 131072)
MOST_KEYS = 1 << 20


def measure(runner, variant, batch, keys):
    run = runner.run(variant, 9, ["--steps", "auto-split", "--check", "none", "--sms", SMS, "--batch", batch,
                                  "--heads", HEADS, "--kv-heads", KV_HEADS, "--seqlen-q", 1, "--seqlen-k", keys,
                                  "--head-dim", HEAD_DIM], f"{batch}-{keys}")
    step = run["steps"][0]
    return run, {"batch": batch, "keys": keys, "time_us": step["time_us"], "hbm_fraction": step["hbm_fraction"],
                 "hbm_read_bytes": step["hbm_read_bytes"]}


def draw(found, first, path):
    """Time over context, a line for each batch, and the limit that HBM sets."""
    from style import DARK, GRID, LIGHT, MIDDLE, WARM, load_pyplot, save

    plot = load_pyplot()
    figure, axes = plot.subplots(figsize=(8, 4))
    colours, markers = (DARK, MIDDLE, LIGHT, WARM), "os^D"
    for batch, colour, marker in zip(BATCHES, colours, markers):
        cells = [cell for cell in found if cell["batch"] == batch]
        keys = [cell["keys"] for cell in cells]
        axes.plot(keys, [cell["time_us"] for cell in cells], color=colour, marker=marker, markersize=5,
                  label=f"{batch} sequence{'s' * (batch > 1)}")
        axes.plot(keys, [cell["time_us"] * cell["hbm_fraction"] for cell in cells], color="black", linewidth=0.9,
                  linestyle=(0, (4, 3)), label="K and V through HBM, nothing else" if batch == BATCHES[-1] else None)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(KEYS, [f"{keys:,}" for keys in KEYS])
    axes.set_xlabel("keys of a sequence")
    axes.set_ylabel(f"µs for a token of each, {first['steps'][0]['time_kind']}")
    axes.set_axisbelow(True)
    axes.grid(color=GRID)
    axes.legend(fontsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_title(f"auto-split · {first['device']['gpu']} with {SMS} SMs · heads {HEADS} ({KV_HEADS} K/V) · "
                   f"head_dim {HEAD_DIM} · fp16", fontsize=10)
    figure.tight_layout()
    save(figure, path)


def main():
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    variant = pathlib.Path(sys.argv[1]).resolve().parent.parent
    runner = runs.Runner("results/latency")
    found, first = [], None
    try:
        for batch in BATCHES:
            for keys in KEYS:
                if batch * keys > MOST_KEYS:
                    continue
                run, cell = measure(runner, variant, batch, keys)
                first = first or run
                found.append(cell)
    except Failed as failed:
        raise SystemExit(f"latency: {failed}") from None
    runs.write_results("latency", found, {"device": first["device"], "cells": found})

    rows = [["batch"] + [f"{keys:,} keys" for keys in KEYS]]
    for batch in BATCHES:
        cells = {cell["keys"]: cell for cell in found if cell["batch"] == batch}
        rows.append([str(batch)] + [f"{time_text(cells[keys]['time_us'])} ({100 * cells[keys]['hbm_fraction']:.0f}%)"
                                    if keys in cells else DASH for keys in KEYS])
    print(f"{runs.device_text(first)}\nheads {HEADS} ({KV_HEADS} K/V) · head_dim {HEAD_DIM} · fp16 · one token of each "
          "sequence\n")
    print_columns(rows)
    print(f"\nIn brackets: the share of the HBM's bandwidth. {DASH}: over {MOST_KEYS:,} keys in all, not run.")
    if len(sys.argv) == 3:
        draw(found, first, sys.argv[2])
    print("\nresults/latency.csv  results/latency.json")


if __name__ == "__main__":
    main()
