"""Draws a comparison: a row of bar charts for each of its panels.

usage: compare_picture.py results/compare.json results/compare.png

Speedup over naive and bytes through HBM have log scales; % of peak has the ceiling beside it that
the products alone reach on the same tiles (gemm-only); decoding has % of the HBM's bandwidth. What was not measured
is left out.
"""

import json
import sys

from style import DARK, GRID, LIGHT, MIDDLE, PALE, WARM, bytes_text, load_pyplot, save

# A chapter has a colour and a hatch: distinct in grey, too.
LOOKS = {
    1: (PALE, ""),
    2: (LIGHT, "//"),
    3: (MIDDLE, ""),
    4: (WARM, "\\\\"),
    5: (DARK, ""),
    6: (LIGHT, "xx"),
    7: (MIDDLE, ".."),
    8: (WARM, ""),
    9: (PALE, "++"),
}
CEILING = "gemm-only"


def bars(axes, rows, places, values, left=None):
    for place, value in zip(places, values):
        colour, hatch = LOOKS[rows[place]["chapter"]]
        foot = left if left is not None else 0
        axes.barh(
            place,
            value - foot,
            left=foot,
            color=colour,
            hatch=hatch,
            edgecolor="black",
            linewidth=0.6,
        )


def label(axes, place, value, text):
    axes.annotate(
        text,
        (value, place),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=9,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
    )


def log_axis(axes, formatter, subs):
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=subs))
    axes.xaxis.set_major_formatter(formatter)
    axes.xaxis.set_minor_formatter(NullFormatter())


def draw_speedups(axes, rows):
    places = [k for k, row in enumerate(rows) if row["speedup_over_naive"] and not row["exhibit"]]
    values = [rows[k]["speedup_over_naive"] for k in places]
    if not values:
        return
    bars(axes, rows, places, values, left=1)
    most, least = max(values), min(values)
    log_axis(axes, "{x:g}×", (1, 2, 5) if most / least < 100 else (1,))
    axes.set_xlim(min(least, 1) / 1.15, most * 2.6)
    axes.axvline(1, color="black", linewidth=0.8)
    for place, value in zip(places, values):
        label(axes, place, max(value, 1), f"{value:.3g}×")
    axes.set_xlabel("speedup over naive (log scale)")


def draw_peaks(axes, rows):
    places = [k for k, row in enumerate(rows) if row["peak_fraction"] and not row["exhibit"]]
    values = [100 * rows[k]["peak_fraction"] for k in places]
    bars(axes, rows, places, values)
    for place, value in zip(places, values):
        label(axes, place, value, f"{value:.1f}" if value >= 1 else f"{value:.2g}")
    ceiling = next((row for row in rows if row["step"] == CEILING and row["peak_fraction"]), None)
    if ceiling:
        value = 100 * ceiling["peak_fraction"]
        axes.axvline(
            value,
            color="black",
            linestyle=(0, (4, 2)),
            linewidth=1.4,
            label=f"{CEILING}, {value:.1f} %: the same kernel without softmax",
        )
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1.0), frameon=False, borderaxespad=0.2, fontsize=9
        )
    axes.set_xlim(0, max(values + [100]))
    axes.set_xlabel("% of the tensor cores' peak at this clock")


def draw_bandwidths(axes, rows):
    places = [k for k, row in enumerate(rows) if row["hbm_fraction"]]
    values = [100 * rows[k]["hbm_fraction"] for k in places]
    bars(axes, rows, places, values)
    for place, value in zip(places, values):
        label(axes, place, value, f"{value:.1f}" if value >= 1 else f"{value:.2g}")
    axes.set_xlim(0, max(values + [100]))
    axes.set_xlabel("% of the HBM's bandwidth, each key and value once")


def draw_bytes(axes, rows):
    places = [k for k, row in enumerate(rows) if row["hbm_read_bytes"] and not row["exhibit"]]
    values = [rows[k]["hbm_read_bytes"] + (rows[k]["hbm_write_bytes"] or 0) for k in places]
    if not values:
        axes.text(0.5, 0.5, "not measured on a GPU", transform=axes.transAxes, ha="center")
        return
    foot = 10**-0.3 * min(values)
    bars(axes, rows, places, values, left=foot)
    close = max(values) / min(values) < 30
    log_axis(axes, lambda value, _: bytes_text(value).replace(".00", ""), (1, 3) if close else (1,))
    axes.set_xlim(foot, max(values) * 3.2)
    for place, value in zip(places, values):
        label(axes, place, value, bytes_text(value))
    axes.set_xlabel("read and written through HBM (log scale)")


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    plot = load_pyplot()
    with open(sys.argv[1], encoding="utf-8") as stream:
        panels = json.load(stream)["panels"]
    shown = [[row for row in panel["steps"] if not row["exhibit"]] for panel in panels]
    heights = [1.55 + 0.3 * len(rows) for rows in shown]
    figure = plot.figure(figsize=(14, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(panels), 1, height_ratios=heights, squeeze=False)
    for part, panel, rows in zip(parts[:, 0], panels, shown):
        axes = part.subplots(1, 3, sharey=True)
        share = draw_bandwidths if panel["panel"] == "decode" else draw_peaks
        for place, draw in zip(axes, (draw_speedups, share, draw_bytes)):
            place.set_axisbelow(True)
            place.grid(axis="x", which="major", color=GRID)
            draw(
                place,
                (
                    rows
                    if draw is not draw_peaks
                    else rows + [row for row in panel["steps"] if row["exhibit"]]
                ),
            )
            for side in ("top", "right"):
                place.spines[side].set_visible(False)
        axes[0].set_yticks(range(len(rows)), [f"{row['chapter']} {row['step']}" for row in rows])
        axes[0].set_ylim(len(rows) - 0.4, -0.6)
        part.suptitle(
            f"{panel['panel']} · {panel['heading']}\n{panel['where']}",
            fontsize=10.5,
            linespacing=1.4,
        )
    save(figure, sys.argv[2])


if __name__ == "__main__":
    main()
