/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The group of the calling thread.
 *
 * At the outermost End the set-ups run first, then the calls: one of each communicator in turn, in
 * the order in which the communicators came. Each communicator keeps its own order, and no launch
 * can block behind kernels that wait for a launch that this thread has yet to make, however many
 * calls the group holds and however many GPUs this thread serves. Over several streams of one
 * communicator the group acts as a barrier, as NCCL's does.
 */
#include "shim/group.h"

#include <stdlib.h>
#include <string.h>

#include "shim/context.h"
#include "shim/dispatch.h"
#include "strait/gpu.h"
#include "strait/status.h"

enum { INLINE_CALLS = 8 };
enum blocking { UNDECIDED, BLOCKING, NONBLOCKING };

struct call {
	struct ncclComm *comm;
	uint64_t generation;
	struct strait_request request;
};

struct group {
	int depth, error;
	enum blocking blocking;
	int n_calls, calls_room; /* room 0: in `few` */
	struct call *many;
	int n_setups, setups_room;
	struct strait_setup_pending *setups;
	struct call few[INLINE_CALLS]; /* last, and only the first n_calls mean anything */
};

static __thread struct group group;

static struct call *calls_of(struct group *g)
{
	return g->calls_room ? g->many : g->few;
}

/* Takes the group off its thread, which is clean from then on whatever happens to the group. */
static void take(struct group *ret_group)
{
	size_t header = offsetof(struct group, few);
	size_t calls = group.calls_room ? 0 : (size_t)group.n_calls * sizeof(group.few[0]);

	memcpy(ret_group, &group, header + calls);
	memset(&group, 0, header);
}

/* Nothing is kept between groups: a thread that ends leaves no memory behind. */
static void give_back(struct group *g)
{
	free(g->many);
	free(g->setups);
}

void strait_group_start(void)
{
	group.depth++;
}

int strait_group_note(int status)
{
	if (status < 0 && group.depth > 0 && group.error == 0)
		group.error = status;
	return status;
}

int strait_group_join(const struct ncclComm *comm)
{
	enum blocking blocking = comm->config.blocking ? BLOCKING : NONBLOCKING;

	if (group.depth == 0)
		return 0;
	if (group.blocking == UNDECIDED)
		group.blocking = blocking;
	if (group.blocking == blocking)
		return 0;
	return strait_fail(
		STRAIT_ERROR_ARGUMENT,
		"Blocking and nonblocking communicators are not allowed in the same group.");
}

static struct call *new_call(struct group *g)
{
	struct call *grown;
	int room;

	if (g->n_calls < (g->calls_room ? g->calls_room : INLINE_CALLS))
		return &calls_of(g)[g->n_calls++];
	room = 4 * g->n_calls;
	grown = realloc(g->many, (size_t)room * sizeof(*grown));
	if (!grown)
		return NULL;
	if (!g->calls_room)
		memcpy(grown, g->few, sizeof(g->few));
	g->many = grown;
	g->calls_room = room;
	return &g->many[g->n_calls++];
}

int strait_group_call(struct ncclComm *comm, const struct strait_request *request)
{
	struct call *call;

	if (group.depth == 0 || comm->n_ranks == 1)
		return strait_trace(strait_dispatch_issue(comm, comm->generation, request));
	call = new_call(&group);
	if (!call)
		return strait_fail(STRAIT_ERROR_SYSTEM, "out of memory for the calls of a group");
	*call = (struct call){.comm = comm, .generation = comm->generation, .request = *request};
	return 0;
}

int strait_group_setup(struct ncclComm *comm, struct ncclComm **user)
{
	struct group *g = &group;

	if (g->depth == 0) {
		bool blocking = comm->config.blocking;
		int r = strait_setup_start(comm, user);

		return r < 0 ? strait_trace(r) : !blocking;
	}
	if (g->n_setups == g->setups_room) {
		int room = g->setups_room ? 2 * g->setups_room : 8;
		struct strait_setup_pending *grown =
			realloc(g->setups, (size_t)room * sizeof(*grown));

		if (!grown)
			return strait_fail(STRAIT_ERROR_SYSTEM,
					   "out of memory for the set-ups of a group");
		g->setups = grown;
		g->setups_room = room;
	}
	g->setups[g->n_setups++] = (struct strait_setup_pending){.comm = comm, .user = user};
	return 0;
}

