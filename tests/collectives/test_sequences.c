/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many calls of one communicator: mixed sizes and algorithms, counters that wrap, two streams
 * without an event between them, graphs beside eager calls, long replays, groups. Every call has
 * data of its own, so that what an earlier one left behind shows. Seeds are printed with a fault.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/collectives/case.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Calls of float sums on places of their own in the arenas, checked together afterwards. */
enum { MOST_CALLS = 64, PLACE_BYTES = 320 << 10, MOST_COUNT = PLACE_BYTES / 4 };

static struct strait_reference reference(const struct rig *rig, uint64_t k)
{
	return (struct strait_reference){STRAIT_FLOAT32, STRAIT_SUM, rig->n_ranks, k};
}

static CUdeviceptr place_of(const struct rig *rig, int rank, int arena, int call)
{
	return rig->ranks[rank].arenas[arena] + (size_t)call * PLACE_BYTES;
}

static void fill_call(const struct rig *rig, int call, size_t count, uint64_t k)
{
	static float values[MOST_COUNT];
	struct strait_reference ref = reference(rig, k);

	for (int r = 0; r < rig->n_ranks; r++) {
		strait_reference_input(&ref, r, 0, count, values);
		rig_copy_in(rig, r, place_of(rig, r, 0, call), values, count * sizeof(*values));
		memset(values, 0xee, count * sizeof(*values));
		rig_copy_in(rig, r, place_of(rig, r, 1, call), values, count * sizeof(*values));
	}
}

static void issue_call(const struct rig *rig, int rank, int call, size_t count, CUstream stream)
{
	rig_enter(rig, rank);
	RIG_NCCL(ncclAllReduce((void *)place_of(rig, rank, 0, call),
			       (void *)place_of(rig, rank, 1, call), count, ncclFloat, ncclSum,
			       rig->ranks[rank].comm, (cudaStream_t)stream));
}

static void check_call(const struct rig *rig, int call, size_t count, uint64_t k)
{
	static float expected[MOST_COUNT], got[MOST_COUNT];
	struct strait_reference ref = reference(rig, k);
	struct strait_mismatch mismatch;

	strait_reference_output(&ref, 0, count, expected);
	for (int r = 0; r < rig->n_ranks; r++) {
		rig_copy_out(rig, r, got, place_of(rig, r, 1, call), count * sizeof(*got));
		if (strait_reference_compare(STRAIT_FLOAT32, got, expected, count, 0, &mismatch))
			rig_die("call %d (k = %" PRIu64
				", %zu elements), rank %d: %zu wrong, the first "
				"at %zu: %s instead of %s",
				call, k, count, r, mismatch.n, mismatch.first, mismatch.got,
				mismatch.expected);
	}
}

static void start(struct rig *rig, int n_ranks)
{
	rig_init(rig, n_ranks);
	rig_reserve(rig, (size_t)MOST_CALLS * PLACE_BYTES / 2);
}

/* Every size class up to where one-shot packets no longer fit, and beyond; often none at all. */
static size_t random_count(uint64_t *random)
{
	size_t count = rig_random(random) % (1ul << (1 + rig_random(random) % 17));

	return rig_random(random) % 5 == 0 ? 0 : count < MOST_COUNT ? count : MOST_COUNT;
}

/* Batches of calls of random sizes, each batch issued whole before anything is waited for. */
static void random_batches(struct rig *rig, uint64_t seed, int n_batches, bool two_streams)
{
	enum { BATCH = 12 };
	size_t counts[BATCH];
	bool second[BATCH];
	uint64_t random = seed;

	for (int batch = 0; batch < n_batches; batch++) {
		uint64_t k = rig_random(&random) % 100000;

		rig_note("seed %" PRIu64 ", %d ranks, batch %d", seed, rig->n_ranks, batch);
		for (int call = 0; call < BATCH; call++) {
			counts[call] = random_count(&random);
			second[call] = two_streams && rig_random(&random) & 1;
			fill_call(rig, call, counts[call], k + (uint64_t)call);
		}
		for (int r = 0; r < rig->n_ranks; r++)
			for (int call = 0; call < BATCH; call++)
				issue_call(rig, r, call, counts[call],
					   second[call] ? rig->ranks[r].second
							: rig->ranks[r].stream);
		rig_wait(rig);
		for (int call = 0; call < BATCH; call++)
			check_call(rig, call, counts[call], k + (uint64_t)call);
	}
}

