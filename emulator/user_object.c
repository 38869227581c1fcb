/* SPDX-License-Identifier: Apache-2.0 */
/*
 * User objects and the lists of them that graphs and programs keep.
 */
#include "emulator/user_object.h"
#include "emulator/graph.h"
#include "emulator/stream.h"
#include <stdatomic.h>
#include <stdlib.h>

struct CUuserObject_st {
	_Atomic unsigned references;
	CUhostFn destroy;
	void *data;
};

void strait_emu_user_object_ref(CUuserObject object, unsigned count)
{
	atomic_fetch_add(&object->references, count);
}

void strait_emu_user_object_unref(CUuserObject object, unsigned count)
{
	if (atomic_fetch_sub(&object->references, count) != count)
		return;
	object->destroy(object->data);
	free(object);
}

CUresult cuUserObjectCreate(CUuserObject *ret_object, void *data, CUhostFn destroy, unsigned count,
			    unsigned flags)
{
	if (!ret_object || !destroy || !count || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return CUDA_ERROR_INVALID_VALUE;
	struct CUuserObject_st *object = calloc(1, sizeof *object);
	if (!object)
		return CUDA_ERROR_OUT_OF_MEMORY;
	object->references = count;
	object->destroy = destroy;
	object->data = data;
	*ret_object = object;
	return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned count)
{
	if (!object || !count)
		return CUDA_ERROR_INVALID_VALUE;
	strait_emu_user_object_ref(object, count);
	return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned count)
{
	if (!object || !count)
		return CUDA_ERROR_INVALID_VALUE;
	strait_emu_user_object_unref(object, count);
	return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags)
{
	if (!graph || !object || !count || (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE))
		return CUDA_ERROR_INVALID_VALUE;
	strait_emu_stream_lock();
	struct strait_emu_keep *kept =
		realloc(graph->kept, (graph->n_kept + 1) * sizeof *graph->kept);
	if (kept) {
		kept[graph->n_kept++] = (struct strait_emu_keep){object, count};
		graph->kept = kept;
		if (!(flags & CU_GRAPH_USER_OBJECT_MOVE))
			strait_emu_user_object_ref(object, count);
	}
	strait_emu_stream_unlock();
	return kept ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned count)
{
	CUresult error = CUDA_ERROR_INVALID_VALUE;
	strait_emu_stream_lock();
	for (size_t i = 0; graph && i < graph->n_kept; i++)
		if (graph->kept[i].object == object && graph->kept[i].count >= count) {
			graph->kept[i].count -= count;
			if (!graph->kept[i].count)
				graph->kept[i] = graph->kept[--graph->n_kept];
			error = CUDA_SUCCESS;
			break;
		}
	strait_emu_stream_unlock();
	if (!error)
		strait_emu_user_object_unref(object, count);
	return error;
}

CUresult strait_emu_keep_copy(struct strait_emu_keep **ret_to, size_t *ret_n,
			      const struct strait_emu_keep *from, size_t n)
{
	struct strait_emu_keep *to = malloc((n + 1) * sizeof *to);
	if (!to)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < n; i++) {
		to[i] = from[i];
		strait_emu_user_object_ref(from[i].object, from[i].count);
	}
	*ret_to = to;
	*ret_n = n;
	return CUDA_SUCCESS;
}

void strait_emu_keep_free(struct strait_emu_keep *kept, size_t n)
{
	for (size_t i = 0; i < n; i++)
		strait_emu_user_object_unref(kept[i].object, kept[i].count);
	free(kept);
}
