#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes stubs for the functions of cuda.h that the emulator does not have.

make_stubs.py CUDA_H EXPORTS_DEF OUTPUT: each stub is exported under its real name too, so that a program that
links to libcuda starts, and learns at the call what is missing.
"""
import re
import sys


def main():
    header, exports, output = sys.argv[1:]
    text = open(header, encoding="utf-8", errors="replace").read()
    names = set(re.findall(r"CUDAAPI\s+(cu[A-Z]\w*)\s*\(", text))
    present = set(re.findall(r"EXPORT(?:_SINCE)?\((\w+)", open(exports, encoding="utf-8").read()))
    # Versioned and per-thread spellings of one function are the same name to cuGetProcAddress.
    base = {re.sub(r"(_v\d+)?(_ptsz|_ptds)?$", "", name) for name in names}
    missing = sorted(base - present)
    with open(output, "w", encoding="utf-8") as out:
        out.write('/* Made by make_stubs.py. */\n#include "emulator/exports.h"\n#include <stddef.h>\n#include <string.h>\n\n')
        for name in missing:
            out.write(f"int {name}(void);\nint {name}(void)\n{{\n\tstatic _Atomic int said;\n"
                      f'\treturn strait_emu_exports_missing("{name}", &said);\n}}\n\n')
        out.write("static const struct {\n\tconst char *name;\n\tint (*stub)(void);\n} stubs[] = {\n")
        for name in missing:
            out.write(f'\t{{"{name}", {name}}},\n')
        out.write("};\n\nvoid *strait_emu_exports_stub(const char *name)\n{\n"
                  "\tfor (size_t i = 0; i < sizeof stubs / sizeof *stubs; i++)\n"
                  "\t\tif (strcmp(stubs[i].name, name) == 0)\n\t\t\treturn (void *)stubs[i].stub;\n"
                  "\treturn NULL;\n}\n")


main()
