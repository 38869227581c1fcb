#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plot.py on records of known content. Usage: test_plot.py PLOT [unittest arguments]"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

PLOT = sys.argv[1]
FIELDS = {"operation": "all_reduce", "mode": "graph", "bytes": 1024, "type": "half", "reduction": "sum", "in_place": 0,
          "time_us": 2.0, "cpu_us": 1.0, "host_us": 3.0, "busbw_gbs": 0.5, "wrong": 0, "ranks": 2, "processes": 2,
          "library": "/somewhere/lib/libnccl.so.2", "library_version": 22809, "gpu": "A GPU", "n_gpus": 1,
          "date": "2026-01-02T03:04:05Z"}


class Plot(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def run_plot(self, records, *options, **environment):
        with open(self.path("run.json"), "w") as f:
            f.writelines(json.dumps({**FIELDS, **r}) + "\n" for r in records)
        return subprocess.run([sys.executable, PLOT, self.path("run.json"), *options], capture_output=True, text=True,
                              timeout=100, env={**os.environ, **environment})

    def test_a_table_has_the_median_of_each_point_and_a_row_for_each_curve(self):
        result = self.run_plot([{"time_us": t} for t in (2, 9, 3)] + [{"ranks": 4, "bytes": 1 << 20, "time_us": 7},
                                                                     {"in_place": 1, "time_us": 99}], "--table")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.splitlines(), [
            "|  | 1K | 1M |", "| --- | --- | --- |",
            "| lib/libnccl.so.2 2.28.9, 2 ranks | 3 |  |", "| lib/libnccl.so.2 2.28.9, 4 ranks |  | 7 |"])

    def test_the_floor_is_the_better_exchange(self):
        floor = {"operation": "floor", "library": ""}
        result = self.run_plot([{}, {**floor, "mode": "packets", "time_us": 1.5}, {**floor, "mode": "direct",
                               "time_us": 1.25}, {**floor, "mode": "graph node", "time_us": 0.5}], "--table")
        self.assertIn("| floor | 1.25 |", result.stdout)

    def test_wrong_results_are_told(self):
        self.assertIn("1 records are of wrong results", self.run_plot([{"wrong": 3}], "--table").stderr)

    def test_without_matplotlib_the_message_says_what_to_do(self):
        with open(self.path("matplotlib.py"), "w") as f:
            f.write("raise ImportError\n")
        result = self.run_plot([{}], "-o", self.path("figure"), PYTHONPATH=self.folder.name)
        self.assertEqual(result.returncode, 1)
        self.assertIn("matplotlib is missing", result.stderr)
        self.assertIn("--table", result.stderr)

    def test_curves_are_drawn_as_png_and_svg(self):
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            self.skipTest("no matplotlib")
        result = self.run_plot([{}, {"bytes": 4096}], "-o", self.path("figure"))
        self.assertEqual(result.returncode, 0, result.stderr)
        for what in ("latency", "bandwidth"):
            with open(self.path(f"figure-{what}.png"), "rb") as f:
                self.assertEqual(f.read(4), b"\x89PNG")
            with open(self.path(f"figure-{what}.svg")) as f:
                self.assertIn("lib/libnccl.so.2 2.28.9", f.read())  # matplotlib notes the text of each outline

    def test_a_file_that_holds_no_results_is_told(self):
        with open(self.path("other.csv"), "w") as f:
            f.write("a,b\n1,2\n")
        result = subprocess.run([sys.executable, PLOT, self.path("other.csv")], capture_output=True, text=True,
                                timeout=100)
        self.assertEqual(result.returncode, 1)
        self.assertIn("no results of strait-bench", result.stderr)


unittest.main(argv=sys.argv[:1] + sys.argv[2:])
