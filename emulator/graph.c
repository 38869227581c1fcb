/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building graphs by hand and looking into them.
 */
#include "emulator/graph.h"
#include "emulator/capture.h"
#include "emulator/event.h"
#include "emulator/launch.h"
#include "emulator/user_object.h"
#include "emulator/versions.h"
#include <stdlib.h>
#include <string.h>

CUgraph strait_emu_graph_new(void)
{
	return calloc(1, sizeof(struct CUgraph_st));
}

static int has_event(const struct strait_emu_task *task)
{
	return task->kind == TASK_RECORD || task->kind == TASK_WAIT;
}

static void free_node(CUgraphNode node)
{
	if (has_event(&node->task))
		strait_emu_event_unref(node->task.event);
	else
		strait_emu_task_deinit(&node->task);
	free(node->dependencies);
	free(node);
}

void strait_emu_graph_free(CUgraph graph)
{
	if (!graph)
		return;
	strait_emu_keep_free(graph->kept, graph->n_kept);
	for (size_t i = 0; i < graph->n_nodes; i++)
		free_node(graph->nodes[i]);
	free(graph->nodes);
	free(graph);
}

static CUresult depend(CUgraphNode node, const CUgraphNode *on, size_t n)
{
	size_t total = node->n_dependencies + n;
	CUgraphNode *all = realloc(node->dependencies, (total + 1) * sizeof *all);
	if (!all)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (n)
		memcpy(all + node->n_dependencies, on, n * sizeof *all);
	node->dependencies = all;
	node->n_dependencies = total;
	return CUDA_SUCCESS;
}

