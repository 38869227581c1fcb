/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels refer to: scratch, the peers' scratch as mapped here, the abort word. Counted: the
 * communicator holds one reference and every graph that captured a call another, so that a graph
 * may be replayed after its communicator is destroyed. The last reference can be dropped inside a
 * destructor callback of the driver, where no driver call is allowed; so resources without
 * references are only put on a list, and freed by the next strait_resources_reap().
 */
#pragma once
#include "channels/device_communicator.h"
#include "channels/memory.h"
#include <cuda.h>
#include <stdatomic.h>

struct strait_resources {
	atomic_int n_references;
	CUcontext context;
	CUdevice device;
	struct host_words *words;
	atomic_uint *abort_word; /* host memory, mapped: kernels poll it */
	uint32_t *failures;      /* host memory, mapped: what the probe found, by rank */
	CUdeviceptr abort_word_device, failures_device;
	CUevent done; /* behind the newest call; captured graphs hold it too */
	struct strait_memory scratch;
	struct strait_mapping peers[STRAIT_MAX_RANKS];
	struct strait_resources *next; /* on the list of what waits to be freed */
};

/* One reference, no memory yet but the words in host memory. `context` is current. */
int strait_resources_new(CUcontext context, CUdevice device, struct strait_resources **ret);
struct strait_resources *strait_resources_ref(struct strait_resources *resources);
/* Drops a reference; callable from a driver's callback. NULL is fine. */
struct strait_resources *strait_resources_unref(struct strait_resources *resources);
/* Frees what nobody refers to any more and no kernel uses. */
void strait_resources_reap(void);
/* Ties a reference to the life of a graph that is being captured. */
int strait_resources_retain_by_graph(struct strait_resources *resources, CUgraph graph);
