/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fibers of a block: their stacks, the round in which they run, barriers, warp operations, spins.
 *
 * The order after a barrier is shuffled by the seed. When every runnable fiber has polled in vain,
 * the block is idle: it lets a random half of the delayed stores out, yields the processor (so that
 * others can see that half without the other), and with nothing left to let out sleeps on its
 * doorbell. The bell was read before the round, so a store that comes during the round is not slept
 * over.
 */
#include "emulator/block.h"
#include "emulator/sanitizer.h"
#include "emulator/settings.h"
#include <cuda.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define STACK_BYTES (64ul << 10)
#define CANARY 0x57ac4e4d0f57ac4eul

__thread struct strait_emu_thread *strait_emu_self __attribute__((tls_model("initial-exec")));

void strait_emu_switch(void **save, void *load);

static void switch_to(struct strait_emu_fiber *from, struct strait_emu_fiber *to)
{
	strait_emu_self = &to->thread;
	strait_emu_tsan_switch(to->tsan);
	strait_emu_switch(&from->stack_pointer, to->stack_pointer);
}

/* Back to the OS thread's stack, for good. */
static _Noreturn void leave_block(struct strait_emu_block *block)
{
	void *unused;
	strait_emu_self = NULL;
	strait_emu_tsan_switch(block->tsan_thread);
	strait_emu_switch(&unused, block->return_pointer);
	__builtin_unreachable();
}

_Noreturn void strait_emu_block_fail(int error)
{
	struct strait_emu_fiber *fiber = strait_emu_fiber_self();
	struct strait_emu_block *block = fiber->block;
	int none = 0;
	if (atomic_compare_exchange_strong(&block->launch->failed, &none, error))
		strait_emu_say("kernel %s, block %u, thread %u: %s", block->launch->name,
			       block->id.x, fiber->index,
			       error == CUDA_ERROR_ILLEGAL_ADDRESS
				       ? "access to an address that is not mapped for its device"
				       : "every thread waits at a barrier or warp operation that "
					 "not all threads reach");
	leave_block(block);
}

static void run_next(struct strait_emu_block *block, struct strait_emu_fiber *from)
{
	if (!block->n_run)
		strait_emu_block_fail(CUDA_ERROR_LAUNCH_FAILED);
	if (block->turn >= block->n_run)
		block->turn = 0;
	struct strait_emu_fiber *to = &block->fibers[block->run[block->turn]];
	if (to != from)
		switch_to(from, to);
}

static void leave_round(struct strait_emu_block *block)
{
	block->run[block->turn] = block->run[--block->n_run];
}

static void release_barrier(struct strait_emu_block *block)
{
	strait_emu_order_join(block);
	block->barriers++;
	unsigned n = 0;
	for (unsigned i = 0; i < block->n_threads; i++)
		if (!block->fibers[i].done)
			block->run[n++] = (uint16_t)i;
	for (unsigned i = n; i > 1; i--) {
		unsigned j = (unsigned)(strait_emu_block_random(block) % i);
		uint16_t index = block->run[i - 1];
		block->run[i - 1] = block->run[j];
		block->run[j] = index;
	}
	block->n_run = n;
	block->at_barrier = block->turn = block->spins = 0;
}

void strait_emu_sync_block(void)
{
	struct strait_emu_fiber *fiber = strait_emu_fiber_self();
	struct strait_emu_block *block = fiber->block;
	char *tsan = &block->tsan_barrier[block->barriers & 1];
	strait_emu_tsan_release(tsan);
	leave_round(block);
	if (++block->at_barrier == block->live)
		release_barrier(block);
	run_next(block, fiber);
	strait_emu_tsan_acquire(tsan);
}

