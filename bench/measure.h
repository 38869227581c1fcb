/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One point of the table on one member: the timed calls, eager or as a graph, and the checks.
 * Collective over all members.
 */
#pragma once
#include "bench/run.h"

/* results: one for each rank of the member. Advances point->k. */
void bench_point_measure(struct bench_member *member, struct bench_point *point,
			 struct bench_result *results);
