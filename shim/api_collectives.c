/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives and point to point: NCCL's checks in NCCL's order, then a request for the group.
 *
 * Refused is only what NCCL refuses: any alignment, any memory and NULL buffers pass (they are NULL
 * legally where a rank does not use them).
 */
#include "shim/context.h"
#include "shim/dispatch.h"
#include "shim/group.h"
#include "shim/handle.h"
#include "shim/nccl_api.h"
#include "shim/result.h"
#include "strait/gpu.h"
#include "strait/params.h"
#include "strait/status.h"

struct call {
	enum strait_operation operation;
	const void *send;
	void *recv;
	size_t count;
	int type, op, root;
	struct ncclComm *comm;
	CUstream stream;
};

static bool reduces(const struct call *call)
{
	return call->operation == STRAIT_OPERATION_ALLREDUCE ||
	       call->operation == STRAIT_OPERATION_REDUCE ||
	       call->operation == STRAIT_OPERATION_REDUCE_SCATTER;
}

static int check_pointer(const struct call *call, const void *pointer, const char *argument)
{
	CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
				       CU_POINTER_ATTRIBUTE_IS_MANAGED};
	unsigned memory = 0, managed = 0;
	int device = -1;
	void *values[] = {&memory, &device, &managed};
	CUresult result =
		strait_gpu->cuPointerGetAttributes(3, names, values, (CUdeviceptr)pointer);

	if (result || !memory)
		return strait_fail(STRAIT_ERROR_ARGUMENT, "%s : %s %p is not a valid pointer",
				   strait_operation_name(call->operation), argument, pointer);
	if (memory == CU_MEMORYTYPE_DEVICE && !managed && device != call->comm->ordinal)
		return strait_fail(STRAIT_ERROR_ARGUMENT,
				   "%s : %s allocated on device %d mismatchs with NCCL device %d",
				   strait_operation_name(call->operation), argument, device,
				   call->comm->ordinal);
	return 0;
}

static int check_pointers(const struct call *call)
{
	const struct ncclComm *comm = call->comm;
	bool uses_send = call->operation != STRAIT_OPERATION_RECV;
	bool uses_recv = call->operation != STRAIT_OPERATION_SEND;
	struct strait_context saved;
	int r;

	if (call->operation == STRAIT_OPERATION_BROADCAST ||
	    call->operation == STRAIT_OPERATION_SCATTER)
		uses_send = comm->rank == call->root;
	if (call->operation == STRAIT_OPERATION_REDUCE ||
	    call->operation == STRAIT_OPERATION_GATHER)
		uses_recv = comm->rank == call->root;
	if (call->count == 0 && uses_send != uses_recv)
		return 0; /* Send and Recv of nothing */
	r = strait_context_enter(comm->context, &saved);
	if (r < 0)
		return strait_trace(r);
	if (uses_send)
		r = check_pointer(call, call->send, "sendbuff");
	if (r == 0 && uses_recv)
		r = check_pointer(call, call->recv, "recvbuff");
	strait_context_leave(&saved);
	return strait_trace(r);
}

static int check_values(const struct call *call)
{
	const char *name = strait_operation_name(call->operation);
	const struct ncclComm *comm = call->comm;

	if (call->root < 0 || call->root >= comm->n_ranks)
		return strait_fail(STRAIT_ERROR_ARGUMENT,
				   "%s : invalid root %d (root should be in the 0..%d range)", name,
				   call->root, comm->n_ranks);
	if (call->type < 0 || call->type >= STRAIT_N_TYPES)
		return strait_fail(STRAIT_ERROR_ARGUMENT, "%s : invalid type %d", name, call->type);
	if (call->op < 0 ||
	    (call->op >= STRAIT_NCCL_N_OPS && !strait_operators_find(&comm->operators, call->op)))
		return strait_fail(STRAIT_ERROR_ARGUMENT, "%s : invalid reduction operation %d",
				   name, call->op);
	/* NCCL does not look and faults in the kernel. */
	if (call->count > SIZE_MAX / strait_type_bytes((enum strait_type)call->type))
		return strait_fail(STRAIT_ERROR_ARGUMENT, "%s : invalid count %zu", name,
				   call->count);
	if (strait_params()->check_pointers)
		return strait_trace(check_pointers(call));
	return 0;
}

static int check_communicator(const struct call *call)
{
	const char *name = strait_operation_name(call->operation);
	const struct ncclComm *comm = call->comm;
	int r = strait_handle_check(comm, name, "comm");

	if (r < 0)
		return strait_trace(r);
	if (atomic_load_explicit(&comm->revoked, memory_order_relaxed))
		return strait_fail(STRAIT_ERROR_USAGE, "%s: communicator was revoked", name);
	r = strait_handle_check_ready(comm, name);
	if (r < 0)
		return strait_trace(r);
	if (comm->finalized)
		return strait_fail(STRAIT_ERROR_USAGE, "%s: communicator was finalized", name);
	return strait_trace(strait_group_join(comm));
}