static void release_warp(struct strait_emu_block *block, unsigned index)
{
	struct strait_emu_warp *warp = &block->warps[index];
	if (warp->joins)
		strait_emu_order_join_warp(block, index);
	for (unsigned lane = 0; lane < STRAIT_EMU_WARP; lane++)
		if (warp->waiting >> lane & 1)
			block->run[block->n_run++] = (uint16_t)(index * STRAIT_EMU_WARP + lane);
	warp->ballot_result[warp->generation & 1] = warp->ballot;
	warp->ballot = 0;
	warp->waiting = 0;
	warp->arrived = 0;
	warp->joins = 0;
	warp->generation++;
	block->spins = 0;
}

/* All live lanes come here; gives the parity of the slots that hold what they brought. The other
 * set is free for the next operation, which cannot end before every lane has left this one. */
static unsigned meet_warp(uint64_t value, int ballot, int joins)
{
	struct strait_emu_fiber *fiber = strait_emu_fiber_self();
	struct strait_emu_block *block = fiber->block;
	unsigned lane = fiber->index % STRAIT_EMU_WARP, index = fiber->index / STRAIT_EMU_WARP;
	struct strait_emu_warp *warp = &block->warps[index];
	unsigned parity = warp->generation & 1;
	warp->slots[parity][lane] = value;
	if (ballot)
		warp->ballot |= 1u << lane;
	warp->joins |= joins;
	if (++warp->arrived == warp->live) {
		release_warp(block, index);
		return parity;
	}
	warp->waiting |= 1u << lane;
	leave_round(block);
	run_next(block, fiber);
	return parity;
}

void strait_emu_sync_warp(void)
{
	struct strait_emu_fiber *fiber = strait_emu_fiber_self();
	struct strait_emu_warp *warp = &fiber->block->warps[fiber->index / STRAIT_EMU_WARP];
	char *tsan = &warp->tsan[warp->generation & 1];
	strait_emu_tsan_release(tsan);
	meet_warp(0, 0, 1);
	strait_emu_tsan_acquire(tsan);
}

uint64_t strait_emu_shuffle(uint64_t value, unsigned lane)
{
	struct strait_emu_fiber *fiber = strait_emu_fiber_self();
	unsigned parity = meet_warp(value, 0, 0);
	return fiber->block->warps[fiber->index / STRAIT_EMU_WARP]
		.slots[parity][lane % STRAIT_EMU_WARP];
}

unsigned strait_emu_ballot(unsigned value)
{
	struct strait_emu_fiber *fiber = strait_emu_fiber_self();
	unsigned parity = meet_warp(0, value != 0, 0);
	return fiber->block->warps[fiber->index / STRAIT_EMU_WARP].ballot_result[parity];
}

static void idle(struct strait_emu_block *block)
{
	if (atomic_load_explicit(&block->launch->failed, memory_order_relaxed))
		leave_block(block);
	if (strait_emu_order_drain_half(block)) {
		strait_emu_order_ring(block);
		sched_yield();
	} else if (block->idle_rounds++ < (unsigned)strait_emu_settings_get()->yields) {
		sched_yield();
	} else {
		block->idle_rounds = 0;
		strait_emu_machine_wait(block->bell, block->bell_seen);
	}
	block->bell_seen = atomic_load(&block->bell->rung);
}

void strait_emu_spin(void)
{
	struct strait_emu_fiber *fiber = strait_emu_fiber_self();
	struct strait_emu_block *block = fiber->block;
	if (++block->spins > block->n_run) {
		block->spins = 0;
		idle(block);
	}
	block->turn++;
	run_next(block, fiber);
}

/* Not by memset, which ThreadSanitizer would take for a store of this thread that races with the
 * others'. */
static void poison(void *memory, size_t bytes)
{
	__asm__ volatile("rep stosb" : "+D"(memory), "+c"(bytes) : "a"(0xa5) : "memory");
}

