"""Counts FlashAttention's first table again: what `make table-fa1` does.

usage: table_fa1.py BUILD/VARIANT/chapter-4/run

The paper's table is for GPT-2 medium, forward and backward, on an A100 with 40 GB (section 4.3), whose
HBM has three quarters of the bandwidth of the one with 80 GB. Here chapter 4's two steps
on tensor cores run on softgpu at the same seqlen and head_dim, with some of the heads on as large a
part of an A100; softgpu counts what they execute and what crosses to HBM, and that is scaled by the
number of heads. Only the columns headed "paper" are constants. Needs nothing but Python.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

SEQLEN, HEAD_DIM, HEADS = 1024, 64, 64 * 16  # batch 64, 16 heads
# Of an A100's SMs: eight, since a head has eight blocks of keys. They run side by side then, as on
# the whole chip; on fewer SMs one after the other, each bringing Q and dO back into a smaller L2.
SMS, ALL_SMS = 8, 108
COUNTED = round(HEADS * SMS / ALL_SMS)  # heads: as large a part as that of the SMs

GPU = "a100-40gb"
PAPER = {  # Dao et al. 2022, figure 2 left: GFLOP, HBM GB, ms
    "standard-tensor-cores": ("standard", 66.6, 40.3, 41.7),
    "recompute-tensor-cores": ("FlashAttention", 75.2, 4.4, 7.3),
}


def count(program, gpu=GPU):
    """Runs both steps; returns per step the sums of forward and backward, scaled to all heads."""
    with tempfile.TemporaryDirectory() as folder:
        command = [pathlib.Path(program).resolve(), "--device", "softgpu", "--gpu", gpu, "--sms", SMS,
                   "--steps", ",".join(PAPER), "--batch", 1, "--heads", COUNTED, "--seqlen", SEQLEN,
                   "--head-dim", HEAD_DIM, "--check", "none", "--json", "run.json"]
        done = subprocess.run([str(word) for word in command], cwd=folder, check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            raise SystemExit(f"{done.stdout}\ntable-fa1: the run ended with status {done.returncode}")
        run = json.loads(pathlib.Path(folder, "run.json").read_text(encoding="utf-8"))
    heads = HEADS / COUNTED
    sums = {name: {"gflop": 0, "gb": 0, "ms": 0, "memory": 0} for name in PAPER}
    for step in run["steps"]:
        total = sums[step["name"]]
        total["gflop"] += step["executed_flops"] * heads / 1e9
        total["gb"] += (step["hbm_read_bytes"] + step["hbm_write_bytes"]) * heads / 1e9
        total["ms"] += step["time_us"] * heads * SMS / ALL_SMS / 1e3
        total["memory"] = max(total["memory"], step["workspace_bytes"] * heads / 1e9)
    return run, sums


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    run, sums = count(sys.argv[1])
    standard, flash = (sums[name] for name in PAPER)
    kinds = sorted({step["time_kind"] for step in run["steps"]})
    clock = run["device"]["clock_ghz"]
    print(f"""FlashAttention's table: seqlen {SEQLEN}, head_dim {HEAD_DIM}, 16 heads, batch 64, fp16, forward + backward
counted on {COUNTED} of the {HEADS} heads, on {SMS} of the A100's {ALL_SMS} SMs with L2 and bandwidth in proportion
time: {' and '.join(kinds)}, {run['device']['gpu']} at {clock:.2f} GHz
""")
    print(f"{'':16}{'GFLOP':>8}{'paper':>8}{'HBM GB':>10}{'paper':>8}{'ms':>10}{'paper':>8}{'extra memory':>15}")
    for name, (label, gflop, gigabytes, ms) in PAPER.items():
        s = sums[name]
        print(f"{label:16}{s['gflop']:8.0f}{gflop:8}{s['gb']:10.1f}{gigabytes:8}{s['ms']:10.1f}{ms:8}"
              f"{s['memory']:12.2f} GB")
    first, second = PAPER.values()
    print(f"{'ratio':16}{flash['gflop'] / standard['gflop']:8.2f}{second[1] / first[1]:8.2f}"
          f"{standard['gb'] / flash['gb']:9.1f}×{first[2] / second[2]:7.1f}×"
          f"{standard['ms'] / flash['ms']:9.1f}×{first[3] / second[3]:7.1f}×"
          f"{standard['memory'] / flash['memory']:14.1f}×")

    product = 2 * HEADS * SEQLEN ** 2 * HEAD_DIM / 1e9  # GFLOP
    matrix = 2 * HEADS * SEQLEN ** 2 / 1e9              # GB of S in 16 bits
    print(f"""
Compare the ratios, not the columns:
- GFLOP: one matrix product of this shape is {product:.0f} GFLOP; standard attention needs 6 of them ({6 * product:.0f}),
  recomputation 7 ({7 * product:.0f}), a ratio of 7/6 = {7 / 6:.2f}. The paper's {first[1]} is {6 * product / first[1]:.1f} times less than its stated
  shape has, in both rows alike: its ratio says what it means, the column does not follow from the shape.
- HBM: S in 16 bits is {matrix:.2f} GB, so the paper's {first[2]} GB are {first[2] / matrix:.1f} passes over it and ours
  {standard['gb'] / matrix:.1f}. How many there are depends on how the work was cut into kernels, on masks and dropout
  (ours has none), and on what is kept in 32 bits: here S, dP and dS. The fused version's {flash['gb']:.1f} GB is less than
  the paper's {second[2]} because here a head's Q, K, V and dO stay in L2 while all of its blocks read them.
- ms: standard attention's time is its bytes. Ours moves {standard['gb'] / standard['ms']:.2f} TB/s on average, the paper's
  {first[2] / first[3]:.2f}; so there is less to win here than there. FlashAttention moves
  {flash['gb'] / flash['ms']:.2f} and {second[2] / second[3]:.2f} TB/s: it waits for other things.""")


if __name__ == "__main__":
    main()
