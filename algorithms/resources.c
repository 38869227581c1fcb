/* SPDX-License-Identifier: Apache-2.0 */
/* Counted resources and the list of those that wait to be freed. */
#include "algorithms/resources.h"
#include "strait/gpu.h"
#include "strait/status.h"
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Lock-free, since a driver's callback pushes here. Drained as a whole, so nothing is popped under
 * a reader. */
static _Atomic(struct strait_resources *) garbage;

/*
 * Words in host memory: pinned, and never given back to the driver, because freeing pinned memory
 * waits for every kernel of the context, and one of them may be a kernel of another communicator
 * that waits for its own abort. Those without an owner serve the next communicator of their
 * context.
 */
struct host_words {
	struct host_words *next;
	CUcontext context;
	struct words {
		atomic_uint abort_word;
		uint32_t reserved[31];
		uint32_t failures[STRAIT_MAX_RANKS];
		uint64_t mark; /* these words are ours: see is_alive() */
	} * words;
	CUdeviceptr device;
};

static struct host_words *spare_words;
static pthread_mutex_t spare_words_lock = PTHREAD_MUTEX_INITIALIZER;
#define WORDS_MARK 0x5374726169745764ull

/* A reset of the device takes pinned memory with it, and its address may be somebody else's by now.
 */
static bool is_alive(const struct host_words *w)
{
	CUdeviceptr device = 0;
	return strait_gpu->cuMemHostGetDevicePointer(&device, w->words, 0) == CUDA_SUCCESS &&
	       device == w->device && w->words->mark == WORDS_MARK;
}

static struct host_words *take_spare_words(CUcontext context)
{
	struct host_words *w, **link = &spare_words;
	pthread_mutex_lock(&spare_words_lock);
	while ((w = *link) && w->context != context)
		link = &w->next;
	if (w)
		*link = w->next;
	pthread_mutex_unlock(&spare_words_lock);
	return w;
}

static void put_spare_words(struct host_words *w)
{
	pthread_mutex_lock(&spare_words_lock);
	w->next = spare_words;
	spare_words = w;
	pthread_mutex_unlock(&spare_words_lock);
}

static int new_words(CUcontext context, struct host_words **ret)
{
	struct host_words *w;
	while ((w = take_spare_words(context)) && !is_alive(w))
		free(w);
	if (!w) {
		w = calloc(1, sizeof *w);
		if (!w)
			return strait_fail(STRAIT_ERROR_SYSTEM, "out of memory");
		w->context = context;
		int r = STRAIT_GPU(cuMemHostAlloc, (void **)&w->words, sizeof *w->words,
				   CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
		if (!r)
			r = STRAIT_GPU(cuMemHostGetDevicePointer, &w->device, w->words, 0);
		if (r) {
			free(w);
			return strait_trace(r);
		}
	}
	memset(w->words, 0, sizeof *w->words);
	w->words->mark = WORDS_MARK;
	*ret = w;
	return 0;
}

int strait_resources_new(CUcontext context, CUdevice device, struct strait_resources **ret)
{
	struct strait_resources *resources = calloc(1, sizeof *resources);
	if (!resources)
		return strait_fail(STRAIT_ERROR_SYSTEM, "out of memory");
	resources->scratch.fd = -1;
	int r = new_words(context, &resources->words);
	if (!r) {
		r = STRAIT_GPU(cuEventCreate, &resources->done, CU_EVENT_DISABLE_TIMING);
		if (r)
			put_spare_words(resources->words);
	}
	if (r) {
		free(resources);
		return strait_trace(r);
	}
	resources->abort_word = &resources->words->words->abort_word;
	resources->abort_word_device =
		resources->words->device + offsetof(struct words, abort_word);
	resources->failures = resources->words->words->failures;
	resources->failures_device = resources->words->device + offsetof(struct words, failures);
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

static void put_garbage(struct strait_resources *resources)
{
	resources->next = atomic_load_explicit(&garbage, memory_order_relaxed);
	/* The release pairs with the acquire in strait_resources_reap(). */
	while (!atomic_compare_exchange_weak_explicit(&garbage, &resources->next, resources,
						      memory_order_release, memory_order_relaxed))
		;
}

struct strait_resources *strait_resources_unref(struct strait_resources *resources)
{
	/* Release and acquire: what other holders did to it is done before it is freed. */
	if (resources &&
	    atomic_fetch_sub_explicit(&resources->n_references, 1, memory_order_acq_rel) == 1)
		put_garbage(resources);
	return NULL;
}

/* False: a kernel still uses them. */
static bool free_resources(struct strait_resources *resources)
{
	CUcontext previous;
	/* The context may be gone with the process's device; then so is the memory. */
	if (strait_gpu->cuCtxPushCurrent(resources->context) == CUDA_SUCCESS) {
		const bool busy = strait_gpu->cuEventQuery(resources->done) == CUDA_ERROR_NOT_READY;
		if (!busy) {
			for (int i = 0; i < STRAIT_MAX_RANKS; i++)
				strait_mapping_deinit(&resources->peers[i]);
			strait_memory_deinit(&resources->scratch);
			strait_gpu->cuEventDestroy(resources->done);
			put_spare_words(resources->words);
		}
		strait_gpu->cuCtxPopCurrent(&previous);
		if (busy)
			return false;
	}
	free(resources);
	return true;
}

void strait_resources_reap(void)
{
	struct strait_resources *next,
		*list = atomic_exchange_explicit(&garbage, NULL, memory_order_acquire);
	for (; list; list = next) {
		next = list->next;
		if (!free_resources(list))
			put_garbage(list);
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
