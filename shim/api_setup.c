/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making and ending communicators.
 */
#include "channels/bootstrap.h"
#include "shim/context.h"
#include "shim/dispatch.h"
#include "shim/group.h"
#include "shim/handle.h"
#include "shim/nccl_api.h"
#include "shim/result.h"
#include "shim/setup.h"
#include "strait/gpu.h"
#include "strait/params.h"
#include "strait/status.h"

/* NCCL names all of them so. */
static const char INIT_RANK[] = "CommInitRank";

static int null_argument(const char *function, const char *argument)
{
	return strait_fail(STRAIT_ERROR_ARGUMENT, "%s : %s argument is NULL", function, argument);
}

static int result_of(int status)
{
	return status > 0 ? STRAIT_NCCL_IN_PROGRESS : strait_result(status);
}

int pncclGetUniqueId(struct strait_nccl_id *id)
{
	if (!id)
		return strait_result(null_argument("GetUniqueId", "out"));
	return strait_result(strait_trace(strait_bootstrap_id_create(id->bytes)));
}
NCCL_ALIAS(GetUniqueId);

static int init(struct ncclComm **user, const struct strait_setup_request *request)
{
	struct ncclComm *comm;
	int r;

	if (!user)
		return null_argument(INIT_RANK, "newcomm");
	if (request->n_ranks < 1 || request->rank < 0 || request->rank >= request->n_ranks)
		return strait_fail(STRAIT_ERROR_ARGUMENT, "Invalid rank requested : %d/%d",
				   request->rank, request->n_ranks);
	if (request->n_ranks > 1) {
		r = strait_bootstrap_id_check(request->id);
		if (r < 0)
			return strait_trace(r);
	}
	r = strait_setup_prepare(request, &comm);
	if (r < 0)
		return strait_trace(r);
	r = strait_group_join(comm);
	if (r < 0) {
		strait_handle_leave_call(comm, r, true);
		return strait_trace(r);
	}
	/* Before the set-up: another thread may abort it, and in a group the caller has the handle
	 * at once. */
	__atomic_store_n(user, comm, __ATOMIC_RELEASE);
	r = strait_group_setup(comm, user);
	return r < 0 ? strait_trace(r) : r;
}

/* NCCL leaves a missing driver out of the group's error, and takes the rest in. */
static int init_noted(struct ncclComm **user, const struct strait_setup_request *request)
{
	int r = strait_context_load();

	return r < 0 ? strait_trace(r) : strait_group_note(init(user, request));
}

int pncclCommInitRank(struct ncclComm **comm, int n_ranks, struct strait_nccl_id id, int rank)
{
	const struct strait_setup_request request = {
		.n_ranks = n_ranks, .rank = rank, .id = id.bytes, .ordinal = -1};

	return result_of(init_noted(comm, &request));
}
NCCL_ALIAS(CommInitRank);

int pncclCommInitRankConfig(struct ncclComm **comm, int n_ranks, struct strait_nccl_id id, int rank,
			    void *config)
{
	const struct strait_setup_request request = {
		.n_ranks = n_ranks, .rank = rank, .id = id.bytes, .config = config, .ordinal = -1};

	return result_of(init_noted(comm, &request));
}
NCCL_ALIAS(CommInitRankConfig);

/* Every rank passes the same list, so the first id serves all. */
int pncclCommInitRankScalable(struct ncclComm **comm, int n_ranks, int rank, int n_ids,
			      struct strait_nccl_id *ids, void *config)
{
	const struct strait_setup_request request = {.n_ranks = n_ranks,
						     .rank = rank,
						     .id = ids ? ids->bytes : NULL,
						     .config = config,
						     .ordinal = -1};
	int r = strait_context_load();

	if (r < 0)
		return strait_result(strait_trace(r));
	if (n_ids <= 0 || n_ids > n_ranks)
		r = strait_fail(STRAIT_ERROR_ARGUMENT,
				"improper usage of ncclCommInitRank: nId = %d, nranks=%d", n_ids,
				n_ranks);
	else if (!ids)
		r = null_argument(INIT_RANK, "commIds");
	else
		r = init(comm, &request);
	return result_of(strait_group_note(r));
}
NCCL_ALIAS(CommInitRankScalable);

static int check_devices(int n_devices, const int *devices)
{
	int n_present = 0;
	int r = STRAIT_GPU(cuDeviceGetCount, &n_present);

	if (r < 0)
		return r;
	if (!devices && n_devices > n_present && !strait_params()->multi_rank_gpu)
		return strait_fail(STRAIT_ERROR_ARGUMENT, "Invalid device %d (totalnDev=%d)",
				   n_present, n_present);
	for (int i = 0; devices && i < n_devices; i++) {
		if (devices[i] < 0 || devices[i] >= n_present)
			return strait_fail(STRAIT_ERROR_ARGUMENT,
					   "Invalid device %d (totalnDev=%d)", devices[i],
					   n_present);
		for (int j = 0; j < i && !strait_params()->multi_rank_gpu; j++)
			if (devices[j] == devices[i])
				return strait_fail(STRAIT_ERROR_USAGE,
						   "Duplicate GPU detected : rank %d and rank %d "
						   "both on device %d",
						   j, i, devices[i]);
	}
	return 0;
}