void *strait_emu_shared(const void *site, size_t bytes)
{
	struct strait_emu_block *block = strait_emu_fiber_self()->block;
	for (unsigned i = 0; i < block->n_sites; i++)
		if (block->sites[i].site == site && block->sites[i].bytes >= bytes)
			return block->sites[i].memory;
	size_t room = (bytes + 15) & ~15ul;
	if (block->n_sites == STRAIT_EMU_SITES ||
	    room > STRAIT_EMU_SHARED_BYTES - block->shared_used) {
		strait_emu_say("kernel %s asks for more shared memory than a block has",
			       block->launch->name);
		strait_emu_block_fail(CUDA_ERROR_LAUNCH_FAILED);
	}
	void *memory = block->shared + block->shared_used;
	block->shared_used += room;
	block->sites[block->n_sites++] = (struct strait_emu_site){site, memory, bytes};
	poison(memory, room);
	return memory;
}

uint64_t strait_emu_clock_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ul + (uint64_t)now.tv_nsec;
}

static void fiber_main(void)
{
	struct strait_emu_fiber *fiber = strait_emu_fiber_self();
	struct strait_emu_block *block = fiber->block;
	struct strait_emu_warp *warp = &block->warps[fiber->index / STRAIT_EMU_WARP];
	strait_emu_tsan_acquire(&block->tsan_start);
	block->launch->kernel->run(block->launch->argument);
	strait_emu_tsan_release(&block->tsan_end);
	fiber->done = 1;
	block->spins = 0;
	leave_round(block);
	if (!--block->live)
		leave_block(block);
	if (--warp->live && warp->arrived == warp->live)
		release_warp(block, fiber->index / STRAIT_EMU_WARP);
	if (block->at_barrier == block->live)
		release_barrier(block);
	run_next(block, fiber);
	__builtin_unreachable();
}

static int grow(struct strait_emu_block *block, unsigned n)
{
	if (block->n_fibers >= n)
		return 0;
	struct strait_emu_fiber *fibers = calloc(n, sizeof *fibers);
	char *stacks = mmap(NULL, (n - block->n_fibers) * STACK_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!fibers || stacks == MAP_FAILED) {
		free(fibers);
		return -1;
	}
	for (unsigned i = 0; i < n; i++) {
		fibers[i].block = block;
		fibers[i].index = i;
		fibers[i].stack = i < block->n_fibers
					  ? block->fibers[i].stack
					  : stacks + (i - block->n_fibers) * STACK_BYTES;
		*(uint64_t *)fibers[i].stack = CANARY;
		fibers[i].tsan =
			i < block->n_fibers ? block->fibers[i].tsan : strait_emu_tsan_new();
	}
	free(block->fibers);
	block->fibers = fibers;
	block->n_fibers = n;
	return 0;
}

/* One for each OS thread that runs blocks; never freed, as those threads never end. */
static struct strait_emu_block *block_of_thread(unsigned n_threads)
{
	static __thread struct strait_emu_block *mine;
	if (!mine) {
		mine = calloc(1, sizeof *mine);
		if (mine && !(mine->shared = malloc(STRAIT_EMU_SHARED_BYTES))) {
			free(mine);
			mine = NULL;
		}
	}
	return mine && grow(mine, n_threads) == 0 ? mine : NULL;
}

static void start_fiber(struct strait_emu_block *block, unsigned index, uint64_t view)
{
	struct strait_emu_fiber *fiber = &block->fibers[index];
	struct strait_emu_dim dim = block->dim;
	fiber->thread.tid = (struct strait_emu_dim){index % dim.x, index / dim.x % dim.y,
						    index / dim.x / dim.y};
	fiber->thread.bid = block->id;
	fiber->thread.bdim = dim;
	fiber->thread.gdim = block->grid;
	fiber->view = view;
	memset(fiber->word_counts, 0, sizeof fiber->word_counts);
	fiber->n_stores = 0;
	fiber->done = 0;
	/* The tops are spread over the cache sets; the return address sits where a call leaves it.
	 */
	uintptr_t top = (uintptr_t)fiber->stack + STACK_BYTES - 64 - index % 32 * 192;
	void **slot = (void **)(top & ~15ul);
	*--slot = NULL;
	*--slot = (void *)fiber_main;
	for (int i = 0; i < 6; i++)
		*--slot = NULL;
	fiber->stack_pointer = slot;
	block->warps[index / STRAIT_EMU_WARP].live++;
	block->run[index] = (uint16_t)index;
}

