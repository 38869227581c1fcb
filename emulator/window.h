/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three windows of address space at fixed distances. Addresses that the driver hands out lie in the
 * first one, which nobody can dereference: a kernel or host code that forgets the named loads and
 * stores faults at once. The data is mapped in the second at the same offset, its shadow in the
 * third at four times the offset.
 *
 * The window is divided into granules; a granule knows its device, who may access it, and whether
 * it is weak, which means that the weak memory model applies. Weak is what another device or
 * process can reach: memory made for export, imported or opened, and any memory that a kernel of
 * another device was seen to touch. The rest is private to the kernels of one device, which are
 * ordered by their streams, and its accesses are direct, since the model costs a multiple of an
 * access.
 */
#pragma once
#include "emulator/object.h"
#include <stdatomic.h>
#include <stdint.h>

#define STRAIT_EMU_GRANULE_SHIFT 21
#define STRAIT_EMU_GRANULE (1ul << STRAIT_EMU_GRANULE_SHIFT)
#define STRAIT_EMU_WINDOW_BYTES (1ul << 36)

struct strait_emu_span;

struct strait_emu_granule {
	_Atomic uint64_t access;      /* a bit for each device that may access it; 0: not mapped */
	struct strait_emu_span *span; /* under the memory lock */
	_Atomic uint8_t weak;
	uint8_t device, reserved, mapped;
};

struct strait_emu_shadow { /* of four bytes of data */
	uint32_t old;      /* what was there before the last commit */
	uint32_t writer;   /* the block that made it */
	uint64_t time;     /* on the machine's clock */
};

struct strait_emu_window {
	uintptr_t base;
	uintptr_t data;   /* distance from an address to its data */
	uintptr_t shadow; /* start of the third window */
	struct strait_emu_granule *granules;
};
extern struct strait_emu_window strait_emu_window;

int strait_emu_window_open(void); /* once; 0 or -1 */

/* Consecutive free granules; 0 when there are none. Under the memory lock, as all below. */
uintptr_t strait_emu_window_reserve(size_t bytes, size_t alignment);
void strait_emu_window_release(uintptr_t address, size_t bytes);

/* Maps a part of an object at a reserved address. 0 or -1. */
int strait_emu_window_map(uintptr_t address, size_t bytes, struct strait_emu_object *object,
			  size_t offset);
void strait_emu_window_unmap(uintptr_t address, size_t bytes);

static inline struct strait_emu_granule *strait_emu_window_granule(uintptr_t address)
{
	uintptr_t offset = address - strait_emu_window.base;
	if (offset >= STRAIT_EMU_WINDOW_BYTES)
		return NULL;
	return &strait_emu_window.granules[offset >> STRAIT_EMU_GRANULE_SHIFT];
}

static inline struct strait_emu_shadow *strait_emu_window_shadow(uintptr_t address)
{
	return (struct strait_emu_shadow *)(strait_emu_window.shadow +
					    4 * ((address & ~3ul) - strait_emu_window.base));
}

/* Where the host finds `bytes` of data at an address, inside the window or not; NULL: not mapped.
 */
void *strait_emu_window_data(uintptr_t address, size_t bytes);
