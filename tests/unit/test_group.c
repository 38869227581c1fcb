/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: what waits for the outermost End, in what order it is issued, and what an error does. */
#include "tests/unit/nccl_ranks.h"

static void test_call_outside_a_group_is_issued_at_once(void **state)
{
	struct ncclComm *comms[2];

	make_ranks(comms, 2);
	assert_int_equal(reduce(comms[1], 8, NULL), 0);
	assert_int_equal(fake.n_events, 1);
	assert_int_equal(fake.events[0].rank, 1);
	assert_int_equal(fake.events[0].request.count, 8);
	destroy_ranks(comms, 2);
}

static void test_call_in_a_group_waits_for_the_outermost_end(void **state)
{
	struct ncclComm *comms[2];

	make_ranks(comms, 2);
	for (int depth = 0; depth < 3; depth++)
		assert_int_equal(ncclGroupStart(), 0);
	assert_int_equal(reduce(comms[0], 8, NULL), 0);
	assert_int_equal(ncclGroupEnd(), 0);
	assert_int_equal(ncclGroupEnd(), 0);
	assert_int_equal(fake.n_events, 0);
	assert_int_equal(ncclGroupEnd(), 0);
	assert_int_equal(fake.n_events, 1);
	destroy_ranks(comms, 2);
}

static void test_call_on_a_communicator_of_one_rank_does_not_wait(void **state)
{
	struct ncclComm *comm;

	make_ranks(&comm, 1);
	assert_int_equal(ncclGroupStart(), 0);
	assert_int_equal(reduce(comm, 8, NULL), 0);
	assert_int_equal(fake.n_events, 1);
	assert_int_equal(ncclGroupEnd(), 0);
	assert_int_equal(fake.n_events, 1);
	destroy_ranks(&comm, 1);
}

static void test_empty_group_succeeds(void **state)
{
	assert_int_equal(ncclGroupStart(), 0);
	assert_int_equal(ncclGroupEnd(), 0);
}

static void test_end_without_start_is_refused(void **state)
{
	assert_int_equal(ncclGroupEnd(), STRAIT_NCCL_INVALID_USAGE);
	assert_string_equal(ncclGetLastError(NULL), "ncclGroupEnd: not in a group call.");
	assert_int_equal(ncclGroupSimulateEnd(NULL), STRAIT_NCCL_INVALID_USAGE);
}

/* Rank 0's second call must not be launched before rank 1's first: the launch could block behind
 * rank 0's first. */
static void test_many_calls_on_many_devices_take_turns_and_keep_their_order(void **state)
{
	enum { CALLS = 500, RANKS = 4 };
	struct ncclComm *comms[RANKS];

	make_ranks(comms, RANKS);
	assert_int_equal(ncclGroupStart(), 0);
	for (int rank = 0; rank < RANKS; rank++)
		for (size_t call = 1; call <= CALLS; call++)
			assert_int_equal(reduce(comms[rank], call, NULL), 0);
	assert_int_equal(ncclGroupEnd(), 0);
	assert_int_equal(fake.n_events, CALLS * RANKS);
	for (int i = 0; i < CALLS * RANKS; i++) {
		assert_int_equal(fake.events[i].rank, i % RANKS);
		assert_int_equal(fake.events[i].request.count, i / RANKS + 1);
	}
	destroy_ranks(comms, RANKS);
}

static void test_uneven_communicators_are_all_issued(void **state)
{
	struct ncclComm *comms[3];
	int issued[3] = {0};

	make_ranks(comms, 3);
	assert_int_equal(ncclGroupStart(), 0);
	for (size_t call = 0; call < 20; call++)
		assert_int_equal(reduce(comms[call % 5 ? 2 : call % 2], call + 1, NULL), 0);
	assert_int_equal(ncclGroupEnd(), 0);
	assert_int_equal(fake.n_events, 20);
	for (int i = 0; i < 20; i++)
		issued[fake.events[i].rank]++;
	assert_int_equal(issued[0], 2);
	assert_int_equal(issued[1], 2);
	assert_int_equal(issued[2], 16);
	destroy_ranks(comms, 3);
}

