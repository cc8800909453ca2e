"""Draws a timeline of ./run --trace: who computed what when, over a few blocks of keys.

usage: timeline.py TRACE.json OUT.png [--sm N] [--block N] [--steps K] [--skip K] [--kernels NAME,NAME]
       [--roles TRACK=ROLE,…]
       timeline.py TRACE.json OUT.png --tiles
       timeline.py TRACE.json OUT.png --blocks SMS [--names STEP,STEP,...]

A panel for each kernel of the trace (or of --kernels) that marks its phases, all on one scale: its warpgroups (white is
waiting), and below them the tensor cores (whose products), the MUFUs (how many of the four work on
exponentials) and TMA, as far as the trace has them. The panel begins with the first warpgroup's
softmax number --skip (default: in the middle of the block's) and shows --steps of them (default 3). --roles
says what to call the warps of a track, and in which order they stand: "warpgroup 0=softmax 0,…".

With --tiles a panel is the whole kernel and a row each of its SMs, with a bar for every tile of queries that
its first warpgroup of consumers worked on, from the end of the one before to that of its own epilogue. The axis
begins where the first tile does.

With --blocks a panel is a step, which is kernels that follow each other without a gap, and a row each of the
GPU's SMs (as many as the option says; idle ones are in no trace), with a bar for every thread block. Traces
name kernels, which steps may share: --names says which steps they were.
"""

import argparse
import bisect
import json

from style import DARK, GRID, LIGHT, MIDDLE, PALE, WARM, load_pyplot, save

# Phases by their names in the kernels: what a bar says, its colour and hatch.
LOOKS = {
    "qk_gemm": ("Q Kᵀ", DARK, None),
    "pv_gemm": ("P V", MIDDLE, None),
    "s_gemm": ("S", DARK, None),
    "dp_gemm": ("dP", MIDDLE, None),
    "dv_gemm": ("dV", MIDDLE, "--"),
    "dk_gemm": ("dK", DARK, "--"),
    "dq_gemm": ("dQ", DARK, "xx"),
    "softmax": ("softmax", WARM, "//"),
    "gradient": ("dS", LIGHT, "\\\\"),
    "reduce": ("dQ → HBM", LIGHT, "--"),
    "load": ("load", LIGHT, ".."),
    "epilogue": ("epilogue", LIGHT, "xx"),
}
# Whose products: colours and hatches of warpgroups.
OWNERS = [(DARK, None), (LIGHT, "\\\\"), (MIDDLE, "--"), (PALE, "..")]
BINS = 240     # of the MUFUs' busy share
GAP = 0.01     # µs between kernels of one step, at most
TOUCHING = 4   # cycles between products that are drawn as one bar


def read(path):
    """The kernels, each with its spans, and what the trace says of itself."""
    try:
        with open(path, encoding="utf-8") as stream:
            trace = json.load(stream)
        events, about = trace["traceEvents"], trace["otherData"]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise SystemExit(f"timeline.py: {path} is no timeline of ./run --trace: {problem}") from None
    names = {}
    for event in events:
        if event["ph"] == "M" and event["name"] in ("process_name", "thread_name"):
            key = event["pid"], event["tid"] if event["name"] == "thread_name" else 0
            names[key] = event["args"]["name"]
    kernels, spans = [], []
    for event in events:
        if event["ph"] != "X":
            continue
        if event["cat"] == "kernel":
            kernels.append({"name": event["name"], "ts": event["ts"], "end": event["ts"] + event["dur"],
                            "spans": []})
        else:
            spans.append({"name": event["name"], "kind": event["cat"], "ts": event["ts"],
                          "sm": names[event["pid"], 0], "track": names[event["pid"], event["tid"]],
                          "begin": event["args"]["begin"],
                          "end": event["args"]["begin"] + event["args"]["cycles"],
                          "block": event["args"].get("block"),
                          "busy": event["args"].get("busy", event["args"]["cycles"]),
                          "warpgroup": event["args"].get("warpgroup")})
    begins = [kernel["ts"] for kernel in kernels]
    for span in spans:
        kernels[max(bisect.bisect_right(begins, span["ts"] + 1e-3) - 1, 0)]["spans"].append(span)
    return kernels, about


