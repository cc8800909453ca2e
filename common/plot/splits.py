"""Draws what the number of splits does to one decoding problem, and which one auto-split chooses.

usage: splits.py RUN results/splits.csv results/splits.png

RUN is chapter 9's program. It times auto-split with --splits 1, 2, 4, … on a quarter of an H200, and
once without, when the step chooses. Beside the share of the HBM's bandwidth that a number of splits
reaches stands what the choice goes by: how full the waves of thread blocks are. Without matplotlib
there is the CSV and no picture.
"""

import csv
import pathlib
import subprocess
import sys
import tempfile

from style import DARK, GRID, WARM, load_pyplot, save, usage

HEADS, KV_HEADS, SEQLEN, HEAD_DIM = 8, 2, 65536, 128
PROBLEM = ["--heads", HEADS, "--kv-heads", KV_HEADS, "--batch", 1, "--seqlen-q", 1,
           "--seqlen-k", SEQLEN, "--head-dim", HEAD_DIM, "--sms", 33, "--check", "none"]
SPLITS = [1, 2, 4, 6, 8, 10, 12, 14, 15, 16, 17, 18, 20, 24, 28, 32, 33, 34, 36, 40, 48, 49, 50, 64]
BLOCKS_PER_SM = 1  # 09_decode/plan.h: of tiles of 16 rows


def timed(program, more):
    """The rows of the program's CSV."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "run.csv"
        command = [program, "--steps", "auto-split", *PROBLEM, *more, "--csv", path, "--plot",
                   pathlib.Path(folder) / "run.png"]
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, encoding="utf-8", check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stderr}")
        with open(path, newline="", encoding="utf-8") as stream:
            return list(csv.DictReader(stream))


def chosen_splits(row):
    """How many there were, from the partial results' memory: an fp32 row of O and two sums each."""
    one = int(row["batch"]) * int(row["heads"]) * int(row["seqlen_q"]) * (int(row["head_dim"]) + 2) * 4
    return max(1, round(float(row["workspace_bytes"]) / one))


def wave_efficiency(splits, slots):
    blocks = KV_HEADS * splits  # the heads of a K/V head share a tile
    return blocks / (-(-blocks // slots) * slots)


def main():
    if len(sys.argv) != 4:
        usage(__doc__)
    program = pathlib.Path(sys.argv[1]).resolve()
    rows = timed(program, ["--sweep", "splits=" + ",".join(map(str, SPLITS))])
    free = timed(program, [])[0]
    chosen, slots = chosen_splits(free), int(free["sms"]) * BLOCKS_PER_SM
    pathlib.Path(sys.argv[2]).parent.mkdir(exist_ok=True)
    with open(sys.argv[2], "w", newline="", encoding="utf-8") as stream:
        out = csv.writer(stream)
        out.writerow(["splits", "time_us", "hbm_fraction", "wave_efficiency", "chosen"])
        for row in rows:
            splits = int(row["splits"])
            out.writerow([splits, row["time_us"], row["hbm_fraction"],
                          f"{wave_efficiency(splits, slots):.4f}", str(splits == chosen).lower()])
        out.writerow([chosen, free["time_us"], free["hbm_fraction"],
                      f"{wave_efficiency(chosen, slots):.4f}", "true"])
    best = min(rows, key=lambda row: float(row["time_us"]))
    print(f"auto-split chooses {chosen} splits: {float(free['time_us']):.1f} µs; "
          f"the best of the sweep, {best['splits']}: {float(best['time_us']):.1f} µs")

    plot = load_pyplot()
    figure, axes = plot.subplots(figsize=(8, 3.6))
    axes.plot(range(1, SPLITS[-1] + 1),
              [100 * wave_efficiency(s, slots) for s in range(1, SPLITS[-1] + 1)],
              color=WARM, linewidth=1.4, linestyle=(0, (4, 2)),
              label=f"how full the waves are, of {slots} blocks each")
    axes.plot(SPLITS, [100 * float(row["hbm_fraction"]) for row in rows], color=DARK, marker="o",
              markersize=4, label=f"% of the HBM's bandwidth, {free['time_kind']}")
    height = 100 * float(free["hbm_fraction"])
    axes.annotate(f"chosen: {chosen}", (chosen, height), xytext=(0, -34), textcoords="offset points",
                  ha="center", arrowprops={"arrowstyle": "->"})
    axes.plot([chosen], [height], marker="o", markersize=9, markerfacecolor="none",
              markeredgecolor="black", linestyle="none")
    axes.set_xlabel("splits of the keys")
    axes.set_ylabel("%")
    axes.set_ylim(0, 105)
    axes.set_xlim(0, SPLITS[-1] + 1)
    axes.set_axisbelow(True)
    axes.grid(color=GRID)
    axes.legend(loc="lower right", fontsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_title(f"auto-split · {free['gpu']} with {free['sms']} SMs · {free['dtype']} · heads {HEADS} "
                   f"({KV_HEADS} K/V) · seqlen 1 × {SEQLEN} · head_dim {HEAD_DIM}", fontsize=10)
    figure.tight_layout()
    save(figure, sys.argv[3])


if __name__ == "__main__":
    main()
