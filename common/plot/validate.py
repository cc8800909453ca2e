"""Writes the timing model's validation page: what `make validate` does.

usage: validate.py BUILD/VARIANT BUILD [PART…]

Runs the model where others have published a figure, and writes both side by side into
common/softgpu/timing/README.md, between <!-- validate:begin PART --> and <!-- validate:end -->: all of
it, also where the model is off. The parts are the keys of PARTS below. Our numbers come from the runs
of this very command; what is published is a constant here or a row of tests/softgpu/timing_figures.txt,
with its source. Runs of the chapters are kept in results/validate and not repeated while the program and
the emulator are the same. Needs nothing but Python.
"""

import collections
import pathlib
import re
import subprocess
import sys

import runs
import table_fa1

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "common" / "softgpu" / "timing" / "README.md"
FIGURES = ROOT / "tests" / "softgpu" / "timing_figures.txt"
PART = re.compile(r"(<!-- validate:begin (?P<name>\S+) -->\n).*?(<!-- validate:end -->)", re.DOTALL)
DASH = runs.DASH

SMS = {"a100": 108, "h100": 132, "h200": 132, "b200": 148}
HEADINGS = {
    "latency": "Chains of dependent instructions, by one warp",
    "throughput": "Throughputs of an SM, 16 warps",
    "packed": "Pairs of floats",
    "memory": "Global memory and launches",
    "bulk": "mbarriers, bulk copies, clusters",
    "wgmma": "wgmma",
    "tcgen05": "tcgen05 and tensor memory",
}
RUNS_ON = {"packed": ("b200",), "bulk": ("h100", "h200", "b200"), "wgmma": ("h100", "h200"),
           "tcgen05": ("b200",)}

FA3 = "Shah et al. 2024 (FlashAttention-3), H100 SXM5; v1 names no clock, NeurIPS' version 1.83 GHz"
LOCKED = "FlashGPU-Sim's baseline: H100, clock locked to 1.5 GHz"
LECTURE = "the lecture's rungs; neither problem nor clock given"
FA4 = "FlashAttention-4's charts: B200, no clock given"
WHOLE = {"sms": 132, "sample": 0}
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
TOKENS = 16384
FORWARD_128 = {"FlashAttention-3": (467, 565, 625, 638, 646, 648),
               "FlashAttention-2": (309, 350, 362, 368, 370, 370)}
BACKWARD_128 = (316, 424, 501, 542, 559, 561)


def number(value, digits=3):
    return DASH if value is None else f"{value:.{digits}g}" if abs(value) < 1000 else f"{value:,.0f}"


