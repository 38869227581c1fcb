/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: their threads, queues, and the rules of the legacy stream.
 */
#include "emulator/stream.h"
#include "emulator/capture.h"
#include "emulator/settings.h"
#include <signal.h>
#include <stdlib.h>

#define MAGIC 0x73747265616du

static pthread_mutex_t stream_lock = PTHREAD_MUTEX_INITIALIZER;

void strait_emu_stream_lock(void)
{
	pthread_mutex_lock(&stream_lock);
}
void strait_emu_stream_unlock(void)
{
	pthread_mutex_unlock(&stream_lock);
}

struct strait_emu_work *strait_emu_work_new(const struct strait_emu_task *task)
{
	struct strait_emu_work *work = calloc(1, sizeof *work);
	if (work && task)
		work->task = *task;
	return work;
}

static void do_work(struct strait_emu_work *work)
{
	if (work->wait) {
		strait_emu_signal_wait(work->wait);
		strait_emu_signal_unref(work->wait);
	}
	strait_emu_task_run(&work->task);
	if (!work->borrowed)
		strait_emu_task_deinit(&work->task);
	if (work->done) {
		strait_emu_signal_set(work->done);
		strait_emu_signal_unref(work->done);
	}
	if (work->after)
		work->after(work->data);
	free(work);
}

/* The thread of a closed stream that has nothing left; returns whether it can go. */
static int retire(struct CUstream_st *stream)
{
	strait_emu_stream_lock();
	pthread_mutex_lock(&stream->lock);
	int empty = !stream->head;
	if (empty) {
		struct CUstream_st **link = &stream->context->streams;
		while (*link && *link != stream)
			link = &(*link)->next;
		if (*link)
			*link = stream->next;
	}
	pthread_mutex_unlock(&stream->lock);
	strait_emu_stream_unlock();
	return empty;
}

static void *stream_main(void *data)
{
	struct CUstream_st *stream = data;
	pthread_mutex_lock(&stream->lock);
	for (;;) {
		while (!stream->head && !stream->closing)
			pthread_cond_wait(&stream->wake, &stream->lock);
		struct strait_emu_work *work = stream->head;
		if (work) {
			stream->head = work->next;
			if (!stream->head)
				stream->tail = &stream->head;
			pthread_mutex_unlock(&stream->lock);
			do_work(work);
			pthread_mutex_lock(&stream->lock);
			stream->finished++;
			pthread_cond_broadcast(&stream->progress);
			continue;
		}
		pthread_mutex_unlock(&stream->lock);
		if (retire(stream))
			return NULL;
		pthread_mutex_lock(&stream->lock);
	}
}

/* Under the stream's own lock. Without a thread nothing would ever happen: that ends the process.
 */
static void start_thread(struct CUstream_st *stream)
{
	sigset_t all, before;
	pthread_t thread;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&thread, NULL, stream_main, stream);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error) {
		strait_emu_say("no thread for a stream");
		abort();
	}
	pthread_detach(thread);
	stream->started = 1;
}

void strait_emu_stream_append(CUstream stream, struct strait_emu_work *list)
{
	pthread_mutex_lock(&stream->lock);
	*stream->tail = list;
	for (struct strait_emu_work *work = list; work; work = work->next) {
		stream->queued++;
		stream->tail = &work->next;
	}
	if (!stream->started)
		start_thread(stream);
	pthread_cond_signal(&stream->wake);
	pthread_mutex_unlock(&stream->lock);
}

static int busy(CUstream stream)
{
	pthread_mutex_lock(&stream->lock);
	int busy = stream->finished != stream->queued;
	pthread_mutex_unlock(&stream->lock);
	return busy;
}

/* What comes next in `second` waits for what is queued in `first`. */
static void chain(CUstream first, CUstream second)
{
	struct strait_emu_signal *signal = strait_emu_signal_new();
	struct strait_emu_work *mark = strait_emu_work_new(NULL), *wait = strait_emu_work_new(NULL);
	if (!signal || !mark || !wait)
		abort();
	mark->done = signal;
	wait->wait = strait_emu_signal_ref(signal);
	strait_emu_stream_append(first, mark);
	strait_emu_stream_append(second, wait);
}

