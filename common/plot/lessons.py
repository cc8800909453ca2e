"""Writes the numbers and pictures of a run into the lessons: what `make lessons` does.

usage: lessons.py BUILD/VARIANT [N…]

For each chapter N it runs BUILD/VARIANT/chapter-N/run without options, as the lesson tells the reader
to, and replaces what stands in the lesson between <!-- run:begin make lessons CHAPTER=N --> and
<!-- run:end -->. A lesson may have more pairs, <!-- run:begin ./run OPTIONS -->: they get the tables of
that run, with --explain among them also what its warps waited for; with --schedule-study what it prints,
and its pictures stand beside the lesson; <!-- run:begin make table-fp8 -->, make split-shapes, make
latency and make flexible get what those print, which takes minutes. Beside the lesson it writes
results.csv, results.png and the chapter's other pictures (timelines from runs of their own), and at
last the front picture of the README; chapter 2's table is also the README's example. Every figure comes from the run;
what was not measured is a dash, and a run's warning that its sample is too small stands below its
table, and on the terminal. Needs nothing but Python; without matplotlib ($PLOT_PYTHON) the pictures
stay as they are. $DUMP_LAYOUTS is what chapter 5's pictures ask.
"""

import glob
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from runs import scaled, time_text

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PLOT = ROOT / "common" / "plot"
PART = re.compile(r"(<!-- run:begin (?P<command>[^>]*) -->\n).*?(<!-- run:end -->)", re.DOTALL)
SHOWN_IN_README = 2
# A chapter's pictures beside results.png: the script, whether it wants the results, the files.
PICTURES = {n: [("tiles.py", True, ("tiles.png",))] for n in (1, 2, 3, 4)}
PICTURES[5] = [("layouts.py", False, ("layouts.png",)),
               ("pipelines.py", False, ("cycles.png", "pipelines.png"))]
PICTURES[6] = [("outliers.py", False, ("outliers.png",))]
PICTURES[8] = [("exp2_fit.py", False, ("exp2.png",))]
# What a marker may name beside a run: its script.
TABLES = {"make table-fp8": "table_fp8.py", "make split-shapes": "split_shapes.py",
          "make latency": "latency.py", "make flexible": "flexible.py"}
# Runs whose timeline is drawn beside the lesson, where softgpu times them: of how many SMs, ./run's
# options, timeline.py's. Chapter 7's tiles of a head are one fewer than the SMs, as on the whole GPU at 16k.
TIMELINES = {
    5: (2, ["--steps", "warp-specialised,pingpong,intra-warpgroup"], []),
    7: (12, ["--causal", "--sms", "12", "--batch", "1", "--heads", "6", "--seqlen", "1408", "--head-dim", "128",
             "--steps", "persistent,lpt"], ["--tiles"]),
    8: (1, ["--sms", "8", "--batch", "1", "--heads", "1", "--seqlen-q", "2048", "--seqlen-k", "2048", "--head-dim",
            "128", "--check", "none", "--steps", "pingpong,persistent-lpt"],
        ["--roles", "warpgroup 0=softmax 0,warpgroup 1=softmax 1,warpgroup 2=correction,warpgroup 3=multiply,"
                    "warp 13=store,warp 14=load"]),
    "8 backward": (1, ["--backward", "--sms", "8", "--batch", "1", "--heads", "1", "--seqlen-q", "2048", "--seqlen-k",
                       "1024", "--head-dim", "128", "--check", "none", "--steps", "one-cta,two-cta"],
                   ["--kernels", "one_cta,two_cta"]),
    9: (33, ["--sms", "33", "--batch", "1", "--heads", "8", "--kv-heads", "2", "--seqlen-q", "1", "--seqlen-k",
             "16384", "--head-dim", "128", "--check", "none", "--steps", "prefill-kernel,auto-split"],
        ["--blocks", "33", "--names", "prefill-kernel,auto-split"]),
}
MEMORY_BOUND = (9,)  # chapters whose tables have the share of the HBM's bandwidth
KINDS = {
    "roofline": "Times are a roofline: what the busiest unit alone would take.",
    "modelled": "Times are modelled.",
    "measured": "Times are measured.",
}


