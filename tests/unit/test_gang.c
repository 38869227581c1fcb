/* SPDX-License-Identifier: Apache-2.0 */
/* How the benchmark's ranks meet: processes and threads over sockets, without the library. */
#include "bench/gang.h"
#include "bench/place.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define N_PROCESSES 3
#define N_THREADS 2
#define N_MEMBERS (N_PROCESSES * N_THREADS)

struct member {
	struct bench_gang *gang;
	int thread;
};

/* Every member gives numbers that only it can give, several rounds; returns NULL when all were seen
 * in order. */
static void *gather_rounds(void *argument)
{
	struct member *member = argument;
	int mine = member->gang->process * N_THREADS + member->thread;

	for (int round = 0; round < 50; round++) {
		int values[N_MEMBERS] = {0};

		values[mine] = 1000 * round + mine;
		bench_gang_allgather(member->gang, member->thread, values, sizeof(*values));
		for (int m = 0; m < N_MEMBERS; m++)
			if (values[m] != 1000 * round + m)
				return member;
		bench_gang_barrier(member->gang, member->thread);
	}
	return NULL;
}

static bool play(const char *address, int process)
{
	struct bench_gang gang;
	struct member members[N_THREADS];
	pthread_t thread;
	void *failed;

	bench_gang_init(&gang, address, process, N_PROCESSES, N_THREADS, 30);
	for (int t = 0; t < N_THREADS; t++)
		members[t] = (struct member){&gang, t};
	pthread_create(&thread, NULL, gather_rounds, &members[1]);
	bool right = gather_rounds(&members[0]) == NULL;
	pthread_join(thread, &failed);
	bench_gang_deinit(&gang);
	return right && !failed;
}

static pid_t start(const char *address, int process)
{
	pid_t child = fork();

	if (child == 0)
		_exit(play(address, process) ? 0 : 9);
	return child;
}

static int end_of(pid_t child)
{
	int status;

	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void test_every_member_sees_all_entries_in_order(void **state)
{
	char address[64];
	pid_t children[N_PROCESSES];

	snprintf(address, sizeof(address), "unix:strait-test-gang-%d", (int)getpid());
	for (int p = N_PROCESSES - 1; p >= 0; p--) /* the one that listens comes last */
		children[p] = start(address, p);
	for (int p = 0; p < N_PROCESSES; p++)
		assert_int_equal(end_of(children[p]), 0);
}

static void test_a_member_that_dies_ends_the_others(void **state)
{
	char address[64];
	pid_t children[N_PROCESSES];

	snprintf(address, sizeof(address), "unix:strait-test-death-%d", (int)getpid());
	for (int p = 0; p < N_PROCESSES; p++) {
		children[p] = fork();
		if (children[p] == 0) {
			struct bench_gang gang;

			assert_non_null(freopen("/dev/null", "w", stderr));
			bench_gang_init(&gang, address, p, N_PROCESSES, 1, 30);
			if (p == 2)
				_exit(5);
			for (;;)
				bench_gang_barrier(&gang, 0);
		}
	}
	assert_int_equal(end_of(children[2]), 5);
	assert_int_equal(end_of(children[0]), 1);
	assert_int_equal(end_of(children[1]), 1);
}

static void test_a_place_survives_the_way_through_the_command_line(void **state)
{
	struct bench_place place = {.process = 3,
				    .n_processes = 8,
				    .local = 1,
				    .n_local = 4,
				    .n_threads = 2,
				    .n_gpus = 5,
				    .board_fd = 7,
				    .rendezvous = "tcp:[::1]:99"},
			   back = {0};
	char text[256];

	bench_place_print(&place, text, sizeof(text));
	bench_place_parse(text, &back);
	assert_memory_equal(&place, &back, sizeof(place));
}

static void test_ranks_come_from_each_starters_environment(void **state)
{
	static const char *const sets[][4] = {
		{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
		{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
		 "OMPI_COMM_WORLD_LOCAL_SIZE"},
		{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
	};
	static const char *const values[] = {"5", "8", "1", "4"};
	struct bench_place place;

	for (size_t s = 0; s < 3; s++) {
		for (int v = 0; v < 4; v++)
			setenv(sets[s][v], values[v], 1);
		assert_true(bench_place_external(&place, "somewhere:77"));
		assert_int_equal(place.process, 5);
		assert_int_equal(place.n_processes, 8);
		assert_int_equal(place.local, 1);
		assert_int_equal(place.n_local, 4);
		assert_string_equal(place.rendezvous, "tcp:somewhere:77");
		for (int v = 0; v < 4; v++)
			unsetenv(sets[s][v]);
		assert_false(bench_place_external(&place, NULL));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_member_sees_all_entries_in_order),
		cmocka_unit_test(test_a_member_that_dies_ends_the_others),
		cmocka_unit_test(test_a_place_survives_the_way_through_the_command_line),
		cmocka_unit_test(test_ranks_come_from_each_starters_environment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
