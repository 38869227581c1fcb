/* SPDX-License-Identifier: Apache-2.0 */
/* Counted resources and the list of those that wait to be freed. */
#include "algorithms/resources.h"
#include "strait/gpu.h"
#include "strait/status.h"
#include <stdlib.h>

/* Lock-free, since a driver's callback pushes here. Drained as a whole, so nothing is popped under
 * a reader. */
static _Atomic(struct strait_resources *) garbage;

enum { HOST_WORDS_BYTES = 4096, FAILURES_OFFSET = 2048 };

int strait_resources_new(CUcontext context, CUdevice device, struct strait_resources **ret)
{
	void *words = NULL;
	CUdeviceptr words_device = 0;
	struct strait_resources *resources = calloc(1, sizeof *resources);
	if (!resources)
		return strait_fail(STRAIT_ERROR_SYSTEM, "out of memory");
	resources->scratch.fd = -1;
	int r = STRAIT_GPU(cuMemHostAlloc, &words, HOST_WORDS_BYTES,
			   CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
	if (!r)
		r = STRAIT_GPU(cuMemHostGetDevicePointer, &words_device, words, 0);
	if (!r)
		r = STRAIT_GPU(cuEventCreate, &resources->done, CU_EVENT_DISABLE_TIMING);
	if (r) {
		if (words)
			strait_gpu->cuMemFreeHost(words);
		free(resources);
		return strait_trace(r);
	}
	resources->abort_word = words;
	resources->abort_word_device = words_device;
	resources->failures = (uint32_t *)((char *)words + FAILURES_OFFSET);
	resources->failures_device = words_device + FAILURES_OFFSET;
	atomic_init(resources->abort_word, 0);
	for (int i = 0; i < STRAIT_MAX_RANKS; i++)
		resources->failures[i] = 0;
	atomic_init(&resources->n_references, 1);
	resources->context = context;
	resources->device = device;
	*ret = resources;
	return 0;
}

struct strait_resources *strait_resources_ref(struct strait_resources *resources)
{
	atomic_fetch_add_explicit(&resources->n_references, 1, memory_order_relaxed);
	return resources;
}

struct strait_resources *strait_resources_unref(struct strait_resources *resources)
{
	/* Release and acquire: what other holders did to it is done before it is freed. */
	if (!resources ||
	    atomic_fetch_sub_explicit(&resources->n_references, 1, memory_order_acq_rel) > 1)
		return NULL;
	resources->next = atomic_load_explicit(&garbage, memory_order_relaxed);
	/* The release pairs with the acquire in strait_resources_reap(). */
	while (!atomic_compare_exchange_weak_explicit(&garbage, &resources->next, resources,
						      memory_order_release, memory_order_relaxed))
		;
	return NULL;
}

static void free_resources(struct strait_resources *resources)
{
	CUcontext previous;
	/* The context may be gone with the process's device; then so is the memory. */
	if (strait_gpu->cuCtxPushCurrent(resources->context) == CUDA_SUCCESS) {
		for (int i = 0; i < STRAIT_MAX_RANKS; i++)
			strait_mapping_deinit(&resources->peers[i]);
		strait_memory_deinit(&resources->scratch);
		strait_gpu->cuEventDestroy(resources->done);
		strait_gpu->cuMemFreeHost(resources->abort_word);
		strait_gpu->cuCtxPopCurrent(&previous);
	}
	free(resources);
}

void strait_resources_reap(void)
{
	struct strait_resources *next,
		*list = atomic_exchange_explicit(&garbage, NULL, memory_order_acquire);
	for (; list; list = next) {
		next = list->next;
		free_resources(list);
	}
}

static void CUDA_CB drop_reference(void *resources)
{
	strait_resources_unref(resources);
}

int strait_resources_retain_by_graph(struct strait_resources *resources, CUgraph graph)
{
	CUuserObject object;
	strait_resources_ref(resources);
	int r = STRAIT_GPU(cuUserObjectCreate, &object, resources, drop_reference, 1,
			   CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
	if (r) {
		strait_resources_unref(resources);
		return strait_trace(r);
	}
	r = STRAIT_GPU(cuGraphRetainUserObject, graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
	if (r)
		strait_gpu->cuUserObjectRelease(object, 1);
	return strait_trace(r);
}