static void mixed_calls(void *argument)
{
	struct rig rig;

	for (int n = 2; n <= 4; n++) {
		start(&rig, n);
		random_batches(&rig, 11 + (uint64_t)n, 12, false);
		rig_deinit(&rig);
	}
}

static void test_sizes_and_algorithms_alternate_on_one_communicator(void **state)
{
	assert_int_equal(rig_each_algorithm(mixed_calls, NULL), 0);
}

static void streams_without_events(void *argument)
{
	struct rig rig;

	for (int n = 2; n <= 4; n += 2) {
		start(&rig, n);
		random_batches(&rig, 21 + (uint64_t)n, 12, true);
		rig_deinit(&rig);
	}
}

static void test_calls_on_two_streams_keep_the_order_of_issue(void **state)
{
	assert_int_equal(rig_each_algorithm(streams_without_events, NULL), 0);
}

/* Pairs of a small and a large one on streams of different priority. */
static void priorities(void *argument)
{
	enum { PAIRS = 16, SMALL = 2048, LARGE = 65536 };
	int least, greatest;
	CUstream streams[2][2];
	struct rig rig;

	start(&rig, 2);
	for (int r = 0; r < 2; r++) {
		rig_enter(&rig, r);
		RIG_GPU(cuCtxGetStreamPriorityRange(&least, &greatest));
		RIG_GPU(cuStreamCreateWithPriority(&streams[r][0], CU_STREAM_NON_BLOCKING, least));
		RIG_GPU(cuStreamCreateWithPriority(&streams[r][1], CU_STREAM_NON_BLOCKING,
						   greatest));
	}
	for (uint64_t round = 0; round < 4; round++) {
		rig_note("round %" PRIu64, round);
		for (int call = 0; call < 2 * PAIRS; call++)
			fill_call(&rig, call, call & 1 ? LARGE : SMALL,
				  100 * round + (uint64_t)call);
		for (int r = 0; r < 2; r++)
			for (int call = 0; call < 2 * PAIRS; call++)
				issue_call(&rig, r, call, call & 1 ? LARGE : SMALL,
					   streams[r][call & 1]);
		for (int r = 0; r < 2; r++)
			for (int s = 0; s < 2; s++) {
				rig_enter(&rig, r);
				RIG_GPU(cuStreamSynchronize(streams[r][s]));
			}
		for (int call = 0; call < 2 * PAIRS; call++)
			check_call(&rig, call, call & 1 ? LARGE : SMALL,
				   100 * round + (uint64_t)call);
	}
	for (int r = 0; r < 2; r++)
		for (int s = 0; s < 2; s++) {
			rig_enter(&rig, r);
			RIG_GPU(cuStreamDestroy(streams[r][s]));
		}
	rig_deinit(&rig);
}

static void test_streams_of_different_priority_do_not_block_each_other(void **state)
{
	assert_int_equal(rig_each_algorithm(priorities, NULL), 0);
}

/* Counters that start shortly before they wrap somewhere. */
static void wrapping(void *argument)
{
	struct rig rig;

	setenv("STRAIT_EPOCH_START", argument, 1);
	for (int n = 2; n <= 3; n++) {
		start(&rig, n);
		random_batches(&rig, 31 + (uint64_t)n, 3, true);
		rig_deinit(&rig);
	}
}

static void test_counters_wrap_without_a_trace(void **state)
{
	static const uint64_t edges[] = {1ul << 20, 1ul << 31, 1ul << 32, (1ul << 63) - 1};
	char text[32];

	for (size_t i = 0; i < sizeof(edges) / sizeof(*edges); i++)
		for (uint64_t before = 1; before <= 20; before += 19) {
			snprintf(text, sizeof(text), "%" PRIu64, edges[i] - before);
			print_message("start at %s\n", text);
			assert_int_equal(rig_each_algorithm(wrapping, text), 0);
		}
}

