"""Draws one chapter's results: speedup over naive, and the bytes that each step moves through HBM.

usage: chapter.py results/chapter-N.csv results/chapter-N.png

The two belong side by side: a step may be slower than the one before it and still be right for the
next one, and the bytes show it. Rows without a figure are left out, never drawn as 0.
"""

import csv
import sys

# Readable for the colour-blind, and as distinct greys on paper.
FORWARD, BACKWARD = "#1f5a94", "#e0a030"
READ, WRITTEN = "#1f5a94", "#a9c7e4"


def number(text):
    """The figure, or None where nothing was measured."""
    return float(text) if text else None


def read_rows(path):
    """The steps of the last problem in the file (a sweep holds several)."""
    with open(path, newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    if not rows:
        raise SystemExit(f"{path} holds no steps")
    sizes = ("batch", "heads", "kv_heads", "seqlen_q", "seqlen_k", "head_dim")
    last = [rows[-1][name] for name in sizes]
    return [row for row in rows if [row[name] for name in sizes] == last]


def label(row):
    name = row["step"]
    if row["step"] != "naive":
        name = f"{row['step_chapter']} {name}"
    if row["pass"] == "backward":
        name += "\n(backward)"
    return name + ("\n(exhibit)" if row["exhibit"] == "true" else "")


def heading(row):
    """What was run, where, and what kind of times these are."""
    kinds = {"roofline": "roofline times", "modelled": "modelled times", "measured": "measured times"}
    mask = "causal" if row["causal"] == "true" else "no causal mask"
    where = row["gpu"] if row["device"] == "gpu" else f"softgpu, modelling {row['gpu']}"
    return (
        f"chapter {row['chapter']} · {row['dtype']} · batch {row['batch']} · heads {row['heads']} · "
        f"seqlen {row['seqlen_q']} × {row['seqlen_k']} · head_dim {row['head_dim']} · {mask}\n"
        f"{where} · {kinds.get(row['time_kind'], row['time_kind'])}"
    )


def draw_speedups(axes, rows):
    from matplotlib.ticker import LogLocator, NullFormatter

    shown = [row for row in rows if number(row["speedup_over_naive"])]
    values = [number(row["speedup_over_naive"]) for row in shown]
    colours = [BACKWARD if row["pass"] == "backward" else FORWARD for row in shown]
    # On a log scale a bar needs a foot: it stands on 1, where naive is.
    axes.barh(range(len(shown)), [v - 1 for v in values], left=1, color=colours, edgecolor="black",
              linewidth=0.5)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}×")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(min(values + [1]) / 1.6, max(values + [1]) * 2.2)
    axes.axvline(1, color="black", linewidth=0.8)
    for place, value in enumerate(values):
        right = value >= 1
        axes.annotate(f"{value:.3g}×", (value, place), xytext=(4 if right else -4, 0),
                      textcoords="offset points", va="center", ha="left" if right else "right")
    axes.set_yticks(range(len(shown)), [label(row) for row in shown])
    axes.set_xlabel("speedup over naive (log scale)")
    axes.grid(axis="x", which="major", color="#dddddd")


def draw_bytes(axes, rows):
    shown = [row for row in rows if number(row["hbm_read_bytes"]) is not None]
    read = [number(row["hbm_read_bytes"]) / 1e6 for row in shown]
    written = [(number(row["hbm_write_bytes"]) or 0) / 1e6 for row in shown]
    axes.barh(range(len(shown)), read, color=READ, edgecolor="black", linewidth=0.5, label="read")
    axes.barh(range(len(shown)), written, left=read, color=WRITTEN, edgecolor="black", linewidth=0.5,
              hatch="//", label="written")
    for place, total in enumerate(r + w for r, w in zip(read, written)):
        axes.annotate(f"{total:.0f}" if total >= 100 else f"{total:.3g}", (total, place), xytext=(4, 0), textcoords="offset points",
                      va="center")
    axes.set_yticks(range(len(shown)), [label(row) for row in shown])
    axes.set_xlim(0, max([r + w for r, w in zip(read, written)] + [1e-3]) * 1.18)
    axes.set_xlabel("HBM traffic (MB)")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    axes.grid(axis="x", color="#dddddd")


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("matplotlib is missing; install it with: python3 -m pip install matplotlib "
                         "(or run make, which does)") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plot

    rows = read_rows(sys.argv[1])
    panels = []
    if any(number(row["speedup_over_naive"]) for row in rows):
        panels.append(draw_speedups)
    if any(number(row["hbm_read_bytes"]) is not None for row in rows):
        panels.append(draw_bytes)
    if not panels:
        raise SystemExit("nothing was timed, so there is nothing to draw")

    figure, axes = plot.subplots(1, len(panels), figsize=(5.6 * len(panels), 1.9 + 0.5 * len(rows)),
                                 squeeze=False)
    for place, draw in zip(axes[0], panels):
        place.set_axisbelow(True)
        place.invert_yaxis()
        draw(place, rows)
        for side in ("top", "right"):
            place.spines[side].set_visible(False)
    figure.suptitle(heading(rows[-1]), fontsize=10)
    figure.tight_layout()
    figure.savefig(sys.argv[2], dpi=150)


if __name__ == "__main__":
    main()
