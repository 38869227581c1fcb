/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduces in captured graphs: whatever changes from replay to replay must not be frozen. */
#include "tests/gpu/case.h"
#include <stdio.h>
#include <stdlib.h>

enum { PATTERNS = 61 };

static void *pinned_new(size_t bytes)
{
	void *host;

	GPU(cuMemHostAlloc, &host, bytes, 0);
	return host;
}

/* New input before each replay; one rank, another each time, is up to 2 ms late. */
static void replay(ncclComm_t comm, size_t count, size_t n_replays, bool late)
{
	struct series series = series_new(STRAIT_BFLOAT16, STRAIT_SUM, count, PATTERNS);
	struct buffer input = buffer_new(MEMORY_DEVICE, series.bytes, 0),
		      output = buffer_new(MEMORY_DEVICE, series.bytes, 0);
	void *got = pinned_new(series.bytes);
	uint64_t random = me->seed;
	CUgraphExec graph;

	capture_begin(me->stream);
	series_reduce(&series, input.at, output.at, comm, me->stream);
	graph = capture_end(me->stream);
	for (uint64_t k = 0; k < n_replays; k++) {
		uint64_t choice = random_next(&random);

		if (k % 64 == 0)
			say("replay %llu of %zu bytes", (unsigned long long)k, series.bytes);
		if (late && choice % (uint64_t)me->n == (uint64_t)me->number)
			pause_us((unsigned)(choice >> 32) % 2000);
		GPU(cuMemcpyDtoDAsync, input.at, series_input(&series, k), series.bytes,
		    me->stream);
		GPU(cuGraphLaunch, graph, me->stream);
		GPU(cuMemcpyDtoHAsync, got, output.at, series.bytes, me->stream);
		wait_stream(me->stream);
		series_check(&series, k, got, "replay");
	}
	GPU(cuGraphExecDestroy, graph);
	GPU(cuMemFreeHost, got);
	buffer_free(&input);
	buffer_free(&output);
	series_free(&series);
}

void case_graph_replay(void)
{
	ncclComm_t comm = communicator_new();

	replay(comm, 4096, pick(10000, 300), true);
	/* The sizes of the other algorithms. */
	replay(comm, 64 << 10, pick(2000, 20), true);
	replay(comm, pick(1 << 20, 300 << 10), pick(1000, 3), false);
	communicator_free(comm);
}

/* A member of a graph: its own series, input and output. */
struct part {
	struct series series;
	struct buffer input, output;
	void *got;
};

static struct part part_new(enum strait_type type, size_t bytes)
{
	struct part part;

	part.series =
		series_new(type, STRAIT_SUM, bytes / strait_reference_type_bytes(type), PATTERNS);
	part.input = buffer_new(MEMORY_DEVICE, part.series.bytes, 0);
	part.output = buffer_new(MEMORY_DEVICE, part.series.bytes, 0);
	part.got = pinned_new(part.series.bytes);
	return part;
}

static void part_free(struct part *part)
{
	GPU(cuMemFreeHost, part->got);
	buffer_free(&part->input);
	buffer_free(&part->output);
	series_free(&part->series);
}

static void part_reduce(struct part *part, ncclComm_t comm, CUstream stream)
{
	series_reduce(&part->series, part->input.at, part->output.at, comm, stream);
}

static void part_load(struct part *part, uint64_t k, CUstream stream)
{
	GPU(cuMemcpyDtoDAsync, part->input.at, series_input(&part->series, k), part->series.bytes,
	    stream);
}

static void part_fetch(struct part *part, CUstream stream)
{
	GPU(cuMemcpyDtoHAsync, part->got, part->output.at, part->series.bytes, stream);
}

static void replay_three(struct part *parts, CUgraphExec graph, size_t n_replays)
{
	for (uint64_t k = 0; k < n_replays; k++) {
		if (k % 64 == 0)
			say("replay %llu", (unsigned long long)k);
		for (int i = 0; i < 3; i++)
			part_load(&parts[i], k + (uint64_t)i, me->stream);
		GPU(cuGraphLaunch, graph, me->stream);
		for (int i = 0; i < 3; i++)
			part_fetch(&parts[i], me->stream);
		wait_stream(me->stream);
		for (int i = 0; i < 3; i++)
			series_check(&parts[i].series, k + (uint64_t)i, parts[i].got, "replay");
	}
}

static CUgraphExec capture_three(struct part *parts, ncclComm_t comm)
{
	capture_begin(me->stream);
	for (int i = 0; i < 3; i++)
		part_reduce(&parts[i], comm, me->stream);
	return capture_end(me->stream);
}

