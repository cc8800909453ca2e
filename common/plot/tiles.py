"""Draws how a chapter's kernels walk the matrices: what stands in HBM, what on the chip.

usage: tiles.py 0N_chapter/results.csv 0N_chapter/tiles.png

The shapes are those of the chapter's timed problem, drawn to scale; the tile sizes are read from
common/device/tile.h (chapter 4's from its gradient_tile.h), so that the picture can't part from the
code.
"""

import csv
import pathlib
import re
import sys

from style import DARK, LIGHT, MIDDLE, PALE, WARM, bytes_text, load_pyplot, number, save

ELEMENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1}
COMMON = pathlib.Path(__file__).resolve().parent.parent
TILE_HEADER = COMMON / "device" / "tile.h"
GRADIENT_HEADER = COMMON.parent / "04_recompute_backward" / "gradient_tile.h"


class Problem:
    def __init__(self, path):
        with open(path, newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
        row = rows[-1]
        self.chapter, self.dtype = int(row["chapter"]), row["dtype"]
        self.batch, self.heads = int(row["batch"]), int(row["heads"])
        self.queries, self.keys = int(row["seqlen_q"]), int(row["seqlen_k"])
        self.head_dim = int(row["head_dim"])
        self.size = ELEMENT_BYTES[self.dtype]
        pairs = self.batch * self.heads
        self.row_bytes = pairs * self.queries * self.head_dim * self.size   # Q or O
        self.key_bytes = self.batch * int(row["kv_heads"]) * self.keys * self.head_dim * self.size
        self.score_bytes = pairs * self.queries * self.keys * self.size     # S or P
        self.lse_bytes = pairs * self.queries * 4
        self.workspace = {row["step"]: number(row["workspace_bytes"]) for row in rows}

    def text(self):
        return (f"batch {self.batch} · heads {self.heads} · seqlen {self.queries} × {self.keys} · "
                f"head_dim {self.head_dim} · {self.dtype}")


def tile_sizes(head_dim, header=TILE_HEADER):
    """The constants of a header's tile for this head_dim, worked out line by line."""
    text = header.read_text(encoding="utf-8")
    values = {"HEAD_DIM": head_dim}
    for name, value in re.findall(r"static const(?:expr)? int (\w+) = ([^;]+);", text):
        value = re.sub(r"(.+?) \? (.+) : (.+)", r"(\2) if (\1) else (\3)", value).replace("/", "//")
        if set(re.findall(r"[A-Z_]{2,}", value)) <= set(values):
            values[name] = eval(value, {"__builtins__": {}}, values)  # arithmetic of our own header
    return values


def box(axes, x, y, width, height, text="", colour=PALE, size=9, **more):
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor="black",
                             linewidth=0.8, **more))
    if text:
        dark = colour == DARK
        axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=size,
                  color="white" if dark else "black", linespacing=1.35)


def arrow(axes, start, end, text="", side="right", gap=0.07):
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": "black", "linewidth": 1.3,
                                             "shrinkA": 0, "shrinkB": 0})
    if text:
        x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
        axes.text(x + (gap if side == "right" else -gap), y, text, va="center", fontsize=9,
                  ha="left" if side == "right" else "right", linespacing=1.25)


def canvas(plot, width, height):
    figure, axes = plot.subplots(figsize=(width, height))
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    axes.axis("off")
    figure.subplots_adjust(0, 0, 1, 1)
    return figure, axes


def band(axes, x, y, width, height, name, colour):
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor="none", zorder=0))
    axes.text(x + 0.1, y + height - 0.18, name, fontsize=9, fontweight="bold", va="center")