def choose(kernel, options):
    """The spans of one SM, and the window of time to draw; None where there are no phases."""
    spans = [span for span in kernel["spans"] if span["sm"] == f"SM {options.sm}"]
    blocks = [span["block"] for span in spans if span["kind"] == "phase" and span["name"] == "softmax"]
    if not blocks:
        return None
    block = blocks[0] if options.block is None else options.block
    softmax = sorted((span["warpgroup"], span["begin"]) for span in spans
                     if span["kind"] == "phase" and span["name"] == "softmax" and span["block"] == block)
    if not softmax:
        raise SystemExit(f"timeline.py: block {block} is not among those of SM {options.sm}")
    first = [begin for warpgroup, begin in softmax if warpgroup == softmax[0][0]]
    steps = min(options.steps, max(len(first) - 1, 1))
    skip = (len(first) - 1 - steps) // 2 if options.skip is None else options.skip
    skip = max(min(skip, len(first) - 1 - steps), 0)
    begin = first[skip]
    end = first[skip + steps] if skip + steps < len(first) else max(s["end"] for s in spans)
    owners = {span["warpgroup"] for span in spans if span["kind"] == "tensor"}
    return {"owners": len(owners), "spans": spans, "block": block, "begin": begin, "end": end,
            "step": (end - begin) / steps, "name": kernel["name"].split("<")[0]}


def rows_of(view, roles):
    """Names of the rows from the top, with their spans."""
    groups, rows = {}, []
    for span in view["spans"]:
        if span["kind"] in ("phase", "wait") and span["block"] == view["block"]:
            groups.setdefault(span["track"], []).append(span)
    order = list(roles)
    for track in sorted(groups, key=lambda name: (order.index(name) if name in roles else len(order),
                                                  len(name), name)):
        names = {span["name"] for span in groups[track] if span["kind"] == "phase"}
        if names and track in roles:
            rows.append((roles[track], "phases", groups[track]))
        elif names:
            rows.append((f"{track},\nproducer" if names == {"load"} else track, "phases", groups[track]))
    for kind, name in (("tensor", "tensor cores"), ("mufu", "MUFUs, 0–100%"), ("tma", "TMA")):
        of_kind = [span for span in view["spans"] if span["kind"] == kind]
        if of_kind:
            rows.append((name, kind, of_kind))
    return rows


def seen(view, span):
    return span["end"] > view["begin"] and span["begin"] < view["end"]


def look_of(phase):
    return LOOKS.get(phase["name"], (phase["name"], PALE, None))


def bar(axes, view, row, span, look, text, height=0.72):
    from matplotlib.patches import Rectangle

    colour, hatch = look
    begin, end = max(span["begin"], view["begin"]), min(span["end"], view["end"])
    if begin >= end:
        return
    axes.add_patch(Rectangle((begin - view["begin"], row - height / 2), end - begin, height,
                             facecolor=colour, edgecolor="black", linewidth=0.5, hatch=hatch))
    if text and (end - begin) / view["length"] > 0.009 * len(text) + 0.004:
        axes.text((begin + end) / 2 - view["begin"], row, text, ha="center", va="center", fontsize=8,
                  color="white" if colour == DARK else "black",
                  bbox={"facecolor": colour, "edgecolor": "none", "pad": 0.8} if hatch else None)


def is_shown(wait, phases):
    """Waiting for products is what a product's phase is; every other wait is a gap in its phase."""
    if wait["name"] != "wgmma":
        return True
    within = [p for p in phases if p["begin"] <= wait["begin"] and wait["end"] <= p["end"]]
    return not any("gemm" in phase["name"] for phase in within)


def joined(spans, gap):
    """Spans with what is near and of the same warpgroup in one."""
    result = []
    for span in sorted(spans, key=lambda s: s["begin"]):
        last = result[-1] if result else None
        if last and last["warpgroup"] == span["warpgroup"] and span["begin"] <= last["end"] + gap:
            last["end"] = max(last["end"], span["end"])
        else:
            result.append(dict(span))
    return result


