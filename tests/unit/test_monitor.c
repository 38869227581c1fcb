/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loss of ranks, with ranks as processes: they watch, say so over a pipe, and end with the rank
 * that they lost. Of 8 ranks two have no connection to any given one, so each test sees news passed
 * on, too.
 */
#include "tests/unit/ranks.h"
#include <signal.h>

enum { N = 8, NOBODY = 100, BROKEN = 101 };

static int ready[2]; /* pipe: one byte from each rank that watches */
static int hold[2];  /* pipe: ends for its readers when the test is over */
static uint8_t id[STRAIT_ID_BYTES];
static struct maker maker;
static pid_t pids[N];

static struct strait_bootstrap *join_and_watch(int rank, int n)
{
	struct strait_bootstrap *bootstrap;

	close(hold[1]);
	if (strait_bootstrap_new(id, rank, n, NULL, &bootstrap) ||
	    strait_bootstrap_barrier(bootstrap) || strait_bootstrap_watch(bootstrap) ||
	    write(ready[1], "", 1) != 1)
		_exit(BROKEN);
	return bootstrap;
}

static int wait_for_loss(struct strait_bootstrap *bootstrap)
{
	int lost;

	becomes_true(strait_bootstrap_lost(bootstrap) >= 0, 20000);
	lost = strait_bootstrap_lost(bootstrap);
	strait_bootstrap_free(bootstrap);
	return lost >= 0 ? lost : NOBODY;
}

static int survive(const uint8_t *unused, int rank, int n)
{
	return wait_for_loss(join_and_watch(rank, n));
}

/* Rank `special` runs `body`, the others wait for a loss. Returns when all watch. */
static void start_ranks(int special, int (*body)(const uint8_t *, int, int))
{
	char unused;

	maker = start_maker(id);
	assert_int_equal(pipe(ready), 0);
	assert_int_equal(pipe(hold), 0);
	for (int i = 0; i < N; i++)
		pids[i] = fork_rank(id, i, N, i == special ? body : survive);
	close(ready[1]); /* so that a rank that fails ends the wait for it */
	for (int i = 0; i < N; i++)
		assert_int_equal(read(ready[0], &unused, 1), 1);
}

static int reap(int rank)
{
	int status = wait_exit(pids[rank]);

	pids[rank] = 0;
	return status;
}

/* Ends what a failed test has left, too. */
static int end_processes(void **state)
{
	for (int i = 0; i < N; i++) {
		if (!pids[i])
			continue;
		kill(pids[i], SIGKILL);
		reap(i);
	}
	kill(maker.pid, SIGKILL);
	end_maker(maker);
	close(hold[0]);
	close(hold[1]);
	close(ready[0]);
	return 0;
}

/* All that still run end within `limit_ms`, having lost `lost`; but not `other`. */
static void expect_loss(int lost, int other, int limit_ms)
{
	int64_t begin_ns = strait_now_ns();
	int wrong = 0;

	for (int i = 0; i < N; i++)
		if (pids[i] && i != other)
			wrong += reap(i) != lost;
	assert_int_equal(wrong, 0);
	assert_true(strait_now_ns() - begin_ns < limit_ms * INT64_C(1000000));
}

static void kill_rank(int rank)
{
	kill(pids[rank], SIGKILL);
	reap(rank);
}

static void test_killed_rank_is_noticed_by_all_within_5_s(void **state)
{
	start_ranks(-1, NULL);
	kill_rank(3);
	expect_loss(3, -1, 5000);
}

static int leave_well(const uint8_t *unused, int rank, int n)
{
	return strait_bootstrap_free(join_and_watch(rank, n)) ? 1 : 0;
}

static int exit_with(int rank, int n, int status)
{
	join_and_watch(rank, n);
	exit(status);
}

static int exit_well(const uint8_t *unused, int rank, int n)
{
	return exit_with(rank, n, 0);
}

static int exit_badly(const uint8_t *unused, int rank, int n)
{
	return exit_with(rank, n, 1);
}

/* Were the leaving of rank 2 a loss, it would be the first. */
static void expect_no_loss_of_2(int (*body)(const uint8_t *, int, int))
{
	start_ranks(2, body);
	assert_int_equal(reap(2), 0);
	kill_rank(7);
	expect_loss(7, -1, 5000);
}