static int init_all(struct ncclComm **comms, int n_devices, const int *devices)
{
	struct strait_nccl_id id = {0};
	int n_present = 1;
	int r, end;

	if (!comms)
		return null_argument("CommInitAll", "comms");
	if (n_devices < 0)
		return strait_fail(STRAIT_ERROR_ARGUMENT, "Invalid device count requested : %d",
				   n_devices);
	r = check_devices(n_devices, devices);
	if (r == 0 && n_devices > 1)
		r = strait_bootstrap_id_create(id.bytes);
	if (r == 0)
		r = STRAIT_GPU(cuDeviceGetCount, &n_present);
	if (r < 0)
		return strait_trace(r);
	strait_group_start();
	for (int i = 0; r >= 0 && i < n_devices; i++) {
		const struct strait_setup_request request = {.n_ranks = n_devices,
							     .rank = i,
							     .id = id.bytes,
							     .ordinal = devices ? devices[i]
										: i % n_present};

		r = strait_group_note(init(&comms[i], &request));
	}
	end = strait_group_end();
	return r < 0 ? strait_trace(r) : end;
}

int pncclCommInitAll(struct ncclComm **comms, int n_devices, const int *devices)
{
	int r = strait_context_load();

	if (r < 0)
		return strait_result(strait_trace(r));
	return result_of(strait_group_note(init_all(comms, n_devices, devices)));
}
NCCL_ALIAS(CommInitAll);

int pncclCommFinalize(struct ncclComm *comm)
{
	int r;

	if (!comm)
		return STRAIT_NCCL_SUCCESS;
	r = strait_handle_check_ready(comm, "CommFinalize");
	if (r < 0)
		return strait_result(strait_trace(r));
	if (comm->finalized)
		return strait_result(strait_fail(STRAIT_ERROR_ARGUMENT,
						 "CommFinalize : called a second time on comm %p",
						 (void *)comm));
	/* Nothing is left to flush: calls are on their streams, and Destroy waits for them without
	 * the peers. */
	comm->finalized = true;
	return STRAIT_NCCL_SUCCESS;
}
NCCL_ALIAS(CommFinalize);

static int end(struct ncclComm *comm, bool abort)
{
	if (abort || atomic_load(&comm->aborted))
		strait_group_forget(comm);
	if (!strait_handle_claim(comm, abort))
		return 0; /* another thread is ending it */
	strait_handle_free(comm);
	return 0;
}

int pncclCommDestroy(struct ncclComm *comm)
{
	int r;

	if (!comm)
		return STRAIT_NCCL_SUCCESS;
	r = strait_handle_check(comm, "CommDestroy", "comm");
	/* A failed set-up may be destroyed, one that runs only aborted. */
	if (r == 0 &&
	    atomic_load_explicit(&comm->state, memory_order_acquire) == STRAIT_NCCL_IN_PROGRESS)
		r = strait_handle_check_ready(comm, "CommDestroy");
	if (r == 0)
		r = end(comm, false);
	return strait_result(strait_trace(r));
}
NCCL_ALIAS(CommDestroy);

int pncclCommAbort(struct ncclComm *comm)
{
	int r;

	if (!comm)
		return STRAIT_NCCL_SUCCESS;
	r = strait_handle_check(comm, "CommAbort", "comm");
	if (r == 0)
		r = end(comm, true);
	return strait_result(strait_trace(r));
}
NCCL_ALIAS(CommAbort);

int pncclCommRevoke(struct ncclComm *comm, int flags)
{
	int r;

	if (!comm)
		return STRAIT_NCCL_SUCCESS;
	r = strait_handle_check_ready(comm, "CommRevoke");
	if (r < 0)
		return strait_result(strait_trace(r));
	if (flags != 0)
		r = strait_fail(STRAIT_ERROR_ARGUMENT, "CommRevoke : flags %d are not supported",
				flags);
	else if (comm->finalized || atomic_exchange(&comm->revoked, true))
		r = strait_fail(STRAIT_ERROR_ARGUMENT,
				"CommRevoke : comm %p is revoked or finalized", (void *)comm);
	else
		strait_handle_revoke(comm);
	return strait_result(strait_trace(r));
}
NCCL_ALIAS(CommRevoke);

int pncclCommSplit(struct ncclComm *comm, int color, int key, struct ncclComm **new_comm,
		   void *config)
{
	int r = strait_context_load();

	if (r == 0)
		r = strait_handle_check_ready(comm, "CommSplit");
	if (r == 0)
		r = strait_dispatch_unsupported("ncclCommSplit");
	return strait_result(strait_trace(r));
}
NCCL_ALIAS(CommSplit);

int pncclCommShrink(struct ncclComm *comm, int *excluded, int n_excluded,
		    struct ncclComm **new_comm, void *config, int flags)
{
	int r = strait_context_load();

	if (r == 0)
		r = strait_handle_check_ready(comm, "CommShrink");
	if (r == 0)
		r = strait_dispatch_unsupported("ncclCommShrink");
	return strait_result(strait_trace(r));
}
NCCL_ALIAS(CommShrink);
