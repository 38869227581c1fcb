#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a C file that compiles only if base/driver.def asks for the signatures that we compile.

cuGetProcAddress gives the newest form of a function that is not newer than the version asked for; this must
be the form that <cuda.h> gives the name, or the one that a row of DRIVER_AS names. <cudaTypedefs.h> has the
type of every form. The forms for per-thread streams (_ptsz) are others, and not asked for.
"""
import re
import sys

ROW = re.compile(r'^(DRIVER(?:_OPTIONAL|_AS)?)\((\w+), (?:(PFN_\w+), )?(\d+)\)')


def main():
    table, typedefs, out = sys.argv[1:4]
    forms = {}
    with open(typedefs, encoding='utf-8') as file:
        for name, version in re.findall(r'\*PFN_(cu\w+?)_v(\d+)\)', file.read()):
            forms.setdefault(name, []).append(int(version))
    checks = []
    with open(table, encoding='utf-8') as file:
        for kind, name, own, asked in (match.groups() for match in map(ROW.match, file) if match):
            given = [form for form in forms.get(name, []) if form <= int(asked)]
            if not given:
                sys.exit(f'{name}: no form of version {asked} or older')
            member = name + '_' if kind == 'DRIVER_AS' else name
            checks.append(f'CHECK({member}, PFN_{name}_v{max(given)});')
    with open(out, 'w', encoding='utf-8') as file:
        file.write('#include "strait/gpu.h"\n'
                   '#define CHECK(name, form) _Static_assert(__builtin_types_compatible_p( \\\n'
                   '\t__typeof__(strait_gpu_table.name), form), "another form than " #form)\n'
                   + '\n'.join(checks) + '\n')


if __name__ == '__main__':
    main()