def table(rows, text_at_end=False):
    """A table in Markdown: numbers to the right, names (and with text_at_end the last column) to the left."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    numbers = len(rows[0]) - 1 - text_at_end
    lines.insert(1, "| --- |" + " ---: |" * numbers + " --- |" * text_at_end)
    return "\n".join(lines) + "\n"


# ---- single figures

Row = collections.namedtuple("Row", "program figure gpus value tolerance part source")


def read_figures():
    rows = []
    for line in FIGURES.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        program, figure, gpus, value, tolerance, part, source = (word.strip() for word in line.split("|", 6))
        names = RUNS_ON.get(program, tuple(SMS)) if gpus == "any" else tuple(gpus.split())
        rows.append(Row(program, figure, names, None if value == "-" else float(value), float(tolerance),
                        int(part), source))
    return rows


def measure(build, row, gpu):
    """One figure on one GPU: the value and its unit; as tests/softgpu/test_timing_figures.c does it."""
    quarter = ["--sms", str(SMS[gpu] // 4)] if row.part != 1 else []
    command = [build / "softgpu" / "softgpu", "--check", "none", "--gpu", gpu, *quarter,
               build / "tests" / "cuda" / "timing" / row.program, row.figure]
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, encoding="utf-8", check=False)
    words = done.stdout.split()
    if done.returncode != 0 or len(words) != 3 or words[0] != row.figure:
        raise runs.Failed(f"{' '.join(str(w) for w in command)}\n{done.stdout}")
    return float(words[1]) * (4 if row.part == 4 else 1), words[2]


def figures(context):
    """Every row of the table of figures, on every GPU that it names."""
    text, met, missed = "", 0, {}
    rows = read_figures()
    for program, heading in HEADINGS.items():
        lines = [["figure", "unit", *SMS, "source of what is in brackets"]]
        for figure in dict.fromkeys(row.figure for row in rows if row.program == program):
            cells, unit, sources = {}, "", []
            for row in (row for row in rows if row.program == program and row.figure == figure):
                if row.source and row.source not in sources:
                    sources.append(row.source)
                for gpu in row.gpus:
                    value, unit = measure(context.build, row, gpu)
                    cells[gpu] = number(value, 4)
                    if row.value is None:
                        continue
                    off = abs(value / row.value - 1) * 100
                    inside = off <= row.tolerance + 1e-6
                    met += inside
                    cells[gpu] = f"{cells[gpu]} ({number(row.value, 4)})"
                    if not inside:
                        cells[gpu] = f"**{cells[gpu]}**"
                        missed.setdefault(figure, []).append(gpu)
            lines.append([figure, unit, *(cells.get(gpu, DASH) for gpu in SMS), "; ".join(sources) or DASH])
        text += f"\n**{heading}**\n\n{table(lines, text_at_end=True)}"
    all_values = met + sum(len(gpus) for gpus in missed.values())
    summary = f"{met} of {all_values} published values come back within their tolerance."
    if missed:
        off = [f"{figure} ({' '.join(gpus)})" for figure, gpus in missed.items()]
        summary += f" Off, and in bold below:\n{', '.join(off)}."
    return f"Ours, and the published value in brackets where there is one.\n{summary}\n{text}"


# ---- attention

class Context:
    def __init__(self, variant, build):
        self.variant, self.build = pathlib.Path(variant).resolve(), pathlib.Path(build).resolve()
        self.runner = runs.Runner(ROOT / "results" / "validate")

    def run(self, chapter, name, **options):
        """A chapter's run; options by their names on the command line. Its steps by name."""
        words = []
        for key, value in options.items():
            words += [f"--{key.replace('_', '-')}"] if value is True else [f"--{key.replace('_', '-')}", value]
        run = self.runner.run(self.variant, chapter, [*words, "--check", "none"], name)
        for step in run["steps"]:
            if step["device_error"] or not step["time_us"]:
                raise runs.Failed(f"{name}: {step['name']}: {step['device_error'] or 'was not timed'}")
        return run


def how(run):
    """Which problem ran where, at which clock, and how much of it."""
    return (f"{runs.problem_text(run['timed_problem'])} · {runs.device_text(run)} · {runs.sample_text(run)}.\n")


def steps_of(run, kind="forward"):
    return [step for step in run["steps"] if step["pass"] == kind]


def percent(value):
    return DASH if value is None else f"{100 * value:.1f}%"


def ratio(ours, published):
    return DASH if published is None else f"{ours / published:.2f}"


def ablation(context):
    """FlashAttention-3's ablation, and the lecture's rungs."""
    run = context.run(5, "ablation", gpu="h100", batch=4, heads=16, seqlen=8448, head_dim=128, dtype="fp16",
                      sample="auto", steps="wgmma,tma-ring,warp-specialised,pingpong,intra-warpgroup,gemm-only")
    paper = {"pingpong": 582, "intra-warpgroup": 661}
    rungs = {"warp-specialised": 580, "pingpong": 640, "intra-warpgroup": 670}
    rows = [["step", "time", "TFLOP/s", "% of peak", "÷ previous", "paper", "lecture"]]
    before = None
    for step in steps_of(run):
        rows.append([step["name"], runs.time_text(step["time_us"]), number(step["tflops"]),
                     percent(step["peak_fraction"]), ratio(step["tflops"], before),
                     number(paper.get(step["name"])), number(rungs.get(step["name"]))])
        before = step["tflops"]
    return (how(run) + "\n" + table(rows) +
            f"\nPaper: {FA3}: 4.021 ms without the overlap inside a warpgroup, 3.538 ms with it; with the\n"
            f"overlap but without warp specialisation 4.105 ms (570), which is none of our steps. Lecture:\n{LECTURE}.\n")


