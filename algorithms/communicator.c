/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native communicator: makes its parts in the order in which they need each other, issues
 * calls, and takes everything down.
 */
#include "algorithms/communicator.h"
#include "algorithms/allreduce.h"
#include "algorithms/kernels.h"
#include "algorithms/order.h"
#include "algorithms/setup.h"
#include "strait/gpu.h"
#include "strait/log.h"
#include "strait/params.h"
#include "strait/status.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct strait_communicator {
	int rank, n_ranks;
	CUdevice device_ordinal;
	CUcontext context;
	struct strait_limits limits;
	struct strait_device_communicator device;
	struct strait_resources *resources;
	struct strait_bootstrap *bootstrap; /* NULL with one rank */
	struct strait_order order;
	CUstream stream; /* of the set-up */
	char name[64];
};

static double now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

/* The communicator's context is made current where it is not; leave() undoes it. */
static int enter(const struct strait_communicator *c, bool *ret_pushed)
{
	CUcontext current = NULL;
	int r = STRAIT_GPU(cuCtxGetCurrent, &current);
	*ret_pushed = false;
	if (r || current == c->context)
		return strait_trace(r);
	r = STRAIT_GPU(cuCtxPushCurrent, c->context);
	*ret_pushed = !r;
	return strait_trace(r);
}

static void leave(bool pushed)
{
	CUcontext current;
	if (pushed)
		strait_gpu->cuCtxPopCurrent(&current);
}

static void log_creation(const struct strait_communicator *c, const struct strait_layout *layout,
			 double ms)
{
	const struct strait_params *p = strait_params();
	if (p->nccl_algo || p->nccl_proto)
		strait_warn(ENV, "NCCL_ALGO and NCCL_PROTO name algorithms of NCCL's; without the "
				 "real library they have no effect");
	strait_info(INIT,
		    "communicator %p%s%s rank %d of %d: native, standalone; at most %u blocks of "
		    "%u threads, %.1f MiB of scratch, "
		    "packets up to %u bytes and chunks up to %u bytes a block and peer; made in "
		    "%.1f ms",
		    (const void *)c, *c->name ? " " : "", c->name, c->rank, c->n_ranks,
		    c->limits.max_blocks, c->limits.max_threads, layout->total_bytes / 1048576.0,
		    layout->packet_slot_bytes, layout->bulk_slot_bytes, ms);
}

static int check_config(const struct strait_communicator_config *config)
{
	if (config->n_ranks > 1 && strait_params()->p2p_disable)
		return strait_fail(
			STRAIT_ERROR_USAGE,
			"NCCL_P2P_DISABLE=1 forbids peer mappings, and standalone Strait has no "
			"other path");
	return 0;
}

/* What this rank does alone. A failure is for the others to hear of. */
static int prepare_alone(struct strait_communicator *c,
			 const struct strait_communicator_config *config, struct strait_member *own)
{
	int r = check_config(config);
	if (!r)
		r = strait_resources_new(c->context, c->device_ordinal, &c->resources);
	if (!r)
		r = STRAIT_GPU(cuStreamCreate, &c->stream, CU_STREAM_NON_BLOCKING);
	if (!r)
		r = strait_member_init(own, c->device_ordinal, config->max_blocks);
	return strait_trace(r);
}

static bool is_blank(const uint8_t id[STRAIT_ID_BYTES])
{
	static const uint8_t blank[STRAIT_ID_BYTES];
	return memcmp(id, blank, sizeof blank) == 0;
}

/* The ranks meet, and each learns who the others are. A single rank may come without an id. */
static int meet(struct strait_communicator *c, const struct strait_communicator_config *config,
		struct strait_member *members)
{
	static const atomic_uint never;
	const int local = prepare_alone(c, config, &members[c->rank]);
	if (c->n_ranks == 1 && is_blank(config->id))
		return strait_trace(local);
	int r = strait_bootstrap_new(config->id, c->rank, c->n_ranks,
				     config->cancel ? config->cancel : &never, &c->bootstrap);
	if (!r)
		r = strait_bootstrap_agree(c->bootstrap, local);
	if (!r)
		r = strait_bootstrap_allgather(c->bootstrap, members, sizeof *members);
	/* Alone, the meeting only sends the root of the id home. */
	if (c->n_ranks == 1) {
		c->bootstrap = strait_bootstrap_free(c->bootstrap);
		return strait_trace(local);
	}
	return strait_trace(r);
}

