#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""strait-bench measures Strait itself on the emulator: however the ranks are laid out, the table is right and the path native.

Usage: test_strait.py STRAIT_BENCH LIBNCCL [unittest arguments]; LD_LIBRARY_PATH holds the emulator.
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

BENCH, LIBRARY = sys.argv[1:3]


class Layouts(unittest.TestCase):
    def expect_right(self, *options, ranks, environment=None):
        with tempfile.TemporaryDirectory() as folder:
            report = os.path.join(folder, "report")
            result = subprocess.run([BENCH, "--lib", LIBRARY, *options], capture_output=True, text=True, timeout=200,
                                    env={**os.environ, "STRAIT_NCCL": "off", "STRAIT_REPORT": report,
                                         **(environment or {})})
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            with open(report) as f:
                paths = re.findall(r"\tAllReduce\t\d+\t\d+\t(\w+)\t", f.read())
        self.assertTrue(paths)
        self.assertTrue(all(path.startswith("allreduce_") for path in paths), paths)
        self.assertIn("Out of bounds values : 0 OK", result.stdout)
        self.assertEqual(len(re.findall(r"^#  Rank +\d+ ", result.stdout, re.M)), ranks)
        return result.stdout

    def test_two_four_and_eight_processes(self):
        for ranks in (2, 4, 8):
            with self.subTest(ranks=ranks):
                self.expect_right("--ranks", str(ranks), "-e", "4K", ranks=ranks)

    def test_two_four_and_eight_threads(self):
        for ranks in (2, 4, 8):
            with self.subTest(ranks=ranks):
                self.expect_right("--ranks", str(ranks), "--threads", "-e", "4K", ranks=ranks)

    def test_one_thread_with_several_gpus(self):
        self.expect_right("-g", "4", "-e", "1K", ranks=4)

    def test_threads_with_gpus_in_processes_that_make_their_communicators_apart(self):
        self.expect_right("--ranks", "2", "-t", "2", "-g", "2", "-p", "1", "-e", "256", ranks=8)

    def test_graphs_in_processes_and_threads(self):
        self.expect_right("--ranks", "2", "-G", "5", "-n", "4", "-e", "1K", ranks=2)
        self.expect_right("--ranks", "2", "--threads", "-G", "5", "-n", "4", "-e", "1K", ranks=2)

    def test_ranks_that_share_one_gpu(self):
        self.expect_right("--ranks", "4", "-e", "256", ranks=4, environment={"STRAIT_EMULATOR_GPUS": "1"})

    def test_every_type_and_reduction_at_an_odd_place(self):
        self.expect_right("--ranks", "3", "-d", "all", "-o", "all", "-b", "200", "-e", "200", "-u", "1", "-n", "1", "-S",
                          "1", "-w", "0", ranks=3)

    def test_several_calls_in_a_group(self):
        self.expect_right("--ranks", "2", "-m", "3", "-e", "256", ranks=2)

    def test_the_library_against_itself(self):
        out = self.expect_right("--ranks", "2", "--vs", LIBRARY, "-e", "256", ranks=2)
        self.assertEqual(len(re.findall(r"  vs$", out, re.M)), 2)


unittest.main(argv=sys.argv[:1] + sys.argv[3:])