def bytes_text(value):
    return scaled(value, ("B", "KB", "MB", "GB", "TB"))


def plain(value, suffix=""):
    if value is None:
        return "—"
    return f"{value:.2f}{suffix}" if value < 9.95 else f"{value:.1f}{suffix}"


def plain_percent(share):
    return "—" if share is None else f"{100 * share:.0f}"


def error_text(step):
    """The error of the tensor that is nearest to its limit, as ./run shows it."""
    measured = [e for name, e in step["errors"].items() if e and name != "lse"]
    if not measured:
        return "—"
    worst = max(measured, key=lambda e: e["max"] / e["limit"])
    return f"{worst['max']:.1e} (limit {worst['limit']:.1e})"


def problem_text(problem):
    shared = f" ({problem['kv_heads']} K/V)" if problem["kv_heads"] != problem["heads"] else ""
    parts = [f"batch {problem['batch']}", f"heads {problem['heads']}{shared}",
             f"seqlen {problem['seqlen_q']} × {problem['seqlen_k']}", f"head_dim {problem['head_dim']}",
             problem["dtype"]]
    if problem["causal"]:
        parts.append("causal")
    if problem["sample"]:
        parts.append(f"{problem['sample']} of {problem['sms']} SMs simulated")
    return " · ".join(parts)


def step_name(step):
    backward = " (backward)" if step["pass"] == "backward" else ""
    return f"{step['chapter']} {step['name']}{backward}"


def table(rows):
    """A table in Markdown; the first row is the heading, all columns but the first to the right."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "| --- |" + " ---: |" * (len(rows[0]) - 1))
    return "\n".join(lines) + "\n"


def measured_columns(rows):
    """The columns that hold anything but dashes."""
    kept = [k for k in range(len(rows[0])) if any(row[k] != "—" for row in rows[1:])]
    return [[row[k] for k in kept] for row in rows]


def percent_of(share):
    return plain(None if share is None else 100 * share, "%")


def results_table(run):
    rows = [["step", "time", "TFLOP/s", "% of peak", "% of HBM", "HBM read", "HBM written", "workspace",
             "÷ naive", "÷ previous", "max error"]]
    for step in run["steps"]:
        bandwidth = step["hbm_fraction"] if run["chapter"] in MEMORY_BOUND else None
        rows.append([step_name(step), time_text(step["time_us"]), plain(step["tflops"]),
                     percent_of(step["peak_fraction"]), percent_of(bandwidth),
                     bytes_text(step["hbm_read_bytes"]), bytes_text(step["hbm_write_bytes"]),
                     bytes_text(step["workspace_bytes"]),
                     plain(step["speedup_over_naive"], "×"), plain(step["speedup_over_previous"], "×"),
                     error_text(step)])
    return table(measured_columns(rows))


def busy_table(steps):
    """Which units each step keeps busy, where softgpu timed it."""
    steps = [step for step in steps if step["busy"]]
    units = [unit for unit in (steps[0]["busy"] if steps else ())
             if any((step["busy"][unit] or 0) >= 0.005 for step in steps)]
    if not units:
        return ""
    rows = [["busy, % of the time"] + units]
    rows += [[step_name(step)] + [plain_percent(step["busy"][unit]) for unit in units] for step in steps]
    return "\n" + table(rows)


def waits_table(steps):
    """What each step's warps waited for, where softgpu timed it: the second table of --explain."""
    steps = [step for step in steps if step["waits"]]
    reasons = [reason for reason in (steps[0]["waits"] if steps else ())
               if any((step["waits"][reason] or 0) >= 0.005 for step in steps)]
    if not reasons:
        return ""
    rows = [["warps, % of their cycles"] + reasons]
    rows += [[step_name(step)] + [plain_percent(step["waits"][reason]) for reason in reasons]
             for step in steps]
    return "\n" + table(rows)