static void empty_calls(void *argument)
{
	struct rig rig;

	start(&rig, 2);
	for (int k = 0; k < 300; k++) {
		rig_note("round %d", k);
		fill_call(&rig, 0, 4096, (uint64_t)k);
		for (int call = 0; call < 3; call++)
			for (int r = 0; r < 2; r++)
				issue_call(&rig, r, 0, call == 1 ? 4096 : 0, rig.ranks[r].stream);
		rig_wait(&rig);
		check_call(&rig, 0, 4096, (uint64_t)k);
	}
	rig_deinit(&rig);
}

static void test_calls_without_elements_leave_no_trace(void **state)
{
	assert_int_equal(rig_each_algorithm(empty_calls, NULL), 0);
}

/* The second call of a chain reads what the first wrote, in one group and in one graph. */
static void issue_chain(const struct rig *rig, int rank, const size_t *counts, int n)
{
	for (int call = 0; call < n; call++)
		issue_call(rig, rank, call, counts[call], rig->ranks[rank].stream);
}

/* The first calls of the communicator are captured, in the strictest mode, and allocate nothing. */
static void first_calls_captured(void *argument)
{
	static const size_t counts[] = {256, 16384, 70000};
	size_t free_before[2], free_after[2], total;
	CUgraphExec graphs[RIG_MOST_RANKS];
	struct rig rig;

	start(&rig, 2);
	for (int r = 0; r < 2; r++) {
		rig_enter(&rig, r);
		RIG_GPU(cuMemGetInfo(&free_before[r], &total));
	}
	rig_capture_begin(&rig, CU_STREAM_CAPTURE_MODE_GLOBAL);
	for (int r = 0; r < 2; r++)
		issue_chain(&rig, r, counts, 3);
	for (int r = 0; r < 2; r++) {
		rig_enter(&rig, r);
		RIG_GPU(cuMemGetInfo(&free_after[r], &total));
		if (free_after[r] != free_before[r])
			rig_die("captured calls allocate device memory");
	}
	rig_capture_end(&rig, graphs);
	for (uint64_t k = 0; k < 30; k++) {
		rig_note("replay %" PRIu64, k);
		for (int call = 0; call < 3; call++)
			fill_call(&rig, call, counts[call], 10 * k + (uint64_t)call);
		rig_launch(&rig, graphs);
		rig_wait(&rig);
		for (int call = 0; call < 3; call++)
			check_call(&rig, call, counts[call], 10 * k + (uint64_t)call);
	}
	rig_free_graphs(&rig, graphs);
	rig_deinit(&rig);
}

static void test_first_calls_of_a_communicator_may_be_captured(void **state)
{
	assert_int_equal(rig_each_algorithm(first_calls_captured, NULL), 0);
}

/* A graph of three calls: x, the sum of that, and the sum of that again. New input before each
 * replay. */
static void thousand_replays(void *argument)
{
	enum { COUNT = 500, REPLAYS = 1000 };
	CUgraphExec graphs[RIG_MOST_RANKS];
	float values[COUNT];
	struct rig rig;

	start(&rig, 2);
	rig_capture_begin(&rig, CU_STREAM_CAPTURE_MODE_GLOBAL);
	for (int call = 0; call < 3; call++)
		for (int r = 0; r < 2; r++) {
			rig_enter(&rig, r);
			RIG_NCCL(ncclAllReduce(
				(void *)place_of(&rig, r, call ? 1 : 0, call ? call - 1 : 0),
				(void *)place_of(&rig, r, 1, call), COUNT, ncclFloat, ncclSum,
				rig.ranks[r].comm, (cudaStream_t)rig.ranks[r].stream));
		}
	rig_capture_end(&rig, graphs);
	for (int k = 0; k < REPLAYS; k++) {
		rig_note("replay %d", k);
		for (int r = 0; r < 2; r++) {
			for (size_t i = 0; i < COUNT; i++)
				values[i] = (float)((r + 1) * (int)(1 + (i + (size_t)k) % 7));
			rig_copy_in(&rig, r, place_of(&rig, r, 0, 0), values, sizeof(values));
		}
		rig_launch(&rig, graphs);
		rig_wait(&rig);
		for (int r = 0; r < 2; r++) {
			rig_copy_out(&rig, r, values, place_of(&rig, r, 1, 2), sizeof(values));
			for (size_t i = 0; i < COUNT; i++)
				if (values[i] != (float)(12 * (1 + (i + (size_t)k) % 7)))
					rig_die("rank %d, element %zu: %g", r, i,
						(double)values[i]);
		}
	}
	rig_free_graphs(&rig, graphs);
	rig_deinit(&rig);
}

