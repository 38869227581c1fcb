#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""strait-bench as a program, on the emulator, with a fake NCCL library that is right or breaks in known ways.

Usage: test_bench.py STRAIT_BENCH FAKE_NCCL [unittest arguments]; LD_LIBRARY_PATH holds the emulator.
"""
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

BENCH, FAKE = sys.argv[1:3]
LINE = re.compile(r"^ *\d+ +\d+ +\w+ +\w+ +-?\d+( +\S+){8}( +(lib|vs))?$")


def run(*options, fault="", ranks=2, threads=True, environment=None):
    command = [BENCH, "--lib", FAKE, *options]
    if ranks:
        command += ["--ranks", str(ranks)]
    if threads:
        command += ["--threads"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "FAKE_NCCL_FAULT": fault, **(environment or {})})


def lines(result):
    return [line.split() for line in result.stdout.splitlines() if LINE.match(line)]


class Table(unittest.TestCase):
    def test_a_right_library_passes_with_every_type_and_reduction(self):
        result = run("-b", "8", "-e", "512", "-f", "8", "-d", "all", "-o", "all", "-n", "1", "-S", "1", "-w", "0")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        table = lines(result)
        self.assertEqual(len(table), 12 * 6 * 3)
        for line in table:
            self.assertEqual((line[8], line[12]), ("0", "0"), line)
        self.assertIn("Out of bounds values : 0 OK", result.stdout)

    def test_columns_are_those_of_nccl_tests(self):
        result = run("-b", "1K", "-e", "4K", "-f", "2", "-d", "half", "-n", "2")
        table = lines(result)
        self.assertEqual([line[0] for line in table], ["1024", "2048", "4096"])
        for line in table:
            self.assertEqual(line[2:5], ["half", "sum", "-1"])
            self.assertEqual(int(line[1]), int(line[0]) // 2)
            time_us, algorithm_gbs, bus_gbs = map(float, line[5:8])
            self.assertGreater(time_us, 0)
            self.assertAlmostEqual(algorithm_gbs, int(line[0]) / time_us / 1e3, delta=0.006)
            self.assertAlmostEqual(bus_gbs, algorithm_gbs, delta=0.011)  # 2 (n - 1) / n is 1 for 2 ranks
        heads = [line for line in result.stdout.splitlines() if line.startswith("#") and "busbw" in line]
        self.assertEqual(heads[0].split()[1:],
                         ["size", "count", "type", "redop", "root"] + ["time", "algbw", "busbw", "#wrong"] * 2)

    def test_two_libraries_take_turns_at_every_point(self):
        result = run("--vs", FAKE, "-b", "64", "-e", "256", "-f", "4", "-n", "1")
        self.assertEqual([(line[0], line[-1]) for line in lines(result)],
                         [("64", "lib"), ("64", "vs"), ("256", "lib"), ("256", "vs")])

    def test_records_hold_every_half_line_with_machine_and_library(self):
        with tempfile.TemporaryDirectory() as folder:
            table, records = os.path.join(folder, "a.csv"), os.path.join(folder, "a.json")
            for _ in range(2):  # a second run appends
                result = run("-b", "64", "-e", "256", "-f", "4", "-n", "1", "--csv", table, "--json", records)
                self.assertEqual(result.returncode, 0, result.stderr)
            with open(table, newline="") as f:
                rows = list(csv.DictReader(f))
            with open(records) as f:
                objects = [json.loads(line) for line in f]
        self.assertEqual(len(rows), 8)
        self.assertEqual(len(objects), 8)
        self.assertEqual([int(row["bytes"]) for row in rows], [o["bytes"] for o in objects])
        self.assertEqual([o["in_place"] for o in objects[:2]], [0, 1])
        for o in objects:
            self.assertEqual((o["ranks"], o["processes"], o["wrong"]), (2, 1, 0))
            self.assertEqual(o["library"], os.path.realpath(FAKE))
            self.assertIn("--ranks 2", o["command"])
            self.assertGreater(o["time_us"], 0)
            self.assertTrue(o["machine"] and o["gpu"] and o["date"])


class Checks(unittest.TestCase):
    """Each fault must be counted, on the right half of the line, and end the program with status 1."""

    def wrong(self, fault, *options):
        result = run("-b", "1024", "-e", "1024", "-n", "1", "-S", "1", "-w", "0", *options, fault=fault)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn("FAILED", result.stdout)
        line, = lines(result)
        return int(line[8]), int(line[12]), result.stderr

    def test_a_last_element_left_out_is_counted_on_every_rank(self):
        out_of_place, in_place, messages = self.wrong("last")
        # Out of place it is checked after the timed calls and again on a fresh pattern, on two ranks.
        self.assertEqual((out_of_place, in_place), (4, 2))
        self.assertIn("output element 255", messages)

    def test_a_rank_counted_for_another_is_counted(self):
        out_of_place, in_place, _ = self.wrong("twice")
        self.assertEqual((out_of_place, in_place), (4 * 256, 2 * 256))

    def test_a_byte_written_past_the_end_is_counted(self):
        out_of_place, in_place, messages = self.wrong("beyond")
        self.assertEqual((out_of_place, in_place), (4, 2))
        self.assertIn("0 before it, 1 behind it", messages)

    def test_a_byte_written_before_the_start_is_counted(self):
        out_of_place, _, messages = self.wrong("before")
        self.assertEqual(out_of_place, 4)
        self.assertIn("1 before it, 0 behind it", messages)

    def test_a_changed_input_is_counted(self):
        out_of_place, in_place, messages = self.wrong("input")
        self.assertGreater(out_of_place, 0)
        self.assertEqual(in_place, 0)
        self.assertIn("input element 0", messages)

    def test_a_library_that_does_nothing_has_every_element_wrong(self):
        out_of_place, in_place, _ = self.wrong("nothing", "-d", "uint8")
        self.assertEqual((out_of_place, in_place), (4 * 1024, 2 * 1024))

    def test_results_that_are_right_only_at_first_are_counted(self):
        out_of_place, in_place, _ = self.wrong("late", "-c", "3")
        self.assertEqual((out_of_place, in_place), (8, 6))

    def test_results_are_not_looked_at_without_checks(self):
        result = run("-b", "1024", "-e", "1024", "-n", "1", "-c", "0", fault="nothing")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(lines(result)[0][8], "N/A")


class Failures(unittest.TestCase):
    """Whatever a rank does, the run ends, says which one it was, and leaves no process."""

    def fails(self, *arguments, **named):
        start = time.monotonic()
        result = run("-n", "1", "-c", "0", *arguments, **named)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertLess(time.monotonic() - start, 60)
        return result.stderr

    def test_a_killed_rank_is_named_and_ends_the_run(self):
        messages = self.fails(fault="die", threads=False)
        self.assertRegex(messages, r"process 1 was killed by signal 9 .*all_reduce")

    def test_a_hung_rank_is_named_with_what_it_was_doing(self):
        messages = self.fails("--limit", "2", fault="hang", threads=False)
        self.assertRegex(messages, r"process 1: no progress for 2 s; its phase: all_reduce")

    def test_an_error_of_the_library_is_told_in_its_words(self):
        messages = self.fails(fault="error", threads=False)
        self.assertIn("an error that the test wants (3)", messages)

    def test_a_path_that_is_no_library_is_named(self):
        self.assertIn("no library at /nowhere", self.fails("--vs", "/nowhere"))


class Starters(unittest.TestCase):
    """Ranks that somebody else started find each other by the starter's variables."""

    def start(self, environments):
        command = [BENCH, "--lib", FAKE, "-b", "64", "-e", "64", "-n", "1", "-c", "0"]
        return [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 env={**os.environ, "FAKE_NCCL_FAULT": "apart", **e}) for e in environments]

    def expect_one_table_of_three_ranks(self, processes):
        outputs = [p.communicate(timeout=60) for p in processes]
        self.assertEqual([p.returncode for p in processes], [0, 0, 0], outputs)
        self.assertEqual(sum("Rank  2" in out for out, _ in outputs), 1, outputs)
        self.assertEqual(outputs[1][0] + outputs[2][0], "")

    def test_ranks_of_mpirun_meet(self):
        self.expect_one_table_of_three_ranks(self.start(
            {"OMPI_COMM_WORLD_RANK": str(r), "OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_RANK": str(r),
             "OMPI_COMM_WORLD_LOCAL_SIZE": "3"} for r in range(3)))

    def test_ranks_of_torchrun_meet(self):
        self.expect_one_table_of_three_ranks(self.start(
            {"RANK": str(r), "WORLD_SIZE": "3", "LOCAL_RANK": str(r), "LOCAL_WORLD_SIZE": "3",
             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "none"} for r in range(3)))


class Floor(unittest.TestCase):
    def test_the_emulator_has_no_floor_and_says_so(self):
        result = run("--floor")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("it means nothing", result.stdout)


unittest.main(argv=sys.argv[:1] + sys.argv[3:])
