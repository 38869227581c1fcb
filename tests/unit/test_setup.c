/* SPDX-License-Identifier: Apache-2.0 */
/* Making and ending communicators: arguments, groups, nonblocking set-ups, abort from another
 * thread. */
#include "tests/unit/nccl_ranks.h"

#include "strait/status.h"

static struct strait_nccl_config nonblocking(void)
{
	return (struct strait_nccl_config){
		.size = 24, .magic = STRAIT_NCCL_CONFIG_MAGIC, .version = 21400, .blocking = 0};
}

static int state_of(struct ncclComm *comm)
{
	int state = -1;

	assert_int_equal(ncclCommGetAsyncError(comm, &state), 0);
	return state;
}

static void wait_for(const int *value, int wanted)
{
	pthread_mutex_lock(&fake.lock);
	while (*value != wanted)
		pthread_cond_wait(&fake.changed, &fake.lock);
	pthread_mutex_unlock(&fake.lock);
}

static void let_go(void)
{
	pthread_mutex_lock(&fake.lock);
	fake.hold_new = 0;
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
}

static int wait_for_ready(struct ncclComm *comm)
{
	int state;

	do
		state = state_of(comm);
	while (state == STRAIT_NCCL_IN_PROGRESS);
	return state;
}

static void test_communicator_knows_its_ranks_and_the_ordinal_of_its_device(void **state)
{
	struct ncclComm *comms[3];

	make_ranks(comms, 3);
	for (int rank = 0; rank < 3; rank++) {
		int value = -1;

		assert_int_equal(ncclCommCount(comms[rank], &value), 0);
		assert_int_equal(value, 3);
		assert_int_equal(ncclCommUserRank(comms[rank], &value), 0);
		assert_int_equal(value, rank);
		assert_int_equal(ncclCommCuDevice(comms[rank], &value), 0);
		assert_int_equal(value, rank);
		assert_int_equal(state_of(comms[rank]), 0);
	}
	assert_int_equal(ncclCommCount(comms[0], NULL), STRAIT_NCCL_INVALID_ARGUMENT);
	destroy_ranks(comms, 3);
}

static void test_current_context_and_capture_mode_stay_as_they_were(void **state)
{
	struct ncclComm *comm;
	struct strait_nccl_id id;

	assert_int_equal(ncclGetUniqueId(&id), 0);
	fake_set_current(fake_primary(2));
	assert_int_equal(ncclCommInitRank(&comm, 1, id, 0), 0);
	assert_ptr_equal(fake_current(), fake_primary(2));
	assert_int_equal(fake.n_retained, 0);
	fake_set_current(fake_primary(1));
	assert_int_equal(ncclCommDestroy(comm), 0);
	assert_ptr_equal(fake_current(), fake_primary(1));
	assert_int_equal(fake_capture_mode(), CU_STREAM_CAPTURE_MODE_GLOBAL);
	fake_set_current(NULL);
	assert_int_equal(ncclCommInitRank(&comm, 1, id, 0), 0);
	assert_null(fake_current());
	assert_int_equal(fake.n_retained, 1);
	assert_int_equal(ncclCommDestroy(comm), 0);
}

