#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no tracked file names what only its writer has: folders of a machine, notes outside the
repository and their numbering, hosts of package registries. And that every source file has its SPDX line.

The patterns are written with a bracket somewhere, so that this file does not match itself.
"""
import re
import subprocess
import sys

PATTERNS = [
    (r'/wor[k]/|/hom[e]/[a-z]|/roo[t]/', 'a folder of some machine'),
    (r'(?<![\w.-])/tm[p]/(?!strait-|nvidia-)', 'a folder of some machine'),
    (r'\.\./share[d]/|\bdesig[n]\.md|hous[e]-style|nccl-contrac[t]|user-case[s]|emulator-prototyp[e]|mscclpp-ma[p]',
     'a note outside the repository'),
    (r'\(D(?:1[0-3]|[1-9])\)|\bDecision D[0-9]|\bsee D[0-9]|\bcases? [0-9]+(?=[ ,.;)]|$)(?! \.\.\.)', 'the number of a note'),
    (r'\bpyp[i]\.org|pythonhoste[d]|\bdebia[n]\.org|\bubunt[u]\.com|artifact-registr[y]', 'the host of a registry'),
]
# Comments say it in the first lines; formats without comments are left out.
SPDX = 'SPDX-License-Identifier: Apache-2.0'
SPDX_SUFFIXES = ('.c', '.h', '.cu', '.cuh', '.cpp', '.S', '.def', '.py', '.sh', 'meson.build')


def main():
    paths = subprocess.run(['git', 'ls-files', '-z'], capture_output=True, text=True, check=True).stdout.split('\0')
    faults = []
    for path in filter(None, paths):
        try:
            with open(path, encoding='utf-8') as file:
                text = file.read()
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue
        for number, line in enumerate(text.split('\n'), 1):
            for pattern, what in PATTERNS:
                match = re.search(pattern, line)
                if match:
                    faults.append(f'{path}:{number}: "{match.group()}" is {what}')
        if path.endswith(SPDX_SUFFIXES) and SPDX not in '\n'.join(text.split('\n')[:3]):
            faults.append(f'{path}:1: no SPDX line')
    for fault in faults:
        print(fault)
    print(f'words: {len(paths) - 1} files, {len(faults)} faults')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