def run_text(run, command, shown):
    """What stands between the markers: the run's numbers, and its own warnings about them."""
    device = run["device"]
    where = device["name"] if device["kind"] == "gpu" else f"softgpu, modelling {device['name']}"
    clock = f" at {device['clock_ghz']:.3g} GHz" if device["clock_ghz"] else ""
    kind = next((step["time_kind"] for step in run["steps"] if step["time_kind"]), None)
    timed, checked = problem_text(run["timed_problem"]), problem_text(run["problem"])
    any_checked = any(any(step["errors"].values()) for step in run["steps"])
    return (f"`{command}` on {where}{clock}. {KINDS.get(kind, '')}\nTimed: {timed}.\n" +
            (f"Checked: {checked}.\n" if any_checked else "") +
            "\n" + results_table(run) + busy_table(run["steps"]) +
            (waits_table(run["steps"]) if "--explain" in command.split() else "") +
            "".join(f"\n{warning}\n" for warning in warnings_in(shown)))


def draw(script, *arguments):
    """Runs a script that draws; a machine without matplotlib keeps the pictures it has."""
    python = os.environ.get("PLOT_PYTHON") or sys.executable
    if subprocess.run([python, str(PLOT / script), *map(str, arguments)], check=False).returncode:
        print(f"lessons: {script} drew nothing; the picture stays as it is", file=sys.stderr)


def commands_of(path):
    """The commands between whose markers something is to be written."""
    return [match["command"] for match in PART.finditer(path.read_text(encoding="utf-8"))]


def replace_part(path, command, part):
    """Puts `part` between the markers that name `command`."""
    text = path.read_text(encoding="utf-8")
    if commands_of(path).count(command) != 1:
        raise SystemExit(f"{path}: needs one <!-- run:begin {command} --> and <!-- run:end --> pair")
    path.write_text(PART.sub(lambda m: m[1] + part + m[3] if m["command"] == command else m[0], text),
                    encoding="utf-8")


def warnings_in(shown):
    """The paragraphs of a run's output that warn of its sample: numbers from it are not to be trusted."""
    paragraphs = (" ".join(part.split()) for part in shown.split("\n\n"))
    return [text for text in paragraphs if re.match(r"--sample \d+: ", text)]


def run_chapter(program, options, environment=None):
    """One run: its JSON, its CSV, and what it printed."""
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run([program, *options, "--json", f"{scratch}/run.json", "--csv",
                               f"{scratch}/run.csv", "--plot", f"{scratch}/run.png"],
                              stdout=subprocess.PIPE, encoding="utf-8", check=False,
                              env={**os.environ, **(environment or {})})
        if done.returncode != 0:
            raise SystemExit(f"lessons: {program} {' '.join(options)} ended with status "
                             f"{done.returncode}; the lesson stays as it is")
        run = json.loads(pathlib.Path(scratch, "run.json").read_text(encoding="utf-8"))
        csv = pathlib.Path(scratch, "run.csv").read_bytes()
        shown = done.stdout.split(f"\n{scratch}")[0].rstrip()
        for warning in warnings_in(shown):
            print(f"lessons: {program}: {warning}", file=sys.stderr)
        return run, csv, shown


def draw_timeline(program, timeline, picture):
    """The timeline of a run; a GPU has none, and the picture stays as it is."""
    sms, options, drawn = timeline
    with tempfile.TemporaryDirectory() as scratch:
        trace = pathlib.Path(scratch, "trace.json")
        run_chapter(program, [*options, "--trace", str(trace)], {"SOFTGPU_TRACE_SMS": str(sms)})
        if trace.exists():
            draw("timeline.py", trace, picture, *drawn)