static void test_ranks_out_of_range_are_refused_and_noted_by_the_group(void **state)
{
	struct ncclComm *comm = (struct ncclComm *)0x55;
	struct strait_nccl_id id;

	assert_int_equal(ncclGetUniqueId(&id), 0);
	assert_int_equal(ncclCommInitRank(&comm, 0, id, 0), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_string_equal(ncclGetLastError(NULL), "Invalid rank requested : 0/0");
	assert_int_equal(ncclCommInitRank(&comm, 2, id, 2), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_string_equal(ncclGetLastError(NULL), "Invalid rank requested : 2/2");
	assert_int_equal(ncclCommInitRank(&comm, 2, id, -1), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(ncclCommInitRank(NULL, 1, id, 0), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_string_equal(ncclGetLastError(NULL), "CommInitRank : newcomm argument is NULL");
	assert_ptr_equal(comm, (struct ncclComm *)0x55);
	assert_int_equal(ncclGroupStart(), 0);
	assert_int_equal(ncclCommInitRank(&comm, 2, id, 2), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(ncclGroupEnd(), STRAIT_NCCL_INVALID_ARGUMENT);
}

static void test_foreign_id_is_refused_where_there_are_peers(void **state)
{
	struct strait_nccl_id id = {{0}};
	struct ncclComm *comm;

	assert_int_equal(ncclCommInitRank(&comm, 2, id, 0), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_string_equal(ncclGetLastError(NULL), "a foreign id");
	assert_int_equal(ncclCommInitRank(&comm, 1, id, 0), 0);
	assert_int_equal(ncclCommDestroy(comm), 0);
}

static void test_scalable_takes_the_first_of_its_ids(void **state)
{
	struct strait_nccl_id ids[2] = {0};
	struct ncclComm *comms[2];

	assert_int_equal(ncclGetUniqueId(&ids[0]), 0);
	assert_int_equal(ncclGroupStart(), 0);
	for (int rank = 0; rank < 2; rank++) {
		fake_set_current(fake_primary(rank));
		assert_int_equal(ncclCommInitRankScalable(&comms[rank], 2, rank, 2, ids, NULL), 0);
	}
	fake_set_current(NULL);
	assert_int_equal(ncclGroupEnd(), 0);
	destroy_ranks(comms, 2);
	assert_int_equal(ncclCommInitRankScalable(comms, 2, 0, 0, ids, NULL),
			 STRAIT_NCCL_INVALID_ARGUMENT);
	assert_string_equal(ncclGetLastError(NULL),
			    "improper usage of ncclCommInitRank: nId = 0, nranks=2");
	assert_int_equal(ncclCommInitRankScalable(comms, 2, 0, 3, ids, NULL),
			 STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(ncclCommInitRankScalable(comms, 2, 0, 1, NULL, NULL),
			 STRAIT_NCCL_INVALID_ARGUMENT);
}

static void test_init_all_takes_the_devices_in_order_or_as_listed(void **state)
{
	const int devices[] = {3, 1};
	struct ncclComm *comms[FAKE_DEVICES];
	int ordinal;

	assert_int_equal(ncclCommInitAll(comms, FAKE_DEVICES, NULL), 0);
	for (int rank = 0; rank < FAKE_DEVICES; rank++) {
		assert_int_equal(ncclCommCuDevice(comms[rank], &ordinal), 0);
		assert_int_equal(ordinal, rank);
	}
	destroy_ranks(comms, FAKE_DEVICES);
	assert_int_equal(ncclCommInitAll(comms, 2, devices), 0);
	for (int rank = 0; rank < 2; rank++) {
		assert_int_equal(ncclCommCuDevice(comms[rank], &ordinal), 0);
		assert_int_equal(ordinal, devices[rank]);
	}
	destroy_ranks(comms, 2);
	assert_int_equal(ncclCommInitAll(comms, 0, NULL), 0);
}

static void test_init_all_refuses_unknown_and_repeated_devices(void **state)
{
	const int unknown[] = {0, 4}, negative[] = {-1}, repeated[] = {2, 0, 2};
	struct ncclComm *comms[FAKE_DEVICES + 1];

	assert_int_equal(ncclCommInitAll(comms, -1, NULL), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_string_equal(ncclGetLastError(NULL), "Invalid device count requested : -1");
	assert_int_equal(ncclCommInitAll(NULL, 1, NULL), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(ncclCommInitAll(comms, 2, unknown), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_string_equal(ncclGetLastError(NULL), "Invalid device 4 (totalnDev=4)");
	assert_int_equal(ncclCommInitAll(comms, 1, negative), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(ncclCommInitAll(comms, FAKE_DEVICES + 1, NULL),
			 STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(ncclCommInitAll(comms, 3, repeated), STRAIT_NCCL_INVALID_USAGE);
}

static int init_all_on_one_device(void)
{
	const int devices[] = {1, 1};
	struct ncclComm *comms[2];

	fake_reset();
	return ncclCommInitAll(comms, 2, devices) || ncclCommDestroy(comms[0]) ||
	       ncclCommDestroy(comms[1]);
}

static void test_devices_may_repeat_where_ranks_may_share_one(void **state)
{
	const char *const settings[] = {"NCCL_MULTI_RANK_GPU_ENABLE", "1", NULL};
	char text[256];

	assert_int_equal(child_run(init_all_on_one_device, settings, text, sizeof(text)), 0);
}

static void test_failed_rank_ends_the_whole_group(void **state)
{
	struct strait_nccl_id id;
	struct ncclComm *comms[3];

	assert_int_equal(ncclGetUniqueId(&id), 0);
	fake.fail_new_rank = 1;
	assert_int_equal(ncclGroupStart(), 0);
	for (int rank = 0; rank < 3; rank++) {
		assert_int_equal(ncclCommInitRank(&comms[rank], 3, id, rank), 0);
		assert_non_null(comms[rank]); /* at once */
		assert_int_equal(reduce(comms[rank], 1, NULL), STRAIT_NCCL_INVALID_ARGUMENT);
	}
	/* The refused calls are the group's error already; the set-ups never run. */
	assert_int_equal(ncclGroupEnd(), STRAIT_NCCL_INVALID_ARGUMENT);
	for (int rank = 0; rank < 3; rank++)
		assert_null(comms[rank]);

	assert_int_equal(ncclGroupStart(), 0);
	for (int rank = 0; rank < 3; rank++)
		assert_int_equal(ncclCommInitRank(&comms[rank], 3, id, rank), 0);
	assert_int_equal(ncclGroupEnd(), STRAIT_NCCL_SYSTEM_ERROR);
	assert_string_equal(ncclGetLastError(NULL), "rank 1 was told to fail");
	for (int rank = 0; rank < 3; rank++)
		assert_null(comms[rank]);
}

static void test_nonblocking_set_up_is_in_progress_until_it_is_done(void **state)
{
	struct strait_nccl_config config = nonblocking();
	struct strait_nccl_id id;
	struct ncclComm *comm;
	int value;

	assert_int_equal(ncclGetUniqueId(&id), 0);
	fake.hold_new = 1;
	assert_int_equal(ncclCommInitRankConfig(&comm, 1, id, 0, &config), STRAIT_NCCL_IN_PROGRESS);
	assert_int_equal(state_of(comm), STRAIT_NCCL_IN_PROGRESS);
	assert_int_equal(reduce(comm, 8, NULL), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_string_equal(ncclGetLastError(NULL),
			    "Attempt to use communicator before the previous "
			    "operation returned ncclSuccess");
	assert_int_equal(ncclCommCount(comm, &value), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(ncclCommFinalize(comm), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(ncclCommDestroy(comm), STRAIT_NCCL_INVALID_ARGUMENT);
	let_go();
	assert_int_equal(wait_for_ready(comm), 0);
	assert_int_equal(reduce(comm, 8, NULL), 0);
	assert_int_equal(ncclCommFinalize(comm), 0);
	assert_int_equal(state_of(comm), 0);
	assert_int_equal(ncclCommDestroy(comm), 0);
}

static void test_nonblocking_group_starts_all_and_returns(void **state)
{
	struct strait_nccl_config config = nonblocking();
	struct strait_nccl_id id;
	struct ncclComm *comms[2];

	assert_int_equal(ncclGetUniqueId(&id), 0);
	assert_int_equal(ncclGroupStart(), 0);
	for (int rank = 0; rank < 2; rank++)
		assert_int_equal(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config), 0);
	assert_int_equal(ncclGroupEnd(), STRAIT_NCCL_IN_PROGRESS);
	for (int rank = 0; rank < 2; rank++)
		assert_int_equal(wait_for_ready(comms[rank]), 0);
	destroy_ranks(comms, 2);
}

static void test_failed_nonblocking_set_up_is_reported_and_can_be_ended(void **state)
{
	struct strait_nccl_config config = nonblocking();
	struct strait_nccl_id id;
	struct ncclComm *comm;

	assert_int_equal(ncclGetUniqueId(&id), 0);
	fake.fail_new_rank = 0;
	assert_int_equal(ncclCommInitRankConfig(&comm, 2, id, 0, &config), STRAIT_NCCL_IN_PROGRESS);
	assert_int_equal(wait_for_ready(comm), STRAIT_NCCL_SYSTEM_ERROR);
	assert_int_equal(reduce(comm, 8, NULL), STRAIT_NCCL_SYSTEM_ERROR);
	assert_int_equal(ncclCommAbort(comm), 0);
}

static void test_blocking_and_nonblocking_do_not_mix_in_a_group(void **state)
{
	struct strait_nccl_config config = nonblocking();
	struct strait_nccl_id id;
	struct ncclComm *comms[2];

	assert_int_equal(ncclGetUniqueId(&id), 0);
	assert_int_equal(ncclGroupStart(), 0);
	assert_int_equal(ncclCommInitRank(&comms[0], 2, id, 0), 0);
	assert_int_equal(ncclCommInitRankConfig(&comms[1], 2, id, 1, &config),
			 STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(ncclGroupEnd(), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_null(comms[0]);
}

static void test_abort_ends_a_nonblocking_set_up_that_waits(void **state)
{
	struct strait_nccl_config config = nonblocking();
	struct strait_nccl_id id;
	struct ncclComm *comm;

	assert_int_equal(ncclGetUniqueId(&id), 0);
	assert_int_equal(ncclCommInitRankConfig(&comm, 2, id, 0, &config), STRAIT_NCCL_IN_PROGRESS);
	wait_for(&fake.n_waiting_new, 1);
	assert_int_equal(ncclCommAbort(comm), 0);
	assert_int_equal(fake.n_waiting_new, 0);
}

struct creation {
	struct strait_nccl_id id;
	struct ncclComm *comm;
	int result;
};

static void *create(void *argument)
{
	struct creation *creation = argument;

	creation->result = ncclCommInitRank(&creation->comm, 2, creation->id, 0);
	return NULL;
}

static void test_abort_ends_a_blocking_set_up_on_another_thread(void **state)
{
	struct creation creation = {.comm = NULL};
	pthread_t thread;

	assert_int_equal(ncclGetUniqueId(&creation.id), 0);
	assert_int_equal(pthread_create(&thread, NULL, create, &creation), 0);
	wait_for(&fake.n_waiting_new, 1);
	assert_int_equal(ncclCommAbort(__atomic_load_n(&creation.comm, __ATOMIC_ACQUIRE)), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_not_equal(creation.result, 0);
	assert_null(creation.comm);
}

static void *call(void *comm)
{
	return (void *)(intptr_t)reduce(comm, 8, NULL);
}

static void test_abort_frees_a_thread_that_is_stuck_in_a_launch(void **state)
{
	struct ncclComm *comms[2];
	pthread_t thread;

	make_ranks(comms, 2);
	fake.block_issue = 1;
	assert_int_equal(pthread_create(&thread, NULL, call, comms[0]), 0);
	wait_for(&fake.n_blocked_issue, 1);
	assert_int_equal(ncclCommAbort(comms[0]), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(ncclCommAbort(comms[1]), 0);
}

static void test_stale_handle_is_refused(void **state)
{
	struct ncclComm *comms[2];
	int value;

	make_ranks(comms, 2);
	destroy_ranks(comms, 2);
	assert_int_equal(ncclCommDestroy(comms[0]), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(ncclCommAbort(comms[0]), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(reduce(comms[1], 8, NULL), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(ncclCommGetAsyncError(comms[1], &value), STRAIT_NCCL_INVALID_ARGUMENT);
}

static void test_foreign_handle_is_refused(void **state)
{
	char memory[4096] = "somebody else's communicator";
	struct ncclComm *comm = (struct ncclComm *)memory;

	assert_int_equal(reduce(comm, 8, NULL), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_string_equal(ncclGetLastError(NULL), "Error: corrupted comm object detected");
	assert_int_equal(ncclCommDestroy(comm), STRAIT_NCCL_INVALID_ARGUMENT);
}

static void test_second_finalize_is_refused_and_calls_after_the_first(void **state)
{
	struct ncclComm *comm;

	make_ranks(&comm, 1);
	assert_int_equal(ncclCommFinalize(comm), 0);
	assert_int_equal(ncclCommFinalize(comm), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(reduce(comm, 8, NULL), STRAIT_NCCL_INVALID_USAGE);
	assert_int_equal(ncclCommDestroy(comm), 0);
}

static void test_revoked_communicator_refuses_calls(void **state)
{
	struct ncclComm *comm;

	make_ranks(&comm, 1);
	assert_int_equal(ncclCommRevoke(comm, 1), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(ncclCommRevoke(comm, 0), 0);
	assert_int_equal(ncclCommRevoke(comm, 0), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(reduce(comm, 8, NULL), STRAIT_NCCL_INVALID_USAGE);
	assert_string_equal(ncclGetLastError(NULL), "AllReduce: communicator was revoked");
	assert_int_equal(ncclCommDestroy(comm), 0);
}

static void test_lost_peer_shows_as_the_asynchronous_error(void **state)
{
	struct ncclComm *comms[2];

	make_ranks(comms, 2);
	fake.async_error = STRAIT_ERROR_REMOTE;
	assert_int_equal(state_of(comms[0]), STRAIT_NCCL_REMOTE_ERROR);
	assert_non_null(strstr(ncclGetLastError(NULL), "rank 0 of 2: a peer is lost"));
	/* Told once: a watchdog that goes on polling does not cover up later messages. */
	assert_int_equal(reduce(NULL, 8, NULL), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(state_of(comms[0]), STRAIT_NCCL_REMOTE_ERROR);
	assert_string_equal(ncclGetLastError(NULL), "AllReduce : comm argument is NULL");
	assert_int_equal(ncclCommAbort(comms[0]), 0);
	assert_int_equal(ncclCommAbort(comms[1]), 0);
}

static void *poll_state(void *argument)
{
	struct ncclComm *comm = argument;
	int value;

	while (ncclCommGetAsyncError(comm, &value) == 0)
		;
	return NULL;
}

static void test_state_may_be_polled_while_the_communicator_is_freed(void **state)
{
	for (int round = 0; round < 50; round++) {
		struct ncclComm *comms[2];
		pthread_t thread;

		make_ranks(comms, 2);
		assert_int_equal(pthread_create(&thread, NULL, poll_state, comms[0]), 0);
		destroy_ranks(comms, 2);
		assert_int_equal(pthread_join(thread, NULL), 0);
	}
}

static void test_missing_driver_is_told_in_nccls_words_and_not_noted_by_the_group(void **state)
{
	struct strait_nccl_id id;
	struct ncclComm *comm = NULL;

	assert_int_equal(ncclGetUniqueId(&id), 0);
	fake.no_driver = 1;
	assert_int_equal(ncclGroupStart(), 0);
	assert_int_equal(ncclCommInitRank(&comm, 1, id, 0), STRAIT_NCCL_UNHANDLED_CUDA_ERROR);
	assert_string_equal(
		ncclGetLastError(NULL),
		"Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'");
	assert_int_equal(ncclGroupEnd(), 0);
	assert_null(comm);
}

static void test_configuration_reaches_the_communicator(void **state)
{
	struct strait_nccl_config config = {.size = sizeof(config),
					    .magic = STRAIT_NCCL_CONFIG_MAGIC,
					    .version = 22809,
					    .blocking = 1,
					    .cga_cluster_size = STRAIT_NCCL_UNDEFINED,
					    .min_ctas = STRAIT_NCCL_UNDEFINED,
					    .max_ctas = 5,
					    .comm_name = "tensor parallel",
					    .nvls_ctas = STRAIT_NCCL_UNDEFINED,
					    .n_channels_per_net_peer = STRAIT_NCCL_UNDEFINED};
	struct strait_nccl_id id;
	struct ncclComm *comm;

	assert_int_equal(ncclGetUniqueId(&id), 0);
	assert_int_equal(ncclCommInitRankConfig(&comm, 1, id, 0, &config), 0);
	assert_int_equal(fake.max_blocks, 5);
	assert_string_equal(fake.name, "tensor parallel");
	assert_int_equal(ncclCommDestroy(comm), 0);
	config.magic = 0;
	assert_int_equal(ncclCommInitRankConfig(&comm, 1, id, 0, &config),
			 STRAIT_NCCL_INVALID_ARGUMENT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, reset_fakes, check_nothing_is_left)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_devices_may_repeat_where_ranks_may_share_one), /* before any reads the
									    variables */
		TEST(test_communicator_knows_its_ranks_and_the_ordinal_of_its_device),
		TEST(test_current_context_and_capture_mode_stay_as_they_were),
		TEST(test_ranks_out_of_range_are_refused_and_noted_by_the_group),
		TEST(test_foreign_id_is_refused_where_there_are_peers),
		TEST(test_scalable_takes_the_first_of_its_ids),
		TEST(test_init_all_takes_the_devices_in_order_or_as_listed),
		TEST(test_init_all_refuses_unknown_and_repeated_devices),
		TEST(test_failed_rank_ends_the_whole_group),
		TEST(test_nonblocking_set_up_is_in_progress_until_it_is_done),
		TEST(test_nonblocking_group_starts_all_and_returns),
		TEST(test_failed_nonblocking_set_up_is_reported_and_can_be_ended),
		TEST(test_blocking_and_nonblocking_do_not_mix_in_a_group),
		TEST(test_abort_ends_a_nonblocking_set_up_that_waits),
		TEST(test_abort_ends_a_blocking_set_up_on_another_thread),
		TEST(test_abort_frees_a_thread_that_is_stuck_in_a_launch),
		TEST(test_stale_handle_is_refused),
		TEST(test_foreign_handle_is_refused),
		TEST(test_second_finalize_is_refused_and_calls_after_the_first),
		TEST(test_revoked_communicator_refuses_calls),
		TEST(test_lost_peer_shows_as_the_asynchronous_error),
		TEST(test_state_may_be_polled_while_the_communicator_is_freed),
		TEST(test_missing_driver_is_told_in_nccls_words_and_not_noted_by_the_group),
		TEST(test_configuration_reaches_the_communicator),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
