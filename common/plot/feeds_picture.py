"""Draws what a tile of K and V costs each unit, for the steps on tensor cores.

usage: feeds_picture.py results/feeds.csv results/feeds.png

A bar that is much longer than the tensor cores' is cut off and has its number.
"""

import csv
import sys

from style import DARK, GRID, LIGHT, MIDDLE, PALE, WARM, load_pyplot, save

FEEDS = (
    ("tensor_cycles", "tensor cores", DARK, ""),
    ("mufu_cycles", "exponential (MUFU)", WARM, "//"),
    ("fma_cycles", "FMA", LIGHT, ".."),
    ("shared_cycles", "shared memory", MIDDLE, "xx"),
    ("load_cycles", "L2 to SM (TMA, cp.async, loads)", PALE, ""),
)


LONGEST = 3  # times the tensor cores' bar: where the axis ends


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    plot = load_pyplot()
    with open(sys.argv[1], newline="", encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if float(row["tensor_cycles"]) > 0]
    if not rows:
        raise SystemExit("no step on tensor cores, so there is nothing to draw")
    dims = sorted({int(row["head_dim"]) for row in rows})
    figure, axes = plot.subplots(
        1,
        len(dims),
        figsize=(2.2 + 3.9 * len(dims), 2.1 + 0.62 * len(rows) / len(dims)),
        squeeze=False,
        sharey=True,
        layout="constrained",
    )
    for place, head_dim in zip(axes[0], dims):
        shown = [row for row in rows if int(row["head_dim"]) == head_dim]
        height = 0.84 / len(FEEDS)
        tensor = max(float(row["tensor_cycles"]) for row in shown)
        place.set_xlim(0, LONGEST * tensor)
        for k, (name, label, colour, hatch) in enumerate(FEEDS):
            places = [at + (k - (len(FEEDS) - 1) / 2) * height for at in range(len(shown))]
            values = [float(row[name]) for row in shown]
            for at, value in zip(places, values):
                if value > LONGEST * tensor:  # cut off: its number says how long it is
                    place.annotate(
                        f"{value:.0f} ▸",
                        (LONGEST * tensor, at),
                        xytext=(-3, 0),
                        fontsize=8,
                        ha="right",
                        va="center",
                        textcoords="offset points",
                        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
                    )
            place.barh(
                places,
                values,
                height=height,
                color=colour,
                hatch=hatch,
                edgecolor="black",
                linewidth=0.5,
                label=label,
            )
        ratio = float(shown[-1]["exponential_over_tensor_percent"])
        place.set_title(
            f"head_dim {head_dim}\nexponential : tensor = {ratio:.0f} % ({shown[-1]['step']})",
            fontsize=10,
        )
        place.set_xlabel("cycles of an SM for 128 queries × 128 keys")
        place.set_axisbelow(True)
        place.grid(axis="x", color=GRID)
        place.set_yticks(range(len(shown)), [f"{row['chapter']} {row['step']}" for row in shown])
        place.set_ylim(len(shown) - 0.45, -0.55)
        for side in ("top", "right"):
            place.spines[side].set_visible(False)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(FEEDS), frameon=False)
    figure.suptitle(
        "What each unit alone needs for a tile, counted by softgpu, not timed · fp16 · "
        + rows[0]["gpu"],
        fontsize=10.5,
    )
    save(figure, sys.argv[2])


if __name__ == "__main__":
    main()
