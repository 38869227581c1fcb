#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cases notice a library that breaks in a known way, and their launcher ends what hangs: test_launcher.py CASES FAKE REAL.

FAKE is the library of the benchmark's tests with its faults, REAL is Strait; LD_LIBRARY_PATH holds the emulator.
"""
import os
import re
import subprocess
import sys
import unittest

CASES, FAKE, REAL = sys.argv[1:4]
FAULTS = {
    'last': 'fresh', 'twice': 'fresh', 'beyond': 'fresh', 'before': 'fresh', 'input': 'fresh', 'nothing': 'tails',
    'late': 'tails', 'error': 'unaligned', 'die': 'fresh',
}


def run(library, *arguments, fault=None):
    variables = dict(os.environ)
    if fault:
        variables['FAKE_NCCL_FAULT'] = fault
    return subprocess.run([CASES, '--lib', library, *arguments], env=variables, capture_output=True, text=True, timeout=200)


class Verdicts(unittest.TestCase):
    def expect_failure(self, result, words):
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertRegex(result.stdout, words)
        self.assertRegex(result.stdout, r'(?m)^\d+ passed, [1-9]\d* failed, \d+ skipped$')

    def test_a_right_library_passes(self):
        result = run(FAKE, '--ranks', '2', '--threads', 'fresh', 'tails', 'unaligned')
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertTrue(result.stdout.endswith('3 passed, 0 failed, 0 skipped\n'), result.stdout)

    def test_every_known_fault_fails_its_case(self):
        for fault, case in FAULTS.items():
            with self.subTest(fault=fault):
                self.expect_failure(run(FAKE, '--ranks', '2', '--threads', case, fault=fault), f'(?m)^FAIL {case}, 2 ranks')

    def test_cases_after_a_failed_one_still_run(self):
        result = run(FAKE, '--ranks', '2', '--threads', 'tails', 'fresh', 'unaligned', fault='nothing')
        self.assertEqual(re.findall(r'(?m)^FAIL (\w+),', result.stdout), ['tails', 'fresh', 'unaligned'])

    def test_a_rank_that_is_killed_is_named(self):
        self.expect_failure(run(FAKE, '--ranks', '2', '--threads', 'fresh', fault='die'), 'killed by signal 9')

    def test_ranks_that_are_not_connected_fail(self):
        self.expect_failure(run(FAKE, '--ranks', '2', 'fresh', fault='apart'), r'rank [01], .*wrong')

    def test_a_case_beyond_its_time_is_ended_and_named(self):
        result = run(REAL, '--ranks', '2', '--patience', '0.002', 'late_ranks')
        self.expect_failure(result, r'FAIL late_ranks.*nothing after .* s; rank 0 .*; rank 1 ')

    def test_paths_of_all_processes_are_counted(self):
        result = run(REAL, '--ranks', '2', 'groups')
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r'(?m)^# paths of 2 processes: \d+ allreduce_')


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
