/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs. Independent branches of a graph run at the same time, each in a lane. A lane is in
 * order and a step waits for earlier steps only, so more branches than lanes share lanes without a
 * deadlock.
 */
#include "emulator/program.h"
#include "emulator/capture.h"
#include "emulator/event.h"
#include <stdlib.h>
#include <string.h>

static int has_event(const struct strait_emu_task *task)
{
	return task->kind == TASK_RECORD || task->kind == TASK_WAIT;
}

/* A step with its own copy of the task; its index, or SIZE_MAX. */
static size_t add_step(struct strait_emu_program *program, const struct strait_emu_task *task)
{
	if (program->n_steps == program->room) {
		size_t room = program->room ? 2 * program->room : 16;
		struct strait_emu_step *steps = realloc(program->steps, room * sizeof *steps);
		if (!steps)
			return SIZE_MAX;
		program->steps = steps;
		program->room = room;
	}
	struct strait_emu_step *step = &program->steps[program->n_steps];
	memset(step, 0, sizeof *step);
	if (task && strait_emu_task_copy(&step->task, task) != 0)
		return SIZE_MAX;
	if (has_event(&step->task))
		strait_emu_event_ref(step->task.event);
	return program->n_steps++;
}

static int add_after(struct strait_emu_program *program, size_t step, size_t earlier)
{
	struct strait_emu_step *to = &program->steps[step];
	size_t *after = realloc(to->after, (to->n_after + 1) * sizeof *after);
	if (!after)
		return -1;
	after[to->n_after++] = earlier;
	to->after = after;
	return 0;
}

static size_t flatten(struct strait_emu_program *program, CUgraph graph, size_t enter);

/* The step that stands for a node: after it, the node is done. */
static size_t add_node(struct strait_emu_program *program, CUgraphNode node, const size_t *ends,
		       size_t enter)
{
	int child = node->task.kind == TASK_CHILD;
	size_t step = add_step(program, child ? NULL : &node->task);
	if (step == SIZE_MAX)
		return SIZE_MAX;
	for (size_t i = 0; i < node->n_dependencies; i++)
		if (add_after(program, step, ends[node->dependencies[i]->mark]) != 0)
			return SIZE_MAX;
	if (!node->n_dependencies && enter != SIZE_MAX && add_after(program, step, enter) != 0)
		return SIZE_MAX;
	return child ? flatten(program, node->task.child, step) : step;
}

/* Adds a graph whose roots come after `enter` (SIZE_MAX: after nothing); a child's end is a step of
 * its own. */
static size_t flatten(struct strait_emu_program *program, CUgraph graph, size_t enter)
{
	size_t *ends = malloc((graph->n_nodes + 1) * sizeof *ends), end = SIZE_MAX;
	CUgraphNode *order = strait_emu_graph_sort(graph);
	int failed = !ends || !order;
	for (size_t i = 0; i < graph->n_nodes && !failed; i++) {
		ends[i] = add_node(program, order[i], ends, enter);
		failed = ends[i] == SIZE_MAX;
	}
	if (!failed && enter == SIZE_MAX)
		end = 0; /* the whole graph: nobody comes after it */
	else if (!failed && (end = add_step(program, NULL)) != SIZE_MAX) {
		failed = add_after(program, end, enter);
		for (size_t i = 0; i < graph->n_nodes && !failed; i++)
			failed = add_after(program, end, ends[i]);
	}
	free(ends);
	free(order);
	return failed ? SIZE_MAX : end;
}

static void assign_lanes(struct strait_emu_program *program)
{
	size_t tails[STRAIT_EMU_LANES]; /* the last step of each lane */
	unsigned rotate = 0;
	for (size_t i = 0; i < program->n_steps; i++) {
		struct strait_emu_step *step = &program->steps[i];
		unsigned lane = STRAIT_EMU_LANES;
		for (size_t k = 0; k < step->n_after && lane == STRAIT_EMU_LANES; k++)
			if (tails[program->steps[step->after[k]].lane] == step->after[k])
				lane = program->steps[step->after[k]].lane;
		if (lane == STRAIT_EMU_LANES)
			lane = program->n_lanes < STRAIT_EMU_LANES ? program->n_lanes++
								   : rotate++ % STRAIT_EMU_LANES;
		step->lane = lane;
		tails[lane] = i;
		for (size_t k = 0; k < step->n_after; k++)
			if (program->steps[step->after[k]].lane != lane)
				program->steps[step->after[k]].awaited = 1;
	}
}

static void free_program(struct strait_emu_program *program)
{
	for (unsigned lane = 1; lane < STRAIT_EMU_LANES; lane++)
		if (program->lanes[lane])
			strait_emu_stream_close(program->lanes[lane]);
	strait_emu_stream_lock();
	for (size_t i = 0; i < program->n_steps; i++) {
		struct strait_emu_task *task = &program->steps[i].task;
		if (has_event(task))
			strait_emu_event_unref(task->event);
		else
			strait_emu_task_deinit(task);
		free(program->steps[i].after);
	}
	strait_emu_stream_unlock();
	strait_emu_keep_free(program->kept, program->n_kept);
	free(program->steps);
	free(program);
}

struct strait_emu_program *strait_emu_program_unref(struct strait_emu_program *program)
{
	if (program && atomic_fetch_sub(&program->references, 1) == 1)
		free_program(program);
	return NULL;
}

