/* SPDX-License-Identifier: Apache-2.0 */
/* The map of the scratch memory. */
#include "channels/layout.h"
#include "strait/status.h"

enum {
	ALIGNMENT = 128,
	/* One block and peer need no more: the algorithms hand over to others before. */
	MOST_PACKET_SLOT = 128 << 10,
	MOST_BULK_SLOT = 128 << 10,
};

static uint64_t round_down(uint64_t bytes)
{
	return bytes / ALIGNMENT * ALIGNMENT;
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

int strait_layout_compute(int n_ranks, int max_blocks, uint64_t budget, struct strait_layout *ret)
{
	struct strait_layout l = {.packet_offset = (uint64_t)max_blocks *
						   sizeof(struct strait_block_control)};
	const uint64_t n_packet_slots = 2ul * (n_ranks - 1) * max_blocks;
	const uint64_t n_bulk_slots =
		(uint64_t)STRAIT_BULK_PHASES * (n_ranks - 1) * max_blocks * STRAIT_BULK_SLOTS;
	if (n_ranks > 1) {
		if (budget < l.packet_offset + ALIGNMENT * (n_packet_slots + n_bulk_slots) * 2)
			return strait_fail(STRAIT_ERROR_ARGUMENT,
					   "%llu bytes of scratch are too few for %d ranks and %d "
					   "blocks; raise "
					   "STRAIT_SCRATCH_SIZE",
					   (unsigned long long)budget, n_ranks, max_blocks);
		budget -= l.packet_offset;
		l.packet_slot_bytes =
			lesser(round_down(budget / 2 / n_packet_slots), MOST_PACKET_SLOT);
		budget -= l.packet_slot_bytes * n_packet_slots;
		l.bulk_slot_bytes = lesser(round_down(budget / n_bulk_slots), MOST_BULK_SLOT);
	}
	l.bulk_offset = l.packet_offset + l.packet_slot_bytes * n_packet_slots;
	l.total_bytes = l.bulk_offset + l.bulk_slot_bytes * n_bulk_slots;
	*ret = l;
	return 0;
}
