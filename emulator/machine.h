/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all processes of one emulated machine share: a logical clock, a counter for unique ids, and
 * doorbells.
 *
 * It lives in an anonymous file that exists as long as a process has it open, so nothing is left
 * behind however the processes end. All of it is lock-free: a killed process can hold nothing. A
 * bell belongs to a device and a block index; a block sleeps on the bell of its own device and
 * index, and is woken by a store that a block of the same index makes to memory of that device.
 * `waiters` of a killed process stays counted, which costs a system call at each later ring and
 * nothing else.
 */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

#define STRAIT_EMU_DEVICES 64
#define STRAIT_EMU_BELLS 64

struct strait_emu_bell {
	_Atomic uint32_t rung, waiters;
	char padding[56];
};

struct strait_emu_machine {
	_Atomic uint64_t clock; /* advanced by every release */
	char padding0[56];
	_Atomic uint64_t ids;
	char padding1[56];
	struct strait_emu_bell bells[STRAIT_EMU_DEVICES][STRAIT_EMU_BELLS];
};

/* Set by strait_emu_machine_join, which is idempotent and thread-safe. 0 or -1. */
extern struct strait_emu_machine *strait_emu_machine;
int strait_emu_machine_join(void);

uint64_t strait_emu_machine_id(void); /* unique in the machine, never 0 */

/* Wakes the blocks of index `index` of a device; index -1: all of them. */
void strait_emu_machine_ring(unsigned device, int index);

/* Sleeps until the bell is rung after it read `seen`, for at most a millisecond. */
void strait_emu_machine_wait(struct strait_emu_bell *bell, uint32_t seen);
