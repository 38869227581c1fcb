#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks README.md against the tree.

The table of environment variables is the one that base/params.def gives (--write puts it there), the first
two commands are ./run bench and ./run test, and every file or folder that the text names in backquotes is
there.
"""
import os
import re
import subprocess
import sys

BEGIN, END = '<!-- variables: begin -->', '<!-- variables: end -->'
ROW = re.compile(r'^PARAM_(BOOL|INT|SIZE|STRING)\((.*)\)\s*$')
# Something in backquotes is a path of ours if it starts with a folder or file of the tree's top.
NAMED = re.compile(r'`([^`\s]+)`')


def arguments_of(text):
    """Splits at commas outside strings."""
    parts, part, quoted = [], '', False
    for i, character in enumerate(text):
        if character == '"' and (i == 0 or text[i - 1] != '\\'):
            quoted = not quoted
        if character == ',' and not quoted:
            parts.append(part.strip())
            part = ''
        else:
            part += character
    return parts + [part.strip()]


def size_text(expression):
    """32 << 20 as 32M."""
    match = re.fullmatch(r'(\d+) << (\d+)', expression)
    value = int(match[1]) << int(match[2]) if match else int(expression)
    for shift, letter in ((30, 'G'), (20, 'M'), (10, 'K')):
        if value and value % (1 << shift) == 0:
            return f'{value >> shift}{letter}'
    return str(value)


def row_of(kind, text):
    parts = arguments_of(text)
    variable, fallback, sentence = parts[1].strip('"'), parts[2], parts[-1].strip('"')
    if kind == 'STRING':
        fallback, limits = ('unset' if fallback == 'NULL' else fallback.strip('"')), 'text'
    elif kind == 'BOOL':
        limits = '0, 1'
    elif kind == 'SIZE':
        fallback, limits = size_text(fallback), f'{size_text(parts[3])} to {size_text(parts[4])}'
    else:
        limits = f'{parts[3]} or more' if 'MAX' in parts[4] else f'{parts[3]} to {parts[4]}'
    sentence = sentence.replace('[agreed]', 'The same on all ranks.').replace('|', r'\|')
    return f'| `{variable}` | {fallback} | {limits} | {sentence} |'


def table_of(params):
    rows = ['| variable | default | values | meaning |', '| --- | --- | --- | --- |']
    for line in params.splitlines():
        match = ROW.match(line)
        if match:
            rows.append(row_of(match[1], match[2]))
        elif line.startswith('PARAM_'):
            sys.exit(f'base/params.def: a row must be one line: {line}')
    return '\n'.join(rows)


def faults_of(readme, table):
    begin, end = readme.find(BEGIN), readme.find(END)
    if begin < 0 or readme[begin + len(BEGIN):end].strip() != table:
        yield 'the table of variables is not that of base/params.def: run tests/checks/readme.py --write'
    commands = re.findall(r'^\s*(\./run \w+)', readme, re.MULTILINE)
    if commands[:2] != ['./run bench', './run test']:
        yield 'the first two commands are not ./run bench and ./run test'
    usage = subprocess.run(['./run', 'help'], capture_output=True, text=True, check=True).stdout
    for command in sorted(set(re.findall(r'\./run \w+', readme))):
        if command not in usage:
            yield f'{command} is not a command'
    tracked = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard'], capture_output=True, text=True,
                             check=True).stdout.split('\n')
    top = {path.split('/')[0] for path in tracked}
    for name in sorted(set(NAMED.findall(readme)) | set(re.findall(r'\]\(([^):#]+)', readme))):
        name = name.rstrip('/')
        if name.split('/')[0] in top and not os.path.exists(name):
            yield f'{name} is named but not there'


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
    with open('base/params.def', encoding='utf-8') as file:
        table = table_of(file.read())
    with open('README.md', encoding='utf-8') as file:
        readme = file.read()
    if '--write' in sys.argv[1:]:
        begin, end = readme.index(BEGIN) + len(BEGIN), readme.index(END)
        readme = readme[:begin] + '\n' + table + '\n' + readme[end:]
        with open('README.md', 'w', encoding='utf-8') as file:
            file.write(readme)
    faults = list(faults_of(readme, table))
    for fault in faults:
        print(f'README.md: {fault}')
    print(f'readme: {len(faults)} faults')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
