"""Chapter 8's flexible attention: what score mods and mask mods cost, and what block masks save.

usage: flexible.py PROGRAM

Runs PROGRAM (chapter 8's run) once for each mod, on one problem that its L2 holds the K and V of, and prints a
table: the blocks of keys that a mask visits, those of them that it is asked again in, the time, and that as a part
of the time without mods. The block mask is made beforehand, once for all launches, and its time stands apart.
"""

import json
import re
import subprocess
import sys
import tempfile

from runs import time_text

PROBLEM = ["--sms", "4", "--batch", "1", "--heads", "1", "--seqlen", "4096", "--head-dim", "128", "--check", "none"]
MODS = [[], ["--score-mod", "alibi"], ["--score-mod", "softcap"], ["--mask-mod", "causal"],
        ["--mask-mod", "causal", "--score-mod", "alibi"], ["--mask-mod", "window:512"],
        ["--mask-mod", "document:8"], ["--mask-mod", "prefix-lm:1024"]]
VISITS = re.compile(r"visits (\d+) of (\d+) blocks .* in (\d+) of them")


def run(program, mods):
    """The one step of a run, from its JSON."""
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run([program, *PROBLEM, *mods, "--steps", "flexible", "--json", "-", "--csv",
                               f"{scratch}/run.csv", "--plot", f"{scratch}/run.png"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, encoding="utf-8", check=False)
    if done.returncode != 0:
        raise SystemExit(f"flexible.py: {program} {' '.join(mods)} ended with status {done.returncode}:\n{done.stderr}")
    result = json.loads(done.stdout)
    return result["steps"][0], result["device"]


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    rows = [("mods", "blocks visited", "partial", "time", "of none's", "block mask made in")]
    without = None
    for mods in MODS:
        step, device = run(sys.argv[1], mods)
        without = without or step["time_us"]
        found = VISITS.match(step["remark"] or "")
        visited = f"{int(found[1])} of {int(found[2])}" if found else "all"
        rows.append((" ".join(mods[1::2]) or "none", visited, found[3] if found else "0",
                     time_text(step["time_us"]), f"{step['time_us'] / without:.2f}", time_text(step["prepare_us"])))
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    print(f"flexible on {device['name']}, {step['time_kind']} at {device['clock_ghz']:.3g} GHz: "
          f"1 head, seqlen 4096, head_dim 128\n")
    for row in rows:
        print("  ".join(cell.ljust(width) if k == 0 else cell.rjust(width)
                        for k, (cell, width) in enumerate(zip(row, widths))))


if __name__ == "__main__":
    main()
