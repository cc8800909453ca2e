"""TFLOP/s over the sequence length, a line for each step: what `make ladder` does.

usage: ladder.py BUILD/VARIANT CHAPTERS [OPTIONS OF ./run]    ladder.py build/d64-128 1,3,5 --causal

The problems are those of the FlashAttention-2 and -3 papers: 16384 tokens in all, so that batch ·
seqlen stays the same, and heads · head_dim = 2048, from seqlen 512 to 16384. softgpu simulates a
sample of the SMs, as many as hold the K and V of a head in their share of the L2; the output says
how many at each length. Where a paper has a curve for the same problem it stands beside ours, with
its source: measured there, on that GPU. Steps on CUDA cores end at seqlen 2048, as emulating them
takes long. Options go to every run; --backward, --causal, --head-dim and --steps choose another
figure, --lengths 512,1024 other lengths. Writes results/ladder.csv, .json and .png. Needs nothing
but Python; without matplotlib no picture.
"""

import os
import pathlib
import subprocess
import sys

import runs
from runs import DASH, Failed

TOKENS, WIDTH = 16384, 2048
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
LONGEST_ON_CUDA_CORES = 2048
CUDA_CORES = (
    "naive",
    "tiled-matmul",
    "two-pass",
    "normalise-every-block",
    "normalise-once",
    "standard",
    "recompute",
)
# Chapter 7's blocks take their tiles from a counter, so its GPU is run whole.
WHOLE = ("--sms", "132", "--sample", "0")
# The steps that the papers' figures are about: standard attention, FlashAttention-2, and the rungs
# to FlashAttention-3 with its ceiling.
FORWARD = (
    "naive",
    "cp-async",
    "wgmma",
    "tma-ring",
    "warp-specialised",
    "pingpong",
    "intra-warpgroup",
    "l2-order",
    "gemm-only",
)
BACKWARD = (
    "naive",
    "recompute-tensor-cores",
    "wgmma",
    "tma-ring",
    "warp-specialised",
    "pingpong",
    "intra-warpgroup",
)

CLOCK = "clock of the first version's figures unknown; the later version fixed 1.83 GHz"
FA3 = "Shah et al. 2024 (FlashAttention-3), H100 80GB SXM5"
# TFLOP/s at LENGTHS, measured: (pass, gpu, head_dim, causal).
PUBLISHED = {
    ("forward", "h100", 64, False): [("FlashAttention-3", FA3, (333, 392, 460, 476, 496, 497))],
    ("forward", "h100", 64, True): [("FlashAttention-3", FA3, (197, 265, 371, 420, 460, 473))],
    ("forward", "h100", 128, False): [
        ("FlashAttention-3", FA3, (467, 565, 625, 638, 646, 648)),
        ("FlashAttention-2", FA3, (309, 350, 362, 368, 370, 370)),
    ],
    ("forward", "h100", 128, True): [("FlashAttention-3", FA3, (292, 423, 521, 579, 602, 616))],
    ("backward", "h100", 64, False): [("FlashAttention-3", FA3, (272, 363, 422, 453, 472, 474))],
    ("backward", "h100", 128, False): [("FlashAttention-3", FA3, (316, 424, 501, 542, 559, 561))],
}


def take(options, name, otherwise):
    """Removes `name VALUE` (or name=VALUE) from the options; returns the value."""
    for k, option in enumerate(options):
        if option == name and k + 1 < len(options):
            value = options[k + 1]
            del options[k : k + 2]
            return value
        if option.startswith(name + "="):
            del options[k]
            return option[len(name) + 1 :]
    return otherwise


def steps_of(variant, chapter, wanted, length):
    exhibits = [name for name in wanted if name == "gemm-only"]
    return [
        name
        for name in runs.own_steps(variant, chapter, exhibits)
        if name in wanted and (name not in CUDA_CORES or length <= LONGEST_ON_CUDA_CORES)
    ]


