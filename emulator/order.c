/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weak memory of device.h.
 *
 * Delayed stores: a store to weak memory goes into the fiber's buffer (one of 16 becomes visible at
 * once, before older ones and before the block's other threads run); a barrier moves it to the
 * block's; a release commits both in random order, an idle round a random half. A store to the same
 * word commits the older one first, so one address keeps its order, and a load looks through the
 * own buffers first.
 *
 * Stale loads: a commit notes in the shadow what was there before, its block, and a time one later
 * than the clock; only a release advances the clock, before its flag becomes visible. A weak load
 * may take the old value of a word that another block committed after the fiber's view, which is
 * the clock at its last acquire. So both a missing release (the time stays ahead of every clock)
 * and a missing acquire (the view stays behind) show, even when the stores happened to come in
 * order.
 *
 * One clock serves the machine: acquiring any flag makes all that was released look ordered. A flag
 * of the wrong peer is therefore caught by the delayed stores only.
 */
#include "emulator/block.h"
#include "emulator/window.h"
#include <cuda.h>
#include <string.h>

#define HASH 0x9E3779B97F4A7C15ul

/* How many delayed stores a buffer has whose word hashes like this one: mostly none, and then
 * nothing has to be searched. */
static inline uint8_t *block_count(struct strait_emu_block *block, uintptr_t address)
{
	return &block->word_counts[((address >> 3) * HASH) >> 54];
}

static inline uint8_t *fiber_count(struct strait_emu_fiber *fiber, uintptr_t address)
{
	return &fiber->word_counts[((address >> 3) * HASH) >> 58];
}

static inline uint64_t read_data(const void *data, unsigned bytes)
{
	switch (bytes) {
	case 8:
		return __atomic_load_n((const uint64_t *)data, __ATOMIC_ACQUIRE);
	case 4:
		return __atomic_load_n((const uint32_t *)data, __ATOMIC_ACQUIRE);
	case 2:
		return __atomic_load_n((const uint16_t *)data, __ATOMIC_ACQUIRE);
	default:
		return __atomic_load_n((const uint8_t *)data, __ATOMIC_ACQUIRE);
	}
}

static inline void write_data(void *data, uint64_t value, unsigned bytes)
{
	switch (bytes) {
	case 8:
		__atomic_store_n((uint64_t *)data, value, __ATOMIC_RELEASE);
		break;
	case 4:
		__atomic_store_n((uint32_t *)data, (uint32_t)value, __ATOMIC_RELEASE);
		break;
	case 2:
		__atomic_store_n((uint16_t *)data, (uint16_t)value, __ATOMIC_RELEASE);
		break;
	default:
		__atomic_store_n((uint8_t *)data, (uint8_t)value, __ATOMIC_RELEASE);
	}
}

static inline uint64_t clock_next(void)
{
	return atomic_load_explicit(&strait_emu_machine->clock, memory_order_relaxed) + 1;
}

static inline uint64_t clock_now(void)
{
	return atomic_load_explicit(&strait_emu_machine->clock, memory_order_acquire);
}

static inline uint64_t clock_advance(const struct strait_emu_block *block)
{
	return block->stale ? atomic_fetch_add(&strait_emu_machine->clock, 1) + 1 : 0;
}

/* What an access meets: the data, and the device when the weak model applies. */
struct place {
	char *data;
	int weak;
	unsigned device;
};

static inline struct place find(struct strait_emu_fiber *fiber, const void *address)
{
	uintptr_t a = (uintptr_t)address;
	struct strait_emu_granule *granule = strait_emu_window_granule(a);
	if (!granule)
		return (struct place){(char *)a, 0, 0};
	struct strait_emu_block *block = fiber->block;
	uint64_t access = atomic_load_explicit(&granule->access, memory_order_relaxed);
	if (__builtin_expect(!(access & block->device_bit), 0))
		strait_emu_block_fail(CUDA_ERROR_ILLEGAL_ADDRESS);
	int weak = atomic_load_explicit(&granule->weak, memory_order_relaxed);
	if (__builtin_expect(!weak && granule->device != block->device, 0)) {
		atomic_store(&granule->weak, 1);
		weak = 1;
	}
	return (struct place){(char *)(a + strait_emu_window.data), weak, granule->device};
}