static void test_a_graph_is_replayed_a_thousand_times_with_new_input(void **state)
{
	assert_int_equal(rig_each_algorithm(thousand_replays, NULL), 0);
}

static CUgraphExec capture_on(const struct rig *rig, int rank, CUstream stream, int first,
			      const size_t *counts, int n)
{
	CUgraphExec exec;
	CUgraph graph;

	rig_enter(rig, rank);
	RIG_GPU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	for (int call = first; call < first + n; call++)
		issue_call(rig, rank, call, counts[call], stream);
	RIG_GPU(cuStreamEndCapture(stream, &graph));
	RIG_GPU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	RIG_GPU(cuGraphDestroy(graph));
	return exec;
}

/* Calls 0 and 1 in one graph, 2 and 3 in another on the other stream, 4 eager on either, in a
 * random order that is the same on all ranks, nothing waited for in between. */
static void graphs_beside_eager(void *argument)
{
	static const size_t counts[] = {700, 30000, 64, 9000, 5000};
	uint64_t random = 41;
	struct rig rig;
	CUgraphExec graphs[RIG_MOST_RANKS][2];

	start(&rig, 3);
	for (int r = 0; r < 3; r++) {
		graphs[r][0] = capture_on(&rig, r, rig.ranks[r].stream, 0, counts, 2);
		graphs[r][1] = capture_on(&rig, r, rig.ranks[r].second, 2, counts, 2);
	}
	for (uint64_t k = 0; k < 30; k++) {
		uint64_t dice = rig_random(&random);

		rig_note("round %" PRIu64, k);
		for (int call = 0; call < 5; call++)
			fill_call(&rig, call, counts[call], 10 * k + (uint64_t)call);
		for (int r = 0; r < 3; r++) {
			struct rig_rank *rank = &rig.ranks[r];

			rig_enter(&rig, r);
			for (unsigned i = 0; i < 9; i++) {
				unsigned what = (unsigned)(dice >> 2 * i) % 3;

				if (what == 2)
					issue_call(&rig, r, 4, counts[4],
						   dice >> 32 & 1 ? rank->stream : rank->second);
				else
					RIG_GPU(cuGraphLaunch(graphs[r][what],
							      what ? rank->second : rank->stream));
			}
			RIG_GPU(cuGraphLaunch(graphs[r][0], rank->stream));
			RIG_GPU(cuGraphLaunch(graphs[r][1], rank->second));
			issue_call(&rig, r, 4, counts[4], rank->stream);
		}
		rig_wait(&rig);
		for (int call = 0; call < 5; call++)
			check_call(&rig, call, counts[call], 10 * k + (uint64_t)call);
	}
	for (int r = 0; r < 3; r++)
		for (int g = 0; g < 2; g++) {
			rig_enter(&rig, r);
			RIG_GPU(cuGraphExecDestroy(graphs[r][g]));
		}
	rig_deinit(&rig);
}

static void test_two_graphs_and_eager_calls_keep_the_order_of_issue(void **state)
{
	assert_int_equal(rig_each_algorithm(graphs_beside_eager, NULL), 0);
}

