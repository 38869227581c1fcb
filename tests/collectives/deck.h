/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cases of one algorithm and number of ranks, dealt by seed: every type with every reduction,
 * each with the next of a shuffled list of counts. Counts are the classic edges (0, 1, around the
 * number of ranks, odd primes), those around the limits of the algorithm's blocks, slots and
 * chunks, and random ones.
 */
#pragma once
#include "algorithms/algorithm.h"
#include "tests/collectives/case.h"

enum {
	DECK_PAIRS = STRAIT_N_TYPES * (STRAIT_N_REDUCTIONS + 1),
	DECK_MOST_EDGES = 40,
	DECK_MOST_COUNTS = 256
};

struct deck {
	const struct strait_algorithm *algorithm;
	struct strait_limits limits;
	uint64_t random;
	double most_cost; /* about the memory operations of a case; dearer ones are not dealt */
	uint64_t edges[DECK_MOST_EDGES]; /* bytes */
	int n_edges, n_counts, next_count, next_pair;
	int counts[DECK_MOST_COUNTS], pairs[DECK_PAIRS]; /* shuffled indices */
};

/* What the ranks agree on. */
struct deck_limits {
	int n_ranks;
	unsigned blocks, threads;
	uint64_t scratch_bytes;
};
void deck_init(struct deck *deck, const struct strait_algorithm *algorithm,
	       const struct deck_limits *limits, double most_cost, uint64_t seed);
void deck_deal(struct deck *deck, struct collective_case *ret);
/* Case number i of all pairs x counts, with the rest drawn. False: no more. Dear ones are left out.
 */
bool deck_walk(struct deck *deck, uint64_t *position, struct collective_case *ret);
/* Whether the forced algorithm has to run this case, so that the report must count it. */
bool deck_is_native(const struct deck *deck, const struct collective_case *c);
