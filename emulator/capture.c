/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captures: beginning, ending, adding, and the rules of who may do what meanwhile.
 */
#include "emulator/capture.h"
#include "emulator/graph.h"
#include "emulator/versions.h"
#include <stdlib.h>
#include <string.h>

static struct strait_emu_capture *captures; /* ongoing, spoiled or not */
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static __thread char thread_token; /* its address tells threads apart */

void strait_emu_capture_invalidate(struct strait_emu_capture *capture)
{
	capture->invalid = 1;
}

struct strait_emu_capture *strait_emu_capture_of_id(uint64_t id)
{
	struct strait_emu_capture *capture = captures;
	while (capture && capture->id != id)
		capture = capture->next;
	return capture;
}

static int offends(const struct strait_emu_capture *capture)
{
	if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return 0;
	if (capture->thread == &thread_token && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
		return 1;
	return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
	       capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult strait_emu_capture_forbid(void)
{
	CUresult error = CUDA_SUCCESS;
	strait_emu_stream_lock();
	for (struct strait_emu_capture *capture = captures; capture; capture = capture->next)
		if (offends(capture)) {
			strait_emu_capture_invalidate(capture);
			error = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	strait_emu_stream_unlock();
	return error;
}

static CUresult forbid_stream(CUstream stream)
{
	if (!stream->capture)
		return CUDA_SUCCESS;
	if (stream->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	strait_emu_capture_invalidate(stream->capture);
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult strait_emu_capture_forbid_on(CUstream stream)
{
	strait_emu_stream_lock();
	CUresult error = forbid_stream(stream);
	if (!error && stream == stream->context->legacy)
		error = strait_emu_capture_check(stream);
	strait_emu_stream_unlock();
	return error ? error : strait_emu_capture_forbid();
}

CUresult strait_emu_capture_forbid_in(CUcontext context)
{
	CUresult error = CUDA_SUCCESS;
	strait_emu_stream_lock();
	for (CUstream stream = context->streams; stream; stream = stream->next) {
		CUresult one = forbid_stream(stream);
		error = error ? error : one;
	}
	strait_emu_stream_unlock();
	return error ? error : strait_emu_capture_forbid();
}

/* The legacy stream would wait for, and hold up, the blocking streams that capture. */
static CUresult check_implicit(CUstream stream, int spoil)
{
	CUresult error = CUDA_SUCCESS;
	if (stream != stream->context->legacy)
		return CUDA_SUCCESS;
	for (CUstream other = stream->context->streams; other; other = other->next)
		if (other->capture && !(other->flags & CU_STREAM_NON_BLOCKING)) {
			error = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
			if (spoil)
				strait_emu_capture_invalidate(other->capture);
		}
	return error;
}

CUresult strait_emu_capture_check(CUstream stream)
{
	if (stream->capture && stream->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	return check_implicit(stream, 1);
}

static CUresult set_tail(CUstream stream, const CUgraphNode *nodes, size_t n)
{
	if (n > stream->capture_room) {
		CUgraphNode *tail = realloc(stream->capture_tail, n * sizeof *tail);
		if (!tail)
			return CUDA_ERROR_OUT_OF_MEMORY;
		stream->capture_tail = tail;
		stream->capture_room = n;
	}
	if (n)
		memmove(stream->capture_tail, nodes, n * sizeof *nodes);
	stream->n_capture_tail = n;
	return CUDA_SUCCESS;
}

CUresult strait_emu_capture_join(CUstream stream, const CUgraphNode *nodes, size_t n)
{
	CUgraphNode *tail = malloc((stream->n_capture_tail + n + 1) * sizeof *tail);
	if (!tail)
		return CUDA_ERROR_OUT_OF_MEMORY;
	size_t total = stream->n_capture_tail;
	if (total)
		memcpy(tail, stream->capture_tail, total * sizeof *tail);
	for (size_t i = 0; i < n; i++) {
		size_t k = 0;
		while (k < total && tail[k] != nodes[i])
			k++;
		if (k == total)
			tail[total++] = nodes[i];
	}
	CUresult error = set_tail(stream, tail, total);
	free(tail);
	return error;
}

CUresult strait_emu_capture_add(CUstream stream, struct strait_emu_task *task,
				CUgraphNode *ret_node)
{
	CUgraphNode node;
	CUresult error = strait_emu_graph_add(stream->capture->graph, stream->capture_tail,
					      stream->n_capture_tail, task, &node);
	if (error) {
		strait_emu_capture_invalidate(stream->capture);
		return error;
	}
	if (ret_node)
		*ret_node = node;
	return set_tail(stream, &node, 1);
}

static void forget_in(CUcontext context, void *data)
{
	CUgraphNode node = data;
	for (CUstream stream = context->streams; stream; stream = stream->next)
		for (size_t i = 0; i < stream->n_capture_tail; i++)
			if (stream->capture_tail[i] == node)
				stream->capture_tail[i--] =
					stream->capture_tail[--stream->n_capture_tail];
}

void strait_emu_capture_forget(CUgraphNode node)
{
	strait_emu_context_each(forget_in, node);
}

static CUresult begin(CUstream stream, CUstreamCaptureMode mode, CUgraph graph)
{
	if (stream == stream->context->legacy)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	struct strait_emu_capture *capture = calloc(1, sizeof *capture);
	if (!capture)
		return CUDA_ERROR_OUT_OF_MEMORY;
	capture->borrowed_graph = graph != NULL;
	capture->graph = graph ? graph : strait_emu_graph_new();
	if (!capture->graph) {
		free(capture);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	capture->id = strait_emu_machine_id();
	capture->mode = mode;
	capture->thread = &thread_token;
	capture->origin = stream;
	capture->next = captures;
	captures = capture;
	stream->capture = capture;
	stream->n_capture_tail = 0;
	return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode)
{
	CUstream stream;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (error)
		return error;
	if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	strait_emu_stream_lock();
	error = begin(stream, mode, NULL);
	strait_emu_stream_unlock();
	return error;
}

CUresult cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph,
				     const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
				     size_t n, CUstreamCaptureMode mode)
{
	CUstream stream;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (error)
		return error;
	if (!graph || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	strait_emu_stream_lock();
	error = begin(stream, mode, graph);
	if (!error)
		error = set_tail(stream, dependencies, n);
	strait_emu_stream_unlock();
	return error;
}

/* Marks the tail of the origin and all that it depends on. */
static void mark_ancestors(CUgraphNode node)
{
	if (node->mark)
		return;
	node->mark = 1;
	for (size_t i = 0; i < node->n_dependencies; i++)
		mark_ancestors(node->dependencies[i]);
}

struct leaving {
	struct strait_emu_capture *capture;
	int unjoined;
};

static void leave_in(CUcontext context, void *data)
{
	struct leaving *leaving = data;
	for (CUstream stream = context->streams; stream; stream = stream->next) {
		if (stream->capture != leaving->capture)
			continue;
		for (size_t i = 0; i < stream->n_capture_tail; i++)
			if (!stream->capture_tail[i]->mark)
				leaving->unjoined = 1;
		stream->capture = NULL;
		stream->n_capture_tail = 0;
	}
}

static CUresult end(CUstream stream, CUgraph *ret_graph, CUgraph *ret_garbage)
{
	struct strait_emu_capture *capture = stream->capture;
	if (!capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (capture->origin != stream) {
		strait_emu_capture_invalidate(capture);
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	}
	if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != &thread_token)
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	struct leaving leaving = {capture, 0};
	for (size_t i = 0; i < capture->graph->n_nodes; i++)
		capture->graph->nodes[i]->mark = 0;
	for (size_t i = 0; i < stream->n_capture_tail; i++)
		mark_ancestors(stream->capture_tail[i]);
	strait_emu_context_each(leave_in, &leaving);
	struct strait_emu_capture **link = &captures;
	while (*link != capture)
		link = &(*link)->next;
	*link = capture->next;
	CUresult error = capture->invalid   ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
			 : leaving.unjoined ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
					    : CUDA_SUCCESS;
	if (error && !capture->borrowed_graph)
		*ret_garbage = capture->graph;
	*ret_graph = error ? NULL : capture->graph;
	free(capture);
	return error;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
	CUstream stream;
	CUgraph garbage = NULL;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (error)
		return error;
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	strait_emu_stream_lock();
	error = end(stream, graph, &garbage);
	strait_emu_stream_unlock();
	strait_emu_graph_free(garbage);
	return error;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
	CUstream stream;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (error)
		return error;
	if (!status)
		return CUDA_ERROR_INVALID_VALUE;
	strait_emu_stream_lock();
	error = check_implicit(stream, 0);
	*status = !stream->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
		  : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
					     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	strait_emu_stream_unlock();
	return error;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
				   CUgraph *graph, const CUgraphNode **dependencies, size_t *n)
{
	CUstream stream;
	CUresult error = cuStreamIsCapturing(handle, status);
	if (!error)
		error = strait_emu_stream_enter(handle, &stream);
	if (error)
		return error;
	if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return CUDA_SUCCESS;
	strait_emu_stream_lock();
	if (id)
		*id = stream->capture->id;
	if (graph)
		*graph = stream->capture->graph;
	if (dependencies)
		*dependencies = stream->capture_tail;
	if (n)
		*n = stream->n_capture_tail;
	strait_emu_stream_unlock();
	return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
				   CUgraph *graph, const CUgraphNode **dependencies,
				   const CUgraphEdgeData **edges, size_t *n)
{
	if (edges)
		*edges = NULL;
	return cuStreamGetCaptureInfo_v2(handle, status, id, graph, dependencies, n);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode *dependencies, size_t n,
					   unsigned flags)
{
	CUstream stream;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (error)
		return error;
	if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		return CUDA_ERROR_INVALID_VALUE;
	strait_emu_stream_lock();
	error = strait_emu_capture_check(stream);
	if (!error && !stream->capture)
		error = CUDA_ERROR_ILLEGAL_STATE;
	if (!error)
		error = flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES
				? set_tail(stream, dependencies, n)
				: strait_emu_capture_join(stream, dependencies, n);
	strait_emu_stream_unlock();
	return error;
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode *dependencies,
					      const CUgraphEdgeData *edges, size_t n,
					      unsigned flags)
{
	return cuStreamUpdateCaptureDependencies(handle, dependencies, n, flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	CUstreamCaptureMode before = thread_mode;
	thread_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}
