#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what the library exports: exports.py LIBRARY TABLE [real].

Exactly the names of the table, twins at the same address, the right SONAME, nothing that runs when it is loaded. With
`real`: every name of the real NCCL on this machine is there.
"""
import re
import subprocess
import sys

import real_nccl

# One entry is the compiler's own (frame_dummy).
WORDS_OF_CONSTRUCTORS = 8


def read(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def symbols(path):
    """name: (address, letter)"""
    rows = (line.split() for line in read('nm', '-D', '--defined-only', path).splitlines())
    return {row[2]: (int(row[0], 16), row[1]) for row in rows if len(row) == 3}


def table_names(path):
    row = re.compile(r'^NCCL_(SHIM|PASS|LONE)\(\s*(\d+),\s*\w+,\s*(\w+),', re.M)
    with open(path, encoding='utf-8') as file:
        return row.findall(file.read())


def faults_of_table(ours, rows):
    names = [name for _, _, name in rows]
    if len(names) != len(set(names)):
        yield 'the table has a name twice'
    wanted = {'nccl' + name for name in names} | {'pnccl' + name for kind, _, name in rows if kind != 'LONE'}
    yield from (f'{name} is not exported' for name in sorted(wanted - set(ours)))
    yield from (f'{name} is exported and not in the table' for name in sorted(set(ours) - wanted))
    for kind, _, name in rows:
        if kind == 'LONE' or 'nccl' + name not in ours or 'pnccl' + name not in ours:
            continue
        (address, letter), (twin_address, twin_letter) = ours['nccl' + name], ours['pnccl' + name]
        if address != twin_address or letter != 'W' or twin_letter != 'T':
            yield f'nccl{name} is not a weak name of pnccl{name}'


def faults_of_file(path):
    dynamic = read('readelf', '-dW', path)
    if not re.search(r'\(SONAME\).*\[libnccl\.so\.2\]', dynamic):
        yield 'the SONAME is not libnccl.so.2'
    if not re.search(r'NODELETE', dynamic):
        yield 'it may be unloaded'
    if re.search(r'BIND_NOW|\bNOW\b', dynamic):
        yield 'it binds everything when it is loaded'
    constructors = re.search(r'\(INIT_ARRAYSZ\)\s+(\d+)', dynamic)
    if constructors and int(constructors[1]) > WORDS_OF_CONSTRUCTORS:
        yield 'it has a constructor'


def main():
    library, table = sys.argv[1:3]
    ours = symbols(library)
    if 'real' in sys.argv[3:]:
        real = real_nccl.find_or_skip()
        faults = [f'{name} of {real} is missing' for name in sorted(set(symbols(real)) - set(ours))]
        count = len(symbols(real))
    else:
        rows = table_names(table)
        faults = list(faults_of_table(ours, rows)) + list(faults_of_file(library))
        count = len(rows)
        if count < 96:
            faults.append(f'the table has lost names: {count}')
    for fault in faults:
        print(fault)
    print(f'exports: {count} names checked, {len(faults)} faults')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
