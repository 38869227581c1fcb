/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels for the emulator's own tests, written against emulator/device.h alone. The all-reduce by
 * flags is there in its right form and in forms that lack one thing each, which the weak memory has
 * to show.
 */
#include "tests/emulator/kernels.h"
#include "emulator/device.h"

#ifdef DIRECT
#include "tests/emulator/direct.h"
#endif

#define KERNEL(name)                                                                     \
	static void body_##name(const struct arguments *a);                              \
	static void run_##name(const void *p)                                            \
	{                                                                                \
		body_##name(p);                                                          \
	}                                                                                \
	extern const struct strait_emu_kernel strait_emu_kernel_##name;                  \
	const struct strait_emu_kernel strait_emu_kernel_##name = {                      \
		run_##name, sizeof(struct arguments), _Alignof(struct arguments), NULL}; \
	static void body_##name(const struct arguments *a)

#define THREAD (strait_emu_self->tid.x)
#define THREADS (strait_emu_self->bdim.x)
#define BLOCK (strait_emu_self->bid.x)
#define GRID (strait_emu_self->gdim.x)

static void *at(uint64_t base, uint64_t bytes)
{
	return (void *)(uintptr_t)(base + bytes);
}

static uint32_t load4(uint64_t base, uint64_t index)
{
	return (uint32_t)strait_emu_load_weak(at(base, 4 * index), 4);
}

static void store4(uint64_t base, uint64_t index, uint32_t value)
{
	strait_emu_store_weak(at(base, 4 * index), value, 4);
}

/* What this call is to the block: one more than the last. */
static uint32_t next_epoch(const struct arguments *a, unsigned which)
{
	static const char site;
	uint32_t *shared = strait_emu_shared(&site, sizeof *shared);
	uint64_t epochs = a->scratch[a->rank] + OFFSET_EPOCHS + 4 * which * BLOCKS;
	if (THREAD == 0)
		*shared = load4(epochs, BLOCK) + 1;
	strait_emu_sync_block();
	return *shared;
}

static void end_epoch(const struct arguments *a, unsigned which, uint32_t epoch)
{
	strait_emu_sync_block();
	if (THREAD == 0)
		store4(a->scratch[a->rank] + OFFSET_EPOCHS + 4 * which * BLOCKS, BLOCK, epoch);
}

/* Every element travels with its flag in one word. */
KERNEL(allreduce_packets)
{
	uint32_t epoch = next_epoch(a, 0);
	uint64_t base = OFFSET_PACKETS + (uint64_t)(epoch & 1) * RANKS * SLOT_BYTES;
	uint64_t first = BLOCK * THREADS + THREAD, step = GRID * THREADS;
	for (uint64_t i = first; i < a->count; i += step)
		for (int r = 0; r < a->n_ranks; r++)
			strait_emu_store_relaxed(
				at(a->scratch[r], base + (uint64_t)a->rank * SLOT_BYTES + 8 * i),
				(uint64_t)epoch << 32 | load4(a->in, i), 8);
	for (uint64_t i = first; i < a->count; i += step) {
		uint32_t sum = 0;
		for (int r = 0; r < a->n_ranks; r++) {
			void *from =
				at(a->scratch[a->rank], base + (uint64_t)r * SLOT_BYTES + 8 * i);
			uint64_t packet;
			while ((packet = strait_emu_load_relaxed(from, 8)) >> 32 != epoch)
				strait_emu_spin();
			sum += (uint32_t)packet;
		}
		store4(a->out, i, sum);
	}
	end_epoch(a, 0, epoch);
}

enum { NO_RELEASE = 1, NO_ACQUIRE = 2, NO_BARRIER = 4 };

/* Data first, then a flag for each pair of ranks and block. */
static void allreduce_flags(const struct arguments *a, int lacks)
{
	uint32_t epoch = next_epoch(a, 1);
	uint64_t base = OFFSET_DATA + (uint64_t)(epoch & 1) * RANKS * SLOT_BYTES;
	uint64_t first = BLOCK * THREADS + THREAD, step = GRID * THREADS;
	for (uint64_t i = first; i < a->count; i += step)
		for (int r = 0; r < a->n_ranks; r++)
			store4(a->scratch[r] + base + (uint64_t)a->rank * SLOT_BYTES, i,
			       load4(a->in, i));
	if (!(lacks & NO_BARRIER))
		strait_emu_sync_block();
	if (THREAD < (unsigned)a->n_ranks) {
		uint64_t row = OFFSET_FLAGS + 8ul * BLOCK * RANKS;
		void *out = at(a->scratch[THREAD], row + 8 * (uint64_t)a->rank);
		void *in = at(a->scratch[a->rank], row + 8 * THREAD);
		if (lacks & NO_RELEASE)
			strait_emu_store_relaxed(out, epoch, 8);
		else
			strait_emu_store_release(out, epoch, 8);
		while ((lacks & NO_ACQUIRE ? strait_emu_load_relaxed(in, 8)
					   : strait_emu_load_acquire(in, 8)) < epoch)
			strait_emu_spin();
	}
	strait_emu_sync_block();
	for (uint64_t i = first; i < a->count; i += step) {
		uint32_t sum = 0;
		for (int r = 0; r < a->n_ranks; r++)
			sum += load4(a->scratch[a->rank] + base + (uint64_t)r * SLOT_BYTES, i);
		store4(a->out, i, sum);
	}
	end_epoch(a, 1, epoch);
}

