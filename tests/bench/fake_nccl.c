/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An NCCL library for testing the benchmark: ranks are threads of one process, the all-reduce is
 * done on the host with the reference arithmetic and is finished when the call returns.
 * FAKE_NCCL_FAULT makes it break in one known way, which the benchmark must notice:
 *
 *   last     leaves out the last element      twice   counts rank 0 twice, and rank 1 not at all
 *   beyond   writes a byte past the end       before  writes a byte before the start
 *   input    changes the input                nothing does nothing at all
 *   late     is right only once, then wrong   error   returns an error
 *   die      rank 1 is killed                 hang    rank 1 never returns
 *   apart    ranks are not connected: does nothing, for ranks in processes
 */
#include "bench/reference.h"
#include <cuda.h>
#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_RANKS 16
#define PUBLIC __attribute__((visibility("default")))

struct ncclComm {
	int rank, n_ranks, n_calls;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t all_here;
	int n_here, round;
	void *inputs[MOST_RANKS];
	uint64_t scalars[MOST_RANKS], scalar_of_operator[MOST_RANKS];
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER, .all_here = PTHREAD_COND_INITIALIZER};

static bool fault(const char *name)
{
	const char *wanted = getenv("FAKE_NCCL_FAULT");

	return wanted && strcmp(wanted, name) == 0;
}

static void *driver(const char *name)
{
	void *function = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);

	if (!function)
		abort();
	return function;
}

static void copy(void *host, const void *device, size_t bytes, bool to_device)
{
	CUresult (*in)(CUdeviceptr, const void *, size_t) = driver("cuMemcpyHtoD_v2");
	CUresult (*out)(void *, CUdeviceptr, size_t) = driver("cuMemcpyDtoH_v2");

	if (bytes && (to_device ? in((CUdeviceptr)device, host, bytes)
				: out(host, (CUdeviceptr)device, bytes)))
		abort();
}

static void meet(int n_ranks)
{
	pthread_mutex_lock(&shared.lock);
	int round = shared.round;
	if (++shared.n_here == n_ranks) {
		shared.n_here = 0;
		shared.round++;
		pthread_cond_broadcast(&shared.all_here);
	}
	while (round == shared.round)
		pthread_cond_wait(&shared.all_here, &shared.lock);
	pthread_mutex_unlock(&shared.lock);
}

PUBLIC ncclResult_t ncclGetVersion(int *version)
{
	*version = 22809;
	return ncclSuccess;
}

PUBLIC ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	memset(id, 7, sizeof(*id));
	return ncclSuccess;
}

PUBLIC const char *ncclGetErrorString(ncclResult_t result)
{
	return result == ncclSuccess ? "no error" : "an error that the test wants";
}

PUBLIC ncclResult_t ncclCommInitRank(ncclComm_t *communicator, int n_ranks, ncclUniqueId id,
				     int rank)
{
	for (size_t i = 0; i < sizeof(id); i++)
		if (id.internal[i] != 7)
			return ncclInvalidArgument;
	*communicator = calloc(1, sizeof(**communicator));
	(*communicator)->rank = rank;
	(*communicator)->n_ranks = n_ranks;
	return ncclSuccess;
}

PUBLIC ncclResult_t ncclCommDestroy(ncclComm_t communicator)
{
	free(communicator);
	return ncclSuccess;
}

PUBLIC ncclResult_t ncclCommAbort(ncclComm_t communicator)
{
	return ncclCommDestroy(communicator);
}

PUBLIC ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t *error)
{
	(void)communicator;
	*error = ncclSuccess;
	return ncclSuccess;
}

PUBLIC ncclResult_t ncclGroupStart(void)
{
	return ncclSuccess;
}

PUBLIC ncclResult_t ncclGroupEnd(void)
{
	return ncclSuccess;
}

PUBLIC ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
					     ncclScalarResidence_t residence,
					     ncclComm_t communicator)
{
	if (residence != ncclScalarHostImmediate)
		return ncclInvalidArgument;
	shared.scalar_of_operator[communicator->rank] = 0;
	memcpy(&shared.scalar_of_operator[communicator->rank], scalar,
	       strait_reference_type_bytes((enum strait_type)type));
	*op = (ncclRedOp_t)STRAIT_PREMULSUM;
	return ncclSuccess;
}

PUBLIC ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t communicator)
{
	(void)op;
	(void)communicator;
	return ncclSuccess;
}

static ncclResult_t act_up(struct ncclComm *communicator, bool *ret_done)
{
	*ret_done = true;
	if (fault("error"))
		return ncclInternalError;
	if (fault("die") && communicator->rank == 1)
		kill(getpid(), SIGKILL);
	/* The peers of a dead rank wait: else they could report wrong data first. */
	while (fault("die") || (fault("hang") && communicator->rank == 1))
		pause();
	*ret_done = fault("nothing") || fault("apart") || fault("hang");
	return ncclSuccess;
}

static void give_result(struct ncclComm *communicator, const void *send, void *recv, size_t count,
			size_t size, uint8_t *result)
{
	uint8_t byte = 0;
	bool late = fault("late") && communicator->n_calls++ > 0;

	if (late && count)
		result[0] ^= 1;
	copy(result, recv, (count - (fault("last") && count)) * size, true);
	if (fault("beyond"))
		copy(&byte, (char *)recv + count * size, 1, true);
	if (fault("before"))
		copy(&byte, (char *)recv - 1, 1, true);
	if (fault("input") && count && send != recv)
		copy(result, send, size, true);
}

PUBLIC ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
				  ncclRedOp_t op, ncclComm_t communicator, cudaStream_t stream)
{
	CUresult (*synchronize)(CUstream) = driver("cuStreamSynchronize");
	int rank = communicator->rank, n = communicator->n_ranks;
	size_t size = strait_reference_type_bytes((enum strait_type)type);
	uint8_t *result = malloc(count * size + 1);
	bool done;
	ncclResult_t r = act_up(communicator, &done);

	if (done || r != ncclSuccess) {
		free(result);
		return r;
	}
	if (synchronize(stream))
		abort();
	shared.inputs[rank] = malloc(count * size + 1);
	shared.scalars[rank] = shared.scalar_of_operator[rank];
	copy(shared.inputs[rank], send, count * size, false);
	meet(n);
	const void *inputs[MOST_RANKS];
	for (int i = 0; i < n; i++)
		inputs[i] = shared.inputs[fault("twice") && i == 1 ? 0 : i];
	strait_reference_reduce((enum strait_type)type, (enum strait_reduction_kind)op, n, inputs,
				shared.scalars, count, result);
	give_result(communicator, send, recv, count, size, result);
	meet(n);
	free(shared.inputs[rank]);
	free(result);
	return ncclSuccess;
}
