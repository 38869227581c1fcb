/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream is a queue of work and a thread that does it, started with the first piece. Its struct
 * is never freed, so that a handle used after its destruction is an error and not a crash.
 *
 * One lock, the stream lock, covers what the host sees of the order of work: streams' contexts and
 * captures, events, graphs. The queue of each stream has its own, taken inside.
 */
#pragma once
#include "emulator/context.h"
#include "emulator/signal.h"
#include "emulator/task.h"
#include <pthread.h>

struct strait_emu_work {
	struct strait_emu_work *next;
	struct strait_emu_signal *wait; /* before the task; a reference, or NULL */
	struct strait_emu_signal *done; /* after it; a reference, or NULL */
	struct strait_emu_task task;
	int borrowed;              /* the task's memory is somebody else's */
	void (*after)(void *data); /* called last, or NULL */
	void *data;
};

struct CUstream_st {
	uint64_t magic, id;
	CUcontext context;
	unsigned flags; /* CU_STREAM_NON_BLOCKING */
	int priority;
	int internal;             /* a lane of a graph: outside the rules of the legacy stream */
	struct CUstream_st *next; /* of its context */

	pthread_mutex_t lock;
	pthread_cond_t wake, progress;
	struct strait_emu_work *head, **tail;
	uint64_t queued, finished;
	int started, closing;

	struct strait_emu_capture *capture; /* under the stream lock, as the rest */
	CUgraphNode *capture_tail;          /* what the next captured task depends on */
	size_t n_capture_tail, capture_room;
};

void strait_emu_stream_lock(void);
void strait_emu_stream_unlock(void);

/* The stream that a handle means for this thread, and no sticky error. Takes no lock. */
CUresult strait_emu_stream_enter(CUstream handle, CUstream *ret_stream);

/* Queues the task, or captures it. Takes over the task's memory, also on failure. */
CUresult strait_emu_stream_submit(CUstream stream, struct strait_emu_task *task);
/* Submits and waits for it; what the synchronous calls do, on the legacy stream. */
CUresult strait_emu_stream_submit_and_wait(struct strait_emu_task *task);

struct strait_emu_work *strait_emu_work_new(const struct strait_emu_task *task); /* or NULL */
/* Appends a list, in order and with nothing between. Under the stream lock. */
void strait_emu_stream_append(CUstream stream, struct strait_emu_work *list);
/* Orders what comes next in the stream with the legacy stream of its context. Under the stream
 * lock. */
void strait_emu_stream_meet_legacy(CUstream stream);

/* NULL: no memory. Under the stream lock. */
CUstream strait_emu_stream_new_locked(CUcontext context, unsigned flags, int priority);
void strait_emu_stream_close(CUstream stream); /* its work is still done */

/* Waits for all work of a context that is queued now. */
void strait_emu_stream_drain(CUcontext context);
