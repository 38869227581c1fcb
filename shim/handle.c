/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life of the communicator handle: see handle.h for who frees and why memory is never given back.
 */
#include "shim/handle.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "shim/context.h"
#include "shim/result.h"
#include "strait/gpu.h"
#include "strait/status.h"

static const uint64_t MAGIC_START = 0x7472616974636f6d, MAGIC_END = 0x6d6f637469617274;
static const uint64_t MAGIC_FREED = 0x6465657266746961;

/* So many freed handles stay out of use, so that a stale one is found out for a while. */
enum { KEPT_FREE = 64 };

/* Freed handles, oldest first. */
static int n_free;
static pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *oldest_free, *newest_free;

static struct ncclComm *take_free(void)
{
	struct ncclComm *comm = NULL;

	pthread_mutex_lock(&free_lock);
	if (n_free > KEPT_FREE) {
		comm = oldest_free;
		oldest_free = comm->next_free;
		n_free--;
	}
	pthread_mutex_unlock(&free_lock);
	return comm;
}

static void give_free(struct ncclComm *comm)
{
	comm->next_free = NULL;
	pthread_mutex_lock(&free_lock);
	if (newest_free)
		newest_free->next_free = comm;
	else
		oldest_free = comm;
	newest_free = comm;
	n_free++;
	pthread_mutex_unlock(&free_lock);
}

int strait_handle_new(struct ncclComm **ret_comm)
{
	struct ncclComm *comm = take_free();

	if (!comm) {
		comm = calloc(1, sizeof(*comm));
		if (!comm)
			return strait_fail(STRAIT_ERROR_SYSTEM, "out of memory for a communicator");
		pthread_mutex_init(&comm->lock, NULL);
		pthread_cond_init(&comm->changed, NULL);
	}
	/* The mutex and the condition stay as they are: a thread with a stale handle may still use
	 * them. */
	pthread_mutex_lock(&comm->lock);
	comm->generation++;
	comm->in_call = true;
	comm->claimed = comm->finalized = comm->background = comm->primary_retained = false;
	pthread_mutex_unlock(&comm->lock);
	atomic_store_explicit(&comm->aborted, false, memory_order_relaxed);
	atomic_store_explicit(&comm->revoked, false, memory_order_relaxed);
	atomic_store_explicit(&comm->loss_told, false, memory_order_relaxed);
	atomic_store_explicit(&comm->cancel, 0, memory_order_relaxed);
	atomic_store_explicit(&comm->native, NULL, memory_order_relaxed);
	atomic_store_explicit(&comm->state, STRAIT_NCCL_IN_PROGRESS, memory_order_relaxed);
	comm->context = NULL;
	comm->join = NULL;
	strait_operators_init(&comm->operators);
	memset(&comm->config, 0, sizeof(comm->config));
	atomic_store_explicit(&comm->magic_end, MAGIC_END, memory_order_relaxed);
	/* pairs with the acquire in strait_handle_check() */
	atomic_store_explicit(&comm->magic_start, MAGIC_START, memory_order_release);
	*ret_comm = comm;
	return 0;
}

int strait_handle_check(const struct ncclComm *comm, const char *function, const char *argument)
{
	uint64_t start;

	if (!comm)
		return strait_fail(STRAIT_ERROR_ARGUMENT, "%s : %s argument is NULL", function,
				   argument);
	/* pairs with the releases in strait_handle_new() and strait_handle_free() */
	start = atomic_load_explicit(&comm->magic_start, memory_order_acquire);
	if (start == MAGIC_START &&
	    atomic_load_explicit(&comm->magic_end, memory_order_relaxed) == MAGIC_END)
		return 0;
	if (start == MAGIC_FREED)
		return strait_fail(STRAIT_ERROR_ARGUMENT, "comm %p has already been destroyed",
				   (const void *)comm);
	return strait_fail(STRAIT_ERROR_ARGUMENT, "Error: corrupted comm object detected");
}

int strait_handle_check_ready(const struct ncclComm *comm, const char *function)
{
	int state;
	int r = strait_handle_check(comm, function, "comm");

	if (r)
		return strait_trace(r);
	/* pairs with the release in strait_init_run() */
	state = atomic_load_explicit(&comm->state, memory_order_acquire);
	if (state == STRAIT_NCCL_IN_PROGRESS)
		return strait_fail(STRAIT_ERROR_ARGUMENT,
				   "Attempt to use communicator before the previous operation "
				   "returned ncclSuccess");
	if (state)
		return strait_fail(-state, "%s: the communicator's set-up failed", function);
	if (atomic_load_explicit(&comm->aborted, memory_order_relaxed))
		return strait_fail(STRAIT_ERROR_USAGE, "Comm %p is in abort state",
				   (const void *)comm);
	return 0;
}