def step_cycles(context):
    """Cycles of one step over keys, by two lengths of K; what is left is a tile's fixed cost."""
    keys, few, many, rows_q = 176, 24, 48, 132 * 128
    cycles = {}
    for count in (few, many):
        run = context.run(5, f"step-{count}", gpu="h100", batch=1, heads=1, seqlen_q=rows_q,
                          seqlen_k=count * keys, head_dim=128, dtype="fp16", sample=16,
                          steps="warp-specialised,pingpong,intra-warpgroup,gemm-only")
        for step in steps_of(run):
            cycles.setdefault(step["name"], []).append(step["time_us"] * 1e3 * run["device"]["clock_ghz"])
    rows = [["step", "cycles per 128 × 176 keys", "fixed, with the launch"]]
    for name, (first, second) in cycles.items():
        slope = (second - first) / (many - few)
        rows.append([name, number(slope), number(first - few * slope)])
    rows.append(["published, FlashAttention-3", "3,020 to 3,120", "4,000 to 5,000, without the launch"])
    return (how(run) + f"\n{few} and {many} steps over keys by one block an SM. The products alone take 2,816 cycles.\n\n" +
            table(rows) + f"\nPublished: slope over seqlen, {LOCKED}.\n")


def locked(context):
    """The last steps of chapters 5 and 7 at the clock that a baseline was locked to."""
    rows = [["step", "problem", "ours", "TFLOP/s", "% of peak", "published", "TFLOP/s", "ours ÷ published"]]
    for chapter, name, size in ((5, "intra-warpgroup", {"sample": "auto"}), (7, "l2-order", WHOLE)):
        for mask, causal, us, tflops in (("full", {}, 3110, 707), ("causal", {"causal": True}, None, 692)):
            run = context.run(chapter, f"locked-{name}-{mask}", gpu="h100", clock=1.5, batch=4, heads=16, seqlen=8192,
                              head_dim=128, dtype="bf16", steps=name, **size, **causal)
            step = next(s for s in steps_of(run) if s["name"] == name)
            rows.append([name, mask, runs.time_text(step["time_us"]), number(step["tflops"]),
                         percent(step["peak_fraction"]), runs.time_text(us), number(tflops),
                         ratio(step["tflops"], tflops)])
    return how(run) + "\n" + table(rows) + f"\nPublished: {LOCKED}, FlashAttention-3.\n"