static int copy_reduction(const struct call *call, struct strait_reduction *ret_reduction)
{
	const struct strait_operator *op;

	if (call->op < STRAIT_NCCL_N_OPS) {
		*ret_reduction =
			(struct strait_reduction){.kind = (enum strait_reduction_kind)call->op};
		return 0;
	}
	op = strait_operators_find(&call->comm->operators, call->op);
	if (op->type != (enum strait_type)call->type)
		return strait_fail(STRAIT_ERROR_ARGUMENT,
				   "Data type supplied to user-created ncclRedOp_t does not "
				   "match type given to reduction operation");
	*ret_reduction = op->reduction;
	return 0;
}

static int run(const struct call *call)
{
	struct strait_request request;
	enum strait_collective collective;
	struct strait_reduction reduction = {.kind = STRAIT_SUM};
	int r = check_communicator(call);

	if (r == 0)
		r = check_values(call);
	if (r < 0)
		return strait_trace(r);
	r = strait_dispatch_route(call->operation,
				  call->count * strait_type_bytes((enum strait_type)call->type),
				  &collective);
	if (r < 0 || call->count == 0)
		return strait_trace(r);
	if (reduces(call))
		r = copy_reduction(call, &reduction);
	if (r < 0)
		return strait_trace(r);
	request = (struct strait_request){
		.collective = collective,
		.type = (enum strait_type)call->type,
		.reduction = reduction,
		.send = call->send,
		.recv = call->recv,
		.count = call->count,
		.root = call->root,
		.stream = call->stream,
	};
	return strait_trace(strait_group_call(call->comm, &request));
}

static int run_noted(const struct call *call)
{
	return strait_result(strait_group_note(run(call)));
}

int pncclAllReduce(const void *send, void *recv, size_t count, int type, int op,
		   struct ncclComm *comm, CUstream stream)
{
	const struct call call = {
		STRAIT_OPERATION_ALLREDUCE, send, recv, count, type, op, 0, comm, stream};

	return run_noted(&call);
}
NCCL_ALIAS(AllReduce);

int pncclReduce(const void *send, void *recv, size_t count, int type, int op, int root,
		struct ncclComm *comm, CUstream stream)
{
	const struct call call = {
		STRAIT_OPERATION_REDUCE, send, recv, count, type, op, root, comm, stream};

	return run_noted(&call);
}
NCCL_ALIAS(Reduce);

int pncclBroadcast(const void *send, void *recv, size_t count, int type, int root,
		   struct ncclComm *comm, CUstream stream)
{
	const struct call call = {
		STRAIT_OPERATION_BROADCAST, send, recv, count, type, 0, root, comm, stream};

	return run_noted(&call);
}
NCCL_ALIAS(Broadcast);

/* NCCL's Bcast is its Broadcast and says so in its messages. */
int pncclBcast(void *buffer, size_t count, int type, int root, struct ncclComm *comm,
	       CUstream stream)
{
	const struct call call = {
		STRAIT_OPERATION_BROADCAST, buffer, buffer, count, type, 0, root, comm, stream};

	return run_noted(&call);
}
NCCL_ALIAS(Bcast);

int pncclReduceScatter(const void *send, void *recv, size_t recv_count, int type, int op,
		       struct ncclComm *comm, CUstream stream)
{
	const struct call call = {
		STRAIT_OPERATION_REDUCE_SCATTER, send, recv, recv_count, type, op, 0, comm, stream};

	return run_noted(&call);
}
NCCL_ALIAS(ReduceScatter);

int pncclAllGather(const void *send, void *recv, size_t send_count, int type, struct ncclComm *comm,
		   CUstream stream)
{
	const struct call call = {
		STRAIT_OPERATION_ALLGATHER, send, recv, send_count, type, 0, 0, comm, stream};

	return run_noted(&call);
}
NCCL_ALIAS(AllGather);

int pncclAlltoAll(const void *send, void *recv, size_t count, int type, struct ncclComm *comm,
		  CUstream stream)
{
	const struct call call = {
		STRAIT_OPERATION_ALLTOALL, send, recv, count, type, 0, 0, comm, stream};

	return run_noted(&call);
}
NCCL_ALIAS(AlltoAll);

int pncclGather(const void *send, void *recv, size_t count, int type, int root,
		struct ncclComm *comm, CUstream stream)
{
	const struct call call = {
		STRAIT_OPERATION_GATHER, send, recv, count, type, 0, root, comm, stream};

	return run_noted(&call);
}
NCCL_ALIAS(Gather);

int pncclScatter(const void *send, void *recv, size_t count, int type, int root,
		 struct ncclComm *comm, CUstream stream)
{
	const struct call call = {
		STRAIT_OPERATION_SCATTER, send, recv, count, type, 0, root, comm, stream};

	return run_noted(&call);
}
NCCL_ALIAS(Scatter);

int pncclSend(const void *send, size_t count, int type, int peer, struct ncclComm *comm,
	      CUstream stream)
{
	const struct call call = {
		STRAIT_OPERATION_SEND, send, NULL, count, type, 0, peer, comm, stream};

	return run_noted(&call);
}
NCCL_ALIAS(Send);

int pncclRecv(void *recv, size_t count, int type, int peer, struct ncclComm *comm, CUstream stream)
{
	const struct call call = {
		STRAIT_OPERATION_RECV, NULL, recv, count, type, 0, peer, comm, stream};

	return run_noted(&call);
}
NCCL_ALIAS(Recv);