static void commit(struct strait_emu_block *block, const struct strait_emu_store *store,
		   uint64_t time)
{
	char *data = (char *)(store->address + strait_emu_window.data);
	if (block->stale)
		for (unsigned i = 0; i < store->bytes; i += 4) {
			struct strait_emu_shadow *shadow =
				strait_emu_window_shadow(store->address + i);
			uint32_t *word = (uint32_t *)((uintptr_t)(data + i) & ~3ul);
			uint32_t old = __atomic_load_n(word, __ATOMIC_RELAXED);
			__atomic_store_n(&shadow->old, old, __ATOMIC_RELAXED);
			__atomic_store_n(&shadow->writer, block->uid, __ATOMIC_RELAXED);
			__atomic_store_n(&shadow->time, time, __ATOMIC_RELEASE);
		}
	block->touched |= 1ul << store->device;
	write_data(data, store->value, store->bytes);
}

static inline void commit_at(struct strait_emu_block *block, struct strait_emu_store *stores,
			     unsigned *n, unsigned i, uint64_t time)
{
	char *start = (char *)stores;
	if (stores == block->stores)
		--*block_count(block, stores[i].address);
	else
		--*fiber_count((void *)(start - offsetof(struct strait_emu_fiber, stores)),
			       stores[i].address);
	commit(block, &stores[i], time);
	stores[i] = stores[--*n];
}

static void flush(struct strait_emu_block *block, struct strait_emu_fiber *fiber)
{
	if (!fiber->n_stores && !block->n_stores)
		return;
	uint64_t time = clock_next();
	while (block->n_stores)
		commit_at(block, block->stores, &block->n_stores,
			  (unsigned)(strait_emu_block_random(block) % block->n_stores), time);
	while (fiber->n_stores)
		commit_at(block, fiber->stores, &fiber->n_stores,
			  (unsigned)(strait_emu_block_random(block) % fiber->n_stores), time);
}

static void commit_overlapping(struct strait_emu_block *block, struct strait_emu_store *stores,
			       unsigned *n, uintptr_t address, unsigned bytes)
{
	for (unsigned i = 0; i < *n;)
		if (stores[i].address < address + bytes &&
		    address < stores[i].address + stores[i].bytes)
			commit_at(block, stores, n, i, clock_next());
		else
			i++;
}

/* So that the access that follows finds its own earlier stores in memory. */
static inline void settle(struct strait_emu_fiber *fiber, uintptr_t address, unsigned bytes)
{
	struct strait_emu_block *block = fiber->block;
	if (block->n_stores && *block_count(block, address))
		commit_overlapping(block, block->stores, &block->n_stores, address, bytes);
	if (*fiber_count(fiber, address))
		commit_overlapping(block, fiber->stores, &fiber->n_stores, address, bytes);
}

static void evict(struct strait_emu_block *block, struct strait_emu_fiber *fiber)
{
	unsigned i = (unsigned)(strait_emu_block_random(block) % STRAIT_EMU_FIBER_STORES);
	commit_at(block, fiber->stores, &fiber->n_stores, i, clock_next());
}

void strait_emu_store_relaxed(void *address, uint64_t value, unsigned bytes)
{
	struct strait_emu_fiber *fiber = strait_emu_fiber_self();
	struct strait_emu_block *block = fiber->block;
	struct place place = find(fiber, address);
	block->spins = 0;
	if (!place.weak) {
		write_data(place.data, value, bytes);
		return;
	}
	struct strait_emu_store store = {(uintptr_t)address, value, bytes, place.device};
	if (!block->buffered) {
		commit(block, &store, clock_next());
		return;
	}
	settle(fiber, store.address, bytes);
	if (!(strait_emu_block_random(block) & 15)) {
		commit(block, &store, clock_next());
		return;
	}
	if (fiber->n_stores == STRAIT_EMU_FIBER_STORES)
		evict(block, fiber);
	fiber->stores[fiber->n_stores++] = store;
	++*fiber_count(fiber, store.address);
}

void strait_emu_store_weak(void *address, uint64_t value, unsigned bytes)
{
	strait_emu_store_relaxed(address, value, bytes);
}

