"""Draws TFLOP/s over the sequence length, a line for each step, published curves beside them.

usage: ladder_picture.py results/ladder.json results/ladder.png
"""

import json
import sys

from style import DARK, GRID, MIDDLE, WARM, load_pyplot, save

# Line, marker, filled: apart in grey, too.
LOOKS = (
    ("#777777", "-", "s", True),
    (WARM, "-", "o", True),
    (MIDDLE, "--", "v", False),
    (MIDDLE, "-.", "^", False),
    (MIDDLE, "-", "D", True),
    (DARK, "--", "P", False),
    (DARK, "-", "o", True),
    ("black", ":", "x", True),
)
PUBLISHED = (("#b03020", "*"), ("#8a6a20", "h"))


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    plot = load_pyplot()
    with open(sys.argv[1], encoding="utf-8") as stream:
        ladder = json.load(stream)
    rows = [row for row in ladder["rows"] if row["tflops"]]
    names = []
    for row in rows:
        if (row["chapter"], row["step"]) not in names:
            names.append((row["chapter"], row["step"]))
    names.sort(key=lambda pair: pair[0])
    figure, axes = plot.subplots(figsize=(10, 6), layout="constrained")
    axes.set_axisbelow(True)
    for k, (chapter, name) in enumerate(names):
        colour, line, marker, filled = LOOKS[k % len(LOOKS)]
        points = [
            (row["seqlen"], row["tflops"])
            for row in rows
            if (row["chapter"], row["step"]) == (chapter, name)
        ]
        axes.plot(
            *zip(*points),
            color=colour,
            linestyle=line,
            marker=marker,
            markersize=7,
            linewidth=1.7,
            markerfacecolor=colour if filled else "white",
            label=f"{chapter} {name}",
        )
    lengths = sorted({row["seqlen"] for row in rows})
    for k, curve in enumerate(ladder["published"]):
        colour, marker = PUBLISHED[k % len(PUBLISHED)]
        points = [(n, v) for n, v in zip(curve["seqlen"], curve["tflops"]) if n in lengths]
        if not points:
            continue
        axes.plot(
            *zip(*points),
            color=colour,
            linestyle=(0, (1, 1.5)),
            marker=marker,
            markersize=10,
            markerfacecolor="white",
            linewidth=1.2,
            label=f"{curve['label']}, measured:\n{curve['source']}",
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [str(n) if n < 1024 else f"{n // 1024}k" for n in lengths])
    axes.set_xlabel("sequence length (log scale)")
    axes.set_ylabel("TFLOP/s, as the papers count them")
    axes.set_ylim(bottom=0)
    axes.grid(color=GRID)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    simulated = ladder["samples"]
    sampled = next(iter(simulated.values()))
    if len(set(simulated.values())) > 1:
        counts = [text.split(" of ")[0] for text in simulated.values()]
        sampled = "SMs simulated at each length: " + ", ".join(counts)
    axes.set_title(
        f"{ladder['heading']}\n{ladder['where']}\n{sampled}", fontsize=10, linespacing=1.4
    )
    save(figure, sys.argv[2])


if __name__ == "__main__":
    main()