CUresult strait_emu_graph_add(CUgraph graph, const CUgraphNode *dependencies, size_t n,
			      const struct strait_emu_task *task, CUgraphNode *ret_node)
{
	struct CUgraphNode_st *node = calloc(1, sizeof *node);
	if (graph->n_nodes == graph->room) {
		size_t room = graph->room ? 2 * graph->room : 16;
		CUgraphNode *nodes = realloc(graph->nodes, room * sizeof *nodes);
		if (!nodes) {
			free(node);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		graph->nodes = nodes;
		graph->room = room;
	}
	if (!node || depend(node, dependencies, n) != CUDA_SUCCESS) {
		free(node);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	node->graph = graph;
	node->task = *task;
	graph->nodes[graph->n_nodes++] = node;
	*ret_node = node;
	return CUDA_SUCCESS;
}

CUgraph strait_emu_graph_clone(CUgraph graph)
{
	CUgraph clone = strait_emu_graph_new();
	if (!clone)
		return NULL;
	for (size_t i = 0; i < graph->n_nodes; i++) {
		struct strait_emu_task task;
		CUgraphNode node;
		if (strait_emu_task_copy(&task, &graph->nodes[i]->task) != 0 ||
		    strait_emu_graph_add(clone, NULL, 0, &task, &node) != CUDA_SUCCESS) {
			strait_emu_graph_free(clone);
			return NULL;
		}
		if (has_event(&task))
			strait_emu_event_ref(task.event);
		graph->nodes[i]->mark = i;
	}
	for (size_t i = 0; i < graph->n_nodes; i++) {
		CUgraphNode from = graph->nodes[i];
		for (size_t k = 0; k < from->n_dependencies; k++)
			depend(clone->nodes[i], &clone->nodes[from->dependencies[k]->mark], 1);
	}
	strait_emu_keep_copy(&clone->kept, &clone->n_kept, graph->kept, graph->n_kept);
	return clone;
}

CUgraphNode *strait_emu_graph_sort(CUgraph graph)
{
	CUgraphNode *order = malloc((graph->n_nodes + 1) * sizeof *order);
	size_t n = 0, before;
	if (!order)
		return NULL;
	for (size_t i = 0; i < graph->n_nodes; i++)
		graph->nodes[i]->mark = SIZE_MAX;
	do { /* captured graphs are sorted already: one round */
		before = n;
		for (size_t i = 0; i < graph->n_nodes; i++) {
			CUgraphNode node = graph->nodes[i];
			size_t k = 0;
			if (node->mark != SIZE_MAX)
				continue;
			while (k < node->n_dependencies && node->dependencies[k]->mark != SIZE_MAX)
				k++;
			if (k < node->n_dependencies)
				continue;
			node->mark = n;
			order[n++] = node;
		}
	} while (n != before);
	if (n == graph->n_nodes)
		return order;
	free(order);
	return NULL;
}

CUresult cuGraphCreate(CUgraph *graph, unsigned flags)
{
	if (!graph || flags)
		return CUDA_ERROR_INVALID_VALUE;
	*graph = strait_emu_graph_new();
	return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphClone(CUgraph *clone, CUgraph graph)
{
	strait_emu_stream_lock();
	*clone = strait_emu_graph_clone(graph);
	strait_emu_stream_unlock();
	return *clone ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphDestroy(CUgraph graph)
{
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	struct strait_emu_keep *kept = graph->kept;
	size_t n_kept = graph->n_kept;
	graph->n_kept = 0;
	graph->kept = NULL;
	strait_emu_stream_lock(); /* events are counted under it */
	strait_emu_graph_free(graph);
	strait_emu_stream_unlock();
	strait_emu_keep_free(kept, n_kept);
	return CUDA_SUCCESS;
}

CUresult cuGraphDestroyNode(CUgraphNode node)
{
	if (!node)
		return CUDA_ERROR_INVALID_VALUE;
	strait_emu_stream_lock();
	CUgraph graph = node->graph;
	size_t kept = 0;
	for (size_t i = 0; i < graph->n_nodes; i++) {
		CUgraphNode other = graph->nodes[i];
		if (other == node)
			continue;
		graph->nodes[kept++] = other;
		for (size_t k = 0; k < other->n_dependencies; k++)
			if (other->dependencies[k] == node)
				other->dependencies[k--] =
					other->dependencies[--other->n_dependencies];
	}
	graph->n_nodes = kept;
	strait_emu_capture_forget(node);
	free_node(node);
	strait_emu_stream_unlock();
	return CUDA_SUCCESS;
}

/* Adds a node by hand; takes over the task's memory. */
static CUresult add(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies, size_t n,
		    struct strait_emu_task *task)
{
	if (!ret_node || !graph || (n && !dependencies))
		return CUDA_ERROR_INVALID_VALUE;
	strait_emu_stream_lock();
	CUresult error = strait_emu_graph_add(graph, dependencies, n, task, ret_node);
	if (!error && has_event(task))
		strait_emu_event_ref(task->event);
	strait_emu_stream_unlock();
	return error;
}

static CUresult add_event(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			  size_t n, CUevent event, enum strait_emu_task_kind kind)
{
	CUresult error = strait_emu_event_check(event);
	if (error)
		return error;
	struct strait_emu_task task = {.kind = kind, .device = event->context->device};
	task.event = event;
	return add(node, graph, dependencies, n, &task);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph,
				   const CUgraphNode *dependencies, size_t n, CUevent event)
{
	return add_event(node, graph, dependencies, n, event, TASK_RECORD);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
				 size_t n, CUevent event)
{
	return add_event(node, graph, dependencies, n, event, TASK_WAIT);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			     size_t n)
{
	CUcontext context = strait_emu_context_current();
	struct strait_emu_task task = {.device = context ? context->device : 0};
	return add(node, graph, dependencies, n, &task);
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			    size_t n, const CUDA_HOST_NODE_PARAMS *params)
{
	CUcontext context = strait_emu_context_current();
	if (!params || !params->fn)
		return CUDA_ERROR_INVALID_VALUE;
	struct strait_emu_task task = {.kind = TASK_HOST, .device = context ? context->device : 0};
	task.host.call = params->fn;
	task.host.data = params->userData;
	return add(node, graph, dependencies, n, &task);
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			      size_t n, const CUDA_KERNEL_NODE_PARAMS *params)
{
	CUcontext context;
	CUresult error = strait_emu_context_enter(&context);
	if (error)
		return error;
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	struct strait_emu_launch_shape shape = {
		{params->gridDimX, params->gridDimY, params->gridDimZ},
		{params->blockDimX, params->blockDimY, params->blockDimZ}};
	CUfunction function = params->func ? params->func : (CUfunction)params->kern;
	struct strait_emu_task task;
	error = strait_emu_launch_task(function, &shape, params->kernelParams, params->extra,
				       &task);
	if (error)
		return error;
	task.device = context->device;
	error = add(node, graph, dependencies, n, &task);
	if (error)
		strait_emu_task_deinit(&task);
	return error;
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
			      size_t n, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
	if (!params || !context)
		return CUDA_ERROR_INVALID_VALUE;
	struct strait_emu_task task = {.kind = TASK_FILL, .device = context->device};
	task.fill.to = params->dst;
	task.fill.count = params->width;
	task.fill.rows = params->height;
	task.fill.pitch = params->pitch;
	task.fill.value = params->value;
	task.fill.width = params->elementSize;
	return add(node, graph, dependencies, n, &task);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
				  size_t n, CUgraph child)
{
	if (!child || child == graph)
		return CUDA_ERROR_INVALID_VALUE;
	struct strait_emu_task task = {.kind = TASK_CHILD};
	strait_emu_stream_lock();
	task.child = strait_emu_graph_clone(child);
	strait_emu_stream_unlock();
	if (!task.child)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult error = add(node, graph, dependencies, n, &task);
	if (error)
		strait_emu_graph_free(task.child);
	return error;
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
				size_t n)
{
	CUresult error = CUDA_SUCCESS;
	if (!graph || (n && (!from || !to)))
		return CUDA_ERROR_INVALID_VALUE;
	strait_emu_stream_lock();
	for (size_t i = 0; i < n && !error; i++)
		error = from[i]->graph == graph && to[i]->graph == graph && from[i] != to[i]
				? depend(to[i], &from[i], 1)
				: CUDA_ERROR_INVALID_VALUE;
	strait_emu_stream_unlock();
	return error;
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
				   const CUgraphEdgeData *edges, size_t n)
{
	return cuGraphAddDependencies(graph, from, to, n);
}

static CUresult forget(CUgraphNode from, CUgraphNode to)
{
	for (size_t k = 0; k < to->n_dependencies; k++)
		if (to->dependencies[k] == from) {
			to->dependencies[k] = to->dependencies[--to->n_dependencies];
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
				   size_t n)
{
	CUresult error = CUDA_SUCCESS;
	if (!graph || (n && (!from || !to)))
		return CUDA_ERROR_INVALID_VALUE;
	strait_emu_stream_lock();
	for (size_t i = 0; i < n && !error; i++)
		error = forget(from[i], to[i]);
	strait_emu_stream_unlock();
	return error;
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
				      const CUgraphEdgeData *edges, size_t n)
{
	return cuGraphRemoveDependencies(graph, from, to, n);
}

/* Gives what fits in *n, the rest as NULL; without `nodes`, the number. */
static CUresult give(const CUgraphNode *from, size_t total, CUgraphNode *nodes, size_t *n)
{
	if (nodes)
		for (size_t i = 0; i < *n; i++)
			nodes[i] = i < total ? from[i] : NULL;
	if (!nodes || *n > total)
		*n = total;
	return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
	return graph && n ? give(graph->nodes, graph->n_nodes, nodes, n) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *n)
{
	return node && n ? give(node->dependencies, node->n_dependencies, nodes, n)
			 : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges,
				       size_t *n)
{
	if (edges && n)
		memset(edges, 0, *n * sizeof *edges);
	return cuGraphNodeGetDependencies(node, nodes, n);
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
	static const CUgraphNodeType types[] = {
		[TASK_NOTHING] = CU_GRAPH_NODE_TYPE_EMPTY,
		[TASK_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
		[TASK_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
		[TASK_FILL] = CU_GRAPH_NODE_TYPE_MEMSET,
		[TASK_WRITE] = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
		[TASK_HOST] = CU_GRAPH_NODE_TYPE_HOST,
		[TASK_RECORD] = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
		[TASK_WAIT] = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
		[TASK_CHILD] = CU_GRAPH_NODE_TYPE_GRAPH,
	};
	if (!node || !type)
		return CUDA_ERROR_INVALID_VALUE;
	*type = types[node->task.kind];
	return CUDA_SUCCESS;
}
