/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grid of the two-shot all-reduce of large messages: any size. One step where a chunk takes it,
 * since an iteration costs a wait and a signal; chunks are capped so that all of a rank's inboxes
 * stay in the GPU's cache (docs/measurements.md, "Chunks of allreduce_simple").
 */
#include "algorithms/algorithm.h"

enum { UNIT = 16, MOST_THREADS = 512, MOST_CHUNK_TO_ONE = 128 << 10, MOST_CHUNK_TO_ALL = 64 << 10 };

bool strait_allreduce_simple_shape(const struct strait_limits *limits, uint64_t bytes,
				   struct strait_shape *ret)
{
	const uint64_t n_units = (bytes + UNIT - 1) / UNIT;
	const uint64_t n_ranks = limits->n_ranks;
	if (n_ranks < 2)
		return false;
	const unsigned n_threads =
		MOST_THREADS < limits->max_threads ? MOST_THREADS : limits->max_threads;
	uint64_t most_chunk = limits->bulk_slot_bytes / UNIT;
	const uint64_t cap = n_ranks == 2 ? MOST_CHUNK_TO_ONE : MOST_CHUNK_TO_ALL / (n_ranks - 1);
	if (most_chunk == 0)
		return false;
	if (most_chunk > cap / UNIT)
		most_chunk = cap / UNIT;
	/* Every thread gets as many units of a chunk as the others. */
	if (most_chunk > n_threads)
		most_chunk = most_chunk / n_threads * n_threads;
	/* One unit a thread and chunk at least; more blocks before larger chunks. */
	uint64_t n_blocks = n_units / (n_ranks * n_threads);
	if (n_blocks > limits->max_blocks)
		n_blocks = limits->max_blocks;
	if (n_blocks < 1)
		n_blocks = 1;
	uint64_t chunk = (n_units + n_blocks * n_ranks - 1) / (n_blocks * n_ranks);
	chunk = (chunk + n_threads - 1) / n_threads * n_threads;
	if (chunk > most_chunk)
		chunk = most_chunk;
	*ret = (struct strait_shape){.n_blocks = n_blocks, .n_threads = n_threads, .chunk = chunk};
	return true;
}
