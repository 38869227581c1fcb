/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs: replay, arguments and events as they were captured, branches, order by external event
 * nodes, what they keep alive.
 */
#include "tests/emulator/rig.h"
#include <stdatomic.h>
#include <string.h>

static CUstream stream, other;
static CUdeviceptr memory;
static uint32_t *gate;

static int set_up(void **state)
{
	rig_open(0);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuMemHostAlloc((void **)&gate, 4096, 0));
	memory = rig_alloc(4096);
	return 0;
}

static void clear(void)
{
	OK(cuMemsetD8(memory, 0, 4096));
	__atomic_store_n(gate, 0, __ATOMIC_SEQ_CST);
}

static void open_gate(void)
{
	__atomic_store_n(gate, 1, __ATOMIC_SEQ_CST);
}

static void wait_at_gate(CUstream on)
{
	struct arguments arguments = {.in = (uint64_t)(uintptr_t)gate, .count = 1};
	rig_launch("wait_for_host", 1, 1, &arguments, on);
}

static void increment(CUstream on, int word)
{
	struct arguments arguments = {.out = memory + 4u * (unsigned)word};
	rig_launch("increment", 1, 1, &arguments, on);
}

static uint32_t read_word(int word)
{
	uint32_t value;
	OK(cuMemcpyDtoH(&value, memory + 4u * (unsigned)word, 4));
	return value;
}

static CUgraph end(CUstream on)
{
	CUgraph graph;
	OK(cuStreamEndCapture(on, &graph));
	return graph;
}

/* Destroys the graph: what is instantiated stands by itself. */
static CUgraphExec instantiate(CUgraph graph)
{
	CUgraphExec exec;
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	return exec;
}

