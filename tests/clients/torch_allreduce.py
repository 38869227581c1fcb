#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's all-reduce on Strait: every type and operator, eager and in CUDA graphs, exact and native.

Usage: torch_allreduce.py --lib PATH [--ranks N[,N...]] [--limit SECONDS]

Starts the ranks as processes of this Python with the library preloaded and no real NCCL. Where ranks outnumber the GPUs, MPS
runs for the time of the test. Exit status 77 where there is no PyTorch or no GPU; the last line counts the verdicts.
"""
import argparse
import contextlib
import glob
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
SIZES = (1, 7, 1000, 4099, 65536, 1 << 20)


# The ranks -----------------------------------------------------------------------------------------------------------


class Rank:
    def __init__(self, torch, dist, arguments):
        self.torch, self.dist = torch, dist
        self.rank, self.n = arguments.rank, arguments.n
        self.results = open(os.path.join(arguments.folder, f'results.{self.rank}'), 'w', encoding='utf-8')
        self.device = torch.device('cuda', self.rank % torch.cuda.device_count())
        torch.cuda.set_device(self.device)
        dist.init_process_group('nccl', init_method=f'file://{arguments.folder}/store', rank=self.rank, world_size=self.n)

    def tell(self, verdict, name, detail=''):
        self.results.write(json.dumps([verdict, name, detail]) + '\n')
        self.results.flush()

    def types(self):
        names = ('float32', 'float64', 'float16', 'bfloat16', 'int8', 'uint8', 'int32', 'int64', 'float8_e4m3fn', 'float8_e5m2')
        return [getattr(self.torch, name) for name in names if hasattr(self.torch, name)]

    def operators(self, dtype):
        op, n = self.dist.ReduceOp, self.n
        whole = {'sum': op.SUM, 'product': op.PRODUCT, 'min': op.MIN, 'max': op.MAX}
        if not dtype.is_floating_point or n & (n - 1) == 0:  # only then is 1/n exact
            whole['avg'] = op.AVG
        # PyTorch hands the factor of bfloat16 over as a float, and has none for 8-bit floats.
        if dtype in (self.torch.float16, self.torch.float32, self.torch.float64):
            whole['premul'] = self.dist._make_nccl_premul_sum(0.5)
        return whole

    def numbers(self, operator, dtype, rank, count, k):
        """What `rank` sends, as integers that every type holds; what comes out is exact in each type in any order."""
        i = self.torch.arange(count, dtype=self.torch.int64) + k
        if dtype.itemsize == 1 and dtype.is_floating_point:
            base = 1 + (i + rank) % 2  # few bits
        elif operator == 'product':
            base = 1 + (i // (rank + 1)) % 2
        elif operator == 'avg' and dtype.is_floating_point:
            base = self.n * (rank + 1) * (1 + i % 7)
        elif operator == 'avg':
            base = 1 + (i + rank) % 3
        else:
            base = (rank + 1) * (1 + i % 7)
        return 2 * base if operator == 'premul' else base

    def expected(self, operator, dtype, count, k):
        torch = self.torch
        parts = torch.stack([self.numbers(operator, dtype, r, count, k) for r in range(self.n)])
        if operator == 'product':
            whole = parts.prod(0)
        elif operator == 'min':
            whole = parts.min(0).values
        elif operator == 'max':
            whole = parts.max(0).values
        elif operator == 'avg' and dtype.is_floating_point:
            whole = parts.sum(0).double() / self.n
        elif operator == 'avg':
            whole = parts.sum(0) // self.n
        elif operator == 'premul':
            whole = parts.sum(0) // 2
        else:
            whole = parts.sum(0)
        return whole.to(dtype)

    def send(self, operator, dtype, count, k):
        return self.numbers(operator, dtype, self.rank, count, k).to(dtype).to(self.device)

    def difference(self, got, expected):
        """Empty if all bits are equal."""
        torch = self.torch
        integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[got.dtype.itemsize]
        got = got.cpu()
        wrong = (got.view(integer) != expected.view(integer)).nonzero().flatten()
        if wrong.numel() == 0:
            return ''
        first = int(wrong[0])
        return f'{wrong.numel()} of {got.numel()} wrong, [{first}] is {got[first].item()}, not {expected[first].item()}'

    def reduce(self, tensor, op, **options):
        return self.dist.all_reduce(tensor, op=op, **options)

    def eager(self, dtype, operator, op):
        for k, count in enumerate(SIZES):
            tensor = self.send(operator, dtype, count, k)
            self.reduce(tensor, op)
            fault = self.difference(tensor, self.expected(operator, dtype, count, k))
            if fault:
                return f'{count} elements: {fault}'
        return ''

    def view(self, dtype, operator, op):
        """A slice that is aligned to its elements only, differently on each rank; what lies around it stays."""
        count, offset = 3001, 1 + 2 * self.rank
        whole = self.torch.full((count + offset + 9,), 3, dtype=self.torch.float32).to(dtype).to(self.device)
        whole[offset:offset + count] = self.send(operator, dtype, count, 5)
        self.reduce(whole[offset:offset + count], op)
        expected = self.torch.full((count + offset + 9,), 3, dtype=self.torch.float32).to(dtype)
        expected[offset:offset + count] = self.expected(operator, dtype, count, 5)
        return self.difference(whole, expected)

    def graph(self, dtype, operator, op):
        """Three sizes in one graph, new input before each replay."""
        counts = (100, 5000, 100000)
        tensors = [self.send(operator, dtype, count, 0) for count in counts]
        graph = self.torch.cuda.CUDAGraph()
        self.torch.cuda.synchronize()
        with self.torch.cuda.graph(graph):
            for tensor in tensors:
                self.reduce(tensor, op)
        for k in range(10):
            for tensor, count in zip(tensors, counts):
                tensor.copy_(self.send(operator, dtype, count, k))
            graph.replay()
            for tensor, count in zip(tensors, counts):
                fault = self.difference(tensor, self.expected(operator, dtype, count, k))
                if fault:
                    return f'replay {k}, {count} elements: {fault}'
        return ''

    def streams(self):
        """Asynchronous calls from two streams, waited for late."""
        torch, dtype = self.torch, self.torch.float32
        op, side, works = self.dist.ReduceOp.SUM, torch.cuda.Stream(), []
        for k in range(50):
            with torch.cuda.stream(side if k % 2 else torch.cuda.current_stream()):
                tensor = self.send('sum', dtype, 1000 + k, k)
                works.append((k, tensor, self.reduce(tensor, op, async_op=True)))
        for k, tensor, work in works:
            work.wait()
            fault = self.difference(tensor, self.expected('sum', dtype, 1000 + k, k))
            if fault:
                return f'call {k}: {fault}'
        return ''

    def attempt(self, name, function, *arguments):
        try:
            fault = function(*arguments)
        except (RuntimeError, ValueError, TypeError) as error:
            # PyTorch itself does not reduce 8-bit floats on every GPU; it says so before NCCL is called.
            if 'float8' in str(error).lower():
                return self.tell('SKIP', name, str(error).splitlines()[0])
            self.tell('FAIL', name, str(error).splitlines()[0])
            raise
        return self.tell('FAIL' if fault else 'PASS', name, fault)

    def run(self):
        for dtype in self.types():
            short = str(dtype).replace('torch.', '')
            for operator, op in self.operators(dtype).items():
                self.attempt(f'{short} {operator} eager', self.eager, dtype, operator, op)
                self.attempt(f'{short} {operator} graph', self.graph, dtype, operator, op)
            self.attempt(f'{short} sum of a slice', self.view, dtype, 'sum', self.dist.ReduceOp.SUM)
        self.attempt('asynchronous calls on two streams', self.streams)
        self.torch.cuda.synchronize()
        self.dist.barrier()
        self.dist.destroy_process_group()


def rank_main(arguments):
    import torch
    import torch.distributed as dist
    with open('/proc/self/maps', encoding='utf-8') as maps:
        if os.path.realpath(arguments.lib) not in maps.read():
            sys.exit('the library was not preloaded')
    Rank(torch, dist, arguments).run()


# Their parent --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def mps(wanted):
    """An own daemon with own folders, so that nobody else's is disturbed. Yields its variables."""
    control = shutil.which('nvidia-cuda-mps-control')
    if not wanted or not control:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix='strait-mps-', ignore_cleanup_errors=True) as folder:
        variables = {'CUDA_MPS_PIPE_DIRECTORY': f'{folder}/pipe', 'CUDA_MPS_LOG_DIRECTORY': f'{folder}/log'}
        for path in variables.values():
            os.mkdir(path)
        environment = {**os.environ, **variables}
        subprocess.run([control, '-d'], env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield variables
        finally:  # the daemon may still write to its folder while it ends
            subprocess.run([control], input='quit -t 5\n', text=True, env=environment, check=False, timeout=30,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    

def n_gpus():
    """Asked in a child: a parent with a context of its own would be outside MPS."""
    code = 'import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)'
    answer = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=False)
    return int(answer.stdout.strip() or 0) if answer.returncode == 0 else 0


def wait_for(processes, limit):
    """Returns what went wrong, by rank; kills all when one fails or the time is up."""
    end = time.monotonic() + limit
    faults = {}
    while not faults and any(process.poll() is None for process in processes):
        time.sleep(0.05)
        for rank, process in enumerate(processes):
            if process.poll() not in (None, 0):
                faults[rank] = f'ended with status {process.returncode}'
        if time.monotonic() > end:
            faults = {rank: f'hangs after {limit} s' for rank, process in enumerate(processes) if process.poll() is None}
    if faults:
        time.sleep(1)  # for the words of the others
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()
    return faults


def merge(folder, n):
    """A test passes if it does on all ranks. Returns {name: (verdict, detail)}."""
    merged, told = {}, []
    for rank in range(n):
        told.append(set())
        path = os.path.join(folder, f'results.{rank}')
        for line in open(path, encoding='utf-8') if os.path.exists(path) else ():
            verdict, name, detail = json.loads(line)
            told[rank].add(name)
            if name not in merged or verdict == 'FAIL':
                merged[name] = (verdict, f'rank {rank}: {detail}' if detail else '')
    for name in merged:
        missing = [rank for rank in range(n) if name not in told[rank]]
        if missing and merged[name][0] != 'FAIL':
            merged[name] = ('FAIL', f'ranks {missing} did not end it')
    return merged


def paths(folder, n):
    """What the reports of the ranks say: (verdict, detail)."""
    counts, foreign, reporters = {}, [], 0
    for report in glob.glob(os.path.join(folder, 'report.*')):
        with open(report, encoding='utf-8') as f:
            rows = re.findall(r'^strait report\t([^\t]*)\t\d+\t\d+\t([^\t]*)\t(\d+)', f.read(), re.M)
        reporters += bool(rows)
        for operation, path, calls in rows:
            counts[path] = counts.get(path, 0) + int(calls)
            if not path.startswith('allreduce_') and path != 'copy':
                foreign.append(f'{operation}: {path}')
    if foreign:
        return 'FAIL', '; '.join(sorted(set(foreign)))
    if reporters < n:
        return 'FAIL', f'{reporters} of {n} ranks reported calls'
    return 'PASS', ', '.join(f'{calls} {path}' for path, calls in sorted(counts.items()))


def run_job(arguments, n, gpus):
    library = os.path.realpath(arguments.lib)
    with tempfile.TemporaryDirectory(prefix='strait-torch-') as folder, mps(n > gpus) as variables:
        environment = {**os.environ, **variables, 'LD_PRELOAD': library, 'STRAIT_NCCL': 'off', 'NCCL_NVLS_ENABLE': '0',
                       'OMP_NUM_THREADS': os.environ.get('OMP_NUM_THREADS', '4'), 'STRAIT_REPORT': f'{folder}/report.%p'}
        if n > gpus:
            environment['NCCL_MULTI_RANK_GPU_ENABLE'] = '1'
        command = [sys.executable, os.path.abspath(__file__), '--lib', library, '--folder', folder, '--n', str(n)]
        outputs = [open(os.path.join(folder, f'output.{rank}'), 'w+', encoding='utf-8', errors='replace') for rank in range(n)]
        faults = wait_for([subprocess.Popen(command + ['--rank', str(rank)], env=environment, stdin=subprocess.DEVNULL,
                                            stdout=outputs[rank], stderr=subprocess.STDOUT) for rank in range(n)],
                          arguments.limit)
        merged = merge(folder, n)
        for rank, fault in faults.items():
            outputs[rank].seek(0)
            merged[f'rank {rank}'] = ('FAIL', fault + '\n    ' + '\n    '.join(outputs[rank].read().splitlines()[-12:]))
        for output in outputs:
            output.close()
        if not faults:
            merged['native paths'] = paths(folder, n)
        return merged


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--lib', required=True, help='the library to preload')
    parser.add_argument('--ranks', default='2,4', help='numbers of ranks, comma-separated')
    parser.add_argument('--limit', type=float, default=300, help='seconds for a job')
    for hidden in ('--rank', '--n'):
        parser.add_argument(hidden, type=int, help=argparse.SUPPRESS)
    parser.add_argument('--folder', help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is not None:
        return rank_main(arguments)
    gpus = n_gpus() if importlib.util.find_spec('torch') else 0
    if gpus == 0:
        print('skipped: needs PyTorch and a GPU')
        return SKIPPED
    counts = {'PASS': 0, 'FAIL': 0, 'SKIP': 0}
    for n in map(int, arguments.ranks.split(',')):
        for name, (verdict, detail) in run_job(arguments, n, gpus).items():
            print(f'{verdict} {name}, {n} ranks{": " if detail else ""}{detail}', flush=True)
            counts[verdict] += 1
    print(f'{counts["PASS"]} passed, {counts["FAIL"]} failed, {counts["SKIP"]} skipped')
    return 1 if counts['FAIL'] else 0


if __name__ == '__main__':
    sys.exit(main())
