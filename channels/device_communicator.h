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
/* Three slots let a block push step k, reduce k-1 and collect k-2 without waiting for its own
 * acknowledgements. */
#define STRAIT_BULK_SLOTS 3
#define STRAIT_BULK_PHASES 2

/* What one peer writes here. A cache line, so that peers do not share one. */
struct strait_inbound {
	uint64_t packets_consumed;              /* the peer has read our packets up to this epoch */
	uint64_t bulk_sent[STRAIT_BULK_PHASES]; /* semaphore: steps that the peer has put here */
	uint64_t bulk_consumed[STRAIT_BULK_PHASES]; /* steps that we put there and the peer has read
						     */
	uint64_t probe;                             /* set-up only */
	uint64_t reserved[10];
};

struct strait_block_control {
	/* Own counters: only this rank touches them, ordered by the stream. */
	uint64_t packet_epoch; /* epochs that this block has used */
	uint64_t bulk_step;    /* steps that this block has done */
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
