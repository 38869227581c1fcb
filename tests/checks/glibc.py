#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that a library runs on glibc 2.31 and needs only libc: glibc.py LIBRARY.

Reads what the linker wrote (readelf): the versions of glibc symbols and the libraries it needs.
"""
import re
import subprocess
import sys

HIGHEST = (2, 31)
NEEDED = {'libc.so.6', 'libpthread.so.0', 'libdl.so.2', 'ld-linux-x86-64.so.2', 'ld-linux-aarch64.so.1'}


def main():
    out = subprocess.run(['readelf', '-W', '--dyn-syms', '--dynamic', sys.argv[1]], capture_output=True,
                         text=True, check=True).stdout
    symbols = re.findall(r'UND (\w+)@GLIBC_([0-9.]+)', out)
    faults = [f'{name} needs glibc {version}' for name, version in symbols
              if tuple(map(int, version.split('.'))) > HIGHEST]
    faults += [f'needs {name}' for name in re.findall(r'NEEDED.*\[(.+)\]', out) if name not in NEEDED]
    for fault in faults:
        print(fault)
    print(f'glibc: {len(symbols)} symbols, {len(faults)} faults')
    return 1 if faults or not symbols else 0


if __name__ == '__main__':
    sys.exit(main())
