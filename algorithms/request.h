/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One collective as the layers below shim/ see it: validated, with a reduction that carries its own
 * scalar. The numbers of collectives, types and reductions are NCCL's (ncclDataType_t,
 * ncclRedOp_t).
 */
#pragma once
#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

enum strait_collective { STRAIT_ALLREDUCE, STRAIT_N_COLLECTIVES };

enum strait_type {
	STRAIT_INT8,
	STRAIT_UINT8,
	STRAIT_INT32,
	STRAIT_UINT32,
	STRAIT_INT64,
	STRAIT_UINT64,
	STRAIT_FLOAT16,
	STRAIT_FLOAT32,
	STRAIT_FLOAT64,
	STRAIT_BFLOAT16,
	STRAIT_FLOAT8E4M3,
	STRAIT_FLOAT8E5M2,
	STRAIT_N_TYPES
};

enum strait_reduction_kind {
	STRAIT_SUM,
	STRAIT_PROD,
	STRAIT_MAX,
	STRAIT_MIN,
	STRAIT_AVG,
	STRAIT_PREMULSUM, /* own input times the scalar, rounded in the type, then a sum */
	STRAIT_N_REDUCTIONS
};

struct strait_reduction {
	enum strait_reduction_kind kind;
	/* PREMULSUM: the scalar in the data type, or, if not NULL, where the kernel reads it when
	 * it runs. */
	uint64_t scalar_bits;
	const void *scalar_device;
};

struct strait_request {
	enum strait_collective collective;
	enum strait_type type;
	struct strait_reduction reduction;
	const void *send; /* device memory, aligned to the element */
	void *recv;
	size_t count; /* elements */
	int root;
	CUstream stream;
};

/* Bytes of an element. `type` is in range. */
size_t strait_type_bytes(enum strait_type type);
