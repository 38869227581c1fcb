/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs of tasks. All under the stream lock, but for what an instantiated graph owns by itself
 * (program.h).
 */
#pragma once
#include "emulator/task.h"

struct CUgraphNode_st {
	CUgraph graph;
	struct strait_emu_task task; /* owned */
	CUgraphNode *dependencies;
	size_t n_dependencies;
	size_t mark; /* scratch of whoever walks the graph */
};

struct strait_emu_keep { /* references of a user object */
	CUuserObject object;
	unsigned count;
};

struct CUgraph_st {
	CUgraphNode *nodes; /* in order of creation */
	size_t n_nodes, room;
	struct strait_emu_keep *kept;
	size_t n_kept;
};

CUgraph strait_emu_graph_new(void); /* or NULL */
CUgraph strait_emu_graph_clone(CUgraph graph);
void strait_emu_graph_free(CUgraph graph); /* NULL is fine; may run destructors of user objects */

/* Takes over the task's memory on success. */
CUresult strait_emu_graph_add(CUgraph graph, const CUgraphNode *dependencies, size_t n,
			      const struct strait_emu_task *task, CUgraphNode *ret_node);
/* Nodes of the graph in an order in which each comes after its dependencies; NULL: no memory, or a
 * cycle. Each node's mark is its place. */
CUgraphNode *strait_emu_graph_sort(CUgraph graph);

CUresult strait_emu_keep_copy(struct strait_emu_keep **ret_to, size_t *ret_n,
			      const struct strait_emu_keep *from, size_t n);
void strait_emu_keep_free(struct strait_emu_keep *kept, size_t n);