void strait_group_forget(const struct ncclComm *comm)
{
	struct group *g = &group;
	struct call *calls = calls_of(g);
	int kept = 0;

	for (int i = 0; i < g->n_calls; i++)
		if (calls[i].comm != comm)
			calls[kept++] = calls[i];
	g->n_calls = kept;
	kept = 0;
	for (int i = 0; i < g->n_setups; i++) {
		if (g->setups[i].comm != comm)
			g->setups[kept++] = g->setups[i];
		else
			strait_handle_leave_call(g->setups[i].comm, 0, false);
	}
	g->n_setups = kept;
}

/* Calls of one communicator in this group. */
struct lane {
	struct ncclComm *comm;
	struct call *calls, *end; /* from its first call to behind its last, others' in between */
	struct call *next;
	bool many_streams;
	CUstream last;
};

static struct call *next_call(const struct lane *lane, struct call *from)
{
	while (from < lane->end && from->comm != lane->comm)
		from++;
	return from < lane->end ? from : NULL;
}

/* The graph that captures the stream, or NULL. */
static int capture_of(CUstream stream, CUgraph *ret_graph)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUgraph graph = NULL;
	CUresult result =
		strait_gpu->cuStreamGetCaptureInfo_(stream, &status, NULL, &graph, NULL, NULL);

	/* The legacy stream while another one captures: not captured itself. */
	if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
		result = CUDA_SUCCESS;
	*ret_graph = status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? graph : NULL;
	return strait_trace(strait_gpu_check(result, "cuStreamGetCaptureInfo"));
}

static int check_captures(const struct lane *lane)
{
	CUgraph graph, other;
	int r = capture_of(lane->calls->request.stream, &graph);

	for (struct call *c = lane->calls; r == 0 && c; c = next_call(lane, c + 1)) {
		r = capture_of(c->request.stream, &other);
		if (r == 0 && other != graph)
			r = strait_fail(STRAIT_ERROR_USAGE,
					"Streams given to a communicator within a NCCL group must "
					"either be all uncaptured or all captured by the same "
					"graph.");
	}
	return strait_trace(r);
}

static int edge(struct ncclComm *comm, CUstream from, CUstream to)
{
	int r = STRAIT_GPU(cuEventRecord, comm->join, from);

	return r < 0 ? r : STRAIT_GPU(cuStreamWaitEvent, to, comm->join, 0);
}

/* Before: the first stream waits for all. After: all wait for the last. In between the calls are a
 * chain. An edge for each call whose stream is not the one before it; a stream that comes twice
 * gets a second one, which is harmless. */
static int add_edges(const struct lane *lane, bool before)
{
	struct ncclComm *comm = lane->comm;
	CUstream hub = before ? lane->calls->request.stream : lane->last;
	CUstream previous = hub;
	int r = 0;

	if (!comm->join)
		r = STRAIT_GPU(cuEventCreate, &comm->join, CU_EVENT_DISABLE_TIMING);
	for (struct call *c = lane->calls; r == 0 && c; c = next_call(lane, c + 1)) {
		CUstream stream = c->request.stream;

		if (stream == previous || stream == hub)
			continue;
		r = before ? edge(comm, stream, hub) : edge(comm, hub, stream);
		previous = stream;
	}
	return strait_trace(r);
}

static int join_in_context(const struct lane *lane, bool before)
{
	struct strait_context saved;
	int r = strait_context_enter(lane->comm->context, &saved);

	if (r < 0)
		return strait_trace(r);
	if (before)
		r = check_captures(lane);
	if (r == 0)
		r = add_edges(lane, before);
	strait_context_leave(&saved);
	return strait_trace(r);
}

static int join_streams(const struct lane *lane, bool before)
{
	int r;

	if (!lane->many_streams)
		return 0;
	/* Another thread may be aborting it. */
	r = strait_handle_lock(lane->comm, lane->calls->generation);
	if (r < 0)
		return strait_trace(r);
	r = join_in_context(lane, before);
	pthread_mutex_unlock(&lane->comm->lock);
	return strait_trace(r);
}