void strait_emu_stream_meet_legacy(CUstream stream)
{
	CUcontext context = stream->context;
	if (stream->internal || (stream->flags & CU_STREAM_NON_BLOCKING))
		return;
	if (stream != context->legacy) {
		if (context->legacy && busy(context->legacy))
			chain(context->legacy, stream);
		return;
	}
	for (CUstream other = context->streams; other; other = other->next)
		if (other != stream && !other->internal &&
		    !(other->flags & CU_STREAM_NON_BLOCKING) && busy(other))
			chain(other, stream);
}

CUstream strait_emu_stream_new_locked(CUcontext context, unsigned flags, int priority)
{
	struct CUstream_st *stream = calloc(1, sizeof *stream);
	if (!stream)
		return NULL;
	stream->magic = MAGIC;
	stream->id = strait_emu_machine_id();
	stream->context = context;
	stream->flags = flags;
	stream->priority = priority < -5 ? -5 : priority > 0 ? 0 : priority;
	stream->tail = &stream->head;
	pthread_mutex_init(&stream->lock, NULL);
	pthread_cond_init(&stream->wake, NULL);
	pthread_cond_init(&stream->progress, NULL);
	stream->next = context->streams;
	context->streams = stream;
	return stream;
}

static CUresult new_stream(CUcontext context, unsigned flags, int priority, CUstream *ret_stream)
{
	strait_emu_stream_lock();
	CUstream stream = strait_emu_stream_new_locked(context, flags, priority);
	strait_emu_stream_unlock();
	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_stream = stream;
	return CUDA_SUCCESS;
}

void strait_emu_stream_close(CUstream stream)
{
	stream->magic = 0;
	pthread_mutex_lock(&stream->lock);
	stream->closing = 1;
	int started = stream->started;
	pthread_cond_signal(&stream->wake);
	pthread_mutex_unlock(&stream->lock);
	if (!started)
		retire(stream);
}

static CUresult legacy_of(CUcontext context, CUstream *ret_stream)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	CUresult error = CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	if (!context->legacy)
		error = new_stream(context, 0, 0, &context->legacy);
	pthread_mutex_unlock(&lock);
	*ret_stream = context->legacy;
	return error;
}

/* The default stream of this thread in a context. */
static CUresult own_of_thread(CUcontext context, CUstream *ret_stream)
{
	struct own {
		CUcontext context;
		CUstream stream;
		struct own *next;
	};
	static __thread struct own *list; /* few, and kept */
	for (struct own *own = list; own; own = own->next)
		if (own->context == context) {
			*ret_stream = own->stream;
			return CUDA_SUCCESS;
		}
	struct own *own = calloc(1, sizeof *own);
	if (!own)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult error = new_stream(context, 0, 0, &own->stream);
	if (error) {
		free(own);
		return error;
	}
	own->context = context;
	own->next = list;
	list = own;
	*ret_stream = own->stream;
	return CUDA_SUCCESS;
}

CUresult strait_emu_stream_enter(CUstream handle, CUstream *ret_stream)
{
	CUcontext context;
	if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
		CUresult error = strait_emu_context_enter(&context);
		if (error)
			return error;
		return handle == CU_STREAM_PER_THREAD ? own_of_thread(context, ret_stream)
						      : legacy_of(context, ret_stream);
	}
	if (!strait_emu_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (handle->magic != MAGIC)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_stream = handle;
	return strait_emu_device_error(handle->context->device);
}

