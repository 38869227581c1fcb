/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a communicator says about itself.
 */
#include "shim/handle.h"
#include "shim/nccl_api.h"
#include "shim/result.h"
#include "strait/status.h"

static int query(const struct ncclComm *comm, const char *function, const char *argument,
		 const int *out)
{
	int r = strait_handle_check(comm, function, "comm");

	if (r == 0 && !out)
		r = strait_fail(STRAIT_ERROR_ARGUMENT, "%s : %s argument is NULL", function,
				argument);
	if (r == 0)
		r = strait_handle_check_ready(comm, function);
	return strait_trace(r);
}

int pncclCommCount(const struct ncclComm *comm, int *count)
{
	int r = query(comm, "CommCount", "count", count);

	if (r == 0)
		*count = comm->n_ranks;
	return strait_result(r);
}
NCCL_ALIAS(CommCount);

int pncclCommCuDevice(const struct ncclComm *comm, int *device)
{
	int r = query(comm, "CommCuDevice", "device", device);

	if (r == 0)
		*device = comm->ordinal;
	return strait_result(r);
}
NCCL_ALIAS(CommCuDevice);

int pncclCommUserRank(const struct ncclComm *comm, int *rank)
{
	int r = query(comm, "CommUserRank", "rank", rank);

	if (r == 0)
		*rank = comm->rank;
	return strait_result(r);
}
NCCL_ALIAS(CommUserRank);

int pncclCommGetAsyncError(struct ncclComm *comm, int *async_error)
{
	int r = strait_handle_check(comm, "ncclGetAsyncError", "comm");

	if (r == 0 && !async_error)
		r = strait_fail(STRAIT_ERROR_ARGUMENT,
				"ncclGetAsyncError : asyncError argument is NULL");
	if (r == 0)
		*async_error = strait_handle_state(comm);
	return strait_result(strait_trace(r));
}
NCCL_ALIAS(CommGetAsyncError);