int strait_handle_lock(struct ncclComm *comm, uint64_t generation)
{
	pthread_mutex_lock(&comm->lock);
	if (comm->generation == generation && !comm->claimed &&
	    atomic_load_explicit(&comm->native, memory_order_relaxed))
		return 0;
	pthread_mutex_unlock(&comm->lock);
	return strait_fail(STRAIT_ERROR_USAGE, "the communicator of a queued call was destroyed");
}

int strait_handle_state(struct ncclComm *comm)
{
	struct strait_communicator *native;
	/* pairs with the release in strait_init_run() */
	int state = atomic_load_explicit(&comm->state, memory_order_acquire);

	if (state)
		return state;
	/* Sequentially consistent with the exchange in strait_handle_free(): either it sees this
	 * reader, or this reader sees NULL. */
	atomic_fetch_add(&comm->n_readers, 1);
	native = atomic_load(&comm->native);
	if (native)
		state = strait_result(strait_communicator_error(native));
	atomic_fetch_sub(&comm->n_readers, 1);
	/* Whoever polls asks for the last error next. */
	if (state && !atomic_exchange_explicit(&comm->loss_told, true, memory_order_relaxed))
		strait_fail(
			-state,
			"communicator %p, rank %d of %d: a peer is lost; abort the communicator",
			(void *)comm, comm->rank, comm->n_ranks);
	return state;
}

bool strait_handle_leave_call(struct ncclComm *comm, int status, bool free_on_failure)
{
	bool free_it;

	pthread_mutex_lock(&comm->lock);
	free_it = status < 0 && free_on_failure && !comm->claimed;
	if (free_it)
		comm->claimed = true;
	comm->in_call = false;
	pthread_cond_broadcast(&comm->changed);
	pthread_mutex_unlock(&comm->lock);
	if (free_it)
		strait_handle_free(comm);
	return free_it;
}

void strait_handle_revoke(struct ncclComm *comm)
{
	struct strait_communicator *native;

	/* As in strait_handle_state(). Without the lock: a thread that holds it may be stuck in a
	 * launch behind the very kernels that this frees. */
	atomic_fetch_add(&comm->n_readers, 1);
	native = atomic_load(&comm->native);
	if (native)
		strait_communicator_abort(native);
	atomic_fetch_sub(&comm->n_readers, 1);
}

static void abort_native(struct ncclComm *comm)
{
	atomic_store_explicit(&comm->aborted, true, memory_order_relaxed);
	atomic_store_explicit(&comm->cancel, 1, memory_order_relaxed);
	strait_handle_revoke(comm);
}

bool strait_handle_claim(struct ncclComm *comm, bool abort)
{
	bool ours;

	if (abort)
		abort_native(comm);
	pthread_mutex_lock(&comm->lock);
	ours = !comm->claimed &&
	       atomic_load_explicit(&comm->magic_start, memory_order_relaxed) == MAGIC_START;
	if (ours) {
		comm->claimed = true;
		/* No limit: the set-up looks at `cancel` wherever it waits, and Destroy is refused
		 * while it runs. */
		while (comm->in_call)
			pthread_cond_wait(&comm->changed, &comm->lock);
	}
	pthread_mutex_unlock(&comm->lock);
	if (ours && abort)
		abort_native(comm); /* a set-up that was just finished */
	return ours;
}

/* Where the context or the driver has gone already, only the connections to the peers are closed.
 */
static void free_native(struct ncclComm *comm, struct strait_communicator *native)
{
	struct strait_context saved;

	if (!comm->context || strait_context_enter(comm->context, &saved) < 0) {
		strait_communicator_free(native);
		return;
	}
	strait_communicator_free(native);
	if (comm->join)
		strait_gpu->cuEventDestroy(comm->join);
	strait_context_leave(&saved);
	if (comm->primary_retained)
		strait_gpu->cuDevicePrimaryCtxRelease(comm->device);
}

void strait_handle_free(struct ncclComm *comm)
{
	struct strait_communicator *native;

	if (comm->background)
		pthread_join(comm->setup, NULL);
	/* Under the lock, so that a call that is being put on a stream ends first and later ones
	 * see the magic. */
	pthread_mutex_lock(&comm->lock);
	/* pairs with the acquire in strait_handle_check() */
	atomic_store_explicit(&comm->magic_start, MAGIC_FREED, memory_order_release);
	atomic_store_explicit(&comm->magic_end, 0, memory_order_relaxed);
	native = atomic_exchange(&comm->native, NULL);
	pthread_mutex_unlock(&comm->lock);
	/* Bounded: a reader is between two of its own instructions. */
	while (atomic_load(&comm->n_readers))
		sched_yield();

	free_native(comm, native);
	strait_operators_deinit(&comm->operators);
	strait_config_deinit(&comm->config);
	give_free(comm);
}
