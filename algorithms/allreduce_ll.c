/* SPDX-License-Identifier: Apache-2.0 */
/* Grid of the one-shot all-reduce: a packet of 16 bytes for every 8 of the message, all of them in
 * one slot a block. */
#include "algorithms/algorithm.h"

enum { WORD = 8, PACKET = 16, WORDS_PER_BLOCK = 256, MOST_THREADS = 512 };

bool strait_allreduce_ll_shape(const struct strait_limits *limits, uint64_t bytes,
			       struct strait_shape *ret)
{
	const uint64_t n_words = (bytes + WORD - 1) / WORD;
	struct strait_shape shape;
	strait_shape_for(limits, n_words, WORDS_PER_BLOCK, MOST_THREADS, &shape);
	const uint64_t per_block = (n_words + shape.n_blocks - 1) / shape.n_blocks;
	if (limits->n_ranks > 1 && per_block * PACKET > limits->packet_slot_bytes)
		return false;
	shape.chunk = per_block;
	*ret = shape;
	return true;
}
