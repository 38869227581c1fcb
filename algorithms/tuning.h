/* SPDX-License-Identifier: Apache-2.0 */
/* The tuning table: which algorithm serves which sizes. Rows are looked at in order. */
#pragma once
#include "algorithms/request.h"
#include <stdint.h>

struct strait_tuning_row {
	enum strait_collective collective;
	int min_ranks, max_ranks;
	uint64_t max_bytes; /* of the message, inclusive */
	const char *algorithm;
};

/* Ended by a row without an algorithm. */
extern const struct strait_tuning_row strait_tuning[];
