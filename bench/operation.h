/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations that can be measured, one row each: how sizes, buffers and bus bandwidth follow
 * from the bytes that a line of the table names, and how the call is made.
 */
#pragma once
#include "bench/library.h"
#include <stddef.h>

struct bench_call {
	const void *send;
	void *recv;
	size_t count;
	ncclDataType_t type;
	ncclRedOp_t reduction;
	int root;
	ncclComm_t communicator;
	cudaStream_t stream;
};

struct bench_operation {
	const char *name;
	bool reduces, rooted;
	double (*bus_factor)(int n_ranks); /* bus bandwidth / algorithm bandwidth */
	ncclResult_t (*run)(const struct bench_library *library, const struct bench_call *call);
};

/* NULL: no such operation. */
const struct bench_operation *bench_operation_find(const char *name);
/* The n-th row, NULL after the last. */
const struct bench_operation *bench_operation_at(int n);