def curve(context, chapter, step, lengths=LENGTHS, kind="forward", **options):
    """TFLOP/s of a step over the papers' lengths, and the last run. Chapter 7's blocks take their tiles
    from a counter: its GPU is run whole."""
    found = []
    options = {**(WHOLE if chapter == 7 else {"sample": "auto"}), **options}
    for length in lengths:
        run = context.run(chapter, f"{step}-{kind}-{options.get('gpu')}-{length}", batch=max(1, TOKENS // length),
                          heads=16, seqlen=length, head_dim=128, dtype="fp16", steps=step, **options)
        found.append(next(s for s in steps_of(run, kind) if s["name"] == step))
    return found, run


def forward(context):
    """FlashAttention-3's and -2's forward over the sequence length."""
    rows = [["TFLOP/s at seqlen", *map(str, LENGTHS)]]
    for chapter, step, name in ((7, "l2-order", "FlashAttention-3"), (5, "intra-warpgroup", "FlashAttention-3"),
                                (3, "cp-async", "FlashAttention-2")):
        found, run = curve(context, chapter, step, gpu="h100")
        ours, published = [s["tflops"] for s in found], FORWARD_128[name]
        shape = [a / b / (ours[-1] / published[-1]) for a, b in zip(ours, published)]
        rows += [[f"{step}, ours", *map(number, ours)], ["% of peak", *(percent(s["peak_fraction"]) for s in found)],
                 [f"{name}, published", *map(number, published)],
                 ["ours ÷ published", *(ratio(a, b) for a, b in zip(ours, published))],
                 ["the same, 16384 = 1", *(f"{x:.2f}" for x in shape)]]
    return how(run) + f"\nOthers' problems: batch · seqlen = {TOKENS}.\n\n" + table(rows) + f"\nPublished: {FA3}.\n"


def flash2(context):
    """FlashAttention-2's kernel on three GPUs."""
    published = {"a100": ("230 at best", 230, "Dao 2023 (FlashAttention-2), A100 80GB SXM, 73% of peak"),
                 "h100": ("370", 370, FA3), "b200": ("383 to 432", 407.5, FA4)}
    rows = [["GPU", "clock", "seqlen", "TFLOP/s", "% of peak", "published", "ours ÷ published", "source"]]
    for gpu, (text, value, source) in published.items():
        for length in (8192, 16384):
            found, run = curve(context, 3, "cp-async", lengths=(length,), gpu=gpu)
            rows.append([gpu, f"{run['device']['clock_ghz']:.3g} GHz", str(length), number(found[0]["tflops"]),
                         percent(found[0]["peak_fraction"]), text, ratio(found[0]["tflops"], value), source])
    return ("chapter 3's cp-async, fp16, head_dim 128, heads 16, batch · seqlen = 16384; ours are modelled, at the\n"
            "clock beside them.\n\n" + table(rows, text_at_end=True))


def backward(context):
    """FlashAttention-3's backward, and chapter 4's on the same GPU."""
    run = context.run(5, "backward", gpu="h100", batch=2, heads=16, seqlen=8192, head_dim=128, dtype="fp16",
                      sample="auto", backward=True, steps="recompute-tensor-cores,intra-warpgroup")
    rows = [["step", "time", "TFLOP/s", "% of peak", "published", "its busiest unit"]]
    found = steps_of(run, "backward")
    for step in found:
        unit = max((share, name) for name, share in step["busy"].items() if share is not None)
        rows.append([step["name"], runs.time_text(step["time_us"]), number(step["tflops"]),
                     percent(step["peak_fraction"]), number(BACKWARD_128[4]) if step is found[-1] else DASH,
                     f"{unit[1]} {100 * unit[0]:.0f}%"])
    return how(run) + "\n" + table(rows) + f"\nPublished: {FA3}.\n"


def flash1(context):
    """FlashAttention's first table, of which `make table-fa1` says more: on the paper's GPU, and on the one with 80 GB."""
    rows = [["", "GPU", "ours", "published", "ours ÷ published", "HBM, ours", "published"]]
    for gpu in (table_fa1.GPU, "a100"):
        run, sums = table_fa1.count(context.variant / "chapter-4" / "run", gpu)
        for name, (label, _, gigabytes, ms) in table_fa1.PAPER.items():
            rows.append([f"{label} ({name})", gpu, f"{sums[name]['ms']:.1f} ms", f"{ms} ms", ratio(sums[name]["ms"], ms),
                         f"{sums[name]['gb']:.1f} GB", f"{gigabytes} GB"])
        (_, standard), (_, flash) = sums.items()
        first, second = table_fa1.PAPER.values()
        rows.append(["ratio", gpu, f"{standard['ms'] / flash['ms']:.1f}", f"{first[3] / second[3]:.1f}", DASH,
                     f"{standard['gb'] / flash['gb']:.1f}", f"{first[2] / second[2]:.1f}"])
    return (f"softgpu, each with {table_fa1.SMS} of its {table_fa1.ALL_SMS} SMs; times are modelled at "
            f"{run['device']['clock_ghz']:.2f} GHz; seqlen {table_fa1.SEQLEN}, head_dim {table_fa1.HEAD_DIM}, "
            f"{table_fa1.HEADS} heads, fp16,\nforward and backward, from {table_fa1.COUNTED} heads.\n\n" + table(rows) +
            "\nPublished: Dao et al. 2022, figure 2, an A100 with 40 GB (section 4.3), no clock given. Its data sheet says "
            "1.555 TB/s,\nthe a100's with 80 GB 2.04: standard attention's time is its bytes.\n")


PARTS = {"figures": figures, "ablation": ablation, "step": step_cycles, "locked": locked, "forward": forward,
         "flash2": flash2, "backward": backward, "flash1": flash1}


def write_part(name, text):
    """Puts the text between the page's markers of that name."""
    page = PAGE.read_text(encoding="utf-8")
    if [match["name"] for match in PART.finditer(page)].count(name) != 1:
        raise SystemExit(f"{PAGE}: needs one <!-- validate:begin {name} --> and <!-- validate:end --> pair")
    PAGE.write_text(PART.sub(lambda m: f"{m[1]}\n{text.strip()}\n\n{m[3]}" if m["name"] == name else m[0], page),
                    encoding="utf-8")


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    names = sys.argv[3:] or list(PARTS)
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise SystemExit(f"validate: no part is called {', '.join(unknown)}; there are: {' '.join(PARTS)}")
    context, failures = Context(sys.argv[1], sys.argv[2]), []
    for name in names:
        runs.say(f"validate: {name}")
        try:
            write_part(name, PARTS[name](context))
        except runs.Failed as failure:
            failures.append(f"{name} (its part of the page stays as it was): {failure}")
    return runs.finish(context.runner, failures, [str(PAGE.relative_to(ROOT))])


if __name__ == "__main__":
    sys.exit(main())