def table_text(script, variant, chapter):
    """What a script of common/plot prints about a chapter, as a block of code. It runs where make runs it: what
    it keeps in results/ is not run again."""
    program = pathlib.Path(variant).resolve() / f"chapter-{chapter}" / "run"
    more = [os.environ["FP8_ERROR"]] if script == "table_fp8.py" else []
    done = subprocess.run([sys.executable, str(PLOT / script), str(program), *more],
                          stdout=subprocess.PIPE, encoding="utf-8", check=False, cwd=ROOT)
    if done.returncode != 0:
        raise SystemExit(f"lessons: {script} ended with status {done.returncode}")
    shown = done.stdout.split("\nresults/")[0].replace("\r", "").rstrip().split("\n")
    return "\n" + "".join(f"    {line}".rstrip() + "\n" for line in shown) + "\n"


def study_text(program, options, folder):
    """What a study of schedules prints, as blocks of code; its pictures go to the lesson's folder."""
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run([program, *options], stdout=subprocess.PIPE, encoding="utf-8", check=False,
                              cwd=scratch)
        if done.returncode != 0:
            raise SystemExit(f"lessons: {program} {' '.join(options)} ended with status {done.returncode}")
        for picture in pathlib.Path(scratch).glob("**/*.png"):
            (folder / picture.name).write_bytes(picture.read_bytes())
    lines = [line for line in done.stdout.split("\n") if ".csv" not in line]
    shown = re.sub("\n\n+", "\n\n", "\n".join(lines)).rstrip().split("\n")
    return "\n" + "".join(f"    {line}".rstrip() + "\n" for line in shown) + "\n"


def write_lesson(variant, chapter):
    folder = pathlib.Path(glob.glob(str(ROOT / f"{chapter:02d}_*"))[0])
    lesson = folder / "README.md"
    program = pathlib.Path(variant).resolve() / f"chapter-{chapter}" / "run"
    command = f"make chapter-{chapter} && ./run"
    for marker in commands_of(lesson):
        if marker in TABLES:
            print(f"chapter {chapter}: {marker}", flush=True)
            replace_part(lesson, marker, table_text(TABLES[marker], variant, chapter))
            continue
        options = marker.split()[1:] if marker.startswith("./run ") else []
        print(f"chapter {chapter}:", "./run", *options, flush=True)
        if "--schedule-study" in options:
            replace_part(lesson, marker, study_text(program, options, folder))
            continue
        run, csv, shown = run_chapter(program, options)
        if options:
            replace_part(lesson, marker, run_text(run, marker, shown))
            continue
        (folder / "results.csv").write_bytes(csv)
        replace_part(lesson, f"make lessons CHAPTER={chapter}", run_text(run, command, shown) +
                     "\n![speedup over naive, and bytes through HBM](results.png)\n")
        if chapter == SHOWN_IN_README:
            lines = [f"$ {command}", *shown.split("\n")]
            lines = "".join(f"    {line}".rstrip() + "\n" for line in lines)
            replace_part(ROOT / "README.md", f"make lessons CHAPTER={chapter}", f"\n{lines}\n")
    draw("chapter.py", folder / "results.csv", folder / "results.png")
    for script, wants_results, files in PICTURES.get(chapter, ()):
        inputs = [folder / "results.csv"] if wants_results else []
        draw(script, *inputs, *(folder / name for name in files))
    if chapter == 9:
        draw("splits.py", program, folder / "splits.csv", folder / "splits.png")
        draw("latency.py", program, folder / "latency.png")
    if chapter in TIMELINES:
        draw_timeline(program, TIMELINES[chapter], folder / "timeline.png")
    if f"{chapter} backward" in TIMELINES:
        draw_timeline(program, TIMELINES[f"{chapter} backward"], folder / "backward_timeline.png")


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    chapters = [int(n) for n in sys.argv[2:]]
    if not chapters:
        chapters = [n for n in range(1, 10) if (pathlib.Path(sys.argv[1]) / f"chapter-{n}").is_dir()]
    for chapter in chapters:
        write_lesson(sys.argv[1], chapter)
    draw("speedup.py", PLOT / "speedup.png", *sorted(ROOT.glob("0?_*/results.csv")))


if __name__ == "__main__":
    main()
