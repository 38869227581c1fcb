/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of one communicator inside one capture run one after another, even where the user's own
 * dependencies would let them run at once. Each graph is replayed often, with new data.
 */
#include "tests/api/child.h"

enum { COUNT = 100, REPLAYS = 50, SECOND_AT = 1 << 14 };

static void capture_call(int rank, size_t offset, CUstream stream)
{
	nccl(ncclAllReduce((void *)(ranks[rank].send + offset), (void *)(ranks[rank].recv + offset),
			   COUNT, ncclFloat, ncclSum, ranks[rank].comm, (cudaStream_t)stream));
}

static void capture_own_work(int rank)
{
	cuda(cuMemsetD8Async(ranks[rank].send + BUFFER_BYTES - 64, 0, 64, ranks[rank].stream));
}

/* Makes the stream forget its first call. */
static void capture_set_back(int rank)
{
	CUstream stream = ranks[rank].stream;
	CUstreamCaptureStatus status;
	cuuint64_t id;
	CUgraph graph;
	const CUgraphNode *nodes;
	CUgraphNode before;
	size_t n_nodes;

	capture_own_work(rank);
	cuda(cuStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, NULL, &n_nodes));
	must(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && n_nodes == 1);
	before = nodes[0];
	capture_call(rank, 0, stream);
	cuda(cuStreamUpdateCaptureDependencies(stream, &before, NULL, 1,
					       CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	capture_call(rank, SECOND_AT, stream);
}

static CUevent new_event(void)
{
	CUevent event;

	cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	return event;
}

/* A stream that captures lives until its capture has ended. */
static CUstream forks[2];
static int n_forks;

/* One call on a stream that forks at `fork` and joins. */
static void capture_fork(int rank, CUevent fork, size_t offset)
{
	CUevent join = new_event();
	CUstream stream;

	cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	forks[n_forks++] = stream;
	cuda(cuStreamWaitEvent(stream, fork, 0));
	capture_call(rank, offset, stream);
	cuda(cuEventRecord(join, stream));
	cuda(cuStreamWaitEvent(ranks[rank].stream, join, 0));
}

/* Two forks at one point. */
static void capture_two_forks(int rank)
{
	CUevent fork = new_event();

	capture_own_work(rank);
	cuda(cuEventRecord(fork, ranks[rank].stream));
	capture_fork(rank, fork, 0);
	capture_fork(rank, fork, SECOND_AT);
}

/* A call on the stream itself, and one on a fork from before it. */
static void capture_fork_beside(int rank)
{
	CUevent fork = new_event();

	capture_own_work(rank);
	cuda(cuEventRecord(fork, ranks[rank].stream));
	capture_call(rank, 0, ranks[rank].stream);
	capture_fork(rank, fork, SECOND_AT);
}

static CUgraphExec capture(int rank, void (*calls)(int))
{
	CUgraph graph;
	CUgraphExec exec;

	enter(rank);
	cuda(cuStreamBeginCapture(ranks[rank].stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	calls(rank);
	cuda(cuStreamEndCapture(ranks[rank].stream, &graph));
	while (n_forks)
		cuda(cuStreamDestroy(forks[--n_forks]));
	cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	cuda(cuGraphDestroy(graph));
	return exec;
}

static void (*const captures[])(int) = {capture_set_back, capture_two_forks, capture_fork_beside};

static void replay(int which)
{
	CUgraphExec graphs[2];

	make_ranks(2);
	for (int r = 0; r < 2; r++)
		graphs[r] = capture(r, captures[which]);
	for (int k = 0; k < REPLAYS; k++) {
		for (int r = 0; r < 2; r++) {
			fill(ranks[r].send, r, k, COUNT);
			fill(ranks[r].send + SECOND_AT, r, k + 3, COUNT);
			cuda(cuGraphLaunch(graphs[r], ranks[r].stream));
		}
		for (int r = 0; r < 2; r++) {
			enter(r);
			cuda(cuStreamSynchronize(ranks[r].stream));
			check(ranks[r].recv, r, k, COUNT);
			check(ranks[r].recv + SECOND_AT, r, k + 3, COUNT);
		}
		if (k % 10 == 9) /* between replays, eager calls */
			reduce_exactly(k, COUNT);
	}
}

static void test_calls_keep_their_order_after_dependencies_are_set_back(void **state)
{
	run_child(NULL, replay, 0);
}

static void test_calls_on_two_forks_of_a_capture_keep_their_order(void **state)
{
	run_child(NULL, replay, 1);
}

static void test_call_on_a_fork_from_before_another_call_is_behind_it(void **state)
{
	run_child(NULL, replay, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_calls_keep_their_order_after_dependencies_are_set_back),
		cmocka_unit_test(test_calls_on_two_forks_of_a_capture_keep_their_order),
		cmocka_unit_test(test_call_on_a_fork_from_before_another_call_is_behind_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
