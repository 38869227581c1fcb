/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ThreadSanitizer on kernels, ranks as threads: it has nothing to say of right kernels, and names a
 * race where a release, an acquire or a barrier is missing. Each kernel runs in a process of its
 * own.
 */
#include "tests/emulator/rig.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT 64
#define RACE 66 /* the exit status of a process with reports */

static const char *kernel_name;

static int reduce(struct rig_rank *rank, long calls)
{
	struct arguments arguments = {.in = rig_alloc(4 * COUNT),
				      .out = rig_alloc(4 * COUNT),
				      .count = COUNT,
				      .rank = rank->rank,
				      .n_ranks = rank->n};
	for (int r = 0; r < rank->n; r++)
		arguments.scratch[r] = rank->scratch[r];
	for (long i = 0; i < calls; i++)
		rig_launch(kernel_name, 1, 32, &arguments, rank->stream);
	OK(cuStreamSynchronize(rank->stream));
	return 0;
}

/* The status of a process that ran the kernel. */
static int run(const char *kernel)
{
	int status;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		dup2(open("/dev/null", O_WRONLY), 2);
		kernel_name = kernel;
		rig_run_threads(2, reduce, 3, 2);
		exit(0); /* with the sanitizer's own end */
	}
	waitpid(pid, &status, 0);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void test_right_kernels_have_no_race(void **state)
{
	assert_int_equal(run("allreduce_packets"), 0);
	assert_int_equal(run("allreduce_flags"), 0);
}

static void test_what_is_missing_is_a_race(void **state)
{
	assert_int_equal(run("allreduce_no_release"), RACE);
	assert_int_equal(run("allreduce_no_acquire"), RACE);
	assert_int_equal(run("allreduce_no_barrier"), RACE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_right_kernels_have_no_race),
		cmocka_unit_test(test_what_is_missing_is_a_race),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
