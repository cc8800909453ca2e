"""Draws one chapter's results: speedup over naive, and the bytes that each step moves through HBM.

usage: chapter.py results/chapter-N.csv results/chapter-N.png

The two belong side by side: a step may be slower than the one before it and still be right for the
next one, and the bytes show it. Rows without a figure are left out, never drawn as 0.
"""

import csv
import math
import sys

from style import DARK, GRID, LIGHT, WARM, bytes_text, load_pyplot, number, save

ELEMENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 2}  # fp8 numbers are made of bf16 tensors


def read_rows(path):
    """The steps of the last problem in the file (a sweep holds several)."""
    with open(path, newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    if not rows:
        raise SystemExit(f"{path} holds no steps")
    sizes = ("batch", "heads", "kv_heads", "seqlen_q", "seqlen_k", "head_dim", "splits", "page_size",
             "new_keys")
    last = [rows[-1][name] for name in sizes]
    return [row for row in rows if [row[name] for name in sizes] == last]


def label(row):
    name = f"{row['step_chapter']} {row['step']}"
    if row["pass"] == "backward":
        name += "\n(backward)"
    return name + ("\n(exhibit)" if row["exhibit"] == "true" else "")


def heading(row):
    """What was run, where, and what kind of times these are."""
    kinds = {"roofline": "times are a roofline", "modelled": "times are modelled",
             "measured": "times are measured"}
    where = row["gpu"] if row["device"] == "gpu" else f"softgpu, modelling {row['gpu']}"
    shared = f" ({row['kv_heads']} K/V)" if row["kv_heads"] != row["heads"] else ""
    parts = [f"chapter {row['chapter']}", row["dtype"], f"batch {row['batch']}",
             f"heads {row['heads']}{shared}",
             f"seqlen {row['seqlen_q']} × {row['seqlen_k']}", f"head_dim {row['head_dim']}"]
    if row["causal"] == "true":
        parts.append("causal")
    return " · ".join(parts) + "\n" + " · ".join(
        [where] + ([kinds[row["time_kind"]]] if row["time_kind"] in kinds else []))


def least_bytes(row):
    """What a forward pass must move at least: Q, K and V once, O and lse once."""
    queries = int(row["heads"]) * int(row["total_q"])
    keys = int(row["kv_heads"]) * int(row["total_k"])
    size = ELEMENT_BYTES[row["dtype"]]
    key_size = 1 if row["fp8_cache"] == "true" else size
    return 2 * (queries * size + keys * key_size) * int(row["head_dim"]) + 4 * queries


def draw_speedups(axes, rows):
    from matplotlib.ticker import LogLocator, NullFormatter

    places = [k for k, row in enumerate(rows) if number(row["speedup_over_naive"])]
    values = [number(rows[k]["speedup_over_naive"]) for k in places]
    colours = [WARM if rows[k]["pass"] == "backward" else DARK for k in places]
    # On a log scale a bar needs a foot: it stands on 1, where naive is.
    axes.barh(places, [v - 1 for v in values], left=1, color=colours, edgecolor="black", linewidth=0.5)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}×")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(min(values) / (1.8 if min(values) < 1 else 1.1), max(values) * 1.7)
    axes.axvline(1, color="black", linewidth=0.8)
    for place, value in zip(places, values):
        right = value >= 1
        axes.annotate(f"{value:.3g}×", (value, place), xytext=(4 if right else -4, 0),
                      textcoords="offset points", va="center", ha="left" if right else "right")
    axes.set_xlabel("speedup over naive (log scale)")
    axes.grid(axis="x", which="major", color=GRID)


def nice_step(most):
    """1, 2 or 5 times a power of ten, so that an axis up to `most` has about five marks."""
    power = 10 ** math.floor(math.log10(most / 5))
    return next(step * power for step in (1, 2, 5, 10) if step * power * 5.5 >= most)


def draw_bytes(axes, rows):
    from matplotlib.ticker import MultipleLocator

    places = [k for k, row in enumerate(rows) if number(row["hbm_read_bytes"]) is not None]
    read = [number(rows[k]["hbm_read_bytes"]) for k in places]
    written = [number(rows[k]["hbm_write_bytes"]) or 0 for k in places]
    axes.barh(places, read, color=DARK, edgecolor="black", linewidth=0.5, label="read")
    axes.barh(places, written, left=read, color=LIGHT, edgecolor="black", linewidth=0.5, hatch="//",
              label="written")
    for place, total in zip(places, (r + w for r, w in zip(read, written))):
        axes.annotate(bytes_text(total), (total, place), xytext=(4, 0), textcoords="offset points",
                      va="center")
    if all(row["pass"] == "forward" for row in rows):
        axes.axvline(least_bytes(rows[0]), color=WARM, linestyle=(0, (2, 1)), linewidth=2,
                     label="Q, K, V, O and lse once: " + bytes_text(least_bytes(rows[0])))
    most = max([r + w for r, w in zip(read, written)] + [least_bytes(rows[0])])
    scale, unit = (1e9, "GB") if most >= 1e9 else (1e6, "MB") if most >= 1e6 else (1e3, "KB")
    axes.set_xlim(0, most * 1.22)
    axes.xaxis.set_major_locator(MultipleLocator(scale * nice_step(most / scale)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / scale:g}")
    axes.set_xlabel(f"through HBM ({unit})")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3, frameon=False, borderaxespad=0.2,
                handlelength=1.4, columnspacing=1.2)
    axes.grid(axis="x", color=GRID)


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    plot = load_pyplot()
    rows = read_rows(sys.argv[1])
    panels = []
    speedups = [row for row in rows if number(row["speedup_over_naive"])]
    if any(row["step"] != "naive" for row in speedups):
        panels.append(draw_speedups)
    if any(number(row["hbm_read_bytes"]) is not None for row in rows):
        panels.append(draw_bytes)
    if not panels and speedups:
        panels.append(draw_speedups)
    if not panels:
        raise SystemExit("nothing was timed, so there is nothing to draw")

    height = 1.7 + 0.45 * len(rows)
    figure, axes = plot.subplots(1, len(panels), figsize=(3.2 + 4.4 * len(panels), height),
                                 squeeze=False, sharey=True)
    for place, draw in zip(axes[0], panels):
        place.set_axisbelow(True)
        draw(place, rows)
        for side in ("top", "right"):
            place.spines[side].set_visible(False)
    axes[0][0].set_yticks(range(len(rows)), [label(row) for row in rows])
    axes[0][0].set_ylim(len(rows) - 0.4, -0.6)
    figure.suptitle(heading(rows[-1]), fontsize=10, linespacing=1.4)
    figure.tight_layout()
    save(figure, sys.argv[2])


if __name__ == "__main__":
    main()
