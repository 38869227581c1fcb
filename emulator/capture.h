/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream capture: which streams add to which graph, and which calls it forbids to whom. A forbidden
 * call returns its error and spoils the captures that it offended, as on the real driver.
 */
#pragma once
#include "emulator/stream.h"

struct strait_emu_capture {
	uint64_t id;
	CUgraph graph;
	CUstreamCaptureMode mode;
	const void *thread; /* that began it */
	CUstream origin;
	int invalid;
	int borrowed_graph; /* cuStreamBeginCaptureToGraph: the graph is the caller's */
	struct strait_emu_capture *next;
};

/* Without the stream lock. */
CUresult strait_emu_capture_forbid(void);                 /* a call that may be unsafe */
CUresult strait_emu_capture_forbid_on(CUstream stream);   /* and waits for a stream */
CUresult strait_emu_capture_forbid_in(CUcontext context); /* and waits for a context */

/* Under the stream lock, as all below. Whether work may be given to the stream. */
CUresult strait_emu_capture_check(CUstream stream);
void strait_emu_capture_invalidate(struct strait_emu_capture *capture);
struct strait_emu_capture *strait_emu_capture_of_id(uint64_t id); /* ongoing, or NULL */

/* A node after the stream's tail, and the new tail. Takes over the task's memory on success. */
CUresult strait_emu_capture_add(CUstream stream, struct strait_emu_task *task,
				CUgraphNode *ret_node);
/* Adds to the tail, each node once. */
CUresult strait_emu_capture_join(CUstream stream, const CUgraphNode *nodes, size_t n);
/* A node of a graph that goes: no tail may name it. */
void strait_emu_capture_forget(CUgraphNode node);
