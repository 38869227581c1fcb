#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weakens each release, acquire, fence, barrier and wait of the kernels in turn: a test must fail.

usage: mutate.py --root DIR --build-id ID --cases PROGRAM --emulator-folder DIR [--cuda DIR] [--only TEXT] [--seeds N]
                 [--cxx COMMAND]

For each place the kernels are compiled for the emulator with that one change (a release or an acquire becomes
relaxed, a fence or a barrier goes away, a wait ends early), and the mutation cases run on them until they fail. First they must pass with
no change. The kernels are few instances, in one translation unit, so that a mutant takes seconds; names that the library
asks for beyond those are kernels that do nothing, and two are the one-way kernels of one_way.cuh.

Prints a table: place, change, seeds that it took, the case that failed. A mutant that survives fails the run, unless
it is in SUPERFLUOUS with the reason why no test can catch it.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

FOLDERS = ('channels', 'channels/device', 'algorithms')
# The machine itself: what the primitives are, not where they are used.
MACHINE = 'channels/device/platform.cuh'
# What a mutant does to a line.
CHANGES = [
    (re.compile(r'\bstore_release\('), 'store_relaxed(', 'release -> relaxed'),
    (re.compile(r'\bload_acquire\('), 'load_relaxed(', 'acquire -> relaxed'),
    (re.compile(r'(?<![\w.])fence\(\);'), ';', 'no fence'),
    (re.compile(r'\b(?:\w+\.)+sync\(\);'), ';', 'no barrier'),
    (re.compile(r'\b(?:\w+\.)+sync_all\('), '(', 'no barrier'),
]
# Waits that end one turn too early: (file, text, instead, what).
EARLY = [
    ('channels/device/packet_round.cuh', 'consumed + 2 < epoch', 'consumed + 3 < epoch', 'one epoch early'),
    ('channels/device/bulk_round.cuh', 'wait(iteration - STRAIT_BULK_LAG, wait)', 'wait(iteration - STRAIT_BULK_LAG - 1, wait)',
     'one iteration early'),
]
# (file, change): why no test can tell. Few!
SUPERFLUOUS = {}
# A wait that takes longer is a hang: about a hundred times what the longest takes.
MUTANT_LIMIT_S = 4
ONE_WAY = {'strait_allreduce_ll_i64_sum': 'one_way_packets', 'strait_allreduce_simple_i64_sum': 'one_way_bulk'}
INSTANCES = '/* SPDX-License-Identifier: Apache-2.0 */\nINSTANCE(f32, sum)\n'


def device_files(root):
    for folder in FOLDERS:
        for name in sorted(os.listdir(os.path.join(root, folder))):
            if name.endswith(('.cu', '.cuh')):
                yield f'{folder}/{name}'


def read(root, path):
    with open(os.path.join(root, path), encoding='utf-8') as file:
        return file.read()


def code_only(text):
    """The text with comments blanked, so that positions stay."""
    return re.sub(r'//[^\n]*|/\*.*?\*/', lambda m: re.sub(r'[^\n]', ' ', m.group()), text, flags=re.S)


def find_mutants(root):
    for path in device_files(root):
        if path == MACHINE:
            continue
        text = read(root, path)
        code = code_only(text)
        for pattern, replacement, what in CHANGES:
            for match in pattern.finditer(code):
                changed = text[:match.start()] + replacement + text[match.end():]
                yield path, text.count('\n', 0, match.start()) + 1, what, changed
    for path, found, instead, what in EARLY:
        text = read(root, path)
        if text.count(found) != 1:
            raise SystemExit(f'{path}: "{found}" is not there once: adapt the table')
        yield path, text.count('\n', 0, text.index(found)) + 1, what, text.replace(found, instead)


