/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of grids that several algorithms share. */
#include "algorithms/algorithm.h"

void strait_shape_for(const struct strait_limits *limits, uint64_t units, unsigned units_per_block,
		      unsigned most_threads, struct strait_shape *ret)
{
	uint64_t n_blocks = (units + units_per_block - 1) / units_per_block;
	if (n_blocks > limits->max_blocks)
		n_blocks = limits->max_blocks;
	if (n_blocks < 1)
		n_blocks = 1;
	if (most_threads > limits->max_threads)
		most_threads = limits->max_threads;
	uint64_t n_threads = ((units + n_blocks - 1) / n_blocks + 31) / 32 * 32;
	if (n_threads > most_threads)
		n_threads = most_threads;
	*ret = (struct strait_shape){.n_blocks = n_blocks,
				     .n_threads = n_threads < 32 ? 32 : n_threads};
}