static void test_rank_that_says_goodbye_is_not_lost(void **state)
{
	expect_no_loss_of_2(leave_well);
}

static void test_process_that_exits_with_0_is_not_lost(void **state)
{
	expect_no_loss_of_2(exit_well);
}

static void test_process_that_exits_with_a_failure_is_lost(void **state)
{
	start_ranks(2, exit_badly);
	assert_int_equal(reap(2), 1);
	expect_loss(2, -1, 5000);
}

/* A data worker that outlives its rank. */
static int fork_and_wait(const uint8_t *unused, int rank, int n)
{
	struct strait_bootstrap *bootstrap = join_and_watch(rank, n);
	char byte;

	if (!fork())
		_exit(read(hold[0], &byte, 1) ? 1 : 0);
	return write(ready[1], "", 1) == 1 ? wait_for_loss(bootstrap) : BROKEN;
}

static void test_killed_rank_is_noticed_though_its_forked_child_lives(void **state)
{
	char unused;

	start_ranks(5, fork_and_wait);
	assert_int_equal(read(ready[0], &unused, 1), 1);
	kill_rank(5);
	expect_loss(5, -1, 5000);
}

/* A child that exits has none of its parent's connections to say goodbye on. */
static int fork_and_let_exit(const uint8_t *unused, int rank, int n)
{
	struct strait_bootstrap *bootstrap = join_and_watch(rank, n);
	pid_t pid = fork();

	if (!pid)
		exit(count_sockets());
	return wait_exit(pid) || write(ready[1], "", 1) != 1 ? BROKEN : wait_for_loss(bootstrap);
}

static void test_forked_child_that_exits_says_no_goodbye(void **state)
{
	char unused;

	start_ranks(5, fork_and_let_exit);
	assert_int_equal(read(ready[0], &unused, 1), 1);
	kill_rank(5);
	expect_loss(5, -1, 5000);
}

static void test_stopped_process_is_lost_after_10_s_of_silence(void **state)
{
	start_ranks(-1, NULL);
	kill(pids[1], SIGSTOP);
	expect_loss(1, 1, 16000);
}

/* ---- one process ---- */

struct shared {
	pthread_barrier_t all;
	int n_threads; /* of the process while all watch */
};

static void watch_together(struct rank *rank)
{
	struct shared *shared = (struct shared *)rank->argument;

	rank->result = strait_bootstrap_watch(rank->bootstrap);
	pthread_barrier_wait(&shared->all);
	if (rank->rank == 0)
		shared->n_threads = count_threads();
	pthread_barrier_wait(&shared->all);
	rank->result |= strait_bootstrap_lost(rank->bootstrap) != -1;
}

static void test_all_bootstraps_share_one_thread_that_ends_with_the_last(void **state)
{
	int before = count_threads_at_rest(), files = count_files();
	struct shared shared;

	assert_int_equal(pthread_barrier_init(&shared.all, NULL, 16), 0);
	run_well(16, watch_together, &shared);
	pthread_barrier_destroy(&shared.all);
	/* 16 ranks, the monitor, and perhaps the root that is about to end */
	assert_in_range(shared.n_threads, before + 17, before + 18);
	assert_true(becomes_true(count_threads() == before, 5000));
	assert_true(becomes_true(count_files() == files, 5000));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_teardown(name, end_processes)
	const struct CMUnitTest tests[] = {
		CASE(test_killed_rank_is_noticed_by_all_within_5_s),
		CASE(test_rank_that_says_goodbye_is_not_lost),
		CASE(test_process_that_exits_with_0_is_not_lost),
		CASE(test_process_that_exits_with_a_failure_is_lost),
		CASE(test_killed_rank_is_noticed_though_its_forked_child_lives),
		CASE(test_forked_child_that_exits_says_no_goodbye),
		CASE(test_stopped_process_is_lost_after_10_s_of_silence),
		cmocka_unit_test(test_all_bootstraps_share_one_thread_that_ends_with_the_last),
	};

	setenv("STRAIT_BOOTSTRAP_TIMEOUT", "20", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