static void begin(CUstream on)
{
	OK(cuStreamBeginCapture(on, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

static void test_a_replay_does_what_was_captured(void **state)
{
	clear();
	begin(stream);
	for (int i = 0; i < 3; i++)
		increment(stream, 0);
	CUgraphExec exec = instantiate(end(stream));
	assert_int_equal(read_word(0), 0); /* a capture does nothing */
	for (int i = 0; i < 1000; i++)
		OK(cuGraphLaunch(exec, stream));
	OK(cuGraphExecDestroy(exec)); /* queued launches still run */
	OK(cuStreamSynchronize(stream));
	assert_int_equal(read_word(0), 3000);
}

static void test_launches_of_one_graph_do_not_overlap(void **state)
{
	clear();
	begin(stream);
	increment(stream, 0);
	increment(stream, 0);
	CUgraphExec exec = instantiate(end(stream));
	for (int i = 0; i < 300; i++)
		OK(cuGraphLaunch(exec, i % 2 ? stream : other));
	OK(cuStreamSynchronize(stream));
	OK(cuStreamSynchronize(other));
	assert_int_equal(read_word(0), 600);
	OK(cuGraphExecDestroy(exec));
}

static void test_branches_run_at_the_same_time_and_join(void **state)
{
	CUevent fork, join;
	OK(cuEventCreate(&fork, 0));
	OK(cuEventCreate(&join, 0));
	clear();
	begin(stream);
	OK(cuEventRecord(fork, stream));
	OK(cuStreamWaitEvent(other, fork, 0));
	wait_at_gate(stream); /* one branch waits for what the other does */
	OK(cuMemcpyDtoHAsync(gate, memory + 64, 4, other));
	OK(cuEventRecord(join, other));
	OK(cuStreamWaitEvent(stream, join, 0));
	increment(stream, 0);
	CUgraphExec exec = instantiate(end(stream));
	OK(cuMemsetD32(memory + 64, 1, 1));
	for (int i = 0; i < 20; i++) {
		__atomic_store_n(gate, 0, __ATOMIC_SEQ_CST);
		OK(cuGraphLaunch(exec, stream));
		OK(cuStreamSynchronize(stream));
	}
	assert_int_equal(read_word(0), 20);
	OK(cuGraphExecDestroy(exec));
	OK(cuEventDestroy(fork));
	OK(cuEventDestroy(join));
}

/* The communicator's own rule: each graph waits for the event at its begin and records it at its
 * end. */
static CUgraphExec ordered(CUstream on, CUevent event, int word, int gated)
{
	begin(on);
	OK(cuStreamWaitEvent(on, event, CU_EVENT_WAIT_EXTERNAL));
	if (gated)
		wait_at_gate(on);
	increment(on, word);
	OK(cuEventRecordWithFlags(event, on, CU_EVENT_RECORD_EXTERNAL));
	return instantiate(end(on));
}

static void test_external_events_order_graphs_on_two_streams(void **state)
{
	CUevent event;
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	clear();
	CUgraphExec first = ordered(stream, event, 0, 1);
	CUgraphExec second = ordered(other, event, 0, 0);
	for (int i = 0; i < 50; i++) {
		OK(cuGraphLaunch(first, stream));
		OK(cuGraphLaunch(second, other)); /* waits for the record of the launch before */
	}
	assert_int_equal(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
	assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	open_gate();
	OK(cuEventSynchronize(event));
	assert_int_equal(read_word(0), 100);
	OK(cuStreamSynchronize(stream));
	OK(cuEventDestroy(event)); /* the graphs hold it */
	OK(cuGraphLaunch(first, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuGraphExecDestroy(first));
	OK(cuGraphExecDestroy(second));
}

static void test_eager_work_waits_for_the_event_of_a_launch(void **state)
{
	CUevent event;
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	clear();
	CUgraphExec exec = ordered(stream, event, 0, 1);
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamWaitEvent(other, event, 0));
	increment(other, 1);
	assert_int_equal(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
	open_gate();
	OK(cuStreamSynchronize(other));
	assert_int_equal(read_word(0), 1);
	assert_int_equal(read_word(1), 1);
	OK(cuStreamSynchronize(stream));
	OK(cuGraphExecDestroy(exec));
	OK(cuEventDestroy(event));
}

static void test_arguments_are_those_of_the_capture(void **state)
{
	clear();
	begin(stream);
	struct arguments arguments = {.in = memory + 256, .out = memory, .count = 4, .rank = 11};
	rig_launch("add_rank", 1, 4, &arguments, stream);
	memset(&arguments, 0xff, sizeof arguments);
	CUgraphExec exec = instantiate(end(stream));
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
	assert_int_equal(read_word(3), 11);
	OK(cuGraphExecDestroy(exec));
}

static void test_an_update_takes_the_new_arguments(void **state)
{
	CUgraph graphs[3];
	CUgraphExecUpdateResultInfo info;
	clear();
	for (int i = 0; i < 3; i++) {
		begin(stream);
		increment(stream, i);
		if (i == 2)
			increment(stream, i);
		graphs[i] = end(stream);
	}
	CUgraphExec exec = instantiate(graphs[0]);
	OK(cuGraphLaunch(exec, stream));
	OK(cuGraphExecUpdate(exec, graphs[1], &info));
	OK(cuGraphLaunch(exec, stream));
	assert_int_equal(cuGraphExecUpdate(exec, graphs[2], &info),
			 CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
	assert_int_equal(read_word(0), 1);
	assert_int_equal(read_word(1), 2);
	assert_int_equal(read_word(2), 0);
	OK(cuGraphDestroy(graphs[1]));
	OK(cuGraphDestroy(graphs[2]));
	OK(cuGraphExecDestroy(exec));
}

static void CUDA_CB note(void *data)
{
	atomic_fetch_add((_Atomic int *)data, 1);
}

static void test_a_user_object_lives_as_long_as_graph_and_launches(void **state)
{
	static _Atomic int destroyed;
	CUuserObject object;
	destroyed = 0;
	clear();
	begin(stream);
	wait_at_gate(stream);
	CUgraph graph = end(stream);
	OK(cuUserObjectCreate(&object, (void *)&destroyed, note, 1,
			      CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	CUgraphExec exec = instantiate(graph);
	OK(cuGraphLaunch(exec, stream));
	OK(cuGraphExecDestroy(exec));
	assert_int_equal(destroyed, 0);
	open_gate();
	OK(cuStreamSynchronize(stream));
	assert_int_equal(destroyed, 1);
}

static void test_graphs_can_be_built_by_hand(void **state)
{
	static _Atomic int calls;
	CUgraph graph, child;
	CUgraphNode a, b, c, d;
	CUcontext context;
	calls = 0;
	clear();
	OK(cuCtxGetCurrent(&context));
	OK(cuGraphCreate(&child, 0));
	CUDA_HOST_NODE_PARAMS host = {.fn = note, .userData = (void *)&calls};
	OK(cuGraphAddHostNode(&a, child, NULL, 0, &host));
	OK(cuGraphAddHostNode(&b, child, NULL, 0, &host));
	OK(cuGraphCreate(&graph, 0));
	CUDA_MEMSET_NODE_PARAMS fill = {
		.dst = memory, .value = 7, .elementSize = 4, .width = 1, .height = 1};
	OK(cuGraphAddMemsetNode(&a, graph, NULL, 0, &fill, context));
	struct arguments arguments = {.out = memory};
	void *params[] = {&arguments};
	CUDA_KERNEL_NODE_PARAMS kernel = {.func = rig_kernel("increment"),
					  .gridDimX = 1,
					  .gridDimY = 1,
					  .gridDimZ = 1,
					  .blockDimX = 1,
					  .blockDimY = 1,
					  .blockDimZ = 1,
					  .kernelParams = params};
	OK(cuGraphAddKernelNode(&b, graph, &a, 1, &kernel));
	OK(cuGraphAddChildGraphNode(&c, graph, &b, 1, child));
	OK(cuGraphAddEmptyNode(&d, graph, &c, 1));
	OK(cuGraphDestroy(child));
	CUgraphExec exec = instantiate(graph);
	for (int i = 0; i < 10; i++)
		OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
	assert_int_equal(read_word(0), 8);
	assert_int_equal(calls, 20);
	OK(cuGraphExecDestroy(exec));
}

/* Three all-reduces a replay, ranks as threads or processes; input changes from replay to replay.
 */
static int replay(struct rig_rank *rank, long replays)
{
	enum { COUNT = 128 };
	uint32_t *host;
	int wrong = 0;
	struct arguments arguments = {.in = rig_alloc(4 * COUNT),
				      .out = rig_alloc(4 * COUNT),
				      .count = COUNT,
				      .rank = rank->rank,
				      .n_ranks = rank->n};
	for (int r = 0; r < rank->n; r++)
		arguments.scratch[r] = rank->scratch[r];
	OK(cuMemHostAlloc((void **)&host, 8 * COUNT, 0));
	OK(cuStreamBeginCapture(rank->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(cuMemcpyHtoDAsync(arguments.in, host, 4 * COUNT, rank->stream));
	rig_launch("allreduce_packets", 2, 32, &arguments, rank->stream);
	rig_launch("allreduce_flags", 2, 32, &arguments, rank->stream);
	rig_launch("allreduce_packets", 2, 32, &arguments, rank->stream);
	OK(cuMemcpyDtoHAsync(host + COUNT, arguments.out, 4 * COUNT, rank->stream));
	CUgraphExec exec = instantiate(end(rank->stream));
	for (int k = 0; k < replays; k++) {
		for (int i = 0; i < COUNT; i++)
			host[i] = (uint32_t)(k * 1000 + i + rank->rank);
		OK(cuGraphLaunch(exec, rank->stream));
		OK(cuStreamSynchronize(rank->stream));
		for (int i = 0; i < COUNT; i++)
			wrong += host[COUNT + i] !=
				 (uint32_t)(rank->n * (k * 1000 + i) + rank->n * (rank->n - 1) / 2);
	}
	OK(cuGraphExecDestroy(exec));
	return wrong;
}

static void test_collective_graphs_replay_exactly(void **state)
{
	assert_int_equal(rig_run_threads(2, replay, 1000, 2), 0);
	assert_int_equal(rig_run_processes(4, "replay", 100, NULL), 0);
}

int main(int argc, char **argv)
{
	static const struct rig_role roles[] = {{"replay", replay}};
	rig_main(argc, argv, roles, 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_replay_does_what_was_captured),
		cmocka_unit_test(test_launches_of_one_graph_do_not_overlap),
		cmocka_unit_test(test_branches_run_at_the_same_time_and_join),
		cmocka_unit_test(test_external_events_order_graphs_on_two_streams),
		cmocka_unit_test(test_eager_work_waits_for_the_event_of_a_launch),
		cmocka_unit_test(test_arguments_are_those_of_the_capture),
		cmocka_unit_test(test_an_update_takes_the_new_arguments),
		cmocka_unit_test(test_a_user_object_lives_as_long_as_graph_and_launches),
		cmocka_unit_test(test_graphs_can_be_built_by_hand),
		cmocka_unit_test(test_collective_graphs_replay_exactly),
	};
	return cmocka_run_group_tests(tests, set_up, NULL);
}
