"""Draws the README's picture: for each chapter, how much faster than naive its steps are.

usage: speedup.py OUTPUT.png 01_naive/results.csv 02_tiled/results.csv …

Each ratio is within one run, one problem and one GPU. The bar is the chapter's last step, the circles
are all of its steps. The backward pass has bars of its own, below the forward's: a chapter about it
(its default run has a backward) is shown there only, since its forwards are those of earlier chapters.
"""

import csv
import sys

from style import DARK, GRID, WARM, load_pyplot, number, save


def read_passes(path):
    """The chapter's passes, each as (pass, a row, its own steps as (name, speedup) in order)."""
    with open(path, newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    backward = any(row["pass"] == "backward" for row in rows)
    wanted = "backward" if backward else "forward"
    steps = [(row["step"], number(row["speedup_over_naive"])) for row in rows
             if row["step_chapter"] == row["chapter"] and row["pass"] == wanted
             and row["exhibit"] == "false" and number(row["speedup_over_naive"])]
    return wanted, rows[-1], steps


def problem_of(row):
    return tuple(row[name] for name in ("dtype", "seqlen_q", "seqlen_k", "head_dim", "device", "gpu",
                                        "time_kind"))


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    plot = load_pyplot()
    from matplotlib.ticker import LogLocator, NullFormatter

    bars = sorted((bar for bar in map(read_passes, sys.argv[2:]) if bar[2]), key=lambda bar: bar[0] == "backward")
    if not bars:
        raise SystemExit("nothing was timed, so there is nothing to draw")
    figure, axes = plot.subplots(figsize=(8, 1.7 + 0.5 * len(bars)))
    axes.set_axisbelow(True)
    for place, (which, _, steps) in enumerate(bars):
        last = steps[-1][1]
        axes.barh(place, last - 1, left=1, height=0.62, color=DARK if which == "forward" else WARM,
                  edgecolor="black", linewidth=0.5)
        axes.plot([value for _, value in steps], [place] * len(steps), linestyle="", marker="o",
                  markersize=6, markerfacecolor="white", markeredgecolor="black")
        axes.annotate(f"{last:.3g}×", (max(value for _, value in steps), place), xytext=(9, 0),
                      textcoords="offset points", va="center")
    values = [value for _, _, steps in bars for _, value in steps]
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}×")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(0.9 * min(values + [1]), max(max(values) * 1.5, 2))
    axes.set_yticks(range(len(bars)), [f"{row['chapter']} {steps[-1][0]}" +
                                       ("\n(backward)" if which == "backward" else "")
                                       for which, row, steps in bars])
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.grid(axis="x", color=GRID)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    row = bars[-1][1]
    where = row["gpu"] if row["device"] == "gpu" else f"softgpu, modelling {row['gpu']}"
    kind = {"roofline": "times are a roofline"}.get(row["time_kind"], f"times are {row['time_kind']}")
    axes.set_xlabel("speedup over naive, same pass (log scale); circles: each step")
    title = (f"{row['dtype']} · seqlen {row['seqlen_q']} × {row['seqlen_k']} · head_dim {row['head_dim']}\n"
             f"{where} · {kind}")
    if len({problem_of(bar[1]) for bar in bars}) > 1:
        title = "each chapter's own problem and GPU: see the lessons"
    axes.set_title(title, fontsize=10, linespacing=1.4)
    figure.tight_layout()
    save(figure, sys.argv[1])


if __name__ == "__main__":
    main()