CUresult strait_emu_stream_submit(CUstream stream, struct strait_emu_task *task)
{
	struct strait_emu_work *work = NULL;
	task->device = stream->context->device;
	strait_emu_stream_lock();
	CUresult error = strait_emu_capture_check(stream);
	if (!error && stream->capture) {
		error = strait_emu_capture_add(stream, task, NULL);
	} else if (!error) {
		work = strait_emu_work_new(task);
		if (work) {
			strait_emu_stream_meet_legacy(stream);
			strait_emu_stream_append(stream, work);
		} else {
			error = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	strait_emu_stream_unlock();
	if (error)
		strait_emu_task_deinit(task);
	return error;
}

static void wait_until(CUstream stream, uint64_t mark)
{
	pthread_mutex_lock(&stream->lock);
	while (stream->finished < mark)
		pthread_cond_wait(&stream->progress, &stream->lock);
	pthread_mutex_unlock(&stream->lock);
}

static uint64_t queued(CUstream stream)
{
	pthread_mutex_lock(&stream->lock);
	uint64_t mark = stream->queued;
	pthread_mutex_unlock(&stream->lock);
	return mark;
}

CUresult strait_emu_stream_submit_and_wait(struct strait_emu_task *task)
{
	CUstream stream;
	CUresult error = strait_emu_stream_enter(NULL, &stream);
	if (!error)
		error = strait_emu_capture_forbid();
	if (error) {
		strait_emu_task_deinit(task);
		return error;
	}
	error = strait_emu_stream_submit(stream, task);
	if (error)
		return error;
	wait_until(stream, queued(stream));
	return strait_emu_device_error(stream->context->device);
}

void strait_emu_stream_drain(CUcontext context)
{
	struct mark {
		CUstream stream;
		uint64_t queued;
	} * marks;
	size_t n = 0, i = 0;
	strait_emu_stream_lock();
	for (CUstream stream = context->streams; stream; stream = stream->next)
		n++;
	marks = malloc((n + 1) * sizeof *marks);
	if (!marks)
		abort();
	for (CUstream stream = context->streams; stream; stream = stream->next)
		marks[i++] = (struct mark){stream, queued(stream)};
	strait_emu_stream_unlock();
	for (i = 0; i < n; i++)
		wait_until(marks[i].stream, marks[i].queued);
	free(marks);
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
	CUcontext context;
	CUresult error = strait_emu_context_enter(&context);
	if (error)
		return error;
	if (!stream || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING))
		return CUDA_ERROR_INVALID_VALUE;
	return new_stream(context, flags, priority, stream);
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
	return cuStreamCreateWithPriority(stream, flags, 0);
}

CUresult cuStreamDestroy(CUstream handle)
{
	CUstream stream = NULL;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (!stream || handle != stream)
		return CUDA_ERROR_INVALID_HANDLE;
	strait_emu_stream_lock();
	if (stream->capture)
		strait_emu_capture_invalidate(stream->capture);
	strait_emu_stream_unlock();
	strait_emu_stream_close(stream);
	return error;
}

CUresult cuStreamSynchronize(CUstream handle)
{
	CUstream stream;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (!error)
		error = strait_emu_capture_forbid_on(stream);
	if (error)
		return error;
	strait_emu_stream_lock();
	if (stream == stream->context->legacy)
		strait_emu_stream_meet_legacy(stream);
	uint64_t mark = queued(stream);
	strait_emu_stream_unlock();
	wait_until(stream, mark);
	return strait_emu_device_error(stream->context->device);
}

CUresult cuStreamQuery(CUstream handle)
{
	CUstream stream;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (!error)
		error = strait_emu_capture_forbid_on(stream);
	if (error)
		return error;
	strait_emu_stream_lock();
	if (stream == stream->context->legacy)
		strait_emu_stream_meet_legacy(stream);
	strait_emu_stream_unlock();
	return busy(stream) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *id)
{
	CUstream stream;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (error)
		return error;
	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	*id = stream->id;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *context)
{
	CUstream stream;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (!error)
		*context = stream->context;
	return error;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned *flags)
{
	CUstream stream;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (!error)
		*flags = stream->flags;
	return error;
}

CUresult cuStreamGetPriority(CUstream handle, int *priority)
{
	CUstream stream;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (!error)
		*priority = stream->priority;
	return error;
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice *device)
{
	CUstream stream;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (!error)
		*device = (CUdevice)stream->context->device;
	return error;
}