static int prepare_kernels(struct strait_communicator *c)
{
	int r = strait_kernels_load();
	if (!r)
		r = strait_kernels_prepare(c->stream);
	return strait_trace(c->bootstrap ? strait_bootstrap_agree(c->bootstrap, r) : r);
}

static int set_up(struct strait_communicator *c, const struct strait_communicator_config *config)
{
	struct strait_member members[STRAIT_MAX_RANKS] = {0};
	struct strait_layout layout;
	const double begin = now_ms();
	int r = meet(c, config, members);
	if (!r)
		r = strait_members_check(members, c->n_ranks, &c->limits);
	if (!r)
		r = strait_layout_compute(c->n_ranks, c->limits.max_blocks,
					  strait_params()->scratch_bytes, &layout);
	if (r)
		return strait_trace(r);
	c->limits.packet_slot_bytes = layout.packet_slot_bytes;
	c->limits.bulk_slot_bytes = layout.bulk_slot_bytes;
	r = strait_setup_scratch(c->bootstrap, c->resources, members, &layout, &c->limits,
				 c->stream, &c->device);
	if (!r)
		r = prepare_kernels(c);
	if (!r && c->bootstrap)
		r = strait_setup_probe(c->bootstrap, c->resources, &c->device, c->stream);
	if (!r && c->bootstrap)
		r = strait_bootstrap_watch(c->bootstrap);
	if (r)
		return strait_trace(r);
	strait_order_init(&c->order, c->resources->done);
	log_creation(c, &layout, now_ms() - begin);
	return 0;
}

int strait_communicator_new(const struct strait_communicator_config *config,
			    struct strait_communicator **ret)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	struct strait_communicator *c;
	int r;
	if (config->n_ranks > STRAIT_MAX_RANKS) /* for all ranks alike */
		return strait_fail(STRAIT_ERROR_USAGE,
				   "%d ranks; Strait runs up to %d natively so far",
				   config->n_ranks, STRAIT_MAX_RANKS);
	strait_resources_reap();
	c = calloc(1, sizeof *c);
	if (!c)
		return strait_fail(STRAIT_ERROR_SYSTEM, "out of memory");
	c->rank = config->rank;
	c->n_ranks = config->n_ranks;
	c->device_ordinal = config->device;
	c->context = config->context;
	if (config->name)
		strncpy(c->name, config->name, sizeof c->name - 1);
	/* Another thread may be capturing in global mode. */
	strait_gpu->cuThreadExchangeStreamCaptureMode(&mode);
	r = set_up(c, config);
	strait_gpu->cuThreadExchangeStreamCaptureMode(&mode);
	if (r) {
		strait_communicator_free(c);
		return strait_trace(r);
	}
	*ret = c;
	return 0;
}

/* Until our kernels have left. One that waits for a lost peer is freed by the abort word. After an
 * abort only for a while: our kernels may be queued behind another communicator's, which waits for
 * an abort of its own; then the resources wait for them without us. */
static void wait_for_kernels(struct strait_communicator *c)
{
	enum { ABORTED_MS = 1000, PAUSE_NS = 20000 };
	const double begin = now_ms();
	if (!c->order.has_calls)
		return;
	while (strait_gpu->cuEventQuery(c->resources->done) == CUDA_ERROR_NOT_READY) {
		if (strait_communicator_error(c))
			strait_communicator_abort(c);
		if (atomic_load_explicit(c->resources->abort_word, memory_order_relaxed) &&
		    now_ms() - begin > ABORTED_MS)
			return;
		nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
	}
}

struct strait_communicator *strait_communicator_free(struct strait_communicator *c)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool pushed;
	if (!c)
		return NULL;
	if (enter(c, &pushed) == 0) {
		strait_gpu->cuThreadExchangeStreamCaptureMode(&mode);
		wait_for_kernels(c);
		if (c->stream)
			strait_gpu->cuStreamDestroy(c->stream);
		strait_order_deinit(&c->order);
		c->bootstrap = strait_bootstrap_free(c->bootstrap);
		c->resources = strait_resources_unref(c->resources);
		strait_resources_reap();
		strait_gpu->cuThreadExchangeStreamCaptureMode(&mode);
		leave(pushed);
	} else { /* the driver has gone: only what is the process's own */
		strait_bootstrap_free(c->bootstrap);
	}
	free(c);
	return NULL;
}

