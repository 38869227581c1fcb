#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes an assembly file that embeds kernel images.

embed.py OUTPUT.S NAME=IMAGE...: image NAME becomes the hidden symbol strait_image_NAME.

Each image is followed by a note in plain text, for the emulator: the build id of the kernels and their names. The driver reads an
image by the size in its header and never sees the note.
"""
import os
import sys


def main():
    output, build_id = sys.argv[1:3]
    lines = ["/* SPDX-License-Identifier: Apache-2.0 */", '.section .rodata,"a",@progbits']
    for argument in sys.argv[3:]:
        name, image = argument.split("=", 1)
        symbol = f"strait_image_{name}"
        lines += [
            ".balign 64",
            f".globl {symbol}",
            f".hidden {symbol}",
            f".type {symbol}, @object",
            f"{symbol}:",
            f'.incbin "{os.path.abspath(image)}"',
            ".balign 8",
            f'.asciz "STRAIT-NOTE strait_build_id_{build_id}"',
            f".size {symbol}, . - {symbol}",
        ]
    lines.append('.section .note.GNU-stack,"",@progbits')
    with open(output, "w") as f:
        f.write("\n".join(lines) + "\n")


main()
