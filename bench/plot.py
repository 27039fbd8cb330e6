#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""plot.py <results> <plots>: draws what tools/bench left in <results>, breaker.json, crowd.json and tails.json, as SVG.

A result that is not there leaves its plots out. The same results make the same files, byte for byte.
"""
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({
    "svg.hashsalt": "shmcb",  # in place of random ids
    "svg.fonttype": "none",  # text stays text
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "savefig.facecolor": "white",  # not transparent: dark text on a page that may be dark
})
from matplotlib import pyplot, ticker  # noqa: E402  (after the backend was chosen)

ADMIT_AND_RECORD = "admit + record success"
FAILURE = "record failure, window "
OPERATIONS = ["admit", "record success", ADMIT_AND_RECORD, "CircuitBreaker::call", "try_acquire + success", "reject"]

# Of the contenders that are known, so that one looks the same in every plot (the colours are Okabe and Ito's); the rest
# gets what is left.
STYLES = {
    "shared memory": {"color": "#0072B2", "marker": "o", "linewidth": 2.2},
    "shared memory, lean": {"color": "#009E73", "marker": "D", "linewidth": 2.2},
    "memory": {"color": "#56B4E9", "marker": "s"},
    "robust pthread mutex": {"color": "#D55E00", "marker": "^"},
    "interprocess_mutex": {"color": "#E69F00", "marker": "v"},
    "spin lock": {"color": "#CC79A7", "marker": "x"},
    "std::mutex": {"color": "#888888", "marker": "+"},
}
SPARE_STYLES = [{"color": color, "marker": marker} for marker in "ph*" for color in ("#7B5EA7", "#6B8E23", "#A0522D")]
FLOOR_STYLE = {"color": "black", "linestyle": "--", "linewidth": 1.2}


class BadResults(Exception):
    pass


def load(path, key):
    """The list `key` of a result, or nothing if there is no such file."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise BadResults(f"{path}: is not JSON: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get(key), list):
        raise BadResults(f"{path}: has no list '{key}'")
    return found[key]


def style_of(contender):
    return STYLES.get(contender) or STYLES.setdefault(contender, SPARE_STYLES.pop(0) if SPARE_STYLES else {})


def in_order(contenders):
    """The known ones first; each plot has the same order."""
    known = list(STYLES)
    return sorted(contenders, key=lambda name: (known.index(name) if name in known else len(known), name))


def save(figure, path):
    figure.savefig(path, metadata={"Date": None, "Creator": None}, bbox_inches="tight")
    pyplot.close(figure)
    print(path)


def time_text(ns, _=None):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:g} {unit}"
    return f"{ns:g} ns"


def time_ticks(axis):
    axis.set_major_formatter(ticker.FuncFormatter(time_text))
    axis.set_minor_formatter(ticker.NullFormatter())


def plain_ticks(axis, at):
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_major_locator(ticker.FixedLocator(at))
    axis.set_minor_locator(ticker.NullLocator())


def draw_lines(axes, lines, floors):
    """`lines`, `floors`: of a name its {x: y}."""
    for name in in_order(lines):
        points = sorted(lines[name].items())
        axes.plot([x for x, _ in points], [y for _, y in points], label=name, markersize=5, **style_of(name))
    for name, line in sorted(floors.items()):
        points = sorted(line.items())
        axes.plot([x for x, _ in points], [y for _, y in points], label="floor: " + name, **FLOOR_STYLE)


def legend_beside(figure, axes):
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="center left", bbox_to_anchor=(1.0, 0.5))


# ---- crowd.json


def cost_by_processes(results, path):
    lines, floors = defaultdict(dict), defaultdict(dict)
    here = [r for r in results if r["form"] == "processes" and r["breakers"] == "one" and r["pacing"] == "tight"]
    wanted = {r["floor"] for r in here if r["operation"] == ADMIT_AND_RECORD}
    for r in here:
        if r["operation"] == ADMIT_AND_RECORD:
            lines[r["contender"]][r["members"]] = r["ns"]["median"]
        elif r["operation"] == "floor" and r["contender"] in wanted:
            floors[r["contender"]][r["members"]] = r["ns"]["median"]
    if not lines:
        return
    figure, axes = pyplot.subplots(figsize=(5.2, 3.6), layout="constrained")
    draw_lines(axes, lines, floors)
    axes.set(xscale="log", yscale="log", xlabel="processes, all on one breaker, without a pause",
             ylabel="an operation, as each of them sees it", title=ADMIT_AND_RECORD)
    plain_ticks(axes.xaxis, sorted({x for line in lines.values() for x in line}))
    time_ticks(axes.yaxis)
    legend_beside(figure, axes)
    save(figure, path)


# ---- tails.json