static int make_lanes(struct group *g, struct lane *lanes)
{
	struct call *calls = calls_of(g);
	int n_lanes = 0;

	for (int i = 0; i < g->n_calls; i++) {
		CUstream stream = calls[i].request.stream;
		int l = 0;

		while (l < n_lanes && lanes[l].comm != calls[i].comm)
			l++;
		if (l == n_lanes)
			lanes[n_lanes++] = (struct lane){.comm = calls[i].comm,
							 .calls = &calls[i],
							 .next = &calls[i],
							 .last = stream};
		lanes[l].many_streams |= lanes[l].last != stream;
		lanes[l].last = stream;
		lanes[l].end = &calls[i + 1];
	}
	return n_lanes;
}

static int issue_turns(struct lane *lanes, int n_lanes)
{
	bool any = true;

	while (any) {
		any = false;
		for (int l = 0; l < n_lanes; l++) {
			struct call *call = lanes[l].next;
			int r;

			if (!call)
				continue;
			any = true;
			r = strait_dispatch_issue(call->comm, call->generation, &call->request);
			if (r < 0)
				return strait_trace(r);
			lanes[l].next = next_call(&lanes[l], call + 1);
		}
	}
	return 0;
}

static int issue_lanes(struct group *g, struct lane *lanes)
{
	int n_lanes = make_lanes(g, lanes);
	int r = 0;

	for (int l = 0; r == 0 && l < n_lanes; l++)
		r = join_streams(&lanes[l], true);
	if (r == 0)
		r = issue_turns(lanes, n_lanes);
	for (int l = 0; r == 0 && l < n_lanes; l++)
		r = join_streams(&lanes[l], false);
	return strait_trace(r);
}

static int issue_all(struct group *g)
{
	const struct call *first = calls_of(g);
	struct lane *lanes;
	int r;

	if (g->n_calls == 0)
		return 0;
	if (g->n_calls == 1)
		return strait_trace(
			strait_dispatch_issue(first->comm, first->generation, &first->request));
	lanes = malloc((size_t)g->n_calls * sizeof(*lanes));
	if (!lanes)
		return strait_fail(STRAIT_ERROR_SYSTEM, "out of memory for the calls of a group");
	r = issue_lanes(g, lanes);
	free(lanes);
	return strait_trace(r);
}

static void drop_setups(struct group *g)
{
	for (int i = 0; i < g->n_setups; i++)
		strait_setup_drop(&g->setups[i]);
}

static int close_level(void)
{
	if (group.depth == 0)
		return strait_fail(STRAIT_ERROR_USAGE, "ncclGroupEnd: not in a group call.");
	return --group.depth > 0; /* 1: an inner level */
}

int strait_group_end(void)
{
	struct group taken;
	int r = close_level();

	if (r)
		return r < 0 ? strait_trace(r) : 0;
	take(&taken);
	r = taken.error;
	if (r < 0) {
		drop_setups(&taken);
	} else {
		bool in_progress = taken.n_setups > 0 && !taken.setups[0].comm->config.blocking;

		r = strait_setup_start_all(taken.setups, taken.n_setups);
		if (r == 0)
			r = issue_all(&taken);
		if (r == 0)
			r = in_progress;
	}
	give_back(&taken);
	return r < 0 ? strait_trace(r) : r;
}

int strait_group_simulate_end(struct strait_nccl_sim_info *info)
{
	struct group taken;
	int r = close_level();

	if (r)
		return r < 0 ? strait_trace(r) : 0;
	take(&taken);
	r = taken.error;
	if (r == 0 && info && info->magic != STRAIT_NCCL_SIM_INFO_MAGIC)
		r = strait_fail(
			STRAIT_ERROR_ARGUMENT,
			"ncclSimInfo_t argument not initialized via NCCL_SIM_INFO_INITIALIZER");
	drop_setups(&taken);
	give_back(&taken);
	return strait_trace(r);
}