KERNEL(allreduce_flags)
{
	allreduce_flags(a, 0);
}
KERNEL(allreduce_no_release)
{
	allreduce_flags(a, NO_RELEASE);
}
KERNEL(allreduce_no_acquire)
{
	allreduce_flags(a, NO_ACQUIRE);
}
KERNEL(allreduce_no_barrier)
{
	allreduce_flags(a, NO_BARRIER);
}

/* out[i] = in[i] + rank */
KERNEL(add_rank)
{
	for (uint64_t i = BLOCK * THREADS + THREAD; i < a->count; i += GRID * THREADS)
		store4(a->out, i, load4(a->in, i) + (uint32_t)a->rank);
}

KERNEL(empty)
{
	(void)a;
}

/* Adds one to a counter, not atomically: kernels of one stream must not overlap. */
KERNEL(increment)
{
	if (THREAD == 0 && BLOCK == 0)
		store4(a->out, 0, load4(a->out, 0) + 1);
}

/* Waits until the host's word at `in` is `count`, then writes it to `out`. */
KERNEL(wait_for_host)
{
	if (THREAD != 0 || BLOCK != 0)
		return;
	while (strait_emu_load_acquire(at(a->in, 0), 4) != a->count)
		strait_emu_spin();
	if (a->out)
		store4(a->out, 0, (uint32_t)a->count);
}

/* Sum of the lane numbers by shuffles, ballots, and what a warp barrier makes visible. */
KERNEL(warp_operations)
{
	unsigned lane = THREAD % 32;
	uint64_t sum = THREAD;
	for (unsigned mask = 16; mask; mask /= 2)
		sum += strait_emu_shuffle(sum, lane ^ mask);
	store4(a->out, THREAD, (uint32_t)sum);
	store4(a->out, THREADS + THREAD, strait_emu_ballot(lane % 3 == 0));
	strait_emu_sync_warp();
	store4(a->out, 2 * THREADS + THREAD, load4(a->out, THREAD ^ 1));
}

/* Odd threads leave; the others pass more barriers, and reverse an array in shared memory. */
KERNEL(barrier_after_return)
{
	static const char site;
	uint32_t *shared = strait_emu_shared(&site, 4 * THREADS);
	shared[THREAD] = THREAD;
	strait_emu_sync_block();
	store4(a->out, THREAD, shared[THREADS - 1 - THREAD]);
	if (THREAD % 2)
		return;
	for (uint64_t i = 0; i < a->count; i++)
		strait_emu_sync_block();
	store4(a->out, THREADS + THREAD, 1);
}

/* Shared memory before anything was stored there. */
KERNEL(read_shared)
{
	static const char site;
	uint32_t *shared = strait_emu_shared(&site, 4 * THREADS);
	store4(a->out, THREAD, shared[THREAD]);
	strait_emu_sync_block();
	shared[THREAD] = 7;
}

KERNEL(divergent_barrier)
{
	if (THREAD == 0)
		strait_emu_ballot(1);
	else
		strait_emu_sync_block();
	store4(a->out, 0, 1);
}

KERNEL(add_atomically)
{
	strait_emu_add_relaxed(at(a->out, 0), 1, 4);
	strait_emu_add_release(at(a->out, 8), 3, 8);
}

/* Own stores are seen at once, whatever their size. */
KERNEL(read_own_stores)
{
	uint64_t slot = a->out + 16 * THREAD;
	uint64_t wrong = 0;
	for (uint64_t k = 1; k <= a->count; k++) {
		strait_emu_store_weak(at(slot, 0), k * 0x0101010101010101ul, 8);
		wrong += strait_emu_load_weak(at(slot, 0), 8) != k * 0x0101010101010101ul;
		strait_emu_store_relaxed(at(slot, 4), k + 1, 4);
		wrong += strait_emu_load_relaxed(at(slot, 4), 4) != k + 1;
		wrong += strait_emu_load_weak(at(slot, 0), 8) !=
			 ((k + 1) << 32 | (uint32_t)(k * 0x01010101ul));
		strait_emu_store_weak(at(slot, 1), 0xee, 1);
		wrong += strait_emu_load_weak(at(slot, 0), 2) != (0xee00 | (k & 0xff));
	}
	strait_emu_store_weak(at(slot, 8), wrong, 8);
}

/* A raw access to device memory: what a kernel must not do. */
KERNEL(raw_store)
{
	*(volatile uint32_t *)at(a->out, 0) = 1;
}

KERNEL(block_index)
{
	struct strait_emu_dim b = strait_emu_self->bid, g = strait_emu_self->gdim;
	struct strait_emu_dim t = strait_emu_self->tid, d = strait_emu_self->bdim;
	unsigned block = (b.z * g.y + b.y) * g.x + b.x, thread = (t.z * d.y + t.y) * d.x + t.x;
	store4(a->out, (uint64_t)block * d.x * d.y * d.z + thread, block * 1000 + thread);
}

/* As the real host kernels say which image they belong to. */
extern const char strait_build_id_0123456789abcdef;
const char strait_build_id_0123456789abcdef = 1;
