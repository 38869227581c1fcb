/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduces in captured graphs: whatever changes from replay to replay must not be frozen. */
#include "tests/gpu/case.h"
#include <stdio.h>
#include <stdlib.h>

enum { PATTERNS = 61 };

static void begin(CUstream stream)
{
	GPU(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static CUgraphExec end(CUstream stream)
{
	CUgraphExec exec;
	CUgraph graph;

	GPU(cuStreamEndCapture, stream, &graph);
	GPU(cuGraphInstantiateWithFlags, &exec, graph, 0);
	GPU(cuGraphDestroy, graph);
	return exec;
}

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

	begin(me->stream);
	check_nccl(series_reduce(&series, input.at, output.at, comm, me->stream), __FILE__,
		   __LINE__, "AllReduce");
	graph = end(me->stream);
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
