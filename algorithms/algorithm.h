/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an algorithm is to the rest: a row of the registry. Whether it can run a call, and with
 * which grid, follows from the limits that all ranks agreed on and from the size of the call alone,
 * so every rank chooses alike.
 */
#pragma once
#include "algorithms/request.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Agreed at creation. */
struct strait_limits {
	int n_ranks;
	unsigned max_blocks, max_threads; /* of any grid */
	uint32_t packet_slot_bytes, bulk_slot_bytes;
};

/* A grid, and how a message is cut for it. */
struct strait_shape {
	unsigned n_blocks, n_threads; /* threads: a multiple of 32 */
	uint64_t slice;               /* see struct strait_allreduce_args */
	uint32_t chunk;
};

struct strait_algorithm {
	const char *name; /* its kernels are strait_<name>_<element>_<operation> */
	enum strait_collective collective;
	/* Gives the shape for a message of `bytes` > 0, or false where the scratch does not hold
	 * it. */
	bool (*shape)(const struct strait_limits *limits, uint64_t bytes, struct strait_shape *ret);
};

/* The registry: every algorithm once; ended by an entry without a name. */
extern const struct strait_algorithm strait_algorithms[];
enum { STRAIT_N_ALGORITHMS = 3 };

bool strait_allreduce_ll_shape(const struct strait_limits *limits, uint64_t bytes,
			       struct strait_shape *ret);
bool strait_allreduce_ll_twoshot_shape(const struct strait_limits *limits, uint64_t bytes,
				       struct strait_shape *ret);
bool strait_allreduce_simple_shape(const struct strait_limits *limits, uint64_t bytes,
				   struct strait_shape *ret);

/* Blocks of about `units_per_block` units each, 1 to limits->max_blocks; threads for
 * `units_per_thread` of them. */
void strait_shape_for(const struct strait_limits *limits, uint64_t units, unsigned units_per_block,
		      unsigned most_threads, struct strait_shape *ret);

/* The algorithm for a call, and its shape: the first row of the tuning table that fits and whose
 * algorithm can run it. NULL: none. Pure: equal arguments give equal answers on every rank. */
const struct strait_algorithm *strait_select(const struct strait_limits *limits,
					     enum strait_collective collective, uint64_t bytes,
					     struct strait_shape *ret_shape);
