"""Draws who computes which tile when: a panel for each schedule of ./run --schedule-study.

usage: schedule.py SCHEDULE.csv OUT.png

A line is a worker (an SM), a bar a tile of query rows, the darker the longer; what is white before
the panel's end is idle. The dashed line is the bound: no schedule ends before it. Schedules that do
the same as one before them get no panel. Few tiles are labelled, with the sequence and the number of
their blocks.
"""

import csv
import sys

from style import DARK, GRID, load_pyplot, save

NAMES = {"static": "static: worker w gets tiles w, w + workers, …",
         "in-order": "in order: who is free takes the next tile",
         "lpt": "LPT: the longest tiles first",
         "l2-sections": "LPT in sections of heads that fit in the L2",
         "2d-blocks": "LPT in blocks of heads by tiles",
         "z-curve": "LPT along a z-curve of heads by tiles"}
COLUMNS = ("schedule", "workers", "unit", "bound", "worker", "begin", "end", "batch", "head", "tile",
           "blocks")
LABELLED = 40  # tiles of a schedule, at most


class Schedule:
    """The tiles of one schedule, in the order of their places."""

    def __init__(self, row):
        self.key, self.workers, self.unit = row["schedule"], int(row["workers"]), row["unit"]
        self.bound, self.tiles = int(row["bound"]), []

    def add(self, row):
        self.tiles.append(tuple(int(row[name]) for name in COLUMNS[4:]))

    def makespan(self):
        return max(tile[2] for tile in self.tiles)


def read(path):
    schedules = {}
    try:
        with open(path, newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                schedules.setdefault(row["schedule"], Schedule(row)).add(row)
    except (OSError, KeyError, TypeError, ValueError) as problem:
        raise SystemExit(f"schedule.py: {path} is no CSV of ./run --schedule-study: {problem}") from None
    if not schedules:
        raise SystemExit(f"schedule.py: {path} has no tiles")
    different = []
    for schedule in schedules.values():
        if all(sorted(schedule.tiles) != sorted(other.tiles) for other in different):
            different.append(schedule)
    return different


def shade(blocks, most):
    """From nearly white, for the shortest tile, to DARK."""
    share = 0.12 + 0.88 * blocks / most if most else 1
    dark = [int(DARK[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    return tuple(1 - share * (1 - part) for part in dark)


def draw(axes, schedule, end, most):
    from matplotlib.collections import PolyCollection

    few = len(schedule.tiles) <= LABELLED
    bars, colours = [], []
    for worker, begin, stop, _, _, _, blocks in schedule.tiles:
        low, high = worker + (0.08 if few else 0), worker + (0.92 if few else 1)
        bars.append([(begin, low), (stop, low), (stop, high), (begin, high)])
        colours.append(shade(blocks, most))
    axes.add_collection(PolyCollection(bars, facecolors=colours, edgecolors="black" if few else "white",
                                       linewidths=0.8 if few else 0.1))
    if few:
        for worker, begin, stop, batch, _, _, blocks in schedule.tiles:
            axes.text((begin + stop) / 2, worker + 0.5, f"{'AB'[batch] if batch < 2 else batch} {blocks}",
                      ha="center", va="center", fontsize=9,
                      color="white" if blocks * 2 > most else "black")
        for worker in range(schedule.workers):
            last = max((tile[2] for tile in schedule.tiles if tile[0] == worker), default=0)
            axes.text(last + end * 0.01, worker + 0.5, f"{last}", va="center", fontsize=9)
    axes.axvline(schedule.bound, color="black", linestyle="--", linewidth=1.2, zorder=0.5 if few else 3)
    axes.set_xlim(0, end * 1.04)
    axes.set_ylim(schedule.workers, 0)
    over = schedule.makespan() / schedule.bound - 1
    # No percentages of a handful of units.
    axes.set_title(f"{NAMES.get(schedule.key, schedule.key)}\nends at {schedule.makespan():,}"
                   + ("" if few else f", {over:+.1%} over the bound"), fontsize=10)
    axes.set_ylabel("worker")
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    if few:
        axes.set_yticks([w + 0.5 for w in range(schedule.workers)], [str(w) for w in range(schedule.workers)])


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    plot = load_pyplot()
    schedules = read(sys.argv[1])
    few = len(schedules[0].tiles) <= LABELLED
    columns = 1 if few else 2
    rows = -(-len(schedules) // columns)
    figure, grid = plot.subplots(rows, columns, squeeze=False, sharex=True,
                                 figsize=(10.2, rows * (1.75 if few else 2.7) + 0.5))
    end = max(schedule.makespan() for schedule in schedules)
    most = max(tile[6] for schedule in schedules for tile in schedule.tiles)
    panels = list(grid.flat)
    for axes, schedule in zip(panels, schedules):
        draw(axes, schedule, end, most)
    for axes in panels[len(schedules):]:
        axes.axis("off")
    unit = "blocks of keys" if schedules[0].unit == "blocks" else "cycles"
    if end >= 1e6:
        unit = "million " + unit
        panels[0].xaxis.set_major_formatter(lambda value, _: f"{value / 1e6:g}")
    elif few:
        panels[0].xaxis.get_major_locator().set_params(integer=True, steps=[1])
    for axes in panels[max(len(schedules) - columns, 0):len(schedules)]:
        axes.set_xlabel(unit)
        axes.xaxis.set_tick_params(labelbottom=True)
    height = figure.get_figheight()
    figure.text(0.5, 0.08 / height, "bars: tiles of query rows, the longer the darker     dashed: no schedule "
                "ends before     white: idle", ha="center", va="bottom", fontsize=9)
    figure.tight_layout(rect=(0, 0.28 / height, 1, 1))
    save(figure, sys.argv[2])


if __name__ == "__main__":
    main()