def busy_share(axes, view, row, spans):
    """How many of the four MUFUs are busy, as a hill over the row's foot."""
    width = (view["end"] - view["begin"]) / BINS
    share = [0.0] * BINS
    for span in spans:
        low, high = span["begin"] - view["begin"], span["end"] - view["begin"]
        density = span["busy"] / (high - low)
        for k in range(max(int(low / width), 0), min(int(high / width) + 1, BINS)):
            inside = min(high, (k + 1) * width) - max(low, k * width)
            share[k] += density * max(inside, 0) / (4 * width)
    x = [k * width for k in range(BINS + 1)]
    foot = row + 0.36
    axes.fill_between(x, foot, [foot - 0.72 * min(s, 1) for s in share + share[-1:]], step="post",
                      facecolor=WARM, edgecolor="black", linewidth=0.5)
    axes.plot((0, x[-1]), (foot, foot), color="black", linewidth=0.5)


def without(span, gaps):
    """The pieces of a span that no gap covers."""
    pieces, begin = [], span["begin"]
    for gap in gaps:
        if gap["end"] <= begin or gap["begin"] >= span["end"]:
            continue
        if gap["begin"] > begin:
            pieces.append({**span, "begin": begin, "end": gap["begin"]})
        begin = gap["end"]
    if begin < span["end"]:
        pieces.append({**span, "begin": begin})
    return pieces


def draw_phases(axes, view, row, spans):
    inside = [span for span in spans if seen(view, span)]
    phases = [span for span in inside if span["kind"] == "phase"]
    gaps = joined([span for span in inside if span["kind"] == "wait" and is_shown(span, phases)], 0)
    for span in phases:
        text, colour, hatch = look_of(span)
        for piece in without(span, gaps):
            bar(axes, view, row, piece, (colour, hatch), text)
    for gap in gaps:
        bar(axes, view, row, gap, ("white", None), "wait")


def draw_rows(axes, view, rows):
    for row, (_, kind, spans) in enumerate(rows):
        if kind == "phases":
            draw_phases(axes, view, row, spans)
        elif kind == "mufu":
            busy_share(axes, view, row, spans)
        elif kind == "tensor":
            for span in joined(spans, TOUCHING):
                group = span["warpgroup"] if view["owners"] > 1 else None
                look = OWNERS[group % len(OWNERS)] if group is not None else (MIDDLE, None)
                bar(axes, view, row, span, look, "" if group is None else f"of {group}")
        else:
            for span in joined([{**span, "warpgroup": None} for span in spans], 0):
                bar(axes, view, row, span, (LIGHT, ".."), None)


def legend(figure, views, rows_of_all):
    """Says what the bars mean of which there are some; returns its lines."""
    from matplotlib.patches import Patch

    def patch(colour, hatch, text):
        return Patch(facecolor=colour, edgecolor="black", linewidth=0.5, hatch=hatch, label=text)

    kinds = {kind for rows in rows_of_all for _, kind, _ in rows}
    visible = [span for view, rows in zip(views, rows_of_all) for _, _, spans in rows for span in spans
               if seen(view, span)]
    phases = {span["name"]: look_of(span) for span in visible if span["kind"] == "phase"}
    order = [name for name in LOOKS if name in phases] + sorted(phases.keys() - LOOKS.keys())
    marks = [patch(phases[name][1], phases[name][2], phases[name][0]) for name in order]
    if any(span["kind"] == "wait" for span in visible):
        marks.append(patch("white", None, "waits"))
    owners = {span["warpgroup"] for view in views if view["owners"] > 1 for span in visible
              if span["kind"] == "tensor"} - {None}
    marks += [patch(*OWNERS[group % len(OWNERS)], f"products of warpgroup {group}")
              for group in sorted(owners)]
    if "mufu" in kinds:
        marks.append(patch(WARM, None, "MUFUs' busy share"))
    if "tma" in kinds:
        marks.append(patch(LIGHT, "..", "copies under way"))
    figure.legend(handles=marks, loc="lower center", ncols=min(len(marks), 5), frameon=False, fontsize=9)
    return (len(marks) + 4) // 5


