#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares codes and messages of bad calls with the real NCCL: errors.py PROGRAM LIBRARY."""
import ctypes
import os
import subprocess
import sys

import real_nccl

# The wording changes between releases; this is the one that we answer as.
RELEASES = range(22800, 22900)


def version_of(path):
    number = ctypes.c_int()
    ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number))
    return number.value


def main():
    program, library = sys.argv[1:]
    real = real_nccl.find_or_skip()
    version = version_of(real)
    if version not in RELEASES:
        print(f'SKIPPED: {real} is release {version}, not 2.28')
        return real_nccl.SKIP
    clean = {name: value for name, value in os.environ.items() if not name.startswith(('NCCL_', 'STRAIT_'))}
    return subprocess.run([program, library, real], env=clean, check=False).returncode


if __name__ == '__main__':
    sys.exit(main())