static void nested_groups(void *argument)
{
	static const size_t counts[] = {1024, 3, 50000, 77, 0, 1024};
	struct rig rig;

	start(&rig, 4);
	for (uint64_t k = 0; k < 10; k++) {
		rig_note("round %" PRIu64, k);
		for (int call = 0; call < 6; call++)
			fill_call(&rig, call, counts[call], 10 * k + (uint64_t)call);
		RIG_NCCL(ncclGroupStart());
		RIG_NCCL(ncclGroupStart());
		for (int r = 0; r < 4; r++) {
			RIG_NCCL(ncclGroupStart());
			issue_chain(&rig, r, counts, 6);
			RIG_NCCL(ncclGroupEnd());
		}
		RIG_NCCL(ncclGroupEnd());
		RIG_NCCL(ncclGroupEnd());
		RIG_NCCL(ncclGroupStart());
		RIG_NCCL(ncclGroupEnd());
		rig_wait(&rig);
		for (int call = 0; call < 6; call++)
			check_call(&rig, call, counts[call], 10 * k + (uint64_t)call);
	}
	rig_deinit(&rig);
}

static void test_nested_groups_run_all_their_calls(void **state)
{
	assert_int_equal(rig_each_algorithm(nested_groups, NULL), 0);
}

/* One kind of memory a rank: what the driver gives by default, an odd place in it, managed, from a
 * pool, NCCL's own. */
static void kinds_of_memory(void *argument)
{
	static const size_t counts[] = {250, 5000, 60000};
	CUdeviceptr memory[5];
	CUdeviceptr kept[5];
	struct rig rig;

	start(&rig, 5);
	for (int r = 0; r < 5; r++) {
		kept[r] = rig.ranks[r].arenas[0];
		rig_enter(&rig, r);
		if (r == 2)
			RIG_GPU(cuMemAllocManaged(&memory[r], PLACE_BYTES, CU_MEM_ATTACH_GLOBAL));
		else if (r == 3)
			RIG_GPU(cuMemAllocAsync(&memory[r], PLACE_BYTES, rig.ranks[r].stream));
		else
			RIG_NCCL(ncclMemAlloc((void **)&memory[r], PLACE_BYTES));
		rig.ranks[r].arenas[0] = r == 0 ? kept[r] : r == 1 ? kept[r] + 4 : memory[r];
	}
	for (uint64_t k = 0; k < 9; k++) {
		fill_call(&rig, 0, counts[k % 3], k);
		for (int r = 0; r < 5; r++)
			issue_call(&rig, r, 0, counts[k % 3], rig.ranks[r].stream);
		rig_wait(&rig);
		check_call(&rig, 0, counts[k % 3], k);
	}
	for (int r = 0; r < 5; r++) {
		rig.ranks[r].arenas[0] = kept[r];
		rig_enter(&rig, r);
		if (r == 2)
			RIG_GPU(cuMemFree(memory[r]));
		else if (r == 3)
			RIG_GPU(cuMemFreeAsync(memory[r], rig.ranks[r].stream));
		else
			RIG_NCCL(ncclMemFree((void *)memory[r]));
	}
	rig_wait(&rig);
	rig_deinit(&rig);
}

static void test_ranks_may_pass_different_kinds_of_memory(void **state)
{
	assert_int_equal(rig_each_algorithm(kinds_of_memory, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes_and_algorithms_alternate_on_one_communicator),
		cmocka_unit_test(test_calls_on_two_streams_keep_the_order_of_issue),
		cmocka_unit_test(test_streams_of_different_priority_do_not_block_each_other),
		cmocka_unit_test(test_counters_wrap_without_a_trace),
		cmocka_unit_test(test_calls_without_elements_leave_no_trace),
		cmocka_unit_test(test_first_calls_of_a_communicator_may_be_captured),
		cmocka_unit_test(test_a_graph_is_replayed_a_thousand_times_with_new_input),
		cmocka_unit_test(test_two_graphs_and_eager_calls_keep_the_order_of_issue),
		cmocka_unit_test(test_nested_groups_run_all_their_calls),
		cmocka_unit_test(test_ranks_may_pass_different_kinds_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
