/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order of a communicator's calls: in host order, whatever their streams, eager and captured.
 *
 * The kernels of one communicator share epochs and scratch, so two of them never run at once. An
 * event marks the end of the newest call: eager     recorded behind every call; a call on another
 * stream than the last one waits for it, and once something was captured every call does, since
 * nobody tells us when a graph is launched. Recording always, not only once a second stream is
 * seen, means that no event is ever recorded late on a stream that may be gone. captured  the graph
 * waits for the event as an external node before its first call and records it as an external node
 * behind its last one, so graphs on different streams, and graphs beside eager calls, are ordered
 * at their launch; an abandoned capture leaves nothing behind. The record node hangs beside the
 * stream's own chain and moves on with each call: a node in the chain after every call costs 0.8 us
 * each, this costs nothing (docs/measurements.md, "Order of captured calls").
 */
#pragma once
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One capture that this communicator takes part in. */
struct strait_capture {
	cuuint64_t id;
	CUgraphNode last;   /* kernel of the newest call in it */
	CUgraphNode record; /* external event-record node behind it */
};

struct strait_order {
	CUevent done;
	uint64_t last_stream; /* id of the newest eager call's stream */
	bool has_calls;
	struct strait_capture *captures; /* newest last */
	size_t n_captures, n_allocated;
};

/* What a call needs between begin and end. */
struct strait_order_call {
	CUstream stream;
	uint64_t stream_id; /* eager only */
	bool captured, first_in_capture;
	cuuint64_t capture_id;
	CUgraph graph; /* captured only */
};

/* `done` stays the caller's: graphs may hold it longer than this object lives. */
void strait_order_init(struct strait_order *order, CUevent done);
void strait_order_deinit(struct strait_order *order);

/* Before the kernel is launched on `stream`. */
int strait_order_begin(struct strait_order *order, CUstream stream,
		       struct strait_order_call *ret_call);
/* After it. */
int strait_order_end(struct strait_order *order, const struct strait_order_call *call);
