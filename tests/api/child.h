/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test in a process of its own: the library and the emulator read their environment once, an
 * abort leaves kernels behind, and a hang ends with its process. A child is made before its parent
 * has touched the driver; it holds all ranks in one thread unless a test gives it one rank.
 *
 * A child speaks by must() alone: cmocka's assertions would jump into the parent's runner.
 */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cuda.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 4, BUFFER_BYTES = 1 << 18, CHILD_LIMIT_S = 60 };

#define must(condition)                                                                     \
	do {                                                                                \
		if (!(condition)) {                                                         \
			fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, \
				ncclGetLastError(NULL));                                    \
			_exit(99);                                                          \
		}                                                                           \
	} while (0)
#define cuda(call) must((call) == CUDA_SUCCESS)
#define nccl(call) must((call) == ncclSuccess)

struct rank {
	CUcontext context;
	CUdeviceptr send, recv;
	CUstream stream, second;
	ncclComm_t comm;
};

static struct rank ranks[MOST_RANKS];
static int n_ranks;

static inline double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline void pause_ms(int ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static inline void enter(int rank)
{
	cuda(cuCtxSetCurrent(ranks[rank].context));
}

/* Context, buffers and streams of one rank on the device of its number. */
static inline void make_rank(int rank)
{
	struct rank *r = &ranks[rank];

	cuda(cuInit(0));
	cuda(cuDevicePrimaryCtxRetain(&r->context, rank));
	enter(rank);
	cuda(cuMemAlloc(&r->send, BUFFER_BYTES));
	cuda(cuMemAlloc(&r->recv, BUFFER_BYTES));
	cuda(cuStreamCreate(&r->stream, CU_STREAM_NON_BLOCKING));
	cuda(cuStreamCreate(&r->second, CU_STREAM_NON_BLOCKING));
}

static inline void join_ranks(void)
{
	ncclComm_t comms[MOST_RANKS];

	nccl(ncclCommInitAll(comms, n_ranks, NULL));
	for (int r = 0; r < n_ranks; r++)
		ranks[r].comm = comms[r];
}

static inline void make_ranks(int n)
{
	n_ranks = n;
	for (int r = 0; r < n; r++)
		make_rank(r);
	join_ranks();
}

/* What rank r contributes to call k: sums of 4 ranks are exact. */
static inline float input(int rank, int k, size_t i)
{
	return (float)((rank + 1) * (1 + (i + (size_t)k) % 7));
}

static inline float sum(int k, size_t i)
{
	return (float)(n_ranks * (n_ranks + 1) / 2 * (1 + (i + (size_t)k) % 7));
}

static inline void fill(CUdeviceptr to, int rank, int k, size_t count)
{
	static float values[BUFFER_BYTES / sizeof(float)];

	for (size_t i = 0; i < count; i++)
		values[i] = input(rank, k, i);
	enter(rank);
	cuda(cuMemcpyHtoD(to, values, count * sizeof(float)));
}

static inline void check(CUdeviceptr from, int rank, int k, size_t count)
{
	static float values[BUFFER_BYTES / sizeof(float)];

	enter(rank);
	cuda(cuMemcpyDtoH(values, from, count * sizeof(float)));
	for (size_t i = 0; i < count; i++)
		if (values[i] != sum(k, i)) {
			fprintf(stderr, "rank %d of %d, call %d of %zu, element %zu: %g, not %g\n",
				rank, n_ranks, k, count, i, values[i], sum(k, i));
			_exit(98);
		}
}

static inline ncclResult_t reduce(int rank, size_t count)
{
	return ncclAllReduce((void *)ranks[rank].send, (void *)ranks[rank].recv, count, ncclFloat,
			     ncclSum, ranks[rank].comm, (cudaStream_t)ranks[rank].stream);
}

/* Call k, from fresh inputs to checked results on every rank. */
static inline void reduce_exactly(int k, size_t count)
{
	for (int r = 0; r < n_ranks; r++)
		fill(ranks[r].send, r, k, count);
	nccl(ncclGroupStart());
	for (int r = 0; r < n_ranks; r++)
		nccl(reduce(r, count));
	nccl(ncclGroupEnd());
	for (int r = 0; r < n_ranks; r++) {
		enter(r);
		cuda(cuStreamSynchronize(ranks[r].stream));
		check(ranks[r].recv, r, k, count);
	}
}

/* `settings`: names and values in turn with a NULL at the end, or NULL. */
static inline pid_t start_child(const char *const settings[], void (*function)(int), int argument)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid)
		return pid;
	alarm(CHILD_LIMIT_S); /* a hang is a failure */
	for (int i = 0; settings && settings[i]; i += 2)
		setenv(settings[i], settings[i + 1], 1);
	function(argument);
	_exit(0);
}

static inline void wait_for_child(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status))
		fail_msg("signal %d", WTERMSIG(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static inline void run_child(const char *const settings[], void (*function)(int), int argument)
{
	wait_for_child(start_child(settings, function, argument));
}
