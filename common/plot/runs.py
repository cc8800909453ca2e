"""Running the chapters' programs for comparisons: one run after the other, kept and not repeated.

A run's JSON is kept in a folder together with what it depends on: the command, the program and the
emulator. So a comparison that was stopped, or one of whose chapters failed, goes on where it was,
and nothing old is ever taken for new. Needs nothing but Python.
"""

import csv
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import time

KINDS = {
    "roofline": "times are a roofline",
    "modelled": "times are modelled",
    "measured": "times are measured",
}
DASH = "—"
# What a row says of its problem.
PROBLEM = (
    "dtype",
    "batch",
    "heads",
    "kv_heads",
    "seqlen_q",
    "seqlen_k",
    "head_dim",
    "causal",
    "sms",
    "sample",
)


class Failed(Exception):
    """A run that ended badly; the message says which, how, and how to see it again."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


class Runner:
    """Runs BUILD/VARIANT/chapter-N/run, keeping results in `folder`."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.digests = {}
        self.seconds = 0.0
        self.kept = 0

    def key(self, program, command):
        library = program.parent.parent.parent / "softgpu" / "lib" / "libcudart.so.13"
        for path in (program, library):
            if path not in self.digests and path.exists():
                self.digests[path] = digest(path)
        return {
            "command": command,
            "program": self.digests.get(program),
            "softgpu": self.digests.get(library),
        }

    def run(self, variant, chapter, options, name):
        """The JSON of a chapter's run with these options; kept under `name`. Raises Failed."""
        program = pathlib.Path(variant).resolve() / f"chapter-{chapter}" / "run"
        if not program.exists():
            raise Failed(f"chapter {chapter} is not built: make chapter-{chapter}")
        options = [str(option) for option in options]
        kept = self.folder / f"{name}.json"
        key = self.key(program, options)
        if kept.exists():
            found = json.loads(kept.read_text(encoding="utf-8"))
            if found["key"] == key:
                self.kept += 1
                return found["run"]
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob(f"{name}.part*"):  # of a run that was stopped
            left.unlink()
        scratch = self.folder / f"{name}.part.json"
        command = [
            str(program),
            *options,
            "--json",
            str(scratch),
            "--csv",
            str(scratch.with_suffix(".csv")),
        ]
        if "--check-only" not in options:  # a picture is of times
            command += ["--plot", str(scratch.with_suffix(".png"))]
        say(f"  {name}: chapter-{chapter}/run {' '.join(options)}")
        start = time.monotonic()
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", check=False
        )
        self.seconds += time.monotonic() - start
        for left in (".csv", ".png"):
            scratch.with_suffix(left).unlink(missing_ok=True)
        # 1: a step is wrong, 3: the device reported an error; both stand in the JSON.
        if not scratch.exists() or done.returncode not in (0, 1, 3):
            lines = [line for line in done.stdout.splitlines() if line.strip()][-4:]
            raise Failed(
                f"chapter {chapter} ended with status {done.returncode}:\n    "
                + "\n    ".join(lines)
                + f"\n  again: {program} {' '.join(options)}"
            )
        run = json.loads(scratch.read_text(encoding="utf-8"))
        scratch.unlink()
        if done.returncode == 0:
            kept.write_text(json.dumps({"key": key, "run": run}), encoding="utf-8")
        return run


def own_steps(variant, chapter, exhibits=(), backward=False):
    """Names of a chapter's own steps, in order; of its exhibits only those named. Where a chapter has steps for
    the backward alone, either those or the others."""
    program = pathlib.Path(variant).resolve() / f"chapter-{chapter}" / "run"
    if not program.exists():
        raise Failed(f"chapter {chapter} is not built: make chapter-{chapter}")
    text = subprocess.run(
        [str(program), "--list"], stdout=subprocess.PIPE, encoding="utf-8", check=True
    ).stdout
    names, apart = [], "(with --backward)" in text
    for line in text.splitlines():
        found = re.match(r"\s*\d+\s+(\S+)\s+chapter (\d+)\s+(.*)", line)
        if not found or int(found[2]) != chapter:
            continue
        if "(exhibit:" in found[3] and found[1] not in exhibits:
            continue
        if apart and ("(with --backward)" in found[3]) != backward:
            continue
        names.append(found[1])
    return names


def problem_text(problem, causal=True):
    parts = [
        problem["dtype"],
        f"batch {problem['batch']}",
        f"heads {problem['heads']}",
        f"seqlen {problem['seqlen_q']} × {problem['seqlen_k']}",
        f"head_dim {problem['head_dim']}",
    ]
    if causal and problem["causal"]:
        parts.append("causal")
    return " · ".join(parts)


def device_text(run):
    """Where, what kind of times, and at which clock: stands with every time."""
    device = run["device"]
    where = device["name"] if device["kind"] == "gpu" else f"softgpu, modelling {device['name']}"
    kind = next((step["time_kind"] for step in run["steps"] if step["time_kind"]), None)
    clock = f" at {device['clock_ghz']:.3g} GHz" if device["clock_ghz"] else ""
    return f"{where} · {KINDS.get(kind, 'nothing was timed')}{clock}"


def sample_text(run):
    problem = run["timed_problem"] or run["problem"]
    if run["device"]["kind"] == "gpu":
        return ""
    return (
        f"{problem['sample']} of {problem['sms']} SMs simulated"
        if problem["sample"]
        else f"all {problem['sms']} SMs simulated"
    )


def scaled(value, units):
    """Three significant digits in the unit that suits; a dash for what was not measured."""
    if value is None:
        return DASH
    for unit in units:
        if value < 999.5 or unit == units[-1]:
            break
        value /= 1000
    digits = 0 if value >= 99.95 or value == 0 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {unit}"


def time_text(us):
    return scaled(None if us is None else us * 1000, ("ns", "µs", "ms", "s"))


def plain(value, suffix=""):
    """Three significant digits, or a dash."""
    if value is None:
        return DASH
    digits = 2 if value < 9.95 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f}{suffix}" if value >= 0.095 or value == 0 else f"{value:.2g}{suffix}"


def print_columns(rows, indent="  "):
    """A table for the terminal: the first column to the left, the others to the right."""
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0])] + [
            cell.rjust(width) for cell, width in zip(row[1:], widths[1:])
        ]
        print((indent + "  ".join(cells)).rstrip())


def write_results(stem, rows, whole):
    """results/STEM.csv of the rows (dicts with the same keys), results/STEM.json of everything."""
    folder = pathlib.Path("results")
    folder.mkdir(exist_ok=True)
    with open(folder / f"{stem}.csv", "w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: "" if v is None else v for k, v in row.items()} for row in rows)
    (folder / f"{stem}.json").write_text(
        json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def start(main):
    """Runs main as a program; a stopped one says how to go on."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("\nstopped; what ran is kept: the same command goes on from there")
        sys.exit(130)


def finish(runner, failures, files):
    """The closing lines; returns the exit status."""
    kept = f", {runner.kept} kept from before" if runner.kept else ""
    if files:
        print(f"\n{'  '.join(files)}   ({runner.seconds:.0f} s of runs{kept})")
    sys.stdout.flush()
    for failure in failures:
        say(f"\nFAILED: {failure}")
    if failures:
        say("what ran is kept: the same command goes on from there")
    return 1 if failures else 0
