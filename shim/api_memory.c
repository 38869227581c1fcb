/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocation and registration. Registration is a hint that standalone mode does not need: it
 * succeeds and gives the handle that NCCL gives where registration is switched off (NULL).
 */
#include "shim/allocation.h"
#include "shim/context.h"
#include "shim/handle.h"
#include "shim/nccl_api.h"
#include "shim/result.h"
#include "strait/status.h"

int pncclMemAlloc(void **pointer, size_t bytes)
{
	int r = strait_context_load();

	if (r == 0 && !pointer)
		r = strait_fail(STRAIT_ERROR_ARGUMENT, "MemAlloc : ptr argument is NULL");
	if (r == 0)
		r = strait_allocation_new(bytes, pointer);
	return strait_result(strait_trace(r));
}
NCCL_ALIAS(MemAlloc);

int pncclMemFree(void *pointer)
{
	int r = strait_context_load();

	if (r == 0)
		r = strait_allocation_free(pointer);
	return strait_result(strait_trace(r));
}
NCCL_ALIAS(MemFree);

int pncclCommRegister(const struct ncclComm *comm, void *buffer, size_t bytes, void **handle)
{
	int r = strait_handle_check(comm, "ncclCommRegister", "comm");

	if (r == 0 && handle)
		*handle = NULL;
	return strait_result(strait_trace(r));
}
NCCL_ALIAS(CommRegister);

/* NCCL's message names Register here too. */
int pncclCommDeregister(const struct ncclComm *comm, void *handle)
{
	int r = strait_handle_check(comm, "ncclCommRegister", "comm");

	if (r == 0 && handle)
		r = strait_fail(STRAIT_ERROR_USAGE, "Deregister: Could not find handle");
	return strait_result(strait_trace(r));
}
NCCL_ALIAS(CommDeregister);

int pncclCommWindowRegister(struct ncclComm *comm, void *buffer, size_t bytes, void **window,
			    int flags)
{
	int r = strait_context_load();

	if (r == 0)
		r = strait_handle_check(comm, "ncclCommWindowRegister", "comm");
	if (r == 0 && buffer && bytes && (uintptr_t)buffer % STRAIT_NCCL_WINDOW_ALIGNMENT)
		r = strait_fail(STRAIT_ERROR_ARGUMENT, "Window address must be suitably aligned.");
	if (r == 0 && buffer && bytes && window)
		*window = NULL;
	return strait_result(strait_trace(r));
}
NCCL_ALIAS(CommWindowRegister);

int pncclCommWindowDeregister(struct ncclComm *comm, void *window)
{
	int r;

	if (!window)
		return STRAIT_NCCL_SUCCESS;
	r = strait_handle_check(comm, "ncclCommWindowDeregister", "comm");
	if (r == 0)
		r = strait_fail(STRAIT_ERROR_USAGE, "Deregister: Could not find handle");
	return strait_result(strait_trace(r));
}
NCCL_ALIAS(CommWindowDeregister);