def draw(views, about, options):
    plot = load_pyplot()
    roles = dict(pair.split("=", 1) for pair in options.roles.split(",")) if options.roles else {}
    rows_of_all = [rows_of(view, roles) for view in views]
    longest = max(view["end"] - view["begin"] for view in views)
    heights = [len(rows) + 0.9 for rows in rows_of_all]
    tall = 0.42 * sum(heights) + 1.5
    figure, places = plot.subplots(len(views), 1, figsize=(11, tall), squeeze=False, sharex=True,
                                   gridspec_kw={"height_ratios": heights})
    for axes, view, rows in zip(places[:, 0], views, rows_of_all):
        view["length"] = longest
        units = sum(kind == "phases" for _, kind, _ in rows)
        if units < len(rows):
            axes.axhspan(units - 0.5, len(rows) - 0.5, color=PALE, zorder=0)
        draw_rows(axes, view, rows)
        backward = any(span["name"] == "gradient" for span in view["spans"])
        axes.set_title(f"{view['name']}: {view['step']:,.0f} cycles "
                       f"{'a tile of query rows' if backward else 'a block of keys'}", fontsize=10,
                       loc="left")
        axes.set_yticks(range(len(rows)), [name for name, _, _ in rows])
        axes.set_ylim(len(rows) - 0.45, -0.55)
        axes.set_xlim(0, longest)
        axes.set_axisbelow(True)
        axes.grid(axis="x", color=GRID)
        axes.tick_params(axis="y", length=0)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
    clock = about["clock_ghz"]
    places[-1, 0].set_xlabel(f"cycles of the SM; a thousand are {1 / clock:.2f} µs at {clock:.3g} GHz\n"
                             f"modelled: {about['gpu']}, SM {options.sm}, block {views[0]['block']}")
    lines = legend(figure, views, rows_of_all)
    figure.tight_layout(rect=(0, (0.12 + 0.24 * lines) / tall, 1, 1))
    save(figure, options.png)


def tiles_of(kernel):
    """For each SM of the trace the bars (begin, end) of its first warpgroup's tiles."""
    rows = {}
    for span in kernel["spans"]:
        if span["kind"] == "phase":
            rows.setdefault(span["sm"], {}).setdefault(span["track"], []).append(span)
    tiles = {}
    for sm, tracks in rows.items():
        finishing = [name for name in tracks if any(s["name"] == "epilogue" for s in tracks[name])]
        bars = []
        for name in sorted(finishing, key=lambda name: (len(name), name))[:1]:
            begin = None
            for span in sorted(tracks[name], key=lambda s: s["begin"]):
                begin = span["begin"] if begin is None else begin
                if span["name"] == "epilogue":
                    bars.append((begin, span["end"]))
                    begin = None
        if bars:
            tiles[int(sm.split()[1])] = bars
    return tiles


def draw_tiles(kernels, about, options):
    found = [(kernel["name"].split("<")[0], tiles_of(kernel)) for kernel in kernels]
    found = [(name, tiles) for name, tiles in found if tiles]
    if not found:
        raise SystemExit(f"timeline.py: no kernel in {options.trace} marks an epilogue")
    panels = []
    for name, tiles in found:
        last = max(bars[-1][1] for bars in tiles.values())
        idle = 1 - sum(bars[-1][1] for bars in tiles.values()) / (last * len(tiles))
        panels.append({"name": name, "bars": tiles, "length": last, "idle": idle,
                       "rows": range(min(tiles), max(tiles) + 1)})
    draw_sms(panels, "a tile", about, options)