void strait_emu_store_release(void *address, uint64_t value, unsigned bytes)
{
	struct strait_emu_fiber *fiber = strait_emu_fiber_self();
	struct strait_emu_block *block = fiber->block;
	struct place place = find(fiber, address);
	flush(block, fiber);
	uint64_t time = clock_advance(block);
	if (place.weak) {
		struct strait_emu_store store = {(uintptr_t)address, value, bytes, place.device};
		commit(block, &store, time);
	} else {
		write_data(place.data, value, bytes);
	}
	strait_emu_order_ring(block);
	block->spins = 0;
}

void strait_emu_fence(void)
{
	struct strait_emu_fiber *fiber = strait_emu_fiber_self();
	flush(fiber->block, fiber);
	clock_advance(fiber->block);
	strait_emu_order_ring(fiber->block);
	fiber->view = clock_now();
}

/* The value of an own delayed store of just these bytes. One that overlaps otherwise is committed,
 * since memory then has to be read. */
static inline int forward(struct strait_emu_fiber *fiber, uintptr_t address, unsigned bytes,
			  uint64_t *value)
{
	struct strait_emu_block *block = fiber->block;
	if (*fiber_count(fiber, address))
		for (unsigned i = 0; i < fiber->n_stores; i++)
			if (fiber->stores[i].address == address &&
			    fiber->stores[i].bytes == bytes) {
				*value = fiber->stores[i].value;
				return 1;
			}
	if (block->n_stores && *block_count(block, address))
		for (unsigned i = 0; i < block->n_stores; i++)
			if (block->stores[i].address == address &&
			    block->stores[i].bytes == bytes) {
				*value = block->stores[i].value;
				return 1;
			}
	settle(fiber, address, bytes);
	return 0;
}

static inline uint64_t masked(uint64_t value, unsigned bytes)
{
	return bytes == 8 ? value : value & ((1ul << (8 * bytes)) - 1);
}

uint64_t strait_emu_load_relaxed(const void *address, unsigned bytes)
{
	struct strait_emu_fiber *fiber = strait_emu_fiber_self();
	struct place place = find(fiber, address);
	uint64_t value;
	if (place.weak && forward(fiber, (uintptr_t)address, bytes, &value))
		return masked(value, bytes);
	return read_data(place.data, bytes);
}

uint64_t strait_emu_load_acquire(const void *address, unsigned bytes)
{
	uint64_t value = strait_emu_load_relaxed(address, bytes);
	strait_emu_fiber_self()->view = clock_now();
	return value;
}

/* Puts back, word by word and at random, what was there at the fiber's last acquire. */
static uint64_t make_stale(struct strait_emu_fiber *fiber, uintptr_t address, unsigned bytes,
			   uint64_t value)
{
	struct strait_emu_block *block = fiber->block;
	for (unsigned i = 0; i < bytes; i += 4) {
		struct strait_emu_shadow *shadow = strait_emu_window_shadow(address + i);
		if (__atomic_load_n(&shadow->time, __ATOMIC_ACQUIRE) <= fiber->view ||
		    __atomic_load_n(&shadow->writer, __ATOMIC_RELAXED) == block->uid ||
		    (strait_emu_block_random(block) & 1))
			continue;
		uint32_t old = __atomic_load_n(&shadow->old, __ATOMIC_RELAXED);
		memcpy((char *)&value + i, (char *)&old + (address & 3), bytes < 4 ? bytes : 4);
	}
	return value;
}

uint64_t strait_emu_load_weak(const void *address, unsigned bytes)
{
	struct strait_emu_fiber *fiber = strait_emu_fiber_self();
	struct place place = find(fiber, address);
	uint64_t value;
	if (!place.weak)
		return read_data(place.data, bytes);
	if (forward(fiber, (uintptr_t)address, bytes, &value))
		return masked(value, bytes);
	value = read_data(place.data, bytes);
	return fiber->block->stale ? make_stale(fiber, (uintptr_t)address, bytes, value) : value;
}

static uint64_t add_data(void *data, uint64_t value, unsigned bytes)
{
	if (bytes == 8)
		return __atomic_fetch_add((uint64_t *)data, value, __ATOMIC_SEQ_CST);
	return __atomic_fetch_add((uint32_t *)data, (uint32_t)value, __ATOMIC_SEQ_CST);
}

uint64_t strait_emu_add_relaxed(void *address, uint64_t value, unsigned bytes)
{
	struct strait_emu_fiber *fiber = strait_emu_fiber_self();
	struct place place = find(fiber, address);
	fiber->block->spins = 0;
	if (place.weak) {
		settle(fiber, (uintptr_t)address, bytes);
		fiber->block->touched |= 1ul << place.device;
	}
	return add_data(place.data, value, bytes);
}

