/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which algorithm serves which sizes. A row holds for messages up to its size; where its algorithm
 * cannot run a call (the scratch is too small), the next rows are tried, so every collective ends
 * with one that runs any size.
 */
#include "algorithms/tuning.h"

#define K (1ull << 10)
#define M (1ull << 20)
#define ANY UINT64_MAX

const struct strait_tuning_row strait_tuning[] = {
	/* One rank sends nothing: a scaled sum of any size. */
	{STRAIT_ALLREDUCE, 1, 1, ANY, "allreduce_ll"},
	/* Not measured on several GPUs yet: from the count of exchanges and of bytes. Two ranks
	 * send the same bytes in one shot as in two. */
	{STRAIT_ALLREDUCE, 2, 2, 1 * M, "allreduce_ll"},
	{STRAIT_ALLREDUCE, 3, 4, 128 * K, "allreduce_ll"},
	{STRAIT_ALLREDUCE, 5, 16, 32 * K, "allreduce_ll"},
	{STRAIT_ALLREDUCE, 3, 16, 1 * M, "allreduce_ll_twoshot"},
	{STRAIT_ALLREDUCE, 2, 16, ANY, "allreduce_simple"},
	{0},
};
