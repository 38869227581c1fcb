/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Native or not: standalone, a call that has no native path is refused with the reason. The table
 * below grows with the algorithms.
 */
#include "shim/dispatch.h"

#include "shim/report.h"
#include "strait/log.h"
#include "strait/status.h"

struct operation {
	const char *name, *function;
	int collective; /* enum strait_collective, or -1: no native path */
};

static const struct operation operations[STRAIT_N_OPERATIONS] = {
	[STRAIT_OPERATION_ALLREDUCE] = {"AllReduce", "ncclAllReduce", STRAIT_ALLREDUCE},
	[STRAIT_OPERATION_REDUCE] = {"Reduce", "ncclReduce", -1},
	[STRAIT_OPERATION_BROADCAST] = {"Broadcast", "ncclBroadcast", -1},
	[STRAIT_OPERATION_REDUCE_SCATTER] = {"ReduceScatter", "ncclReduceScatter", -1},
	[STRAIT_OPERATION_ALLGATHER] = {"AllGather", "ncclAllGather", -1},
	[STRAIT_OPERATION_ALLTOALL] = {"AlltoAll", "ncclAlltoAll", -1},
	[STRAIT_OPERATION_GATHER] = {"Gather", "ncclGather", -1},
	[STRAIT_OPERATION_SCATTER] = {"Scatter", "ncclScatter", -1},
	[STRAIT_OPERATION_SEND] = {"Send", "ncclSend", -1},
	[STRAIT_OPERATION_RECV] = {"Recv", "ncclRecv", -1},
};

static const char REFUSED[] = "refused: no native path, no real NCCL";
static const char NATIVE_NOW[] =
	"native are set-up, groups, ncclAllReduce, PreMulSum operators and ncclMemAlloc";

static enum strait_operation operation_of(enum strait_collective collective)
{
	for (int i = 0; i < STRAIT_N_OPERATIONS; i++)
		if (operations[i].collective == (int)collective)
			return (enum strait_operation)i;
	return STRAIT_N_OPERATIONS;
}

const char *strait_operation_name(enum strait_operation operation)
{
	return operations[operation].name;
}

/* Every refusal has its message; the log gets the first of each kind. */
static int refuse(const char *function, atomic_bool *warned)
{
	int r = strait_fail(
		STRAIT_ERROR_USAGE,
		"%s: Strait has no native path for it and no real NCCL to pass it to (%s)",
		function, NATIVE_NOW);

	if (!atomic_exchange_explicit(warned, true, memory_order_relaxed))
		strait_warn(COLL, "%s", strait_status_message());
	return r;
}

int strait_dispatch_route(enum strait_operation operation, uint64_t bytes,
			  enum strait_collective *ret_collective)
{
	static atomic_bool warned[STRAIT_N_OPERATIONS];
	const struct operation *row = &operations[operation];

	if (row->collective >= 0) {
		*ret_collective = (enum strait_collective)row->collective;
		return 0;
	}
	strait_report_count(row->name, bytes, REFUSED);
	return refuse(row->function, &warned[operation]);
}

int strait_dispatch_issue(struct ncclComm *comm, uint64_t generation,
			  const struct strait_request *request)
{
	struct strait_communicator *native;
	int r = strait_handle_lock(comm, generation);

	if (r < 0)
		return strait_trace(r);
	native = atomic_load_explicit(&comm->native, memory_order_relaxed);
	r = strait_communicator_issue(native, request);
	if (r == 0)
		strait_report_count(operations[operation_of(request->collective)].name,
				    request->count * strait_type_bytes(request->type),
				    strait_communicator_path(native, request));
	pthread_mutex_unlock(&comm->lock);
	return strait_trace(r);
}

int strait_dispatch_unsupported(const char *function)
{
	static atomic_bool warned;

	strait_report_count(function, 0, REFUSED);
	return refuse(function, &warned);
}
