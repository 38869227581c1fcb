/* SPDX-License-Identifier: Apache-2.0 */
/* Grid of the two-shot all-reduce by packets: a block works on its share of every rank's slice;
 * half a slot takes a share. */
#include "algorithms/algorithm.h"

enum { WORD = 8, PACKET = 16, WORDS_PER_BLOCK = 256, MOST_THREADS = 512 };

bool strait_allreduce_ll_twoshot_shape(const struct strait_limits *limits, uint64_t bytes,
				       struct strait_shape *ret)
{
	const uint64_t n_words = (bytes + WORD - 1) / WORD;
	const uint64_t slice = (n_words + limits->n_ranks - 1) / limits->n_ranks;
	struct strait_shape shape;
	strait_shape_for(limits, slice, WORDS_PER_BLOCK, MOST_THREADS, &shape);
	const uint64_t per_block = (slice + shape.n_blocks - 1) / shape.n_blocks;
	if (limits->n_ranks > 1 && per_block * PACKET > limits->packet_slot_bytes / 2)
		return false;
	shape.slice = slice;
	shape.chunk = per_block;
	*ret = shape;
	return true;
}