def draw_naive(plot, problem):
    """Three kernels; one head's matrices to scale; the bytes of each arrow for all heads."""
    figure, axes = canvas(plot, 10.2, 5.0)
    band(axes, 0, 1.9, 10.2, 2.75, "HBM", "#f3f3f3")
    band(axes, 0, 0, 10.2, 1.0, "on the chip", "#e4e4e4")
    side = 1.7
    thin = side * problem.head_dim / problem.keys
    bottom, top = 2.25, 2.25 + side
    box(axes, 0.8, bottom, thin, side, colour=DARK)
    axes.text(0.8 + thin / 2, bottom - 0.15, "Q", ha="center", va="center")
    box(axes, 1.3, top + 0.15, side, thin, colour=DARK)
    axes.text(1.3 + side + 0.1, top + 0.15 + thin / 2, "Kᵀ", va="center")
    box(axes, 1.3, bottom, side, side, f"S\n{problem.queries} × {problem.keys}", LIGHT)
    box(axes, 5.0, bottom, side, side, f"P\n{problem.queries} × {problem.keys}", LIGHT)
    box(axes, 7.5, bottom, thin, side, colour=DARK)
    axes.text(7.5 + thin / 2, bottom - 0.15, "V", ha="center", va="center")
    box(axes, 9.2, bottom, thin, side, colour=DARK)
    axes.text(9.2 + thin / 2, bottom - 0.15, "O", ha="center", va="center")

    kernels = [(1.15, "query_key_product\nS = scale · Q Kᵀ"), (3.95, "softmax_rows\nP = softmax(S)"),
               (7.35, "weighted_key_rows\nO = P V")]
    for x, text in kernels:
        box(axes, x, 0.2, 1.9, 0.6, text, "white")
    scores = bytes_text(problem.score_bytes)
    low, high = 0.8, 2.25
    both = bytes_text(problem.row_bytes + problem.key_bytes)
    arrow(axes, (1.0, 1.95), (1.3, low), f"Q, K\n{both}", "left", gap=0.15)
    arrow(axes, (1.95, low), (1.95, high), f"S\n{scores}")
    arrow(axes, (2.95, high), (4.2, low), f"S\n{scores}", gap=0.3)
    arrow(axes, (5.4, low), (5.4, high), f"P\n{scores}")
    arrow(axes, (6.5, high), (7.55, low), f"P\n{scores}", "left", gap=0.3)
    arrow(axes, (7.55, 1.95), (8.05, low), f"V\n{bytes_text(problem.key_bytes)}", gap=0.2)
    arrow(axes, (9.05, low), (9.22, 1.95), f"O\n{bytes_text(problem.row_bytes)}", gap=0.15)
    total = 4 * problem.score_bytes + 2 * (problem.row_bytes + problem.key_bytes)
    axes.text(5.1, 4.83, f"{problem.text()}: the arrows add up to {bytes_text(total)}, "
              f"{bytes_text(4 * problem.score_bytes)} of it S and P", ha="center", va="center", fontsize=10)
    axes.text(9.95, 4.45, "one head, to scale", ha="right", va="center", fontsize=9, style="italic")
    return figure