static int check_usable(const struct strait_communicator *c)
{
	if (atomic_load_explicit(c->resources->abort_word, memory_order_relaxed))
		return strait_fail(STRAIT_ERROR_USAGE, "the communicator was aborted");
	int r = strait_communicator_error(c);
	if (r)
		return strait_fail(r, "rank %d of the communicator is lost",
				   strait_bootstrap_lost(c->bootstrap));
	return 0;
}

/* One rank: the result is the contribution, as it is or scaled. */
static bool is_copy(const struct strait_communicator *c, const struct strait_request *request)
{
	return c->n_ranks == 1 && request->reduction.kind != STRAIT_PREMULSUM;
}

static int launch_allreduce(struct strait_communicator *c, const struct strait_request *request,
			    CUfunction kernel, const struct strait_shape *shape,
			    const struct strait_reduction_args *reduction)
{
	struct strait_allreduce_args args = {
		.communicator = c->device,
		.reduction = *reduction,
		.send = request->send,
		.recv = request->recv,
		.count = request->count,
		.slice = shape->slice,
		.chunk = shape->chunk,
	};
	struct strait_order_call call;
	int r = strait_order_begin(&c->order, request->stream, &call);
	if (!r && call.first_in_capture)
		r = strait_resources_retain_by_graph(c->resources, call.graph);
	if (!r)
		r = strait_kernels_launch(kernel, shape->n_blocks, shape->n_threads,
					  request->stream, &args);
	if (!r)
		r = strait_order_end(&c->order, &call);
	return strait_trace(r);
}

static int issue(struct strait_communicator *c, const struct strait_request *request)
{
	const size_t bytes = request->count * strait_type_bytes(request->type);
	struct strait_reduction_args reduction;
	struct strait_shape shape;
	int r = check_usable(c);
	if (r)
		return strait_trace(r);
	if (is_copy(c, request)) {
		if (request->send == request->recv)
			return 0;
		return strait_trace(STRAIT_GPU(cuMemcpyAsync, (CUdeviceptr)request->recv,
					       (CUdeviceptr)request->send, bytes, request->stream));
	}
	const struct strait_algorithm *a =
		strait_select(&c->limits, request->collective, bytes, &shape);
	if (!a)
		return strait_fail(STRAIT_ERROR_INTERNAL, "no algorithm for %zu bytes", bytes);
	const int instance =
		strait_reduction_map(request->type, &request->reduction, c->n_ranks, &reduction);
	CUfunction kernel = strait_kernels_get(a - strait_algorithms, instance);
	return strait_trace(launch_allreduce(c, request, kernel, &shape, &reduction));
}

int strait_communicator_issue(struct strait_communicator *c, const struct strait_request *request)
{
	bool pushed;
	if (request->count == 0)
		return 0;
	int r = enter(c, &pushed);
	if (r)
		return strait_trace(r);
	r = issue(c, request);
	leave(pushed);
	return strait_trace(r);
}

void strait_communicator_abort(struct strait_communicator *c)
{
	atomic_store_explicit(c->resources->abort_word, 1, memory_order_relaxed);
}

int strait_communicator_error(const struct strait_communicator *c)
{
	return c->bootstrap && strait_bootstrap_lost(c->bootstrap) >= 0 ? STRAIT_ERROR_REMOTE : 0;
}

int strait_communicator_rank(const struct strait_communicator *c)
{
	return c->rank;
}

int strait_communicator_n_ranks(const struct strait_communicator *c)
{
	return c->n_ranks;
}

CUdevice strait_communicator_device(const struct strait_communicator *c)
{
	return c->device_ordinal;
}

const char *strait_communicator_path(const struct strait_communicator *c,
				     const struct strait_request *request)
{
	struct strait_shape shape;
	if (is_copy(c, request))
		return "copy";
	const struct strait_algorithm *a =
		strait_select(&c->limits, request->collective,
			      request->count * strait_type_bytes(request->type), &shape);
	return a ? a->name : "none";
}
