#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every folder includes only what lies in the allowed direction.

include, base <- proxy <- channels <- algorithms <- shim, and fallback <- shim; never up, never sideways.
The emulator stands in for a driver and knows nothing of the library: the kernels' view of it is its one
header, which only the platform layer includes. Also checks that an include is root-relative and exists.
"""
import os
import re
import sys

CONTRACTS = ['strait/', 'base/']
LIBRARY = CONTRACTS + ['proxy/', 'channels/', 'algorithms/', 'fallback/', 'shim/']
# The longest prefix that fits a file says what it may include.
ALLOWED = {
    'include/strait/': CONTRACTS,
    'base/': CONTRACTS,
    'proxy/': CONTRACTS + ['proxy/'],
    'channels/': CONTRACTS + ['proxy/', 'channels/'],
    'channels/device/platform': ['channels/', 'emulator/device.h'],
    'algorithms/': CONTRACTS + ['proxy/', 'channels/', 'algorithms/'],
    'fallback/': CONTRACTS + ['fallback/'],
    'shim/': LIBRARY,
    'emulator/': ['emulator/'],
    # The benchmark measures any NCCL-compatible library from outside. It shares only the names of
    # operations and types, the table of the driver, and, to measure the machine, the primitives of kernels.
    'bench/': CONTRACTS + ['bench/', 'algorithms/request.h', 'channels/device/platform.cuh'],
    # A unit test sees the inside of what it tests; the other suites use what is exported.
    'tests/': CONTRACTS + ['tests/', 'bench/', 'algorithms/'],
    # It asks for the largest messages of each algorithm, which follow from the map of the scratch.
    'tests/collectives/': CONTRACTS + ['tests/', 'bench/', 'algorithms/', 'channels/layout.h'],
    # A program like the benchmark, with kernels of its own.
    'tests/gpu/': CONTRACTS + ['tests/gpu/', 'bench/', 'channels/device/platform.cuh'],
    # The device half of channels, from inside.
    'tests/channels/': CONTRACTS + ['tests/channels/', 'channels/'],
    # Kernels of their own over the channels' device halves.
    'tests/channels/': CONTRACTS + ['tests/', 'bench/', 'channels/'],
    'tests/mutation/': CONTRACTS + ['tests/', 'bench/', 'algorithms/', 'channels/device'],
    'tests/unit/': LIBRARY + ['tests/', 'bench/', 'emulator/'],
    'tests/abi/': ['tests/', 'shim/nccl_abi.h', 'algorithms/request.h'],
    'tests/emulator/': ['tests/', 'emulator/'],
}
SUFFIXES = ('.c', '.h', '.cu', '.cuh', '.cpp', '.S', '.def')
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def rule_for(path):
    prefixes = [prefix for prefix in ALLOWED if path.startswith(prefix)]
    return ALLOWED[max(prefixes, key=len)] if prefixes else None


def faults_of(root, path):
    allowed = rule_for(path)
    with open(os.path.join(root, path), encoding='utf-8') as file:
        text = file.read()
    for match in INCLUDE.finditer(text):
        name = match.group(1)
        line = text.count('\n', 0, match.start(1)) + 1
        found = [place for place in ('', 'include') if os.path.exists(os.path.join(root, place, name))]
        if not found:
            yield f'{path}:{line}: "{name}" is not there (includes are root-relative)'
        elif allowed is None:
            yield f'{path}:{line}: no rule for this folder'
        elif not any(name.startswith(prefix) for prefix in allowed):
            yield f'{path}:{line}: may not include "{name}"'


def source_files(root):
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(('.', 'build')) and name != 'shared']
        for name in sorted(names):
            if name.endswith(SUFFIXES):
                yield os.path.relpath(os.path.join(folder, name), root)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else '.'
    files = list(source_files(root))
    faults = [fault for path in files for fault in faults_of(root, path)]
    for fault in faults:
        print(fault)
    print(f'layers: {len(files)} files, {len(faults)} faults')
    return 1 if faults or not files else 0


if __name__ == '__main__':
    sys.exit(main())
