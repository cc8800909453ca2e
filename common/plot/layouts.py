"""Draws chapter 5's pictures of shared memory: where TMA puts a tile, and what one wgmma reads of it.

usage: layouts.py OUTPUT.png

Every address comes from $DUMP_LAYOUTS (common/plot/dump_layouts.c), which asks softgpu's own address
functions; nothing is worked out here but which line and which bank an address is.
"""

import csv
import os
import subprocess
import sys

from style import DARK, LIGHT, MIDDLE, load_pyplot, save

LINES, LINE_BYTES, PIECE_BYTES = 24, 128, 16
STEPS = (DARK, MIDDLE, LIGHT, "#ffffff")


def dumped(*arguments):
    """The rows that softgpu's functions give."""
    program = os.environ.get("DUMP_LAYOUTS")
    if not program:
        raise SystemExit("DUMP_LAYOUTS is not set: make lessons CHAPTER=5 draws this picture")
    done = subprocess.run([program, *arguments], stdout=subprocess.PIPE, encoding="utf-8", check=True)
    return list(csv.DictReader(done.stdout.splitlines()))


def pieces(rows, layout):
    """(line, place) → (piece of 8 numbers, step) of all pieces that stand whole in one place."""
    found = {}
    for row in rows:
        if row["layout"] != layout or int(row["column"]) % 8:
            continue
        address = int(row["address"])
        place = (address // LINE_BYTES, address % LINE_BYTES // PIECE_BYTES)
        found[place] = (int(row["column"]) // 8, int(row["step"]))
    return found


def places_of_piece(found, piece):
    """How many different places of a line a piece has in the first eight rows."""
    return len({place for (line, place), (p, _) in found.items() if p == piece and line < 8})


def draw(axes, found, title, below, shade):
    """One tile: its lines of 128 bytes down, the 8 places of a line across."""
    from matplotlib.patches import Rectangle

    for (line, place), (piece, step) in found.items():
        if line >= LINES:
            continue
        colour = shade(piece, step)
        axes.add_patch(Rectangle((place, line), 1, 1, facecolor=colour, edgecolor="#888888",
                                 linewidth=0.5))
        axes.text(place + 0.5, line + 0.53, str(piece), ha="center", va="center", fontsize=8.5,
                  color="white" if colour == DARK else "black")
    for line in range(0, LINES + 1, 8):
        axes.plot([0, 8], [line, line], color="black", linewidth=1.4)
    axes.plot([0, 0, 8, 8], [0, LINES, LINES, 0], color="black", linewidth=0.9)
    axes.set_xlim(0, 8)
    axes.set_ylim(LINES, 0)
    axes.set_xticks([k + 0.5 for k in range(8)], [f"{4 * k}–{4 * k + 3}" for k in range(8)],
                    fontsize=7.5)
    axes.set_yticks([k + 0.5 for k in range(LINES)], range(LINES), fontsize=8)
    axes.tick_params(length=0)
    axes.set_xlabel("banks\n" + below, fontsize=9, linespacing=1.5)
    axes.set_title(title, fontsize=10, linespacing=1.35)
    for side in axes.spines.values():
        side.set_visible(False)


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    plot = load_pyplot()
    from matplotlib.patches import Patch

    rows = dumped("layouts")
    plain, k_major, mn_major = (pieces(rows, name) for name in ("plain", "k_major", "mn_major"))
    figure, axes = plot.subplots(1, 3, figsize=(11.4, 7.0))

    def by_step(piece, step):
        return STEPS[min(step, 3)]

    def by_piece(piece, step):
        return DARK if piece == 2 else "#ffffff"

    draw(axes[0], plain, "a box as TMA writes it\nwithout a swizzle",
         f"piece 2 of rows 0–7: {places_of_piece(plain, 2)} place of 8", by_piece)
    draw(axes[1], k_major, "128-byte swizzle, and K as a\nK-major operand: k runs along a line",
         f"piece 2 of rows 0–7: {places_of_piece(k_major, 2)} places of 8", by_step)
    draw(axes[2], mn_major, "128-byte swizzle, and V as an\nMN-major operand: k runs down the lines",
         f"piece 2 of rows 0–7: {places_of_piece(mn_major, 2)} places of 8", by_step)
    axes[0].set_ylabel("row of the tile (a key), 128 bytes a line: 64 numbers in 8 pieces", fontsize=9)
    patch = {"edgecolor": "black"}
    axes[0].legend(handles=[Patch(facecolor=DARK, label="piece 2: numbers 16–23 of a row", **patch)],
                   loc="upper center", bbox_to_anchor=(0.5, -0.12), frameon=False, fontsize=9)
    for place, steps in ((axes[1], 4), (axes[2], 2)):
        place.legend(handles=[Patch(facecolor=STEPS[k], label=f"k = {16 * k}–{16 * k + 15}", **patch)
                              for k in range(steps)],
                     title="read by the wgmma for", title_fontsize=9, loc="upper center",
                     bbox_to_anchor=(0.5, -0.12), ncols=2, frameon=False, fontsize=9)
    figure.suptitle("the figure in a cell: which piece of its row stands there · thick lines: "
                    "1024 bytes, one pattern of the swizzle", fontsize=9.5)
    figure.tight_layout()
    save(figure, sys.argv[1])


if __name__ == "__main__":
    main()
