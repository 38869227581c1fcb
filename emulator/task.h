/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A task is one operation of a stream or one node of a graph: what it does, without when.
 */
#pragma once
#include "emulator/device.h"
#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

enum strait_emu_task_kind {
	TASK_NOTHING, /* an empty node, or a place in the order */
	TASK_KERNEL,
	TASK_COPY,
	TASK_FILL,
	TASK_WRITE, /* a word, released to whoever polls it */
	TASK_HOST,
	TASK_RECORD, /* event nodes of graphs */
	TASK_WAIT,
	TASK_CHILD, /* a graph inside a graph */
};

struct strait_emu_task {
	enum strait_emu_task_kind kind;
	unsigned device;
	union {
		struct {
			const struct CUkern_st *function;
			void *argument; /* owned, on the heap */
			struct strait_emu_dim grid, threads;
		} kernel;
		struct {
			uintptr_t to, from;
			size_t bytes, rows, to_pitch, from_pitch;
			void *staged; /* owned copy of pageable memory, or NULL */
		} copy;
		struct {
			uintptr_t to;
			size_t count, rows, pitch; /* elements in a row; bytes from row to row */
			uint32_t value;
			unsigned width; /* bytes of an element: 1, 2 or 4 */
		} fill;
		struct {
			uintptr_t to;
			uint64_t value;
			unsigned bytes;
		} write;
		struct {
			CUhostFn call;
			void *data;
		} host;
		CUevent event;
		CUgraph child; /* owned */
	};
};

/* Does it, on the calling thread. Returns its error, which is the device's from then on. */
CUresult strait_emu_task_run(const struct strait_emu_task *task);

/* A copy with memory of its own. 0 or -1. */
int strait_emu_task_copy(struct strait_emu_task *to, const struct strait_emu_task *from);
void strait_emu_task_deinit(struct strait_emu_task *task);