def draw_blocks(kernels, about, options):
    panels = []
    for kernel in kernels:
        blocks = [span for span in kernel["spans"] if span["kind"] == "block"]
        if not blocks:
            continue
        if not panels or kernel["ts"] > panels[-1]["end"] + GAP:
            panels.append({"names": [], "ts": kernel["ts"], "bars": {}, "rows": range(options.blocks)})
        panel = panels[-1]
        panel["names"].append(kernel["name"].split("<")[0])
        panel["end"] = kernel["end"]
        offset = (kernel["ts"] - panel["ts"]) * about["clock_ghz"] * 1000
        for span in blocks:
            bars = panel["bars"].setdefault(int(span["sm"].split()[1]), [])
            bars.append((span["begin"] + offset, span["end"] + offset))
    if not panels:
        raise SystemExit(f"timeline.py: {options.trace} shows no thread blocks")
    steps = options.names.split(",") if options.names else [None] * len(panels)
    if len(steps) != len(panels):
        raise SystemExit(f"timeline.py: {len(steps)} names for the {len(panels)} steps of {options.trace}")
    for step, panel in zip(steps, panels):
        kernels_of_step = ", ".join(panel["names"])
        panel["name"] = f"{step} ({kernels_of_step})" if step else kernels_of_step
        panel["length"] = (panel["end"] - panel["ts"]) * about["clock_ghz"] * 1000
        busy = sum(covered(bars) for bars in panel["bars"].values())
        panel["idle"] = 1 - busy / (panel["length"] * options.blocks)
    draw_sms(panels, "a thread block", about, options)


def covered(bars):
    """Cycles that lie in some bar."""
    total, until = 0, 0
    for begin, end in sorted(bars):
        total += max(end - max(begin, until), 0)
        until = max(until, end)
    return total


def draw_sms(panels, one, about, options):
    """A row for each SM, with bars of what it works on one after the other."""
    plot = load_pyplot()
    from matplotlib.patches import Patch

    longest = max(panel["length"] for panel in panels)
    first = min(bars[0][0] for panel in panels for bars in panel["bars"].values())
    left = first - 0.01 * longest if first > 0.02 * longest else 0
    heights = [len(panel["rows"]) * (0.2 if len(panel["rows"]) <= 16 else 0.08) + 0.8 for panel in panels]
    tall = sum(heights) + 0.9
    figure, places = plot.subplots(len(panels), 1, figsize=(11, tall), squeeze=False, sharex=True,
                                   gridspec_kw={"height_ratios": heights})
    for axes, panel in zip(places[:, 0], panels):
        for row, bars in panel["bars"].items():
            for k, (begin, end) in enumerate(bars):
                axes.barh(row, end - begin, left=begin, height=0.8, color=(DARK, LIGHT)[k % 2],
                          edgecolor="black", linewidth=0.4)
        axes.set_title(f"{panel['name']}: {panel['length']:,.0f} cycles; SMs have nothing to do "
                       f"{100 * panel['idle']:.0f}% of them", fontsize=10, loc="left")
        axes.set_ylim(panel["rows"][-1] + 0.6, panel["rows"][0] - 0.6)
        axes.set_xlim(left, 1.01 * longest)
        axes.set_ylabel("SM")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    clock = about["clock_ghz"]
    places[-1, 0].set_xlabel(f"cycles; a thousand are {1 / clock:.2f} µs at {clock:.3g} GHz\nmodelled: {about['gpu']}")
    figure.legend(handles=[Patch(facecolor=DARK, edgecolor="black", label=one),
                           Patch(facecolor=LIGHT, edgecolor="black", label="the next one")],
                  loc="lower center", ncols=2, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.35 / tall, 1, 1))
    save(figure, options.png)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("trace")
    parser.add_argument("png")
    parser.add_argument("--sm", type=int, default=0)
    parser.add_argument("--block", type=int)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--skip", type=int)
    parser.add_argument("--kernels", metavar="NAME,NAME")
    parser.add_argument("--roles", metavar="TRACK=ROLE,…")
    parser.add_argument("--tiles", action="store_true")
    parser.add_argument("--blocks", type=int, metavar="SMS")
    parser.add_argument("--names")
    options = parser.parse_args()
    kernels, about = read(options.trace)
    if options.kernels:
        kernels = [k for k in kernels if k["name"].split("<")[0] in options.kernels.split(",")]
    if options.tiles:
        draw_tiles(kernels, about, options)
        return
    if options.blocks:
        draw_blocks(kernels, about, options)
        return
    views = [view for view in (choose(kernel, options) for kernel in kernels) if view]
    if not views:
        raise SystemExit(f"timeline.py: no kernel in {options.trace} marks a softmax on SM {options.sm}; "
                         "chapter 5's forward kernels do")
    draw(views, about, options)


if __name__ == "__main__":
    main()
