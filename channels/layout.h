/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The map of the scratch memory: a pure function of what all ranks agreed upon.
 *
 * Half of the budget, at most, goes to packet inboxes, which only messages of the latency range
 * use; the rest to bulk inboxes. From the slot sizes follows the largest message of each algorithm
 * (docs/scratch.md has the figures).
 */
#pragma once
#include "channels/device_communicator.h"
#include <stddef.h>
#include <stdint.h>

struct strait_layout {
	uint64_t total_bytes;
	uint64_t packet_offset, bulk_offset;
	uint32_t packet_slot_bytes, bulk_slot_bytes; /* multiples of 128 */
};

/* n_ranks >= 1 ranks, grids of at most max_blocks blocks, at most `budget` bytes.
 * STRAIT_ERROR_ARGUMENT where the budget does not hold the least that the kernels need. */
int strait_layout_compute(int n_ranks, int max_blocks, uint64_t budget, struct strait_layout *ret);
