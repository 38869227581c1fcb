# SPDX-License-Identifier: Apache-2.0
"""Writes the linker version script: exactly the names of fallback/nccl_api.def, nothing else."""
import re
import sys


def exported_names(path):
    row = re.compile(r'^NCCL_(SHIM|PASS|LONE)\(\s*\d+,\s*\w+,\s*(\w+),', re.M)
    for kind, name in row.findall(open(path, encoding='utf-8').read()):
        yield 'nccl' + name
        if kind != 'LONE':
            yield 'pnccl' + name


def main():
    source, target = sys.argv[1:]
    with open(target, 'w', encoding='utf-8') as script:
        script.write('{\nglobal:\n')
        for name in sorted(exported_names(source)):
            script.write(f'\t{name};\n')
        script.write('local:\n\t*;\n};\n')


main()
