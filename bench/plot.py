#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what strait-bench wrote with --csv or --json: latency and bus bandwidth over size.

  plot.py run.csv other.json -o figures/allreduce      allreduce-latency.png, .svg, allreduce-bandwidth.png, .svg
  plot.py --table run.csv                              a markdown table of the times instead

A curve is one library with one number of ranks, mode, type and reduction; where a point was measured several times
the median counts. Records of --floor in the same files become a dotted line: the exchange of two ends with nothing
around it, at best.
"""
import argparse
import csv
import json
import os
import statistics
import sys

SERIES = ("library", "ranks", "processes", "mode", "operation", "type", "reduction")


def read(path):
    with open(path, newline="") as f:
        text = f.read()
    if text.startswith("{"):
        records = [json.loads(line) for line in text.splitlines() if line.strip()]
    else:
        records = list(csv.DictReader(text.splitlines()))
    for record in records:
        for name in ("bytes", "in_place", "ranks", "processes", "library_version", "wrong"):
            record[name] = int(record[name])
        for name in ("time_us", "cpu_us", "host_us", "busbw_gbs"):
            record[name] = float(record[name])
    return records


def version(number):
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def label_of(key, keys, versions):
    """The parts of a key in which the keys differ; always the library."""
    parts = [f"{os.path.basename(os.path.dirname(key[0]))}/{os.path.basename(key[0])} {version(versions[key[0]])}"]
    words = {"ranks": "{} ranks", "processes": "{} processes"}
    for i, name in enumerate(SERIES[1:], 1):
        if len({k[i] for k in keys}) > 1:
            parts.append(words.get(name, "{}").format(key[i]))
    return ", ".join(parts)


def series_of(records, value, in_place):
    """{label: [(bytes, median)]} in the order of appearance."""
    found, versions = {}, {}
    for r in records:
        if r["operation"] == "floor" or r["in_place"] != in_place:
            continue
        key = tuple(r[name] for name in SERIES)
        versions[r["library"]] = r["library_version"]
        found.setdefault(key, {}).setdefault(r["bytes"], []).append(r[value])
    return {label_of(key, found, versions): sorted((b, statistics.median(v)) for b, v in points.items())
            for key, points in found.items()}


def floor_of(records):
    """[(bytes, us)]: the better of the two exchanges at each size."""
    best = {}
    for r in records:
        if r["operation"] == "floor" and r["mode"] in ("packets", "direct"):
            best[r["bytes"]] = min(r["time_us"], best.get(r["bytes"], r["time_us"]))
    return sorted(best.items())


def size_text(n):
    for unit, name in ((30, "G"), (20, "M"), (10, "K")):
        if n >= 1 << unit and n % (1 << unit) == 0:
            return f"{n >> unit}{name}"
    return str(n)


def print_table(records, value, in_place):
    series = series_of(records, value, in_place)
    floor = dict(floor_of(records)) if value == "time_us" else {}
    sizes = sorted({b for points in series.values() for b, _ in points})
    columns = [(label, dict(points)) for label, points in series.items()]
    if floor:
        columns.append(("floor", floor))
    print("| " + " | ".join(["", *map(size_text, sizes)]) + " |")
    print("|" + " --- |" * (len(sizes) + 1))
    for label, points in columns:
        print("| " + " | ".join([label] + [f"{points[b]:.4g}" if b in points else "" for b in sizes]) + " |")


def load_matplotlib():
    try:
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot
        return matplotlib.pyplot
    except ImportError:
        sys.exit("plot.py: matplotlib is missing; install it (pip install matplotlib, or the package "
                 "python3-matplotlib), or ask for a table with --table, which needs nothing")


def title_of(records):
    machines = sorted({f"{r['n_gpus']} x {r['gpu']}" for r in records})
    dates = sorted({r["date"][:10] for r in records})
    return f"{', '.join(machines)}; {dates[0]}" + (f" to {dates[-1]}" if len(dates) > 1 else "")


def draw(pyplot, records, value, name, path, in_place):
    figure, axes = pyplot.subplots(figsize=(8, 5), constrained_layout=True)
    for label, points in series_of(records, value, in_place).items():
        axes.plot(*zip(*points), marker="o", markersize=3, linewidth=1.2, label=label)
    floor = floor_of(records)
    if floor and value == "time_us":
        axes.plot(*zip(*floor), linestyle=":", color="black", label="floor: two ends, packets or direct reads")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(pyplot.FuncFormatter(lambda x, _: size_text(int(x))))
    axes.set_xlabel("bytes")
    axes.set_ylabel(name)
    axes.set_title(title_of(records), fontsize=9)
    axes.grid(True, which="both", linewidth=0.3)
    axes.legend(fontsize=7)
    for extension in ("png", "svg"):
        figure.savefig(f"{path}.{extension}", dpi=150)
        print(f"{path}.{extension}")
    pyplot.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="CSV or JSON files of strait-bench")
    parser.add_argument("-o", "--output", default="strait-bench", help="path and start of the names of the figures")
    parser.add_argument("--table", action="store_true", help="print a markdown table instead")
    parser.add_argument("--value", default="time_us", choices=("time_us", "cpu_us", "host_us", "busbw_gbs"),
                        help="what the table shows (time_us)")
    parser.add_argument("--in-place", action="store_true", help="show the calls in place")
    arguments = parser.parse_args()

    try:
        records = [record for path in arguments.files for record in read(path)]
    except (OSError, ValueError, KeyError) as problem:
        sys.exit(f"plot.py: no results of strait-bench: {problem}")
    wrong = sum(r["wrong"] > 0 for r in records)
    if wrong:
        print(f"plot.py: {wrong} records are of wrong results", file=sys.stderr)
    if not any(r["operation"] != "floor" for r in records):
        sys.exit("plot.py: no measured lines in these files")
    in_place = int(arguments.in_place)
    if arguments.table:
        print_table(records, arguments.value, in_place)
        return
    pyplot = load_matplotlib()
    os.makedirs(os.path.dirname(arguments.output) or ".", exist_ok=True)
    draw(pyplot, records, "time_us", "time of a call, us", arguments.output + "-latency", in_place)
    draw(pyplot, records, "busbw_gbs", "bus bandwidth, GB/s", arguments.output + "-bandwidth", in_place)


main()