void case_graph_of_three(void)
{
	struct part parts[] = {part_new(STRAIT_FLOAT16, 1 << 10),
			       part_new(STRAIT_FLOAT32, 32 << 10),
			       part_new(STRAIT_BFLOAT16, pick(1 << 20, 200 << 10))};
	ncclComm_t comm = communicator_new();
	CUgraphExec graph = capture_three(parts, comm);

	replay_three(parts, graph, pick(10000, 60));
	GPU(cuGraphExecDestroy, graph);
	communicator_free(comm);
	for (int i = 0; i < 3; i++)
		part_free(&parts[i]);
}

static size_t free_bytes(void)
{
	size_t free_now, total;

	GPU(cuMemGetInfo, &free_now, &total);
	return free_now;
}

void case_first_in_capture(void)
{
	struct part parts[] = {part_new(STRAIT_FLOAT16, 1 << 10),
			       part_new(STRAIT_FLOAT32, 64 << 10),
			       part_new(STRAIT_BFLOAT16, pick(1 << 20, 200 << 10))};
	ncclComm_t comm = communicator_new();
	size_t before, after;
	CUgraphExec graph;
	CUgraph captured;

	barrier();
	before = free_bytes();
	capture_begin(me->stream);
	for (int i = 0; i < 3; i++)
		part_reduce(&parts[i], comm, me->stream);
	GPU(cuStreamEndCapture, me->stream, &captured);
	barrier();
	after = free_bytes();
	barrier(); /* only now may another rank allocate */
	MUST_SAY(after == before, "the capture took %zd bytes of device memory",
		 (ssize_t)(before - after));
	GPU(cuGraphInstantiateWithFlags, &graph, captured, 0);
	GPU(cuGraphDestroy, captured);
	replay_three(parts, graph, pick(100, 10));
	GPU(cuGraphExecDestroy, graph);
	communicator_free(comm);
	for (int i = 0; i < 3; i++)
		part_free(&parts[i]);
}

enum { LANES = 2, IN_GRAPH = 4 };

/* A stream with a graph of several calls of one size, each with its own buffers. */
struct lane {
	CUstream stream;
	struct part parts[IN_GRAPH];
	CUgraphExec graph;
};

static struct lane lane_new(size_t bytes, ncclComm_t comm)
{
	struct lane lane;

	GPU(cuStreamCreate, &lane.stream, CU_STREAM_NON_BLOCKING);
	for (int i = 0; i < IN_GRAPH; i++)
		lane.parts[i] = part_new(STRAIT_FLOAT16, bytes);
	capture_begin(lane.stream);
	for (int i = 0; i < IN_GRAPH; i++)
		part_reduce(&lane.parts[i], comm, lane.stream);
	lane.graph = capture_end(lane.stream);
	return lane;
}

static void lane_free(struct lane *lane)
{
	GPU(cuGraphExecDestroy, lane->graph);
	for (int i = 0; i < IN_GRAPH; i++)
		part_free(&lane->parts[i]);
	GPU(cuStreamDestroy, lane->stream);
}

static void lane_launch(struct lane *lane, uint64_t k, bool eager, ncclComm_t comm)
{
	for (int i = 0; i < IN_GRAPH; i++)
		part_load(&lane->parts[i], k + (uint64_t)i, lane->stream);
	if (eager)
		for (int i = 0; i < IN_GRAPH; i++)
			part_reduce(&lane->parts[i], comm, lane->stream);
	else
		GPU(cuGraphLaunch, lane->graph, lane->stream);
	for (int i = 0; i < IN_GRAPH; i++)
		part_fetch(&lane->parts[i], lane->stream);
}

/* `eager_of`: every so many rounds, lane by lane in turn, a lane calls instead of replaying. */
static void run_lanes(size_t n_rounds, unsigned eager_of)
{
	ncclComm_t comm = communicator_new();
	struct lane lanes[LANES] = {lane_new(8 << 10, comm),
				    lane_new(pick(256 << 10, 32 << 10), comm)};

	for (uint64_t k = 0; k < n_rounds; k++) {
		if (k % 64 == 0)
			say("round %llu", (unsigned long long)k);
		for (unsigned l = 0; l < LANES; l++)
			lane_launch(&lanes[l], k * LANES + l, eager_of && (k + l) % eager_of == 0,
				    comm);
		for (unsigned l = 0; l < LANES; l++) {
			wait_stream(lanes[l].stream);
			for (int i = 0; i < IN_GRAPH; i++)
				series_check(&lanes[l].parts[i].series, k * LANES + l + (uint64_t)i,
					     lanes[l].parts[i].got,
					     l ? "large lane" : "small lane");
		}
	}
	for (int l = 0; l < LANES; l++)
		lane_free(&lanes[l]);
	communicator_free(comm);
}

void case_two_graphs(void)
{
	run_lanes(pick(5000, 30), 0);
}

void case_graphs_beside_eager(void)
{
	run_lanes(pick(5000, 30), 2);
}
