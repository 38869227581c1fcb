#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the signatures of the table with the headers of the real NCCL: signatures.py TABLE INCLUDE_DIR.

By class of parameter, as a call passes them: pointer, int, size, or one of the structs that go by value.
"""
import glob
import os
import re
import sys

STRUCTS = {'ncclUniqueId': 'id', 'strait_nccl_id': 'id', 'ncclTeam_t': 'team', 'ncclTeam': 'team',
           'strait_nccl_team': 'team', 'ncclMultimemHandle_t': 'multimem', 'strait_nccl_multimem': 'multimem'}
HANDLES = {'ncclComm_t', 'ncclWindow_t', 'cudaStream_t', 'CUstream', 'ncclParamHandle_t'}
RETURNS = {'RESULT': 'int', 'INT': 'int', 'TEAM': 'team', 'TEXT': 'pointer', 'VOID': 'void'}


def class_of(parameter):
    words = re.findall(r'\w+', parameter)
    if '*' in parameter or HANDLES & set(words):
        return 'pointer'
    for word in words:
        if word in STRUCTS:
            return STRUCTS[word]
    return 'size' if 'size_t' in words else 'void' if words == ['void'] else 'int'


def classes(parameters):
    return [class_of(p) for p in parameters.split(',') if p.strip() not in ('', 'void')]


def declared(folder):
    """name: (class of the result, classes of the parameters)"""
    found = {}
    pattern = re.compile(r'^\s*(?:NCCL_EXTERN_C\s+)?(?:__host__\s+)?((?:const\s+)?\w+\s*\*?)\s*nccl(\w+)\s*\(([^()]*)\)\s*;', re.M)
    for path in glob.glob(os.path.join(folder, 'nccl.h')) + glob.glob(os.path.join(folder, 'nccl_device/*.h')):
        with open(path, encoding='utf-8') as file:
            text = re.sub(r'/\*.*?\*/|//[^\n]*', '', file.read(), flags=re.S)
        for result, name, parameters in pattern.findall(text):
            if '&' not in parameters and result.split()[0] not in ('return', 'else'):
                found[name] = (class_of(result), classes(parameters))
    return found


def main():
    table, folder = sys.argv[1:]
    with open(table, encoding='utf-8') as file:
        rows = re.findall(r'^NCCL_\w+\(\d+, (\w+), (\w+), \(([^()]*)\), ', file.read(), re.M)
    headers = declared(folder)
    faults, compared = [], 0
    for result, name, parameters in rows:
        if name not in headers:
            continue
        compared += 1
        ours = (RETURNS[result], classes(parameters))
        if ours != headers[name]:
            faults.append(f'nccl{name}: the table has {ours}, the header {headers[name]}')
    for fault in faults:
        print(fault)
    print(f'signatures: {compared} of {len(rows)} are in the headers, {len(faults)} faults')
    # The classic functions are in every release: fewer means that this script no longer reads the headers.
    return 1 if faults or compared < 45 else 0


if __name__ == '__main__':
    sys.exit(main())
