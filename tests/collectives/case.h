/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One case of the matrix: an all-reduce of given type, reduction, count, placement and way of
 * issue, called a few times with new input. A case is written as text in one line, so that one that
 * failed can be run again alone.
 */
#pragma once
#include "tests/collectives/rig.h"

struct collective_case {
	int n_ranks;
	enum strait_type type;
	enum strait_reduction_kind reduction;
	bool device_scalar; /* PREMULSUM: the factor lies in device memory */
	size_t count;
	uint64_t k;         /* the number of the first call: see strait_reference */
	uint64_t placement; /* 0: all buffers aligned; else a seed for offsets in elements,
			       different on each rank */
	bool in_place, graph, group;
	int n_calls;
};

void case_text(const struct collective_case *c, char *ret, size_t size);
/* False: not what case_text() writes. */
bool case_parse(const char *text, struct collective_case *ret);
/* Runs it, and ends the process where anything is wrong: a wrong element, different bits on two
 * ranks, a guard or an input that was written to. */
void case_run(struct rig *rig, const struct collective_case *c);