def module_source(root, kernels):
    """One translation unit of all kernels, and a stand-in for every other name."""
    lines = ['#include "channels/probe.cu"']
    for stem in kernels:
        lines += [f'#include "algorithms/{stem}.cu"', '#undef INSTANCE']
    lines += ['#include "tests/mutation/one_way.cuh"']
    for stem in kernels:
        for element, operation in re.findall(r'^INSTANCE\((\w+), (\w+)\)', read(root, 'algorithms/instances.def'), re.M):
            name = f'strait_{stem}_{element}_{operation}'
            if (element, operation) == ('f32', 'sum'):
                continue
            body = f'if (a.count) strait::{ONE_WAY[name]}(a, strait::coop::block());' if name in ONE_WAY else ''
            lines.append(f'STRAIT_KERNEL({name}, strait_allreduce_args, 512) {{ {body} }}')
    return '\n'.join(lines) + '\n'


class Bench:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.kernels = [os.path.basename(path)[:-3] for path in device_files(options.root)
                        if path.startswith('algorithms/') and path.endswith('.cu')]
        self.write('algorithms/instances.def', INSTANCES)
        self.write('module.cpp', module_source(options.root, self.kernels))
        self.module = os.path.join(folder, 'mutant.so')

    def write(self, path, text):
        place = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, 'w', encoding='utf-8') as file:
            file.write(text)

    def compile(self):
        o = self.options
        subprocess.run(
            o.cxx.split() + ['-std=c++17', '-O1', '-ffp-contract=off', '-fno-exceptions', '-fno-rtti', '-fno-strict-aliasing',
                             '-w', '-shared', '-fPIC', '-fvisibility=hidden', f'-DSTRAIT_BUILD_ID={o.build_id}',
                             '-I', self.folder, '-I', o.root, '-I', os.path.join(o.root, 'include'),
                             '-isystem', o.cuda, '-o', self.module, os.path.join(self.folder, 'module.cpp'),
                             os.path.join(o.emulator_folder, 'libcuda.so.1')], check=True)

    def run(self, seeds, limit_s):
        """(failed, what the cases said)"""
        environment = dict(os.environ, STRAIT_EMULATOR_KERNELS=self.module,
                           STRAIT_EMULATOR_MACHINE=f'mutation-{os.getpid()}')
        result = subprocess.run([self.options.cases, f'1:{seeds}', str(limit_s)], env=environment, capture_output=True, text=True,
                                errors='replace', timeout=600)
        said = (result.stdout.strip().split('\n') or [''])[-1]
        where = next((line for line in result.stderr.split('\n') if line.startswith(('FAILED', 'HUNG'))), '')
        return result.returncode != 0, said, where

    def try_mutant(self, path, text, seeds):
        self.write(path, text)
        try:
            self.compile()
            return self.run(seeds, MUTANT_LIMIT_S)
        finally:
            os.remove(os.path.join(self.folder, path))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--root', required=True)
    parser.add_argument('--build-id', required=True)
    parser.add_argument('--cases', required=True)
    parser.add_argument('--emulator-folder', required=True)
    parser.add_argument('--cuda', default='/usr/local/cuda/include')
    parser.add_argument('--cxx', default='g++')
    parser.add_argument('--only', default='')
    parser.add_argument('--seeds', type=int, default=20)
    options = parser.parse_args()
    options.root = os.path.abspath(options.root)
    folder = tempfile.mkdtemp(prefix='strait-mutation-')
    try:
        return run_all(options, Bench(options, folder))
    finally:
        shutil.rmtree(folder)


def run_all(options, bench):
    begin = time.monotonic()
    bench.compile()
    failed, said, where = bench.run(options.seeds, 60)
    print(f'unchanged: {said} {where} ({time.monotonic() - begin:.1f} s)', flush=True)
    if failed:
        return 1
    survivors = n = 0
    for path, line, what, text in find_mutants(options.root):
        if options.only not in f'{path}:{line} {what}':
            continue
        n += 1
        begin = time.monotonic()
        failed, said, where = bench.try_mutant(path, text, options.seeds)
        reason = SUPERFLUOUS.get((path, what))
        verdict = said if failed else f'superfluous: {reason}' if reason else 'SURVIVED'
        survivors += not failed and not reason
        print(f'{path}:{line:<4} {what:20} {verdict}  [{where}] ({time.monotonic() - begin:.1f} s)', flush=True)
    print(f'{n} mutants, {survivors} survived')
    return 1 if survivors or not n else 0


if __name__ == '__main__':
    sys.exit(main())
