/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grid of the two-shot all-reduce of large messages: any size. A chunk is small enough that the
 * pipeline has a few steps, and large enough that each thread moves several units between two
 * barriers.
 */
#include "algorithms/algorithm.h"

enum { UNIT = 16, MOST_THREADS = 512, STEPS = 4 };

bool strait_allreduce_simple_shape(const struct strait_limits *limits, uint64_t bytes,
				   struct strait_shape *ret)
{
	const uint64_t n_units = (bytes + UNIT - 1) / UNIT,
		       slot_units = limits->bulk_slot_bytes / UNIT;
	const uint64_t n_ranks = limits->n_ranks;
	unsigned n_threads =
		MOST_THREADS < limits->max_threads ? MOST_THREADS : limits->max_threads;
	if (slot_units == 0)
		return false;
	/* One unit a thread and chunk at least; more blocks before larger chunks. */
	uint64_t n_blocks = n_units / (n_ranks * n_threads);
	if (n_blocks > limits->max_blocks)
		n_blocks = limits->max_blocks;
	if (n_blocks < 1)
		n_blocks = 1;
	uint64_t chunk = n_units / (n_blocks * n_ranks * STEPS);
	chunk = (chunk + n_threads - 1) / n_threads * n_threads;
	if (chunk < n_threads)
		chunk = n_threads;
	if (chunk > slot_units)
		chunk = slot_units;
	*ret = (struct strait_shape){
		.n_blocks = n_blocks, .n_threads = n_threads, .chunk_units = chunk};
	return true;
}
