/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program is a graph made ready to run: its own copy, flat, sorted, and divided into lanes. A
 * lane is a stream: lane 0 the one that it is launched on, the others its own. Counted: an
 * executable graph holds one, and every launch that has not ended.
 */
#pragma once
#include "emulator/graph.h"
#include "emulator/signal.h"

#define STRAIT_EMU_LANES 16

struct strait_emu_step {
	struct strait_emu_task task; /* owned */
	size_t *after;               /* earlier steps */
	size_t n_after;
	unsigned lane;
	int awaited; /* by a step of another lane */
};

struct strait_emu_program {
	_Atomic unsigned references;
	struct strait_emu_step *steps;
	size_t n_steps, room;
	unsigned n_lanes;
	CUstream lanes[STRAIT_EMU_LANES]; /* from 1; made at the first launch */
	struct strait_emu_keep *kept;
	size_t n_kept;
};

/* Under the stream lock. NULL: no memory, or a graph with a cycle. */
struct strait_emu_program *strait_emu_program_new(CUgraph graph);
/* Whether `other` does the same kinds of things in the same order. */
int strait_emu_program_alike(const struct strait_emu_program *one,
			     const struct strait_emu_program *other);
/* Without the stream lock. */
struct strait_emu_program *strait_emu_program_unref(struct strait_emu_program *program);

/* Queues one run on a stream; `end` is set after it. Takes over both references: the program's, and
 * end's. Under the stream lock. 0 or -1. */
int strait_emu_program_launch(struct strait_emu_program *program, CUstream stream,
			      struct strait_emu_signal *end);