struct strait_emu_program *strait_emu_program_new(CUgraph graph)
{
	struct strait_emu_program *program = calloc(1, sizeof *program);
	if (!program)
		return NULL;
	program->references = 1;
	if (flatten(program, graph, SIZE_MAX) == SIZE_MAX ||
	    strait_emu_keep_copy(&program->kept, &program->n_kept, graph->kept, graph->n_kept)) {
		strait_emu_stream_unlock();
		free_program(program);
		strait_emu_stream_lock();
		return NULL;
	}
	assign_lanes(program);
	return program;
}

int strait_emu_program_alike(const struct strait_emu_program *one,
			     const struct strait_emu_program *other)
{
	if (one->n_steps != other->n_steps)
		return 0;
	for (size_t i = 0; i < one->n_steps; i++) {
		const struct strait_emu_step *a = &one->steps[i], *b = &other->steps[i];
		if (a->task.kind != b->task.kind || a->n_after != b->n_after ||
		    (a->n_after && memcmp(a->after, b->after, a->n_after * sizeof *a->after)))
			return 0;
	}
	return 1;
}

/* One launch while it is being queued: the lists of the lanes. */
struct run {
	struct strait_emu_program *program;
	struct strait_emu_work *heads[STRAIT_EMU_LANES], **tails[STRAIT_EMU_LANES];
	struct strait_emu_signal **done; /* of awaited steps */
	unsigned device;
};

/* NULL signals for a place that waits for nothing and sets nothing. Memory that runs out here would
 * leave half a launch: that ends the process. */
static struct strait_emu_work *put(struct run *run, unsigned lane, struct strait_emu_signal *wait,
				   struct strait_emu_signal *done)
{
	struct strait_emu_work *work = strait_emu_work_new(NULL);
	if (!work)
		abort();
	work->task.device = run->device;
	work->wait = strait_emu_signal_ref(wait);
	work->done = strait_emu_signal_ref(done);
	*run->tails[lane] = work;
	run->tails[lane] = &work->next;
	return work;
}

static struct strait_emu_signal *new_signal(void)
{
	struct strait_emu_signal *signal = strait_emu_signal_new();
	if (!signal)
		abort();
	return signal;
}

static void put_step(struct run *run, size_t index)
{
	struct strait_emu_step *step = &run->program->steps[index];
	for (size_t k = 0; k < step->n_after; k++)
		if (run->program->steps[step->after[k]].lane != step->lane)
			put(run, step->lane, run->done[step->after[k]], NULL);
	if (step->awaited)
		run->done[index] = new_signal();
	struct strait_emu_work *work;
	if (step->task.kind == TASK_WAIT) {
		work = put(run, step->lane, step->task.event->signal, run->done[index]);
	} else if (step->task.kind == TASK_RECORD) {
		struct strait_emu_signal *signal = new_signal();
		put(run, step->lane, NULL, signal);
		strait_emu_event_set_signal(step->task.event, signal);
		work = put(run, step->lane, NULL, run->done[index]);
	} else {
		work = put(run, step->lane, NULL, run->done[index]);
		work->task = step->task;
	}
	work->borrowed = 1;
}

static void drop_program(void *program)
{
	strait_emu_program_unref(program);
}

static int make_lanes(struct strait_emu_program *program, CUcontext context)
{
	for (unsigned lane = 1; lane < program->n_lanes; lane++) {
		if (program->lanes[lane])
			continue;
		CUstream stream = strait_emu_stream_new_locked(context, CU_STREAM_NON_BLOCKING, 0);
		if (!stream)
			return -1;
		stream->internal = 1;
		program->lanes[lane] = stream;
	}
	return 0;
}

int strait_emu_program_launch(struct strait_emu_program *program, CUstream stream,
			      struct strait_emu_signal *end)
{
	struct run run = {.program = program, .device = stream->context->device};
	run.done = calloc(program->n_steps + 1, sizeof(struct strait_emu_signal *));
	if (!run.done || make_lanes(program, stream->context) != 0) {
		free(run.done);
		return -1;
	}
	for (unsigned lane = 0; lane < STRAIT_EMU_LANES; lane++)
		run.tails[lane] = &run.heads[lane];
	struct strait_emu_signal *begin = program->n_lanes > 1 ? new_signal() : NULL;
	if (begin)
		put(&run, 0, NULL, begin);
	for (unsigned lane = 1; lane < program->n_lanes; lane++)
		put(&run, lane, begin, NULL);
	for (size_t i = 0; i < program->n_steps; i++)
		put_step(&run, i);
	for (unsigned lane = 1; lane < program->n_lanes; lane++) {
		struct strait_emu_signal *through = new_signal();
		put(&run, lane, NULL, through);
		put(&run, 0, through, NULL);
		strait_emu_signal_unref(through);
	}
	struct strait_emu_work *last = put(&run, 0, NULL, end);
	last->after = drop_program;
	last->data = program;
	strait_emu_stream_append(stream, run.heads[0]);
	for (unsigned lane = 1; lane < program->n_lanes; lane++)
		strait_emu_stream_append(program->lanes[lane], run.heads[lane]);
	strait_emu_signal_unref(begin);
	strait_emu_signal_unref(end);
	for (size_t i = 0; i < program->n_steps; i++)
		strait_emu_signal_unref(run.done[i]);
	free(run.done);
	return 0;
}
