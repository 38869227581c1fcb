#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the emulator has every driver function that the library asks for, in the version it asks for.

check_driver.py DRIVER_DEF EXPORTS_DEF
"""
import re
import sys


def main():
    driver, exports = (open(path, encoding='utf-8').read() for path in sys.argv[1:])
    wanted = re.findall(r'^DRIVER(?:_OPTIONAL|_AS)?\((\w+),(?:.*,)?\s*(\d+)\)', driver, re.MULTILINE)
    present = {name: 0 for name in re.findall(r'^EXPORT\((\w+)\)', exports, re.MULTILINE)}
    for name, since in re.findall(r'^EXPORT_SINCE\((\w+),.*,\s*(\d+)\)', exports, re.MULTILINE):
        present[name] = min(int(since), present.get(name, int(since)))
    missing = [name for name, version in wanted if present.get(name, 1 << 30) > int(version)]
    for name in missing:
        print(f'the emulator has no {name}')
    print(f'{len(wanted)} functions wanted, {len(missing)} missing')
    return 1 if missing or not wanted else 0


sys.exit(main())
