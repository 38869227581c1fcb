/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events: recording, waiting, timing, and what they mean inside a capture.
 */
#include "emulator/event.h"
#include "emulator/capture.h"
#include "emulator/graph.h"
#include "emulator/versions.h"
#include <stdlib.h>
#include <string.h>

#define MAGIC 0x6576656e74u

CUresult strait_emu_event_check(CUevent event)
{
	if (!strait_emu_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	return event && event->magic == MAGIC ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUevent strait_emu_event_ref(CUevent event)
{
	event->references++;
	return event;
}

CUevent strait_emu_event_unref(CUevent event)
{
	if (--event->references)
		return NULL;
	strait_emu_signal_unref(event->signal);
	free(event->nodes);
	free(event);
	return NULL;
}

void strait_emu_event_set_signal(CUevent event, struct strait_emu_signal *signal)
{
	strait_emu_signal_unref(event->signal);
	event->signal = signal;
	event->capture_id = 0;
	free(event->nodes);
	event->nodes = NULL;
	event->n_nodes = 0;
}

CUresult cuEventCreate(CUevent *ret_event, unsigned flags)
{
	CUcontext context;
	CUresult error = strait_emu_context_enter(&context);
	if (error)
		return error;
	if (!ret_event)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CU_EVENT_INTERPROCESS)
		return CUDA_ERROR_NOT_SUPPORTED;
	struct CUevent_st *event = calloc(1, sizeof *event);
	if (!event)
		return CUDA_ERROR_OUT_OF_MEMORY;
	event->magic = MAGIC;
	event->references = 1;
	event->flags = flags;
	event->context = context;
	*ret_event = event;
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
	CUresult error = strait_emu_event_check(event);
	if (error)
		return error;
	strait_emu_stream_lock();
	event->magic = 0;
	strait_emu_event_unref(event);
	strait_emu_stream_unlock();
	return CUDA_SUCCESS;
}

/* What a later wait in the capture depends on: what the stream's next task would depend on now. */
static CUresult capture_place(CUevent event, CUstream stream)
{
	CUgraphNode *nodes = malloc((stream->n_capture_tail + 1) * sizeof *nodes);
	if (!nodes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (stream->n_capture_tail)
		memcpy(nodes, stream->capture_tail, stream->n_capture_tail * sizeof *nodes);
	strait_emu_event_set_signal(event, NULL);
	event->nodes = nodes;
	event->n_nodes = stream->n_capture_tail;
	event->capture_id = stream->capture->id;
	return CUDA_SUCCESS;
}

static CUresult capture_node(CUevent event, CUstream stream, enum strait_emu_task_kind kind)
{
	struct strait_emu_task task = {.kind = kind, .device = stream->context->device};
	task.event = event;
	strait_emu_event_ref(event);
	CUresult error = strait_emu_capture_add(stream, &task, NULL);
	if (error)
		strait_emu_event_unref(event);
	return error;
}

static CUresult record(CUevent event, CUstream stream)
{
	struct strait_emu_signal *signal = strait_emu_signal_new();
	struct strait_emu_work *work = strait_emu_work_new(NULL);
	if (!signal || !work) {
		free(signal);
		free(work);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	work->task.device = stream->context->device;
	work->done = strait_emu_signal_ref(signal);
	strait_emu_event_set_signal(event, signal);
	strait_emu_stream_meet_legacy(stream);
	strait_emu_stream_append(stream, work);
	return CUDA_SUCCESS;
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned flags)
{
	CUstream stream;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (!error)
		error = strait_emu_event_check(event);
	if (error)
		return error;
	if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	if (event->context->device != stream->context->device)
		return CUDA_ERROR_INVALID_HANDLE;
	strait_emu_stream_lock();
	error = strait_emu_capture_check(stream);
	if (!error && stream->capture)
		error = flags ? capture_node(event, stream, TASK_RECORD)
			      : capture_place(event, stream);
	else if (!error)
		error = flags ? CUDA_ERROR_INVALID_VALUE : record(event, stream);
	strait_emu_stream_unlock();
	return error;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	return cuEventRecordWithFlags(event, stream, 0);
}

/* A wait for an event of an ongoing capture draws the stream into it. */
static CUresult wait_captured(CUevent event, CUstream stream)
{
	struct strait_emu_capture *capture = strait_emu_capture_of_id(event->capture_id);
	if (!capture)
		return CUDA_ERROR_CAPTURED_EVENT;
	if (capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (stream->capture && stream->capture != capture) {
		strait_emu_capture_invalidate(capture);
		strait_emu_capture_invalidate(stream->capture);
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	if (stream == stream->context->legacy) {
		strait_emu_capture_invalidate(capture);
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	stream->capture = capture;
	return strait_emu_capture_join(stream, event->nodes, event->n_nodes);
}

static CUresult wait_recorded(CUevent event, CUstream stream)
{
	if (!event->signal)
		return CUDA_SUCCESS;
	if (stream->capture) {
		strait_emu_capture_invalidate(stream->capture);
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	}
	if (strait_emu_signal_test(event->signal))
		return CUDA_SUCCESS;
	struct strait_emu_work *work = strait_emu_work_new(NULL);
	if (!work)
		return CUDA_ERROR_OUT_OF_MEMORY;
	work->task.device = stream->context->device;
	work->wait = strait_emu_signal_ref(event->signal);
	strait_emu_stream_meet_legacy(stream);
	strait_emu_stream_append(stream, work);
	return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags)
{
	CUstream stream;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (!error)
		error = strait_emu_event_check(event);
	if (error)
		return error;
	if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	strait_emu_stream_lock();
	error = strait_emu_capture_check(stream);
	if (error)
		;
	else if (flags)
		error = stream->capture ? capture_node(event, stream, TASK_WAIT)
					: CUDA_ERROR_INVALID_VALUE;
	else if (event->capture_id)
		error = wait_captured(event, stream);
	else
		error = wait_recorded(event, stream);
	strait_emu_stream_unlock();
	return error;
}

/* The signal to look at, or NULL for an event that is through; a reference. */
static CUresult look(CUevent event, struct strait_emu_signal **ret_signal)
{
	CUresult error = strait_emu_event_check(event);
	if (error)
		return error;
	strait_emu_stream_lock();
	if (event->capture_id) {
		struct strait_emu_capture *capture = strait_emu_capture_of_id(event->capture_id);
		if (capture)
			strait_emu_capture_invalidate(capture);
		error = CUDA_ERROR_CAPTURED_EVENT;
	} else {
		*ret_signal = strait_emu_signal_ref(event->signal);
	}
	strait_emu_stream_unlock();
	if (!error)
		error = strait_emu_capture_forbid();
	if (error)
		*ret_signal = strait_emu_signal_unref(*ret_signal);
	return error;
}

CUresult cuEventQuery(CUevent event)
{
	struct strait_emu_signal *signal = NULL;
	CUresult error = look(event, &signal);
	if (!error && signal && !strait_emu_signal_test(signal))
		error = CUDA_ERROR_NOT_READY;
	strait_emu_signal_unref(signal);
	return error ? error : strait_emu_device_error(event->context->device);
}

CUresult cuEventSynchronize(CUevent event)
{
	struct strait_emu_signal *signal = NULL;
	CUresult error = look(event, &signal);
	if (!error && signal)
		strait_emu_signal_wait(signal);
	strait_emu_signal_unref(signal);
	return error ? error : strait_emu_device_error(event->context->device);
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	struct strait_emu_signal *from = NULL, *to = NULL;
	CUresult error = look(start, &from);
	if (!error)
		error = look(end, &to);
	if (error)
		;
	else if (!ms)
		error = CUDA_ERROR_INVALID_VALUE;
	else if (!from || !to || ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
		error = CUDA_ERROR_INVALID_HANDLE;
	else if (!strait_emu_signal_test(from) || !strait_emu_signal_test(to))
		error = CUDA_ERROR_NOT_READY;
	else
		*ms = (float)((double)(int64_t)(to->time_ns - from->time_ns) / 1e6);
	strait_emu_signal_unref(from);
	strait_emu_signal_unref(to);
	return error;
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
	return cuEventElapsedTime(ms, start, end);
}