uint64_t strait_emu_add_release(void *address, uint64_t value, unsigned bytes)
{
	struct strait_emu_fiber *fiber = strait_emu_fiber_self();
	flush(fiber->block, fiber);
	clock_advance(fiber->block);
	uint64_t before = strait_emu_add_relaxed(address, value, bytes);
	strait_emu_order_ring(fiber->block);
	return before;
}

static void to_block(struct strait_emu_block *block, struct strait_emu_fiber *fiber)
{
	for (unsigned i = 0; i < fiber->n_stores; i++) {
		struct strait_emu_store *store = &fiber->stores[i];
		if (*block_count(block, store->address))
			commit_overlapping(block, block->stores, &block->n_stores, store->address,
					   store->bytes);
		if (block->n_stores == STRAIT_EMU_BLOCK_STORES) {
			uint64_t victim = strait_emu_block_random(block) % STRAIT_EMU_BLOCK_STORES;
			commit_at(block, block->stores, &block->n_stores, (unsigned)victim,
				  clock_next());
		}
		block->stores[block->n_stores++] = *store;
		++*block_count(block, store->address);
	}
	fiber->n_stores = 0;
	memset(fiber->word_counts, 0, sizeof fiber->word_counts);
}

static void join(struct strait_emu_block *block, unsigned first, unsigned end)
{
	uint64_t view = 0;
	for (unsigned i = first; i < end; i++) {
		struct strait_emu_fiber *fiber = &block->fibers[i];
		if (fiber->view > view)
			view = fiber->view;
		if (fiber->n_stores)
			to_block(block, fiber);
	}
	for (unsigned i = first; i < end; i++)
		block->fibers[i].view = view;
}

void strait_emu_order_join(struct strait_emu_block *block)
{
	join(block, 0, block->n_threads);
}

void strait_emu_order_join_warp(struct strait_emu_block *block, unsigned warp)
{
	unsigned first = warp * STRAIT_EMU_WARP, end = first + STRAIT_EMU_WARP;
	join(block, first, end < block->n_threads ? end : block->n_threads);
}

static void drain_some(struct strait_emu_block *block, struct strait_emu_store *stores, unsigned *n,
		       int all, uint64_t time)
{
	for (unsigned i = *n; i--;)
		if (all || strait_emu_block_random(block) >> 63)
			commit_at(block, stores, n, i, time);
}

/* Now and then all of it, so that no store waits for ever. */
int strait_emu_order_drain_half(struct strait_emu_block *block)
{
	int some = block->touched != 0, all = !(strait_emu_block_random(block) & 7);
	uint64_t time = clock_next();
	if (block->n_stores) {
		some = 1;
		drain_some(block, block->stores, &block->n_stores, all, time);
	}
	unsigned start = (unsigned)(strait_emu_block_random(block) % block->n_threads);
	for (unsigned k = 0; k < block->n_threads; k++) {
		struct strait_emu_fiber *fiber = &block->fibers[(start + k) % block->n_threads];
		if (!fiber->n_stores)
			continue;
		some = 1;
		drain_some(block, fiber->stores, &fiber->n_stores, all, time);
	}
	return some;
}

void strait_emu_order_ring(struct strait_emu_block *block)
{
	uint64_t touched = block->touched;
	block->touched = 0;
	while (touched) {
		unsigned device = (unsigned)__builtin_ctzl(touched);
		touched &= touched - 1;
		strait_emu_machine_ring(device, (int)(block->id.x % STRAIT_EMU_BELLS));
	}
}

/* The end of a kernel is a release of all its threads: what runs after it in the stream sees
 * everything. */
void strait_emu_order_finish(struct strait_emu_block *block)
{
	for (unsigned i = 0; i < block->n_threads; i++)
		flush(block, &block->fibers[i]);
	clock_advance(block);
	strait_emu_order_ring(block);
}

void *strait_emu_data(const void *address)
{
	struct strait_emu_fiber *fiber = strait_emu_fiber_self();
	struct place place = find(fiber, address);
	if (place.weak)
		fiber->block->touched |= 1ul << place.device; /* it may be for a store */
	return place.data;
}