def draw_scores(axes, x, y, side, problem, tile, passes):
    """The scores of one head, cut into tiles; the strip of one thread block, and how it is walked."""
    from matplotlib.patches import Rectangle

    high = side * tile["ROWS"] / problem.queries
    wide = side * tile["KEYS"] / problem.keys
    axes.add_patch(Rectangle((x, y), side, side, facecolor="white", edgecolor="black", linewidth=0.8))
    row = problem.queries // tile["ROWS"] * 5 // 16
    strip = y + side - (row + 1) * high
    axes.add_patch(Rectangle((x, strip), side, high, facecolor=LIGHT, edgecolor="black", linewidth=0.8))
    for k in range(1, -(-problem.keys // tile["KEYS"])):
        axes.plot([x + k * wide] * 2, [y, y + side], color="#c4c4c4", linewidth=0.4, zorder=1.5)
    for k in range(1, -(-problem.queries // tile["ROWS"])):
        axes.plot([x, x + side], [y + k * high] * 2, color="#c4c4c4", linewidth=0.4, zorder=1.5)
    axes.add_patch(Rectangle((x, strip), wide, high, facecolor=DARK, edgecolor="black", linewidth=0.8,
                             zorder=2))
    for k in range(passes):
        level = strip + high * (0.5 if passes == 1 else (0.75 - 0.5 * k))
        arrow(axes, (x + wide * 1.3, level), (x + side - 0.03, level))
    axes.text(x + side / 2, y + side + 0.3, f"S of one head: {problem.queries} × {problem.keys},\n"
              "never stored", ha="center", va="center", fontsize=9, linespacing=1.3)
    blocks, tiles = -(-problem.queries // tile["ROWS"]), -(-problem.keys // tile["KEYS"])
    axes.text(x + side / 2, y - 0.42, f"a tile: {tile['ROWS']} rows × {tile['KEYS']} keys\n"
              f"a thread block: {tiles} tiles{', twice' if passes == 2 else ''}\n{blocks} blocks per head, "
              f"{blocks * problem.heads * problem.batch} in all", ha="center", va="center", fontsize=9,
              linespacing=1.35)
    return strip + high / 2


def draw_shared(axes, x, y, problem, tile, sources):
    """The tiles in shared memory, to the same scale as each other."""
    scale = 1.25 / 128
    names = [("Q", tile["ROWS"], problem.head_dim, tile["Q_FLOATS"]),
             (sources, tile["KEYS"], problem.head_dim, tile["KV_FLOATS"]),
             ("P", tile["ROWS"], tile["KEYS"], tile["P_FLOATS"])]
    for k, (name, rows, columns, floats) in enumerate(names):
        left = x + k * 1.12
        box(axes, left, y + 1.25 - rows * scale, columns * scale, rows * scale,
            f"{name}\n{rows} × {columns}", MIDDLE if name == "P" else LIGHT, 8.5)
        axes.text(left + columns * scale / 2, y + 1.25 - rows * scale - 0.14, f"{4 * floats / 1024:.0f} KiB",
                  ha="center", va="center", fontsize=8.5)
    axes.text(x - 0.05, y + 1.45, "shared memory of a block, fp32: "
              f"{tile['FUSED_BYTES'] / 1024:.0f} KiB", fontsize=9, va="center")


def tile_names(problem, tile):
    """The keys of the first two tiles, None for those between, and the keys of the last one."""
    keys = tile["KEYS"]
    last = (problem.keys - 1) // keys * keys
    return [f"keys 0–{keys - 1}", f"keys {keys}–{2 * keys - 1}", None, f"keys {last}–{problem.keys - 1}"]


def dots(axes, x, y):
    """Three dots at the height of an arrow, for what isn't drawn."""
    for k in (-1, 0, 1):
        axes.plot([x + 0.07 * k], [y], marker="o", markersize=2.4, color="black")


def draw_two_pass(plot, problem):
    """The tile walk, the shared memory, and what each of the two passes does with a block of keys."""
    tile = tile_sizes(problem.head_dim)
    figure, axes = canvas(plot, 10.2, 4.75)
    draw_scores(axes, 0.35, 1.05, 2.75, problem, tile, 2)
    draw_shared(axes, 4.0, 2.9, problem, tile, "K, V")
    axes.text(7.65, 3.75, f"in the registers of {tile['TILE_THREADS']} threads:\n"
              "S of the tile, which becomes P\nm and ℓ of 128 rows\nO of 128 rows (pass 2)".replace("128 rows", f"{tile['ROWS']} rows"), fontsize=9, va="center",
              linespacing=1.5)
    for k, name in enumerate(tile_names(problem, tile)):
        left = 4.95 + k * 1.3
        if name is None:
            dots(axes, left + 0.5, 1.93)
            dots(axes, left + 0.5, 0.73)
            continue
        axes.text(left + 0.55, 2.5, name, ha="center", va="center", fontsize=8.5)
        box(axes, left, 1.55, 1.1, 0.75, "K → S\nmax, sum", LIGHT, 8.5)
        box(axes, left, 0.35, 1.1, 0.75, "K → S → P\nV → O += P V", LIGHT, 8.5)
    axes.text(4.0, 1.93, "pass 1", va="center", fontsize=9, fontweight="bold")
    axes.text(4.0, 0.73, "pass 2", va="center", fontsize=9, fontweight="bold")
    for k in range(3):
        start = 4.95 + k * 1.3 + (1.1 if k != 2 else 0.75)
        arrow(axes, (start, 1.93), (start + (0.2 if k != 1 else 0.45), 1.93))
        arrow(axes, (start, 0.73), (start + (0.2 if k != 1 else 0.45), 0.73))
    arrow(axes, (9.4, 1.55), (5.5, 1.1))
    axes.text(9.95, 1.25, "m and ℓ of the whole row", ha="right", va="center", fontsize=9)
    arrow(axes, (9.4, 0.35), (9.4, 0.07), "O, lse to HBM", "left")
    axes.text(0.35, 4.55, problem.text(), fontsize=9, va="center")
    return figure


def draw_one_pass(plot, problem):
    """The tile walk, and what is carried from block to block."""
    tile = tile_sizes(problem.head_dim)
    figure, axes = canvas(plot, 10.2, 4.75)
    draw_scores(axes, 0.35, 1.05, 2.75, problem, tile, 1)
    for k, name in enumerate(tile_names(problem, tile)):
        left = 3.75 + k * 1.62
        if name is None:
            dots(axes, left + 0.55, 2.82)
            dots(axes, left + 0.55, 1.8)
            continue
        axes.text(left + 0.55, 4.2, name, ha="center", va="center", fontsize=9)
        box(axes, left, 3.4, 1.1, 0.55, "K → S", LIGHT)
        box(axes, left, 2.55, 1.1, 0.55, "m, ℓ", WARM)
        box(axes, left, 1.4, 1.1, 0.8, "V → O\n+= P V", LIGHT)
        arrow(axes, (left + 0.55, 3.4), (left + 0.55, 3.1))
        arrow(axes, (left + 0.55, 2.55), (left + 0.55, 2.2))
    for k in range(3):
        start = 3.75 + k * 1.62 + (1.1 if k != 2 else 0.75)
        end = 3.75 + (k + 1) * 1.62 + (0 if k != 1 else 0.35)
        arrow(axes, (start, 2.82), (end, 2.82))
        arrow(axes, (start, 1.8), (end, 1.8))
        if k == 0:
            axes.text((start + end) / 2, 2.98, "m, ℓ", ha="center", fontsize=9)
            axes.text((start + end) / 2, 1.96, "O", ha="center", fontsize=9)
    arrow(axes, (3.75 + 3 * 1.62 + 0.55, 1.4), (3.75 + 3 * 1.62 + 0.55, 1.05))
    axes.text(3.75 + 3 * 1.62 + 1.1, 0.9, "O / ℓ and lse = m + ln ℓ to HBM", ha="right", va="center", fontsize=9)
    axes.text(3.75, 0.72, "normalise-once, at every arrow:\nℓ and O are multiplied by e^(m − m_new), "
              "where m_new is\nthe maximum with the new block; then it adds its part", va="top", fontsize=9,
              linespacing=1.4)
    axes.text(0.35, 4.55, problem.text(), fontsize=9, va="center")
    return figure


def draw_recompute(plot, problem):
    """Keys outside, queries inside: one block's walk, one tile's work, and the memory of it all."""
    from matplotlib.patches import Rectangle

    tile = tile_sizes(problem.head_dim, GRADIENT_HEADER)
    figure, axes = canvas(plot, 10.2, 5.6)
    x, y, side = 0.75, 1.65, 2.75
    high, wide = side * tile["ROWS"] / problem.queries, side * tile["KEYS"] / problem.keys
    blocks, tiles = -(-problem.keys // tile["KEYS"]), -(-problem.queries // tile["ROWS"])
    own = x + blocks * 3 // 8 * wide
    axes.add_patch(Rectangle((x, y), side, side, facecolor="white", edgecolor="black", linewidth=0.8))
    axes.add_patch(Rectangle((own, y), wide, side, facecolor=LIGHT, edgecolor="black", linewidth=0.8))
    for k in range(1, blocks):
        axes.plot([x + k * wide] * 2, [y, y + side], color="#c4c4c4", linewidth=0.4, zorder=1.5)
    for k in range(1, tiles):
        axes.plot([x, x + side], [y + side - k * high] * 2, color="#c4c4c4", linewidth=0.4, zorder=1.5)
    axes.add_patch(Rectangle((own, y + side - high), wide, high, facecolor=DARK, edgecolor="black",
                             linewidth=0.8, zorder=2))
    arrow(axes, (own + wide / 2, y + side - high * 1.4), (own + wide / 2, y + 0.03))
    level = y + side * 0.3
    arrow(axes, (own - 0.05, level), (x + 0.05, level))
    axes.text((x + own) / 2, level + 0.14, "dQ", ha="center", va="center", fontsize=9)
    axes.text(x - 0.12, y + side / 2, "queries: inner loop", rotation=90, ha="center", va="center", fontsize=9)
    axes.text(x + side / 2, y + side + 0.35, "keys: one tile is one thread block's\n"
              f"S of one head, {problem.queries} × {problem.keys}: never stored", ha="center", va="center",
              fontsize=9, linespacing=1.35)
    heads = problem.batch * problem.heads
    axes.text(x + side / 2, y - 0.5, f"a tile: {tile['ROWS']} rows × {tile['KEYS']} keys\n"
              f"a thread block: {tiles} tiles, downwards\n{blocks} blocks per head, {blocks * heads} in all\n"
              "dQ of a row: a sum over all blocks", ha="center", va="center", fontsize=9, linespacing=1.35)

    axes.text(0.35, 5.4, f"recompute, backward · {problem.text()}", fontsize=9, va="center")
    left, middle, right, width, tall = 4.15, 6.3, 8.3, 1.55, 0.5
    axes.text(left, 4.95, "from HBM", fontsize=9, fontweight="bold", va="center")
    axes.text(middle, 4.95, "one tile, on the chip", fontsize=9, fontweight="bold", va="center")
    axes.text(right, 4.95, "sums", fontsize=9, fontweight="bold", va="center")
    box(axes, left, 4.2, width, tall, "K, V: once", LIGHT)
    box(axes, left, 3.55, width, tall, "Q, dO of the rows", LIGHT)
    box(axes, left, 2.55, width, 0.85, "kept: lse;  D = dO · O\na few numbers a row", DARK)
    box(axes, middle, 4.2, width, tall, "S = scale · Q Kᵀ", WARM)
    box(axes, middle, 3.4, width, tall, "P = e^(S − lse)", WARM)
    box(axes, middle, 2.55, width, 0.6, "dP = dO Vᵀ\ndS = P ∘ (dP − D)", LIGHT)
    box(axes, right, 4.2, width, tall, "dV += Pᵀ dO\nregisters", MIDDLE, 8.5)
    box(axes, right, 3.4, width, tall, "dK += dSᵀ Q\nregisters", MIDDLE, 8.5)
    box(axes, right, 2.6, width, tall, "dQ += dS K\natomics, fp32 in HBM", "white", 8.5)
    arrow(axes, (left + width, 4.45), (middle, 4.45))
    arrow(axes, (left + width, 3.9), (middle, 4.25))
    arrow(axes, (left + width, 3.1), (middle, 3.55))
    arrow(axes, (left + width, 2.85), (middle, 2.85))
    arrow(axes, (middle + width / 2, 4.2), (middle + width / 2, 3.9))
    arrow(axes, (middle + width / 2, 3.4), (middle + width / 2, 3.15))
    arrow(axes, (middle + width, 3.75), (right, 4.35))
    arrow(axes, (middle + width, 2.95), (right, 3.55))
    arrow(axes, (middle + width, 2.8), (right, 2.8))
    axes.add_patch(Rectangle((middle, 2.2), 0.22, 0.16, facecolor=WARM, edgecolor="black", linewidth=0.8))
    axes.text(middle + 0.3, 2.28, "computed again, where standard reads it", va="center", fontsize=8.5)

    axes.text(left, 1.75, "memory beside inputs and outputs", fontsize=9, fontweight="bold", va="center")
    most = max(value for value in problem.workspace.values() if value)
    parts = f"S, P, dP: 3 × {bytes_text(problem.score_bytes)}"
    bars = [("standard", parts), ("recompute", "dQ's sums in fp32, D, rest of lse")]
    for k, (step, holds) in enumerate(bars):
        value, low = problem.workspace.get(step), 1.2 - 0.55 * k
        axes.text(left, low + 0.16, step, va="center", fontsize=9)
        if value is None:
            axes.text(left + 1.1, low + 0.16, "—", va="center", fontsize=9)
            continue
        length = 2.3 * value / most
        axes.add_patch(Rectangle((left + 1.0, low), length, 0.32, facecolor=DARK, edgecolor="black",
                                 linewidth=0.8))
        axes.text(left + 1.08 + length, low + 0.16, f"{bytes_text(value)}  ({holds})", va="center", fontsize=9)
    axes.text(left, 0.25, f"what the backward reads of the softmax: P, {bytes_text(problem.score_bytes)}; "
              f"or lse, {bytes_text(problem.lse_bytes)}", va="center", fontsize=9)
    return figure


DRAWINGS = {1: draw_naive, 2: draw_two_pass, 3: draw_one_pass, 4: draw_recompute}


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    plot = load_pyplot()
    problem = Problem(sys.argv[1])
    if problem.chapter not in DRAWINGS:
        raise SystemExit(f"no tile walk is drawn for chapter {problem.chapter}")
    save(DRAWINGS[problem.chapter](plot, problem), sys.argv[2])


if __name__ == "__main__":
    main()
