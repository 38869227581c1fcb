/* SPDX-License-Identifier: Apache-2.0 */
/* Order of a communicator's calls by one event. */
#include "algorithms/order.h"
#include "strait/gpu.h"
#include "strait/status.h"
#include <stdlib.h>
#include <string.h>

/* Captures remembered at the same time; nobody tells us when one ends, so the oldest is forgotten.
 */
enum { MOST_CAPTURES = 64 };

void strait_order_init(struct strait_order *order, CUevent done)
{
	*order = (struct strait_order){.done = done};
}

void strait_order_deinit(struct strait_order *order)
{
	free(order->captures);
	*order = (struct strait_order){0};
}

static struct strait_capture *find_capture(struct strait_order *order, cuuint64_t id)
{
	for (size_t i = order->n_captures; i-- > 0;)
		if (order->captures[i].id == id)
			return &order->captures[i];
	return NULL;
}

static int add_capture(struct strait_order *order, struct strait_capture capture)
{
	if (order->n_captures == MOST_CAPTURES) {
		order->n_captures--;
		memmove(order->captures, order->captures + 1,
			order->n_captures * sizeof *order->captures);
	}
	if (order->n_captures == order->n_allocated) {
		const size_t n = order->n_allocated ? 2 * order->n_allocated : 4;
		struct strait_capture *grown = realloc(order->captures, n * sizeof *grown);
		if (!grown)
			return strait_fail(STRAIT_ERROR_SYSTEM, "out of memory");
		order->captures = grown;
		order->n_allocated = n;
	}
	order->captures[order->n_captures++] = capture;
	return 0;
}

/* Whether work behind `node` is behind `earlier`, as far as a chain of single dependencies shows
 * it: the usual case, in which an edge more would only slow the graph down. False where that takes
 * long or the graph branches. */
static bool is_behind(CUgraphNode node, CUgraphNode earlier)
{
	enum { MOST_STEPS = 256 };
	for (int i = 0; i < MOST_STEPS; i++) {
		size_t n = 1;
		if (node == earlier)
			return true;
		if (strait_gpu->cuGraphNodeGetDependencies_(node, NULL, &n) != CUDA_SUCCESS ||
		    n != 1 ||
		    strait_gpu->cuGraphNodeGetDependencies_(node, &node, &n) != CUDA_SUCCESS)
			return false;
	}
	return false;
}

static int begin_captured(struct strait_order *order, struct strait_order_call *call,
			  const CUgraphNode *nodes, size_t n_nodes)
{
	struct strait_capture *capture = find_capture(order, call->capture_id);
	call->first_in_capture = !capture;
	if (!capture)
		return strait_trace(STRAIT_GPU(cuStreamWaitEvent, call->stream, order->done,
					       CU_EVENT_WAIT_EXTERNAL));
	for (size_t i = 0; i < n_nodes; i++)
		if (is_behind(nodes[i], capture->last))
			return 0;
	return strait_trace(STRAIT_GPU(cuStreamUpdateCaptureDependencies_, call->stream,
				       &capture->last, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
}

static int begin_eager(struct strait_order *order, struct strait_order_call *call)
{
	unsigned long long id = 0;
	int r = STRAIT_GPU(cuStreamGetId, call->stream, &id);
	if (r)
		return strait_trace(r);
	call->stream_id = id;
	/* Nobody tells us when a graph is launched, so once there may be one the event is always
	 * waited for. */
	if (order->n_captures > 0 || (order->has_calls && order->last_stream != call->stream_id))
		return strait_trace(STRAIT_GPU(cuStreamWaitEvent, call->stream, order->done, 0));
	return 0;
}

int strait_order_begin(struct strait_order *order, CUstream stream,
		       struct strait_order_call *ret_call)
{
	struct strait_order_call call = {.stream = stream};
	CUstreamCaptureStatus status;
	const CUgraphNode *nodes = NULL;
	size_t n_nodes = 0;
	int r = STRAIT_GPU(cuStreamGetCaptureInfo_, stream, &status, &call.capture_id, &call.graph,
			   &nodes, &n_nodes);
	if (r)
		return strait_trace(r);
	if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
		return strait_fail(STRAIT_ERROR_CUDA,
				   "the stream's capture was invalidated before this call");
	call.captured = status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
	r = call.captured ? begin_captured(order, &call, nodes, n_nodes)
			  : begin_eager(order, &call);
	if (r)
		return strait_trace(r);
	*ret_call = call;
	return 0;
}

/* The node that the stream's next work will depend on: our kernel, just captured. */
static int captured_kernel(CUstream stream, CUgraph *ret_graph, CUgraphNode *ret_kernel)
{
	CUstreamCaptureStatus status;
	const CUgraphNode *nodes = NULL;
	size_t n_nodes = 0;
	cuuint64_t id;
	int r = STRAIT_GPU(cuStreamGetCaptureInfo_, stream, &status, &id, ret_graph, &nodes,
			   &n_nodes);
	if (r)
		return strait_trace(r);
	if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE || n_nodes != 1)
		return strait_fail(STRAIT_ERROR_INTERNAL,
				   "a captured call left %zu nodes on its stream", n_nodes);
	*ret_kernel = nodes[0];
	return 0;
}

static int end_captured(struct strait_order *order, const struct strait_order_call *call)
{
	CUgraph graph;
	CUgraphNode kernel;
	int r = captured_kernel(call->stream, &graph, &kernel);
	if (r)
		return strait_trace(r);
	struct strait_capture *capture = find_capture(order, call->capture_id);
	if (!capture) {
		struct strait_capture fresh = {.id = call->capture_id, .last = kernel};
		r = STRAIT_GPU(cuGraphAddEventRecordNode, &fresh.record, graph, &kernel, 1,
			       order->done);
		return strait_trace(r ? r : add_capture(order, fresh));
	}
	r = STRAIT_GPU(cuGraphRemoveDependencies_, graph, &capture->last, &capture->record, 1);
	if (!r)
		r = STRAIT_GPU(cuGraphAddDependencies_, graph, &kernel, &capture->record, 1);
	if (r)
		return strait_trace(r);
	capture->last = kernel;
	return 0;
}

int strait_order_end(struct strait_order *order, const struct strait_order_call *call)
{
	int r = call->captured ? end_captured(order, call)
			       : STRAIT_GPU(cuEventRecord, order->done, call->stream);
	if (r)
		return strait_trace(r);
	if (!call->captured)
		order->last_stream = call->stream_id;
	order->has_calls = true;
	return 0;
}
