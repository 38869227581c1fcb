#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that a preloaded library does not disturb programs that never call NCCL: preload.py LIBRARY.

Same output and exit code, no CUDA library mapped, and less than a millisecond more at the median, over interleaved
pairs of the shortest program, so that a loaded machine disturbs both alike. And programs that open NCCL by name get it.
"""
import os
import shutil
import statistics
import subprocess
import sys
import time

PROGRAMS = [
    ['bash', '-c', 'true'],
    ['ls', '/'],
    [sys.executable, '-c', 'pass'],
    [sys.executable, '-c', 'import sys; print(sys.version); sys.exit(3)'],
    ['gcc', '--version'],
]
PAIRS = 150
LIMIT_MS = 1.0


def environment(library):
    clean = {name: value for name, value in os.environ.items() if name != 'LD_PRELOAD'}
    if library:
        clean['LD_PRELOAD'] = library
    return clean


def outcome(command, library):
    run = subprocess.run(command, env=environment(library), capture_output=True, check=False)
    return run.returncode, run.stdout, run.stderr


def milliseconds(command, variables):
    start = time.perf_counter()
    # posix_spawn, so that the size of this process does not count.
    child = os.posix_spawnp(command[0], command, variables)
    os.waitpid(child, 0)
    return (time.perf_counter() - start) * 1e3


def added_milliseconds(library):
    without, preloaded = [], []
    command = ['true']
    plain, with_library = environment(None), environment(library)
    for _ in range(PAIRS):
        without.append(milliseconds(command, plain))
        preloaded.append(milliseconds(command, with_library))
    return statistics.median(preloaded) - statistics.median(without)


def mapped(library):
    maps = subprocess.run(['cat', '/proc/self/maps'], env=environment(library), capture_output=True, text=True,
                          check=True).stdout
    return {os.path.basename(line.split()[-1]) for line in maps.splitlines() if '/' in line}


def faults_of_clients(library):
    """A library that is opened by name while ours is preloaded is ours; so is libnccl.so in our folder."""
    code = ('import ctypes, sys; l = ctypes.CDLL(sys.argv[1]); n = ctypes.c_int(); '
            'l.ncclGetVersion(ctypes.byref(n)); print(n.value, hasattr(l, "pncclAllReduceConfig"))')
    expected = (0, b'22809 True\n', b'')
    folder = {name: value for name, value in environment(None).items()}
    folder['LD_LIBRARY_PATH'] = os.path.dirname(library)
    for variables, name in ((environment(library), 'libnccl.so.2'), (folder, 'libnccl.so'), (folder, library)):
        run = subprocess.run([sys.executable, '-c', code, name], env=variables, capture_output=True, check=False)
        if (run.returncode, run.stdout, run.stderr) != expected:
            yield f'opened as {name}: {run}'


def main():
    library = os.path.abspath(sys.argv[1])
    faults = list(faults_of_clients(library))
    for command in PROGRAMS:
        if shutil.which(command[0]) and outcome(command, None) != outcome(command, library):
            faults.append(f'{" ".join(command)}: differs under LD_PRELOAD')
    extra = mapped(library) - mapped(None)
    if extra - {os.path.basename(library), 'libpthread.so.0', 'libdl.so.2'}:
        faults.append(f'brings other libraries along: {sorted(extra)}')
    if os.path.basename(library) not in extra:
        faults.append('was not loaded at all')
    added = added_milliseconds(library)
    if added >= LIMIT_MS:
        faults.append('is too slow to load')
    for fault in faults:
        print(fault)
    print(f'preload: {added:.3f} ms added at the median of {PAIRS}, {len(faults)} faults')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