def latencies(results, path):
    quantiles = ["p50", "p99", "p99.9", "p99.99", "max"]
    situations = list(dict.fromkeys(r["situation"] for r in results))
    if not situations:
        return
    figure, all_axes = pyplot.subplots(1, len(situations), figsize=(2.9 * len(situations), 3.4), sharey=True,
                                       squeeze=False, layout="constrained")
    for axes, situation in zip(all_axes[0], situations):
        lines, floors = {}, {}
        for r in results:
            if r["situation"] == situation:
                line = {i: r[quantile] for i, quantile in enumerate(quantiles) if r[quantile] > 0}
                (floors if r["operation"] == "floor" else lines)[r["contender"]] = line
        draw_lines(axes, lines, floors)
        for line, dashes in zip(axes.lines[len(lines):], ["--", ":", "-."]):
            line.set_linestyle(dashes)
        axes.set(yscale="log", title=situation.replace(" every ", "\nevery "))
        axes.set_xticks(range(len(quantiles)), quantiles)
    members = sorted({r["members"] for r in results})
    all_axes[0][0].set_ylabel("an operation")
    figure.supxlabel(f"{'/'.join(map(str, members))} processes, all on one breaker: {ADMIT_AND_RECORD}", fontsize=9)
    time_ticks(all_axes[0][0].yaxis)
    legend_beside(figure, all_axes[0][0])
    save(figure, path)


# ---- breaker.json


def medians(results, mode):
    """Of each (operation, contender) the median ns of the launches that count, as tables.hpp has it; and the floors."""
    launches, floor_of = defaultdict(list), {}
    for r in results:
        if r.get("run_type") == "iteration" and not r.get("error_occurred") and r["name"].startswith(mode + "/"):
            _, operation, contender = r["name"].split("/")[:3]
            launches[operation, contender].append((r["ns"], r["waited"]))
            if r.get("label"):
                floor_of[operation] = r["label"]
    ns = {}
    for case, all_of_it in launches.items():
        calm = [value for value, waited in all_of_it if waited <= 0.02]
        ns[case] = statistics.median(calm if len(calm) >= 5 else [value for value, _ in all_of_it])
    return ns, floor_of


def ratios_to_floor(ns, floor_of, path):
    """Of our own storages: the mutexes have the other plots."""
    ratios = defaultdict(dict)
    for (operation, contender), value in ns.items():
        floor = ns.get(("floor", floor_of.get(operation)))
        if floor and (contender == "memory" or contender.startswith("shared memory")):
            ratios[operation][contender] = value / floor
    if not ratios:
        return
    # Launches come in random order: the known operations first, failures by their window, then the rest.
    operations = sorted(ratios, key=lambda name: (
        (OPERATIONS.index(name), "") if name in OPERATIONS else
        (len(OPERATIONS) + int(name[len(FAILURE):]), "") if name.startswith(FAILURE) else (sys.maxsize, name)))
    contenders = in_order({name for bars in ratios.values() for name in bars})
    height = 0.8 / len(contenders)
    figure, axes = pyplot.subplots(figsize=(5.6, 0.6 + len(operations) * (0.24 + 0.07 * len(contenders))),
                                   layout="constrained")
    for i, contender in enumerate(contenders):
        rows = [row for row, operation in enumerate(operations) if contender in ratios[operation]]
        axes.barh([row + (i + 0.5) * height - 0.4 for row in rows],
                  [ratios[operations[row]][contender] - 1 for row in rows], left=1, height=height,
                  color=style_of(contender).get("color"), label=contender)
    axes.axvline(1, **FLOOR_STYLE)
    axes.set(xscale="log", xlabel="times its floor (in brackets), one process")
    axes.set_yticks(range(len(operations)), [f"{operation}\n({floor_of[operation]})" for operation in operations],
                    fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    plain_ticks(axes.xaxis, [0.1, 0.5, 1, 2, 5, 10, 25, 100, 1000])
    legend_beside(figure, axes)
    save(figure, path)


def failures_by_window(ns, floor_of, path):
    lines, floor = defaultdict(dict), {}
    for (operation, contender), value in ns.items():
        if operation.startswith(FAILURE):
            window = int(operation[len(FAILURE):])
            lines[contender][window] = value
            if ("floor", floor_of.get(operation)) in ns:
                floor[window] = ns["floor", floor_of[operation]]
    if not lines:
        return
    figure, axes = pyplot.subplots(figsize=(5.2, 3.4), layout="constrained")
    draw_lines(axes, lines, {"clock, CAS, load, store, counting the ring": floor} if floor else {})
    axes.set(xscale="log", yscale="log", xlabel="window", ylabel="an operation, one process", title="record failure")
    plain_ticks(axes.xaxis, sorted({x for line in lines.values() for x in line}))
    time_ticks(axes.yaxis)
    legend_beside(figure, axes)
    save(figure, path)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: plot.py <folder of results> <folder for plots>")
    results, plots = Path(sys.argv[1]), Path(sys.argv[2])
    found = {name: load(results / f"{name}.json", key)
             for name, key in (("breaker", "benchmarks"), ("crowd", "throughput"), ("tails", "tails"))}
    if not any(found.values()):
        sys.exit(f"plot.py: {results}: nothing measured there: run tools/bench")
    plots.mkdir(parents=True, exist_ok=True)
    if found["crowd"]:
        cost_by_processes(found["crowd"], plots / "cost-by-processes.svg")
    if found["tails"]:
        latencies(found["tails"], plots / "latencies.svg")
    if found["breaker"]:
        ns, floor_of = medians(found["breaker"], "1 process")
        ratios_to_floor(ns, floor_of, plots / "ratios-to-floor.svg")
        failures_by_window(ns, floor_of, plots / "failure-by-window.svg")
    for name in (name for name, result in found.items() if not result):
        print(f"left out: there is no {results / name}.json", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except BadResults as error:
        sys.exit(f"plot.py: {error}")
    except KeyError as error:
        sys.exit(f"plot.py: a result has no field {error}")
