# SPDX-License-Identifier: Apache-2.0
"""Finds a real NCCL to compare with."""
import glob
import os
import site
import sys

SKIP = 77  # meson's code for a skipped test


def places():
    yield os.environ.get('STRAIT_TEST_REAL_NCCL', '')
    for folder in site.getsitepackages() + [site.getusersitepackages()]:
        yield from glob.glob(os.path.join(folder, 'nvidia/nccl/lib/libnccl.so.2'))
    yield from ('/usr/local/cuda/lib64/libnccl.so.2', '/usr/lib/x86_64-linux-gnu/libnccl.so.2',
                '/usr/lib/aarch64-linux-gnu/libnccl.so.2', '/usr/lib64/libnccl.so.2')


def find_or_skip():
    for path in places():
        if path and os.path.exists(path):
            return path
    print('SKIPPED: no real NCCL was found; STRAIT_TEST_REAL_NCCL may name one')
    sys.exit(SKIP)
