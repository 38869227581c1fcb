/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event names the signal of its last record, or the place in a graph where it was last captured.
 * Graph nodes hold references, so an event may be destroyed before the graph. Under the stream
 * lock.
 */
#pragma once
#include "emulator/signal.h"
#include <cuda.h>
#include <stddef.h>

struct CUevent_st {
	uint64_t magic;
	unsigned references, flags;
	CUcontext context;
	struct strait_emu_signal *signal; /* NULL: never recorded */
	uint64_t capture_id;              /* 0: last recorded outside of captures */
	CUgraphNode *nodes;               /* captured: what a waiter depends on */
	size_t n_nodes;
};

CUresult strait_emu_event_check(CUevent event);
CUevent strait_emu_event_ref(CUevent event);
CUevent strait_emu_event_unref(CUevent event);
/* The event counts as recorded where `signal` will be set; takes over the reference. */
void strait_emu_event_set_signal(CUevent event, struct strait_emu_signal *signal);
