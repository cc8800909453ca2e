"""Draws the README's picture: for each chapter, how much faster than naive its steps are.

usage: speedup.py OUTPUT.png 01_naive/results.csv 02_tiled/results.csv …

Each ratio is within one run, one problem and one GPU. The bar is the chapter's last forward step;
the circles are all of its steps.
"""

import csv
import sys

from style import DARK, GRID, load_pyplot, number, save


def read_chapter(path):
    """The chapter's number, and its own forward steps as (name, speedup), in order."""
    with open(path, newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    steps = [(row["step"], number(row["speedup_over_naive"])) for row in rows
             if row["step_chapter"] == row["chapter"] and row["pass"] == "forward"
             and row["exhibit"] == "false" and number(row["speedup_over_naive"])]
    return rows[-1], steps


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    plot = load_pyplot()
    from matplotlib.ticker import LogLocator, NullFormatter

    chapters = [chapter for chapter in map(read_chapter, sys.argv[2:]) if chapter[1]]
    figure, axes = plot.subplots(figsize=(8, 1.7 + 0.5 * len(chapters)))
    axes.set_axisbelow(True)
    for place, (_, steps) in enumerate(chapters):
        last = steps[-1][1]
        axes.barh(place, last - 1, left=1, height=0.62, color=DARK, edgecolor="black", linewidth=0.5)
        axes.plot([value for _, value in steps], [place] * len(steps), linestyle="", marker="o",
                  markersize=6, markerfacecolor="white", markeredgecolor="black")
        most = max(value for _, value in steps)
        axes.annotate(f"{last:.3g}×", (max(most, last), place), xytext=(9, 0), textcoords="offset points",
                      va="center")
    top = max(value for _, steps in chapters for _, value in steps)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}×")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(0.9, max(top * 1.5, 2))
    axes.set_yticks(range(len(chapters)),
                    [f"{row['chapter']} {steps[-1][0]}" for row, steps in chapters])
    axes.set_ylim(len(chapters) - 0.4, -0.6)
    axes.grid(axis="x", color=GRID)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    row = chapters[-1][0]
    where = row["gpu"] if row["device"] == "gpu" else f"softgpu, modelling {row['gpu']}"
    kind = {"roofline": "times are a roofline"}.get(row["time_kind"], f"times are {row['time_kind']}")
    axes.set_xlabel("speedup over naive (log scale); circles: each step of the chapter")
    axes.set_title(f"forward · {row['dtype']} · seqlen {row['seqlen_q']} × {row['seqlen_k']} · head_dim "
                   f"{row['head_dim']}\n{where} · {kind}", fontsize=10, linespacing=1.4)
    figure.tight_layout()
    save(figure, sys.argv[1])


if __name__ == "__main__":
    main()
