"""What a tile of K and V costs each unit: what `make feeds` does.

usage: feeds.py CHAPTERS HEAD_DIMS=BUILD/VARIANT…
       feeds.py 1,2,3,5 64,128=build/d64-128 256=build/d256

For each forward step and head_dim: the cycles that the tensor cores, the exponentials (MUFU),
shared memory and the way from L2 (TMA, cp.async or loads) would need at their full rates for a tile
of 128 queries × 128 keys, if nothing else were to be done. They are counted, not timed: softgpu
counts what the kernels execute, on a problem of whole tiles of every step, and divides by the rates
of the GPU. The largest number of a row is what bounds the step at best; all the others have to hide
behind it.
Writes results/feeds.csv, .json and .png. Needs nothing but Python; without matplotlib no picture.
"""

import os
import pathlib
import subprocess
import sys

import runs
from runs import Failed, plain

TILE = 128 * 128  # scores
GPU = "h100"
# Whole tiles of every step: rows of 64, 128 and 192; keys of 64, 128 and chapter 5's 128, 176, 80.
QUERIES = 1536
KEYS = {64: 1536, 128: 1408, 256: 1280}
FEEDS = (
    ("tensor", "tensor"),
    ("MUFU", "exponential"),
    ("FMA", "FMA"),
    ("ALU", "ALU"),
    ("shared", "shared memory"),
    ("load", "L2 to SM"),
)


def collect(runner, variant, head_dim, chapters, failures):
    rows = []
    for chapter in chapters:
        try:
            steps = runs.own_steps(variant, chapter)
            run = runner.run(
                variant,
                chapter,
                [
                    "--gpu",
                    GPU,
                    "--steps",
                    ",".join(steps),
                    "--dtype",
                    "fp16",
                    "--batch",
                    1,
                    "--heads",
                    1,
                    "--seqlen-q",
                    QUERIES,
                    "--seqlen-k",
                    KEYS[head_dim],
                    "--head-dim",
                    head_dim,
                    "--check",
                    "none",
                ],
                f"d{head_dim}-chapter-{chapter}",
            )
        except Failed as failure:
            failures.append(f"head_dim {head_dim}: {failure}")
            continue
        for step in run["steps"]:
            if step["refused"] or step["device_error"] or not step["work_cycles"]:
                failures.append(
                    f"head_dim {head_dim}: {step['name']}: "
                    f"{step['refused'] or step['device_error'] or 'nothing was counted'}"
                )
                continue
            tiles = QUERIES * KEYS[head_dim] / TILE
            cycles = {name: step["work_cycles"][name] / tiles for name, _ in FEEDS}
            ratio = 100 * cycles["MUFU"] / cycles["tensor"] if cycles["tensor"] else None
            rows.append(
                {
                    "head_dim": head_dim,
                    "chapter": chapter,
                    "step": step["name"],
                    "gpu": GPU,
                    **{f"{name.lower()}_cycles": value for name, value in cycles.items()},
                    "exponential_over_tensor_percent": ratio,
                }
            )
    return rows


def print_rows(rows):
    print(
        "Cycles of an SM for 128 queries × 128 keys, each unit alone at its full rate\n"
        f"fp16 · {GPU} · counted by softgpu, not timed\n"
    )
    for head_dim in sorted({row["head_dim"] for row in rows}):
        table = [
            [f"head_dim {head_dim}"]
            + [label for _, label in FEEDS]
            + ["exponential : tensor", "most"]
        ]
        for row in (row for row in rows if row["head_dim"] == head_dim):
            values = [(row[f"{name.lower()}_cycles"], label) for name, label in FEEDS]
            table.append(
                [f"{row['chapter']} {row['step']}"]
                + [f"{value:.0f}" for value, _ in values]
                + [plain(row["exponential_over_tensor_percent"], " %"), max(values)[1]]
            )
        runs.print_columns(table)
        print()
    print("""tensor: 4096 FLOP a cycle, what wgmma reaches.
exponential: 16 a cycle; one for each score takes 64 / head_dim of the tensor cores' time (100 % at
  64, 50 % at 128, 25 % at 256), the rest is rescaling, 1/x and logarithms.
shared memory: 128 bytes a cycle; bank conflicts, TMA's writes and wgmma's operands are counted.
L2 to SM: 64 bytes a cycle, whether TMA, cp.async or loads bring them.""")


def draw():
    python = os.environ.get("PLOT_PYTHON") or sys.executable
    script = pathlib.Path(__file__).with_name("feeds_picture.py")
    return (
        subprocess.run(
            [python, script, "results/feeds.csv", "results/feeds.png"], check=False
        ).returncode
        == 0
    )


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    chapters = [int(n) for n in sys.argv[1].split(",")]
    variants = {}
    for argument in sys.argv[2:]:
        dims, _, folder = argument.partition("=")
        variants.update({int(d): folder for d in dims.split(",") if int(d) in KEYS})
    if not variants:
        raise SystemExit(
            "feeds: needs one of the head_dims "
            + ", ".join(map(str, KEYS))
            + ': make feeds HEAD_DIMS="64 128 256"'
        )
    runner, failures, rows = runs.Runner("results/feeds"), [], []
    for head_dim in sorted(variants):
        rows += collect(runner, variants[head_dim], head_dim, chapters, failures)
    if not rows:
        return runs.finish(runner, failures, [])
    print_rows(rows)
    runs.write_results(
        "feeds", rows, {"gpu": GPU, "tile": [128, 128], "rows": rows, "failed": failures}
    )
    files = ["results/feeds.csv", "results/feeds.json"] + (["results/feeds.png"] if draw() else [])
    return runs.finish(runner, failures, files)


if __name__ == "__main__":
    runs.start(main)
