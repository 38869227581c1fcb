/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reduction operators made by the user.
 */
#include "shim/handle.h"
#include "shim/nccl_api.h"
#include "shim/result.h"
#include "strait/status.h"

#include <string.h>

static int create(int *op, const void *scalar, int type, int residence, struct ncclComm *comm)
{
	static const char name[] = "ncclRedOpCreatePreMulSum";
	struct strait_reduction reduction = {.kind = STRAIT_PREMULSUM};
	int r = strait_handle_check(comm, name, "comm");

	if (r == 0)
		r = strait_handle_check_ready(comm, name);
	if (r < 0)
		return strait_trace(r);
	if (!op || !scalar)
		return strait_fail(STRAIT_ERROR_ARGUMENT, "%s : %s argument is NULL", name,
				   op ? "scalar" : "op");
	if (type < 0 || type >= STRAIT_N_TYPES)
		return strait_fail(STRAIT_ERROR_ARGUMENT, "%s : invalid type %d", name, type);
	if (residence == STRAIT_NCCL_SCALAR_HOST)
		memcpy(&reduction.scalar_bits, scalar, strait_type_bytes((enum strait_type)type));
	else if (residence == STRAIT_NCCL_SCALAR_DEVICE)
		reduction.scalar_device = scalar;
	else
		return strait_fail(STRAIT_ERROR_ARGUMENT, "%s : invalid residence %d", name,
				   residence);
	return strait_trace(
		strait_operators_add(&comm->operators, (enum strait_type)type, &reduction, op));
}

int pncclRedOpCreatePreMulSum(int *op, void *scalar, int type, int residence, struct ncclComm *comm)
{
	return strait_result(create(op, scalar, type, residence, comm));
}
NCCL_ALIAS(RedOpCreatePreMulSum);

static int destroy(int op, struct ncclComm *comm)
{
	int r;

	if (op >= 0 && op < STRAIT_NCCL_N_OPS)
		return strait_fail(STRAIT_ERROR_ARGUMENT,
				   "ncclRedOpDestroy : operator is a NCCL builtin.");
	if (op < 0)
		return strait_fail(STRAIT_ERROR_ARGUMENT,
				   "ncclRedOpDestroy :  operator is garbage.");
	if (!comm)
		return strait_fail(STRAIT_ERROR_ARGUMENT,
				   "ncclRedOpDestroy : invalid communicator passed.");
	r = strait_handle_check(comm, "ncclRedOpDestroy", "comm");
	if (r < 0)
		return strait_trace(r);
	if (!strait_operators_remove(&comm->operators, op))
		return strait_fail(STRAIT_ERROR_ARGUMENT,
				   "ncclRedOpDestroy : operator unknown to this communicator.");
	return 0;
}

int pncclRedOpDestroy(int op, struct ncclComm *comm)
{
	return strait_result(destroy(op, comm));
}
NCCL_ALIAS(RedOpDestroy);
