/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block of a grid runs on one OS thread, its CUDA threads are fibers of that thread.
 *
 * Fibers change only at barriers, warp operations, spins and their end, so between these a fiber
 * has the block to itself: nothing here needs a lock. A fiber is runnable (in `run`), waits at the
 * block's barrier, waits in its warp's operation, or has returned. The block object belongs to the
 * OS thread and serves one block after the other.
 */
#pragma once
#include "emulator/device.h"
#include "emulator/machine.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define STRAIT_EMU_FIBER_STORES 16
#define STRAIT_EMU_BLOCK_STORES 64
#define STRAIT_EMU_BLOCK_THREADS 1024
#define STRAIT_EMU_WARP 32
#define STRAIT_EMU_SHARED_BYTES (228u << 10)
#define STRAIT_EMU_SITES 64

struct strait_emu_store { /* a delayed store; the address in the window */
	uintptr_t address;
	uint64_t value;
	uint32_t bytes;
	uint32_t device;
};

struct strait_emu_fiber {
	struct strait_emu_thread thread; /* first: strait_emu_self points here */
	struct strait_emu_block *block;
	void *stack_pointer;
	char *stack;
	void *tsan;    /* ThreadSanitizer's name for it, or NULL */
	uint64_t view; /* the clock at the last acquire */
	unsigned n_stores;
	unsigned index;
	int done;
	uint8_t word_counts[64]; /* of the words in `stores`, by hash */
	struct strait_emu_store stores[STRAIT_EMU_FIBER_STORES];
};

struct strait_emu_warp {
	unsigned live, arrived;
	unsigned generation;
	unsigned ballot, ballot_result[2]; /* results and slots by parity of the generation */
	int joins;                         /* this operation orders memory */
	uint64_t slots[2][STRAIT_EMU_WARP];
	uint32_t waiting; /* lanes */
	char tsan[2];     /* what it orders, by parity */
};

struct strait_emu_launch {
	const struct strait_emu_kernel *kernel;
	const char *name;
	const void *argument;
	struct strait_emu_dim grid, threads;
	unsigned device;
	uint64_t id;
	_Atomic unsigned next; /* block to start next */
	_Atomic unsigned left; /* workers that are not through */
	_Atomic int failed;    /* a CUresult; set once */
};

struct strait_emu_site {
	const void *site;
	void *memory;
	size_t bytes;
};

struct strait_emu_block {
	struct strait_emu_launch *launch;
	unsigned n_threads, live, at_barrier;
	unsigned n_run, turn; /* runnable fibers; the one that runs is run[turn] */
	unsigned spins;       /* polls since something else happened */
	unsigned idle_rounds;
	uint32_t uid; /* of the block, unique in the machine */
	unsigned device;
	uint64_t device_bit;
	int buffered, stale; /* the two mechanisms of the weak model are on */
	uint64_t random;
	uint64_t touched; /* devices whose bells have to be rung */
	struct strait_emu_bell *bell;
	uint32_t bell_seen;

	unsigned n_stores;
	struct strait_emu_store stores[STRAIT_EMU_BLOCK_STORES];
	uint8_t word_counts[1024]; /* of the words in `stores`, by hash */

	/* Objects for ThreadSanitizer: start, end, and the barrier by parity of its generation (one
	 * for all generations would hide races). */
	char tsan_start, tsan_end, tsan_barrier[2];
	unsigned barriers;
	void *tsan_thread;

	struct strait_emu_dim id, dim, grid;
	struct strait_emu_fiber *fibers;
	unsigned n_fibers;    /* that have a stack */
	void *return_pointer; /* stack of the OS thread while fibers run */
	uint16_t run[STRAIT_EMU_BLOCK_THREADS];
	struct strait_emu_warp warps[STRAIT_EMU_BLOCK_THREADS / STRAIT_EMU_WARP];
	char *shared;
	size_t shared_used;
	unsigned n_sites;
	struct strait_emu_site sites[STRAIT_EMU_SITES];
};

/* Runs one block on the calling thread. */
void strait_emu_block_run(struct strait_emu_launch *launch, unsigned index);

/* Gives up the running block with an error: never returns to the fiber. */
_Noreturn void strait_emu_block_fail(int error);

/* The memory side of the scheduler's events; order.c. */
void strait_emu_order_join(struct strait_emu_block *block); /* block barrier */
void strait_emu_order_join_warp(struct strait_emu_block *block, unsigned warp);
int strait_emu_order_drain_half(struct strait_emu_block *block); /* 0: nothing was there to drain */
void strait_emu_order_finish(struct strait_emu_block *block);    /* end of the block */
void strait_emu_order_ring(struct strait_emu_block *block);

static inline struct strait_emu_fiber *strait_emu_fiber_self(void)
{
	return (struct strait_emu_fiber *)(void *)strait_emu_self;
}

static inline uint64_t strait_emu_block_random(struct strait_emu_block *block)
{
	uint64_t x = block->random;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return block->random = x;
}