static void test_streams_of_one_communicator_join_before_and_after(void **state)
{
	CUstream a = fake_stream(NULL), b = fake_stream(NULL);
	const struct fake_event expected[] = {
		{.kind = FAKE_RECORD, .stream = b}, {.kind = FAKE_WAIT, .stream = a},
		{.kind = FAKE_ISSUE, .stream = a},  {.kind = FAKE_ISSUE, .stream = b},
		{.kind = FAKE_RECORD, .stream = b}, {.kind = FAKE_WAIT, .stream = a},
	};
	struct ncclComm *comms[2];

	make_ranks(comms, 2);
	assert_int_equal(ncclGroupStart(), 0);
	assert_int_equal(reduce(comms[0], 1, a), 0);
	assert_int_equal(reduce(comms[0], 2, b), 0);
	assert_int_equal(ncclGroupEnd(), 0);
	assert_int_equal(fake.n_events, 6);
	for (int i = 0; i < 6; i++) {
		assert_int_equal(fake.events[i].kind, expected[i].kind);
		assert_ptr_equal(fake.events[i].stream, expected[i].stream);
	}
	destroy_ranks(comms, 2);
	free(a);
	free(b);
}

static void test_one_stream_needs_no_joins(void **state)
{
	struct ncclComm *comms[2];

	make_ranks(comms, 2);
	assert_int_equal(ncclGroupStart(), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(reduce(comms[0], 1, NULL), 0);
	assert_int_equal(ncclGroupEnd(), 0);
	assert_int_equal(fake.n_events, 3);
	destroy_ranks(comms, 2);
}

static void check_streams(CUstream a, CUstream b, int expected)
{
	struct ncclComm *comms[2];

	make_ranks(comms, 2);
	assert_int_equal(ncclGroupStart(), 0);
	assert_int_equal(reduce(comms[0], 1, a), 0);
	assert_int_equal(reduce(comms[0], 2, b), 0);
	assert_int_equal(ncclGroupEnd(), expected);
	if (expected)
		assert_int_equal(fake.n_events, 0);
	/* The thread is clean. */
	assert_int_equal(ncclGroupStart(), 0);
	assert_int_equal(ncclGroupEnd(), 0);
	destroy_ranks(comms, 2);
	free(a);
	free(b);
}

static void test_captured_and_uncaptured_streams_of_one_communicator_are_refused(void **state)
{
	CUgraph one = (CUgraph)0x10, other = (CUgraph)0x20;

	check_streams(fake_stream(one), fake_stream(NULL), STRAIT_NCCL_INVALID_USAGE);
	check_streams(fake_stream(NULL), fake_stream(one), STRAIT_NCCL_INVALID_USAGE);
	check_streams(fake_stream(one), fake_stream(other), STRAIT_NCCL_INVALID_USAGE);
	check_streams(fake_stream(one), fake_stream(one), 0);
}

static void test_bad_call_fails_the_call_and_the_end_and_drops_the_rest(void **state)
{
	struct ncclComm *comms[2];

	make_ranks(comms, 2);
	assert_int_equal(ncclGroupStart(), 0);
	assert_int_equal(ncclGroupStart(), 0);
	assert_int_equal(reduce(comms[0], 8, NULL), 0);
	assert_int_equal(reduce(NULL, 8, NULL), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(reduce(comms[1], 8, NULL), 0);
	assert_int_equal(ncclGroupEnd(), 0);
	assert_int_equal(ncclGroupEnd(), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(fake.n_events, 0);
	assert_int_equal(ncclGroupStart(), 0);
	assert_int_equal(reduce(comms[0], 8, NULL), 0);
	assert_int_equal(ncclGroupEnd(), 0);
	assert_int_equal(fake.n_events, 1);
	destroy_ranks(comms, 2);
}

static void test_failed_launch_stops_the_group_and_is_returned(void **state)
{
	struct ncclComm *comms[2];

	make_ranks(comms, 2);
	fake.fail_issue_at = 2;
	assert_int_equal(ncclGroupStart(), 0);
	for (int i = 0; i < 6; i++)
		assert_int_equal(reduce(comms[i % 2], 8, NULL), 0);
	assert_int_equal(ncclGroupEnd(), STRAIT_NCCL_UNHANDLED_CUDA_ERROR);
	assert_int_equal(fake.n_events, 2);
	assert_int_equal(reduce(comms[0], 8, NULL), 0);
	destroy_ranks(comms, 2);
}

static void test_simulated_end_closes_a_level_and_drops_what_was_queued(void **state)
{
	struct strait_nccl_sim_info info = {sizeof(info), STRAIT_NCCL_SIM_INFO_MAGIC, 22809, -1.0f};
	struct ncclComm *comms[2];

	make_ranks(comms, 2);
	assert_int_equal(ncclGroupStart(), 0);
	assert_int_equal(reduce(comms[0], 8, NULL), 0);
	assert_int_equal(ncclGroupSimulateEnd(&info), 0);
	assert_int_equal(ncclGroupEnd(), STRAIT_NCCL_INVALID_USAGE);
	assert_int_equal(ncclGroupStart(), 0);
	assert_int_equal(ncclGroupEnd(), 0);
	assert_int_equal(fake.n_events, 0);
	destroy_ranks(comms, 2);
}

static void test_aborted_communicator_takes_its_queued_calls_along(void **state)
{
	struct ncclComm *comms[2];

	make_ranks(comms, 2);
	assert_int_equal(ncclGroupStart(), 0);
	assert_int_equal(reduce(comms[0], 8, NULL), 0);
	assert_int_equal(reduce(comms[1], 8, NULL), 0);
	assert_int_equal(ncclCommAbort(comms[0]), 0);
	fake.n_events = 0;
	assert_int_equal(ncclGroupEnd(), 0);
	assert_int_equal(fake.n_events, 1);
	assert_int_equal(fake.events[0].rank, 1);
	assert_int_equal(ncclCommDestroy(comms[1]), 0);
}

static void test_calls_of_a_communicator_destroyed_in_the_group_do_not_reach_the_next(void **state)
{
	struct ncclComm *comm[2], *next[2];

	make_ranks(comm, 2);
	assert_int_equal(ncclGroupStart(), 0);
	assert_int_equal(reduce(comm[0], 8, NULL), 0);
	destroy_ranks(comm, 2);
	assert_int_equal(ncclGroupEnd(), STRAIT_NCCL_INVALID_USAGE);
	make_ranks(next, 2);
	assert_int_equal(fake.n_events, 0);
	destroy_ranks(next, 2);
}

static void *call_in_own_group(void *comm)
{
	return (void *)(intptr_t)(ncclGroupStart() || reduce(comm, 8, NULL) || ncclGroupEnd());
}

static void test_groups_of_threads_are_independent(void **state)
{
	struct ncclComm *comms[2];
	pthread_t thread;
	void *result;

	make_ranks(comms, 2);
	assert_int_equal(ncclGroupStart(), 0);
	assert_int_equal(reduce(NULL, 8, NULL), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(pthread_create(&thread, NULL, call_in_own_group, comms[1]), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_null(result);
	assert_int_equal(fake.n_events, 1);
	assert_int_equal(ncclGroupEnd(), STRAIT_NCCL_INVALID_ARGUMENT);
	destroy_ranks(comms, 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, reset_fakes, check_nothing_is_left)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_call_outside_a_group_is_issued_at_once),
		TEST(test_call_in_a_group_waits_for_the_outermost_end),
		TEST(test_call_on_a_communicator_of_one_rank_does_not_wait),
		TEST(test_empty_group_succeeds),
		TEST(test_end_without_start_is_refused),
		TEST(test_many_calls_on_many_devices_take_turns_and_keep_their_order),
		TEST(test_uneven_communicators_are_all_issued),
		TEST(test_streams_of_one_communicator_join_before_and_after),
		TEST(test_one_stream_needs_no_joins),
		TEST(test_captured_and_uncaptured_streams_of_one_communicator_are_refused),
		TEST(test_bad_call_fails_the_call_and_the_end_and_drops_the_rest),
		TEST(test_failed_launch_stops_the_group_and_is_returned),
		TEST(test_simulated_end_closes_a_level_and_drops_what_was_queued),
		TEST(test_aborted_communicator_takes_its_queued_calls_along),
		TEST(test_calls_of_a_communicator_destroyed_in_the_group_do_not_reach_the_next),
		TEST(test_groups_of_threads_are_independent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
