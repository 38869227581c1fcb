/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks as processes, on the emulator: who makes the id does not matter, a killed rank is noticed
 * by the others, and the next job on the same devices is right. Each rank is a child that is made
 * before anything has touched the driver.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cuda.h>
#include <nccl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 4, COUNT = 3000, LIMIT_S = 60 };

#define must(condition)                                                                        \
	do {                                                                                   \
		if (!(condition)) {                                                            \
			fprintf(stderr, "rank %d, %s:%d: %s (%s)\n", rank, __FILE__, __LINE__, \
				#condition, ncclGetLastError(NULL));                           \
			_exit(99);                                                             \
		}                                                                              \
	} while (0)

static int rank, n_ranks;
static ncclComm_t comm;
static CUdeviceptr buffer;

static void join(const ncclUniqueId *id)
{
	CUcontext context;

	must(cuInit(0) == CUDA_SUCCESS);
	must(cuDevicePrimaryCtxRetain(&context, rank) == CUDA_SUCCESS);
	must(cuCtxSetCurrent(context) == CUDA_SUCCESS);
	must(cuMemAlloc(&buffer, COUNT * sizeof(float)) == CUDA_SUCCESS);
	must(ncclCommInitRank(&comm, n_ranks, *id, rank) == ncclSuccess);
}

static ncclResult_t reduce(void)
{
	return ncclAllReduce((void *)buffer, (void *)buffer, COUNT, ncclFloat, ncclSum, comm, NULL);
}

static void reduce_exactly(int k)
{
	float values[COUNT];

	for (int i = 0; i < COUNT; i++)
		values[i] = (float)((rank + 1) * (1 + (i + k) % 7));
	must(cuMemcpyHtoD(buffer, values, sizeof(values)) == CUDA_SUCCESS);
	must(reduce() == ncclSuccess);
	must(cuStreamSynchronize(NULL) == CUDA_SUCCESS);
	must(cuMemcpyDtoH(values, buffer, sizeof(values)) == CUDA_SUCCESS);
	for (int i = 0; i < COUNT; i++)
		must(values[i] == (float)(n_ranks * (n_ranks + 1) / 2 * (1 + (i + k) % 7)));
}

static void reduce_and_leave(const ncclUniqueId *id)
{
	join(id);
	for (int k = 0; k < 5; k++)
		reduce_exactly(k);
	must(ncclCommDestroy(comm) == ncclSuccess);
}

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The last rank dies between two calls; the others' kernels wait for it until they are aborted. */
static void survive(const ncclUniqueId *id)
{
	ncclResult_t state = ncclSuccess;
	double start;

	join(id);
	reduce_exactly(0);
	if (rank == n_ranks - 1)
		raise(SIGKILL);
	start = now_s();
	(void)reduce(); /* refused if the loss is known already */
	while (state == ncclSuccess && now_s() - start < LIMIT_S)
		must(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
	must(state == ncclRemoteError);
	must(strstr(ncclGetLastError(NULL), "lost"));
	must(now_s() - start < 15);
	start = now_s();
	must(ncclCommAbort(comm) == ncclSuccess);
	must(now_s() - start < 10);
	must(cuStreamSynchronize(NULL) == CUDA_SUCCESS);
}

static void refuse_a_shared_device(const ncclUniqueId *id)
{
	CUcontext context;
	ncclResult_t result;

	must(cuInit(0) == CUDA_SUCCESS);
	must(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
	must(cuCtxSetCurrent(context) == CUDA_SUCCESS);
	result = ncclCommInitRank(&comm, n_ranks, *id, rank);
	must(result == ncclInvalidUsage);
	must(comm == NULL);
}

static pid_t start_rank(int number, int n, const int id_pipe[2], bool makes_id,
			void (*function)(const ncclUniqueId *))
{
	ncclUniqueId id;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid)
		return pid;
	rank = number;
	n_ranks = n;
	alarm(LIMIT_S); /* a hang is a failure */
	if (makes_id) {
		must(ncclGetUniqueId(&id) == ncclSuccess);
		/* One id for each rank; they are smaller than what a pipe writes in one piece. */
		for (int r = 0; r < n; r++)
			must(write(id_pipe[1], &id, sizeof(id)) == sizeof(id));
	}
	must(read(id_pipe[0], &id, sizeof(id)) == sizeof(id));
	function(&id);
	exit(0);
}

static void wait_for_ranks(const pid_t *pids, int n, int killed)
{
	for (int r = 0; r < n; r++) {
		int status;

		assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
		if (r == killed)
			assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		else
			assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
}

/* `maker`: the rank that makes the id. */
static void run(int n, int maker, int killed, void (*function)(const ncclUniqueId *))
{
	int id_pipe[2];
	pid_t pids[MOST_RANKS];

	assert_int_equal(pipe(id_pipe), 0);
	for (int r = 0; r < n; r++)
		pids[r] = start_rank(r, n, id_pipe, r == maker, function);
	wait_for_ranks(pids, n, killed);
	close(id_pipe[0]);
	close(id_pipe[1]);
}

static void test_processes_reduce_whoever_makes_the_id(void **state)
{
	for (int n = 2; n <= MOST_RANKS; n++) {
		run(n, 0, -1, reduce_and_leave);
		run(n, n - 1, -1, reduce_and_leave);
	}
}

static void test_id_of_a_process_that_is_no_rank_serves(void **state)
{
	int id_pipe[2], end_pipe[2], status;
	pid_t pids[2], maker;

	assert_int_equal(pipe(id_pipe), 0);
	for (int r = 0; r < 2; r++)
		pids[r] = start_rank(r, 2, id_pipe, false, reduce_and_leave);
	assert_int_equal(pipe(end_pipe), 0); /* after them: they must not hold its writing end */
	fflush(NULL);
	maker = fork();
	assert_true(maker >= 0);
	if (maker == 0) {
		ncclUniqueId id;
		char byte;

		close(end_pipe[1]);
		alarm(LIMIT_S);
		must(ncclGetUniqueId(&id) == ncclSuccess);
		for (int r = 0; r < 2; r++)
			must(write(id_pipe[1], &id, sizeof(id)) == sizeof(id));
		/* The root lives until all have met: until this test closes its end. */
		must(read(end_pipe[0], &byte, 1) == 0);
		exit(0);
	}
	wait_for_ranks(pids, 2, -1);
	close(end_pipe[1]);
	assert_int_equal(waitpid(maker, &status, 0), maker);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(end_pipe[0]);
	close(id_pipe[0]);
	close(id_pipe[1]);
}

static void test_killed_rank_is_noticed_and_the_next_job_is_right(void **state)
{
	for (int n = 2; n <= MOST_RANKS; n += 2) {
		run(n, 0, n - 1, survive);
		run(n, 0, -1, reduce_and_leave);
	}
}

static void test_two_ranks_on_one_device_are_refused_on_both(void **state)
{
	run(2, 0, -1, refuse_a_shared_device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_processes_reduce_whoever_makes_the_id),
		cmocka_unit_test(test_id_of_a_process_that_is_no_rank_serves),
		cmocka_unit_test(test_killed_rank_is_noticed_and_the_next_job_is_right),
		cmocka_unit_test(test_two_ranks_on_one_device_are_refused_on_both),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
