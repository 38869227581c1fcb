/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one place that says whether a call runs natively, and if not, why.
 */
#pragma once
#include "algorithms/request.h"
#include "shim/handle.h"

/* NCCL's collectives and point-to-point calls, also those that have no native path. */
enum strait_operation {
	STRAIT_OPERATION_ALLREDUCE,
	STRAIT_OPERATION_REDUCE,
	STRAIT_OPERATION_BROADCAST,
	STRAIT_OPERATION_REDUCE_SCATTER,
	STRAIT_OPERATION_ALLGATHER,
	STRAIT_OPERATION_ALLTOALL,
	STRAIT_OPERATION_GATHER,
	STRAIT_OPERATION_SCATTER,
	STRAIT_OPERATION_SEND,
	STRAIT_OPERATION_RECV,
	STRAIT_N_OPERATIONS
};

/* "AllReduce": as NCCL's messages name it. */
const char *strait_operation_name(enum strait_operation operation);

/* 0 and the collective below, or STRAIT_ERROR_USAGE, counted, with a message that says what is
 * native. */
int strait_dispatch_route(enum strait_operation operation, uint64_t bytes,
			  enum strait_collective *ret_collective);

/* Puts a call on its stream and counts its path. */
int strait_dispatch_issue(struct ncclComm *comm, uint64_t generation,
			  const struct strait_request *request);

/* The answer of a function without a native path: STRAIT_ERROR_USAGE and a message that names it.
 */
int strait_dispatch_unsupported(const char *function);
