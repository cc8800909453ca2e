"""Compares all steps on one problem: what `make compare` does.

usage: compare.py BUILD/VARIANT CHAPTERS [OPTIONS OF ./run]    compare.py build/d64-128 1,2,3,5

Three panels: forward, backward, and decode (chapter 9's). In a panel all steps solve one
problem on one GPU, naive too, so every ratio is within one problem and one GPU: chapters 1 to 7 and
9 on h100; chapter 8, which needs b200, has a group of its own there, with naive and chapters 2 to 4
run again. Times are of a sample of the SMs (the heading says of how many; chapter 7's and 8's of all), so
their outputs are not complete; each step is checked on a small problem beforehand. Options given
here go to every run: --head-dim 64 is another problem. Writes results/compare.csv, .json and .png; without matplotlib
no picture. Needs nothing but Python.
"""

import os
import pathlib
import subprocess
import sys

import runs
from runs import DASH, Failed, plain, scaled, time_text

# At least two waves of thread blocks: 1024 tiles of 128 rows on 132 SMs are nearly eight, 512 tiles
# of 128 keys nearly four.
SIZES = ["--batch", 4, "--heads", 16, "--head-dim", 128, "--dtype", "fp16", "--sample", "auto"]
# One query token of one sequence; a quarter of the chip, with its share of the heads, all simulated.
TOKEN = ["--batch", 1, "--heads", 8, "--kv-heads", 2, "--seqlen-q", 1]
TIMED = {
    "forward": [*SIZES, "--seqlen", 2048],
    "backward": [*SIZES, "--seqlen", 1024],
    "decode": [*TOKEN, "--seqlen-k", 32768, "--head-dim", 128, "--dtype", "fp16", "--sms", 33]
    + ["--sample", 0],
}
CHECKED = {
    "forward": ["--batch", 1, "--heads", 2, "--seqlen", 397, "--check-only"],
    "decode": [*TOKEN, "--seqlen-k", 1003, "--check-only"],
}
CHECKED["backward"] = CHECKED["forward"]
CEILING = "gemm-only"  # exhibit: the products alone
PANELS = [
    ("forward", "h100", (1, 2, 3, 5, 6, 7)),
    ("forward", "b200", (1, 2, 3, 8)),
    ("backward", "h100", (1, 4, 5)),
    ("backward", "b200", (1, 4, 8)),
    ("decode", "h100", (1, 9)),
]
PANEL_NEEDS = {"decode": 9}
NEEDS = {"b200": 8}  # a group is run when this chapter is there
WHOLE = (7, 8)  # their blocks share out all tiles: no sample can stand for the GPU
MEASURED = (
    "time_us",
    "tflops",
    "peak_fraction",
    "hbm_fraction",
    "hbm_read_bytes",
    "hbm_write_bytes",
    "workspace_bytes",
)
BYTES = ("B", "KB", "MB", "GB", "TB")


def run_step_lists(runner, variant, panel, gpu, chapter, more):
    """The check and the timing of a chapter's own steps."""
    backward = ["--backward"] if panel == "backward" else []
    exhibits = (CEILING,) if panel == "forward" else ()
    steps = runs.own_steps(variant, chapter, exhibits, panel == "backward")
    common = ["--gpu", gpu, "--steps", ",".join(steps), *backward]
    if chapter in WHOLE and panel == "forward":
        more = [*more, "--sample", 0]
    name = f"{panel}-{gpu}-chapter-{chapter}"
    timed = runner.run(
        variant, chapter, [*common, *TIMED[panel], *more, "--check", "none"], f"{name}-timed"
    )
    # The same variant of the kernels: dtype and head_dim are those of the timed problem.
    problem = timed["timed_problem"]
    checked = runner.run(
        variant,
        chapter,
        [
            *common,
            *CHECKED[panel],
            "--head-dim",
            problem["head_dim"],
            "--dtype",
            problem["dtype"],
            *(["--causal"] if problem["causal"] else []),
        ],
        f"{name}-checked",
    )
    return timed, checked


def verdict(step, checked):
    if step["exhibit"]:
        return "exhibit"
    if checked is None or checked["refused"]:
        return DASH
    if checked["device_error"] or step["device_error"]:
        return "DEVICE ERROR"
    if checked["findings"]:
        return "FINDINGS"
    return "ok" if checked["ok"] else DASH if checked["ok"] is None else "WRONG"


