#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints 16 hexadecimal digits that stand for the given device sources: a hash of their contents."""
import hashlib
import sys

digest = hashlib.sha256()
for path in sorted(sys.argv[1:]):
    with open(path, "rb") as f:
        digest.update(f.read())
print(digest.hexdigest()[:16])
