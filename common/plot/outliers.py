"""Draws a channel's numbers before and after chapter 6's transform.

usage: outliers.py PICTURE.png

Two channels, each the widest of its Q: of tests/data/minilm_layer0, a real model's, and of normal numbers
with one outlier in a thousand. $FP8_ERROR (common/plot/fp8_error.c) makes the numbers and transforms them.
"""

import csv
import io
import os
import pathlib
import subprocess
import sys
import tempfile

from style import DARK, GRID, WARM, load_pyplot, save, usage

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ROWS, HEADS, HEAD_DIM, SEED = 1024, 4, 128, 1
BINS = 40


def call(*arguments):
    program = os.environ.get("FP8_ERROR")
    if not program:
        raise SystemExit("outliers.py: $FP8_ERROR must name the program; make table-fp8 sets it")
    return subprocess.run([program, *map(str, arguments)], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


def channel(folder):
    """The values of the widest channel, before and after, and which one it is."""
    rows = list(csv.DictReader(io.StringIO(call("channel", folder))))
    values = {stage: [float(row["value"]) for row in rows if row["stage"] == stage]
              for stage in ("before", "after")}
    return values, int(rows[0]["head"]), int(rows[0]["channel"])


def draw_channel(axes, folder, name):
    values, head, column = channel(folder)
    limit = max(abs(x) for stage in values.values() for x in stage) * 1.05
    edges = [limit * (2 * k / BINS - 1) for k in range(BINS + 1)]
    for stage, colour, hatch in (("before", WARM, "//"), ("after", DARK, None)):
        largest = max(map(abs, values[stage]))
        axes.hist(values[stage], edges, histtype="stepfilled", color=colour, alpha=0.65, hatch=hatch,
                  edgecolor="black", linewidth=0.6, label=f"{stage}: at most {largest:.1f}")
    axes.set_yscale("log")
    axes.set_ylim(top=axes.get_ylim()[1] * 6)  # room for the legend
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=GRID)
    axes.set_title(f"{name}: head {head}, channel {column}", fontsize=10)
    axes.set_xlabel("value, in units of the head's rms")
    axes.legend(loc="upper right", frameon=True, edgecolor="white", fontsize=8.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def main():
    if len(sys.argv) != 2:
        usage(__doc__)
    plot = load_pyplot()
    figure, (left, right) = plot.subplots(1, 2, figsize=(9, 3.3))
    left.set_ylabel("rows of Q")
    draw_channel(left, ROOT / "tests" / "data" / "minilm_layer0", "MiniLM's first layer")
    with tempfile.TemporaryDirectory() as folder:
        call("inputs", folder, SEED, ROWS, 64, HEADS, HEAD_DIM, ROWS)
        draw_channel(right, folder, "normal, one outlier in a thousand")
    figure.tight_layout()
    save(figure, sys.argv[1])


if __name__ == "__main__":
    main()
