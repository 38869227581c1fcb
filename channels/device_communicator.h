/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a kernel knows of its communicator: plain C, shared between host and device, passed by value
 * inside every argument struct. All of it was agreed at creation and never changes from call to
 * call; what does change (epochs, expected counters) lives in the scratch memory and is advanced by
 * kernels, so that a captured kernel can be replayed.
 *
 * Scratch is one allocation a rank, mapped by every peer:
 *
 *     control   one struct strait_block_control for each block
 *     packets   inboxes for LL packets:  [parity 2][from peer][block][packet_slot_bytes]
 *     bulk      inboxes for plain data:  [phase 2][from
 * peer][block][STRAIT_BULK_SLOTS][bulk_slot_bytes]
 *
 * "From peer" counts the n - 1 other ranks. A block works only with the block of the same index on
 * the peers.
 */
#pragma once
#include <stdint.h>

#define STRAIT_MAX_RANKS 16
#define STRAIT_MAX_BLOCKS 32
/* Bulk data moves in iterations; a block reads what its peers wrote LAG iterations ago, so that the
 * flight of data and signals is hidden behind the work of an iteration. Twice as many slots make a
 * slot free when it is due again. */
#define STRAIT_BULK_LAG 1
#define STRAIT_BULK_SLOTS (2 * STRAIT_BULK_LAG)
#define STRAIT_BULK_PHASES 2

/* What one peer writes here. A cache line, so that peers do not share one. */
struct strait_inbound {
	uint64_t packets_consumed; /* the peer has read our packets up to this epoch */
	uint64_t bulk_progress;    /* semaphore: bulk iterations that the peer has completed */
	uint64_t probe;            /* set-up only */
	uint64_t reserved[13];
};

struct strait_block_control {
	/* Own counters: only this rank touches them, ordered by the stream. */
	uint64_t packet_epoch;   /* epochs that this block has used */
	uint64_t bulk_iteration; /* bulk iterations that this block has completed */
	uint64_t reserved[14];
	struct strait_inbound from[STRAIT_MAX_RANKS];
};

struct strait_device_communicator {
	void *scratch[STRAIT_MAX_RANKS]; /* each rank's, as mapped here; the own one too */
	const uint32_t *abort_word;      /* host memory; non-zero: leave */
	uint32_t rank, n_ranks;
	uint32_t max_blocks; /* blocks that the scratch is laid out for: no grid is larger */
	uint32_t packet_slot_bytes, bulk_slot_bytes, reserved;
	uint64_t packet_offset, bulk_offset; /* from the start of scratch */
};

#if defined(__cplusplus)
static_assert(sizeof(struct strait_inbound) == 128, "two cache lines");
static_assert(sizeof(struct strait_device_communicator) == 176, "the host and the device agree");
#else
_Static_assert(sizeof(struct strait_inbound) == 128, "two cache lines");
_Static_assert(sizeof(struct strait_device_communicator) == 176, "the host and the device agree");
#endif
