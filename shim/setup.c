/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads around strait_communicator_new().
 */
#include "shim/setup.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "shim/context.h"
#include "shim/report.h"
#include "shim/result.h"
#include "strait/gpu.h"
#include "strait/status.h"

static int find_device(struct ncclComm *comm, int ordinal)
{
	int r;

	if (ordinal < 0)
		return strait_trace(strait_context_current(
			&comm->context, &comm->device, &comm->ordinal, &comm->primary_retained));
	r = strait_context_primary(ordinal, &comm->context, &comm->device);
	if (r == 0) {
		comm->ordinal = ordinal;
		comm->primary_retained = true;
	}
	return strait_trace(r);
}

int strait_setup_prepare(const struct strait_setup_request *request, struct ncclComm **ret_comm)
{
	struct ncclComm *comm;
	int r = strait_handle_new(&comm);

	if (r < 0)
		return strait_trace(r);
	comm->rank = request->rank;
	comm->n_ranks = request->n_ranks;
	memcpy(comm->id, request->id, sizeof(comm->id));
	r = strait_config_parse(request->config, &comm->config);
	if (r == 0)
		r = find_device(comm, request->ordinal);
	if (r < 0) {
		strait_handle_leave_call(comm, r, true);
		return strait_trace(r);
	}
	*ret_comm = comm;
	return 0;
}

/* The set-up itself, on any thread. Leaves the result in the handle's state. */
static int run(struct ncclComm *comm)
{
	const struct strait_communicator_config config = {
		.rank = comm->rank,
		.n_ranks = comm->n_ranks,
		.id = comm->id,
		.device = comm->device,
		.context = comm->context,
		.max_blocks = comm->config.max_blocks,
		.name = comm->config.name,
		.cancel = &comm->cancel,
	};
	struct strait_communicator *native = NULL;
	struct strait_context saved;
	int r = strait_context_enter(comm->context, &saved);

	if (r == 0) {
		r = strait_communicator_new(&config, &native);
		if (r == 0 && atomic_load_explicit(&comm->cancel, memory_order_relaxed)) {
			native = strait_communicator_free(native);
			r = strait_fail(STRAIT_ERROR_USAGE,
					"the communicator was aborted during its set-up");
		}
		strait_context_leave(&saved);
	}
	if (r > 0)
		r = strait_fail(STRAIT_ERROR_INTERNAL, "the set-up of a communicator gave %d", r);
	if (r == 0) {
		atomic_store(&comm->native, native);
		strait_report_start();
	}
	/* release: pairs with the acquire in strait_handle_check_ready() and strait_handle_state()
	 */
	atomic_store_explicit(&comm->state, strait_result(r), memory_order_release);
	return strait_trace(r);
}

/* Atomically, since another thread may be looking for a handle to abort. */
static void forget(struct ncclComm *comm, struct ncclComm **user)
{
	/* That thread may have put another one there. */
	__atomic_compare_exchange_n(user, &comm, NULL, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static void *run_in_background(void *argument)
{
	struct ncclComm *comm = argument;

	/* The user polls the state and aborts or destroys what failed. */
	strait_handle_leave_call(comm, run(comm), false);
	return NULL;
}

/* The blocking set-ups of one group. */
struct strait_setup_batch {
	struct strait_setup_pending *pending;
	int n_pending;
	atomic_int status;  /* of the first one that failed */
	char message[1024]; /* and its message: those that are given up write later ones */
};

static void cancel_all(struct strait_setup_pending *pending, int n_pending)
{
	for (int i = 0; i < n_pending; i++)
		atomic_store_explicit(&pending[i].comm->cancel, 1, memory_order_relaxed);
}

/* Others may be waiting for the one that failed, and no network can tell them. */
static void give_up(struct strait_setup_batch *batch, int status)
{
	int none = 0;

	if (!atomic_compare_exchange_strong(&batch->status, &none, status))
		return;
	snprintf(batch->message, sizeof(batch->message), "%s", strait_status_message());
	cancel_all(batch->pending, batch->n_pending);
}

static void *run_pending(void *argument)
{
	struct strait_setup_pending *pending = argument;
	int r = run(pending->comm);

	if (r < 0)
		give_up(pending->batch, r);
	return NULL;
}

/* Signals stay with the application's own threads. */
static int start_thread(pthread_t *ret_thread, void *(*function)(void *), void *argument)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(ret_thread, NULL, function, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		return strait_fail(STRAIT_ERROR_SYSTEM,
				   "no thread for the set-up of a communicator: %s",
				   strerror(error));
	return 0;
}

static int start_background(struct ncclComm *comm, struct ncclComm **user)
{
	int r;

	comm->background = true;
	r = start_thread(&comm->setup, run_in_background, comm);
	if (r < 0) {
		comm->background = false;
		forget(comm, user);
		strait_handle_leave_call(comm, r, true);
	}
	return strait_trace(r);
}

int strait_setup_start(struct ncclComm *comm, struct ncclComm **user)
{
	int r;

	if (!comm->config.blocking)
		return strait_trace(start_background(comm, user));
	r = run(comm);
	if (r < 0)
		forget(comm, user);
	strait_handle_leave_call(comm, r, true);
	return strait_trace(r);
}

static int start_all_background(struct strait_setup_pending *pending, int n_pending)
{
	int status = 0;

	for (int i = 0; i < n_pending; i++) {
		int r = 0;

		if (status == 0)
			r = start_background(pending[i].comm, pending[i].user);
		else
			strait_setup_drop(&pending[i]);
		if (r < 0) {
			cancel_all(pending, i);
			status = r;
		}
	}
	return strait_trace(status);
}

/* One thread each; returns when all have ended. */
static int run_batch(struct strait_setup_batch *batch)
{
	int status;

	for (int i = 0; i < batch->n_pending; i++) {
		struct strait_setup_pending *pending = &batch->pending[i];
		int r;

		pending->batch = batch;
		r = start_thread(&pending->thread, run_pending, pending);
		pending->started = r == 0;
		if (r < 0) {
			give_up(batch, r);
			break;
		}
	}
	for (int i = 0; i < batch->n_pending; i++)
		if (batch->pending[i].started)
			pthread_join(batch->pending[i].thread, NULL);
	status = atomic_load(&batch->status);
	return status ? strait_fail(status, "%s", batch->message) : 0;
}

int strait_setup_start_all(struct strait_setup_pending *pending, int n_pending)
{
	struct strait_setup_batch batch = {.pending = pending, .n_pending = n_pending};
	int r;

	if (n_pending == 0)
		return 0;
	if (n_pending == 1)
		return strait_trace(strait_setup_start(pending[0].comm, pending[0].user));
	if (!pending[0].comm->config.blocking) /* a group does not mix the two */
		return strait_trace(start_all_background(pending, n_pending));

	r = run_batch(&batch);
	for (int i = 0; i < n_pending; i++) {
		if (r < 0)
			forget(pending[i].comm, pending[i].user);
		strait_handle_leave_call(pending[i].comm, r, true);
	}
	return strait_trace(r);
}

void strait_setup_drop(struct strait_setup_pending *pending)
{
	forget(pending->comm, pending->user);
	strait_handle_leave_call(pending->comm, STRAIT_ERROR_USAGE, true);
}
