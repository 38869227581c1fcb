/* SPDX-License-Identifier: Apache-2.0 */
/*
 * void strait_emu_switch(void **save, void *load): leaves one stack for another. Keeps what the System V ABI
 * lets a callee expect, without the floating point control words, which kernels do not change.
 */
	.text
	.globl	strait_emu_switch
	.hidden	strait_emu_switch
	.type	strait_emu_switch, @function
strait_emu_switch:
	push	%rbp
	push	%rbx
	push	%r12
	push	%r13
	push	%r14
	push	%r15
	mov	%rsp, (%rdi)
	mov	%rsi, %rsp
	pop	%r15
	pop	%r14
	pop	%r13
	pop	%r12
	pop	%rbx
	pop	%rbp
	ret
	.size	strait_emu_switch, . - strait_emu_switch
	.section .note.GNU-stack, "", @progbits
