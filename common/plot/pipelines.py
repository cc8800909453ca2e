"""Draws chapter 5's pictures of time: the cycles of products and exponentials, and who waits when.

usage: pipelines.py CYCLES.png PIPELINES.png

The rates of the modelled GPU come from $DUMP_LAYOUTS (softgpu's figures). The pipelines are drawn
from counts of multiply-adds and exponentials alone, as the lesson counts; no run is in them.
"""

import sys

from layouts import dumped
from style import DARK, GRID, LIGHT, MIDDLE, PALE, WARM, load_pyplot, save

TILE = 128        # query rows and keys of the lesson's tile
WARPGROUP = 64    # query rows of a warpgroup
GPU = "h100"


def rates():
    values = {row["name"]: row["value"] for row in dumped("rates", GPU)}
    return values["gpu"], float(values["tensor_flops"]), float(values["exponentials"])


def draw_cycles(plot, path):
    """Tensor cores against exponentials, by head_dim."""
    gpu, tensor_flops, exponentials = rates()
    figure, axes = plot.subplots(figsize=(8.4, 3.3))
    axes.set_axisbelow(True)
    dims = (64, 128, 256)
    for k, dim in enumerate(dims):
        tensor = 2 * 2 * TILE * TILE * dim / tensor_flops
        exponential = TILE * TILE / exponentials
        axes.barh(k - 0.19, tensor, 0.36, color=DARK, edgecolor="black", linewidth=0.5,
                  label="tensor cores: Q Kᵀ and P V" if k == 0 else None)
        axes.barh(k + 0.19, exponential, 0.36, color=WARM, edgecolor="black", linewidth=0.5, hatch="//",
                  label="MUFU: one exponential for each score" if k == 0 else None)
        axes.annotate(f"{tensor:.0f}", (tensor, k - 0.19), xytext=(4, 0), textcoords="offset points",
                      va="center")
        axes.annotate(f"{exponential:.0f}: {100 * exponential / tensor:.0f}%", (exponential, k + 0.19),
                      xytext=(4, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(dims)), [f"head_dim {dim}" for dim in dims])
    axes.set_ylim(len(dims) - 0.4, -0.6)
    axes.set_xlim(0, 2 * 2 * TILE * TILE * dims[-1] / tensor_flops * 1.1)
    axes.set_xlabel(f"cycles of an SM for a tile of {TILE} rows and {TILE} keys")
    axes.grid(axis="x", color=GRID)
    axes.legend(loc="upper right", frameon=True, edgecolor="white")
    axes.set_title(f"{gpu}: {tensor_flops:.0f} FLOP and {exponentials:.0f} exponentials a cycle and SM",
                   fontsize=10)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    save(figure, path)


def bar(axes, row, start, length, text, colour, height=0.72, hatch=None):
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((start, row - height / 2), length, height, facecolor=colour,
                             edgecolor="black", linewidth=0.8, hatch=hatch))
    axes.text(start + length / 2, row, text, ha="center", va="center", fontsize=8.5,
              color="white" if colour == DARK else "black", linespacing=1.2, clip_on=True,
              bbox={"facecolor": colour, "edgecolor": "none", "pad": 0.8} if hatch else None)


def in_step(axes, product, softmax):
    """Both warpgroups multiply together, then both do their softmax."""
    both, period = 2 * product, 4 * product + 2 * softmax
    for j in range(2):
        start = j * period
        bar(axes, 0, start, both, f"Q K({j})ᵀ of 1 and 2", DARK)
        for warpgroup in (1, 2):
            bar(axes, warpgroup, start + both, 2 * softmax, f"softmax({j})\nat half speed", WARM,
                hatch="//")
        bar(axes, 0, start + both + 2 * softmax, both, f"P V({j}) of 1 and 2", MIDDLE)
    return f"warp-specialised, both warpgroups in step: {period:.0f} cycles a block of keys"


def pingpong(axes, product, softmax):
    """A warpgroup's turn: P V of one block and Q Kᵀ of the next, while the other does its softmax."""
    colours = {1: DARK, 2: LIGHT}
    for warpgroup in (1, 2):
        start = (warpgroup - 1) * product
        bar(axes, 0, start, product, f"Q K(0)ᵀ\nof {warpgroup}", colours[warpgroup])
        bar(axes, warpgroup, start + product, softmax, "softmax(0)", WARM, hatch="//")
    for turn in range(5):
        warpgroup, j = 1 + turn % 2, turn // 2
        start = 2 * product + turn * 2 * product
        bar(axes, 0, start, product, f"P V({j})\nof {warpgroup}", colours[warpgroup])
        bar(axes, 0, start + product, product, f"Q K({j + 1})ᵀ\nof {warpgroup}", colours[warpgroup])
        if turn < 4:
            bar(axes, warpgroup, start + 2 * product, softmax, f"softmax({j + 1})", WARM, hatch="//")
    return (f"pingpong: {4 * product:.0f} cycles a block of keys, as long as one's softmax fits into "
            "the other's turn")


def intra_warpgroup(axes, product, softmax):
    """One warpgroup alone: Q Kᵀ of the next block is started before P V of this one."""
    bar(axes, 0, 0, product, "Q K(0)ᵀ", DARK)
    bar(axes, 1, product, softmax, "softmax(0)", WARM, hatch="//")
    start = product + softmax
    for j in range(1, 6):
        bar(axes, 0, start, product, f"Q K({j})ᵀ", DARK)
        bar(axes, 0, start + product, product, f"P V({j - 1})", MIDDLE)
        bar(axes, 1, start + product, softmax, f"softmax({j})", WARM, hatch="//")
        start += product + max(product, softmax)
    return (f"intra-warpgroup, one warpgroup alone: {product + max(product, softmax):.0f} cycles a block "
            "of keys, its own softmax beside its own P V")


def draw_pipelines(plot, path):
    gpu, tensor_flops, exponentials = rates()
    dim = 128
    product = 2 * WARPGROUP * TILE * dim / tensor_flops  # Q Kᵀ or P V of a warpgroup
    softmax = WARPGROUP * TILE / exponentials            # its exponentials, alone on the MUFU
    figure, places = plot.subplots(3, 1, figsize=(11, 7.2), sharex=True,
                                   gridspec_kw={"height_ratios": [3, 3, 2]})
    for axes, draw, names in zip(places, (in_step, pingpong, intra_warpgroup),
                                 (("tensor cores", "warpgroup 1", "warpgroup 2"),) * 2
                                 + (("tensor cores", "warpgroup 1"),)):
        title = draw(axes, product, softmax)
        axes.axhspan(-0.5, 0.5, color=PALE, zorder=0)
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.45, -0.55)
        axes.set_xlim(0, 12 * product)
        axes.set_xticks([k * product for k in range(13)])
        axes.tick_params(axis="y", length=0)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
    places[-1].set_xlabel(f"cycles of an SM, head_dim {dim}, {WARPGROUP} rows a warpgroup, blocks of "
                          f"{TILE} keys; products and exponentials alone are counted: no run")
    figure.tight_layout()
    save(figure, path)


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    plot = load_pyplot()
    draw_cycles(plot, sys.argv[1])
    draw_pipelines(plot, sys.argv[2])


if __name__ == "__main__":
    main()