def collect(runner, variant, chapters, lengths, figure, options, failures):
    """The rows, the first run of all, and which SMs were simulated at each length."""
    rows, first, samples = [], None, {}
    for length in lengths:
        for chapter in chapters:
            try:
                steps = steps_of(variant, chapter, figure["steps"], length)
                if not steps:
                    continue
                run = runner.run(
                    variant,
                    chapter,
                    [
                        "--gpu",
                        figure["gpu"],
                        "--steps",
                        ",".join(steps),
                        "--batch",
                        max(1, TOKENS // length),
                        "--heads",
                        WIDTH // figure["head_dim"],
                        "--seqlen",
                        length,
                        "--head-dim",
                        figure["head_dim"],
                        *(WHOLE if chapter == 7 else ("--sample", "auto")),
                        *options,
                        "--check",
                        "none",
                    ],
                    f"{figure['name']}-{length}-chapter-{chapter}",
                )
            except Failed as failure:
                failures.append(f"seqlen {length}: {failure}")
                continue
            first = first or run
            samples[length] = runs.sample_text(run)
            for step in run["steps"]:
                if step["pass"] != figure["pass"] or step["refused"]:
                    continue
                if step["device_error"]:
                    failures.append(f"seqlen {length}: {step['name']}: {step['device_error']}")
                problem = run["timed_problem"]
                rows.append(
                    {
                        "pass": step["pass"],
                        "gpu": run["device"]["gpu"],
                        "chapter": chapter,
                        "step": step["name"],
                        "exhibit": step["exhibit"],
                        "seqlen": length,
                        **{name: problem[name] for name in runs.PROBLEM},
                        "time_kind": step["time_kind"],
                        "clock_ghz": run["device"]["clock_ghz"],
                        **{name: step[name] for name in ("time_us", "tflops", "peak_fraction")},
                    }
                )
    return rows, first, samples


def print_rows(rows, published, lengths, samples):
    table = [["TFLOP/s at seqlen"] + [str(length) for length in lengths]]
    names = []
    for row in rows:
        if (row["chapter"], row["step"]) not in names:
            names.append((row["chapter"], row["step"]))
    for chapter, name in sorted(names, key=lambda pair: pair[0]):
        found = {
            row["seqlen"]: row["tflops"]
            for row in rows
            if row["step"] == name and row["chapter"] == chapter
        }
        table.append(
            [f"{chapter} {name}"]
            + [DASH if found.get(length) is None else f"{found[length]:.3g}" for length in lengths]
        )
    for label, _, values in published:
        table.append(
            [f"{label}, published"]
            + [str(dict(zip(LENGTHS, values)).get(length, DASH)) for length in lengths]
        )
    runs.print_columns(table)
    print(
        "\nsimulated: "
        + ", ".join(f"{length}: {samples[length]}" for length in lengths if length in samples)
    )
    for label, source, _ in published:
        print(f"{label}, published: {source}, measured ({CLOCK})")


def draw():
    python = os.environ.get("PLOT_PYTHON") or sys.executable
    script = pathlib.Path(__file__).with_name("ladder_picture.py")
    return (
        subprocess.run(
            [python, script, "results/ladder.json", "results/ladder.png"], check=False
        ).returncode
        == 0
    )


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    variant, options = sys.argv[1], sys.argv[3:]
    chapters = [int(n) for n in sys.argv[2].split(",")]
    backward = "--backward" in options
    figure = {
        "pass": "backward" if backward else "forward",
        "gpu": take(options, "--gpu", "h100"),
        "head_dim": int(take(options, "--head-dim", 128)),
        "causal": "--causal" in options,
    }
    figure["steps"] = take(options, "--steps", ",".join(BACKWARD if backward else FORWARD)).split(
        ","
    )
    lengths = [int(n) for n in take(options, "--lengths", ",".join(map(str, LENGTHS))).split(",")]
    figure["name"] = f"{figure['pass']}-{figure['gpu']}-d{figure['head_dim']}" + (
        "-causal" if figure["causal"] else ""
    )
    runner, failures = runs.Runner("results/ladder"), []
    rows, first, samples = collect(runner, variant, chapters, lengths, figure, options, failures)
    timed = [row for row in rows if row["tflops"]]
    if not timed:
        return runs.finish(runner, failures or ["no step was timed"], [])
    # A published curve stands beside ours only if the problem is the paper's.
    papers = all(
        row["batch"] * row["seqlen"] == TOKENS and row["heads"] * row["head_dim"] == WIDTH
        for row in timed
    )
    case = (figure["pass"], figure["gpu"], figure["head_dim"], figure["causal"])
    published = PUBLISHED.get(case, []) if papers else []
    heading = " · ".join(
        [
            figure["pass"],
            timed[0]["dtype"],
            f"head_dim {figure['head_dim']}",
            f"heads {timed[0]['heads']}",
            f"batch · seqlen = {TOKENS}" if papers else f"batch {timed[0]['batch']}",
            *(["causal"] if figure["causal"] else []),
        ]
    )
    where = runs.device_text(first)
    print(f"{heading}\n{where}\n")
    print_rows(rows, published, lengths, samples)
    runs.write_results(
        "ladder",
        rows,
        {
            "heading": heading,
            "where": where,
            "samples": samples,
            "rows": rows,
            "published": [
                {"label": label, "source": source, "seqlen": LENGTHS, "tflops": values}
                for label, source, values in published
            ],
            "failed": failures,
        },
    )
    files = ["results/ladder.csv", "results/ladder.json"] + (
        ["results/ladder.png"] if draw() else []
    )
    return runs.finish(runner, failures, files)


if __name__ == "__main__":
    runs.start(main)
