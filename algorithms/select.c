/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of an algorithm, from the tuning table or by the name in STRAIT_ALGORITHM. */
#include "algorithms/algorithm.h"
#include "algorithms/tuning.h"
#include "strait/params.h"
#include <string.h>

static const struct strait_algorithm *named(enum strait_collective collective, const char *name)
{
	for (const struct strait_algorithm *a = strait_algorithms; a->name; a++)
		if (a->collective == collective && strcmp(a->name, name) == 0)
			return a;
	return NULL;
}

const struct strait_algorithm *strait_select(const struct strait_limits *limits,
					     enum strait_collective collective, uint64_t bytes,
					     struct strait_shape *ret_shape)
{
	const char *forced = strait_params()->algorithm;
	if (forced) {
		const struct strait_algorithm *a = named(collective, forced);
		if (a && a->shape(limits, bytes, ret_shape))
			return a;
	}
	for (const struct strait_tuning_row *row = strait_tuning; row->algorithm; row++) {
		if (row->collective != collective || limits->n_ranks < row->min_ranks ||
		    limits->n_ranks > row->max_ranks || bytes > row->max_bytes)
			continue;
		const struct strait_algorithm *a = named(collective, row->algorithm);
		if (a && a->shape(limits, bytes, ret_shape))
			return a;
	}
	return NULL;
}