def collect(panel, gpu, found, failures):
    """The rows of a panel, with ratios within it."""
    rows, naive, previous = [], None, None
    direction = "backward" if panel == "backward" else "forward"
    for chapter, (timed, checked) in found:
        verdicts = {(s["name"], s["pass"]): s for s in checked["steps"]}
        for step in timed["steps"]:
            if step["pass"] != direction or step["refused"]:
                continue
            if step["device_error"] or not step["time_us"]:
                reason = step["device_error"] or "it was not timed"
                failures.append(f"{panel} on {gpu}: {step['name']}: {reason}")
                continue
            us = step["time_us"]
            naive = us if step["name"] == "naive" else naive
            rows.append(
                {
                    "panel": panel,
                    "gpu": gpu,
                    "chapter": chapter,
                    "step": step["name"],
                    "exhibit": step["exhibit"],
                    "ok": verdict(step, verdicts.get((step["name"], direction))),
                    "device": timed["device"]["kind"],
                    "time_kind": step["time_kind"],
                    "clock_ghz": timed["device"]["clock_ghz"],
                    **{name: timed["timed_problem"][name] for name in runs.PROBLEM},
                    **{name: step[name] for name in MEASURED},
                    "speedup_over_naive": naive / us if naive else None,
                    "speedup_over_previous": previous / us if previous else None,
                }
            )
            previous = previous if step["exhibit"] else us
    return rows


def print_panel(rows, run):
    decodes = rows[0]["panel"] == "decode"
    print(
        f"\n{rows[0]['panel']} · {runs.problem_text(run['timed_problem'])}\n"
        f"{runs.device_text(run)} · {runs.sample_text(run)}\n"
    )
    table = [
        [
            "step",
            "time",
            "TFLOP/s",
            "% HBM" if decodes else "% peak",
            "HBM read",
            "written",
            "workspace",
            "÷ naive",
            "÷ previous",
            "checked",
        ]
    ]
    for row in rows:
        peak = row["hbm_fraction" if decodes else "peak_fraction"]
        table.append(
            [
                f"{row['chapter']} {row['step']}",
                time_text(row["time_us"]),
                plain(row["tflops"]),
                plain(None if peak is None else 100 * peak, "%"),
                scaled(row["hbm_read_bytes"], BYTES),
                scaled(row["hbm_write_bytes"], BYTES),
                scaled(row["workspace_bytes"], BYTES),
                plain(row["speedup_over_naive"], "×"),
                plain(row["speedup_over_previous"], "×"),
                row["ok"],
            ]
        )
    runs.print_columns(table)


def draw():
    """The picture, by matplotlib's Python; False if there is none."""
    python = os.environ.get("PLOT_PYTHON") or sys.executable
    script = pathlib.Path(__file__).with_name("compare_picture.py")
    return (
        subprocess.run(
            [python, script, "results/compare.json", "results/compare.png"], check=False
        ).returncode
        == 0
    )


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    variant, more = sys.argv[1], sys.argv[3:]
    chapters = [int(n) for n in sys.argv[2].split(",")]
    runner, failures, rows, panels = runs.Runner("results/compare"), [], [], []
    for panel, gpu, members in PANELS:
        if NEEDS.get(gpu, chapters[0]) not in chapters:
            continue
        if PANEL_NEEDS.get(panel, chapters[0]) not in chapters:
            continue
        found = []
        for chapter in (n for n in members if n in chapters):
            try:
                found.append((chapter, run_step_lists(runner, variant, panel, gpu, chapter, more)))
            except Failed as failure:
                failures.append(f"{panel} on {gpu}: {failure}")
        panel_rows = collect(panel, gpu, found, failures)
        if not panel_rows:
            continue
        rows += panel_rows
        run = found[0][1][0]
        panels.append(
            {
                "panel": panel,
                "gpu": gpu,
                "problem": run["timed_problem"],
                "device": run["device"],
                "heading": runs.problem_text(run["timed_problem"]),
                "where": f"{runs.device_text(run)} · {runs.sample_text(run)}",
                "steps": panel_rows,
            }
        )
        print_panel(panel_rows, run)
    if not rows:
        return runs.finish(runner, failures or ["no step was timed"], [])
    wrong = [
        f"{row['panel']} on {row['gpu']}: {row['step']}: {row['ok']}"
        for row in rows
        if row["ok"] not in ("ok", "exhibit", DASH)
    ]
    runs.write_results("compare", rows, {"panels": panels, "failed": failures + wrong})
    files = ["results/compare.csv", "results/compare.json"] + (
        ["results/compare.png"] if draw() else []
    )
    return runs.finish(runner, failures + wrong, files)


if __name__ == "__main__":
    runs.start(main)