static void start(struct strait_emu_block *block, struct strait_emu_launch *launch, unsigned index)
{
	const struct strait_emu_settings *settings = strait_emu_settings_get();
	block->launch = launch;
	block->grid = launch->grid;
	block->dim = launch->threads;
	block->id = (struct strait_emu_dim){index % launch->grid.x,
					    index / launch->grid.x % launch->grid.y,
					    index / launch->grid.x / launch->grid.y};
	block->n_threads = launch->threads.x * launch->threads.y * launch->threads.z;
	block->live = block->n_run = block->n_threads;
	block->at_barrier = block->turn = block->spins = block->idle_rounds = 0;
	block->barriers = 0;
	block->uid = (uint32_t)strait_emu_machine_id();
	block->device = launch->device;
	block->device_bit = 1ul << launch->device;
	block->buffered = (int)settings->buffer;
	block->stale = (int)settings->stale;
	block->random = ((uint64_t)settings->seed * 0x9E3779B97F4A7C15ul) ^
			(launch->id * 0xBF58476D1CE4E5B9ul) ^ ((uint64_t)index << 40) ^
			((uint64_t)launch->device << 56) ^ 0x94D049BB133111EBul;
	for (int i = 0; i < 4; i++)
		strait_emu_block_random(block);
	block->touched = 0;
	block->n_stores = 0;
	block->shared_used = 0;
	block->n_sites = 0;
	memset(block->word_counts, 0, sizeof block->word_counts);
	memset(block->warps, 0,
	       (block->n_threads + STRAIT_EMU_WARP - 1) / STRAIT_EMU_WARP * sizeof *block->warps);
	block->bell = &strait_emu_machine->bells[launch->device][block->id.x % STRAIT_EMU_BELLS];
	block->bell_seen = atomic_load(&block->bell->rung);
	uint64_t view = atomic_load(&strait_emu_machine->clock);
	for (unsigned i = 0; i < block->n_threads; i++)
		start_fiber(block, i, view);
}

static void check_stacks(struct strait_emu_block *block)
{
	for (unsigned i = 0; i < block->n_threads; i++)
		if (*(uint64_t *)block->fibers[i].stack != CANARY) {
			*(uint64_t *)block->fibers[i].stack = CANARY;
			strait_emu_say("kernel %s: thread %u needs more than %lu KiB of stack",
				       block->launch->name, i, STACK_BYTES >> 10);
			atomic_store(&block->launch->failed, CUDA_ERROR_LAUNCH_FAILED);
		}
}

void strait_emu_block_run(struct strait_emu_launch *launch, unsigned index)
{
	unsigned n_threads = launch->threads.x * launch->threads.y * launch->threads.z;
	struct strait_emu_block *block = block_of_thread(n_threads);
	if (!block) {
		atomic_store(&launch->failed, CUDA_ERROR_OUT_OF_MEMORY);
		return;
	}
	start(block, launch, index);
	strait_emu_self = &block->fibers[0].thread;
	/* The first access to a module's thread-local storage allocates: not on a fiber's small
	 * stack. */
	if (launch->kernel->touch)
		launch->kernel->touch();
	block->tsan_thread = strait_emu_tsan_self();
	strait_emu_tsan_release(&block->tsan_start);
	strait_emu_tsan_switch(block->fibers[0].tsan);
	strait_emu_switch(&block->return_pointer, block->fibers[0].stack_pointer);
	strait_emu_tsan_acquire(&block->tsan_end);
	strait_emu_self = NULL;
	check_stacks(block);
	strait_emu_order_finish(block);
}
