/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exported functions end to end on the emulated driver: one process, one thread that holds all
 * ranks unless a test says otherwise. Values are small integers, so that every order of summation
 * gives the same bits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cuda.h>
#include <nccl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = 4, COUNT = 5000 };

#define assert_cuda(call) assert_int_equal(call, CUDA_SUCCESS)
#define assert_nccl(call) assert_int_equal(call, ncclSuccess)

struct rank {
	CUcontext context;
	CUdeviceptr send, recv;
	CUstream stream, second;
	ncclComm_t comm;
};

static struct rank ranks[MOST_RANKS];
static int n_ranks;

static void enter(int rank)
{
	assert_cuda(cuCtxSetCurrent(ranks[rank].context));
}

/* What rank r contributes to call k at element i; at most 7 * 4 a rank. */
static float input(int rank, int k, size_t i)
{
	return (float)((rank + 1) * (1 + (i + (size_t)k) % 7));
}

static float sum(int k, size_t i)
{
	float total = 0;

	for (int r = 0; r < n_ranks; r++)
		total += input(r, k, i);
	return total;
}

static void fill(int rank, int k)
{
	float values[COUNT];

	for (size_t i = 0; i < COUNT; i++)
		values[i] = input(rank, k, i);
	assert_cuda(cuMemcpyHtoD(ranks[rank].send, values, sizeof(values)));
}

static void fill_all(int k)
{
	for (int r = 0; r < n_ranks; r++) {
		enter(r);
		fill(r, k);
	}
}

static void check(int rank, CUdeviceptr from, int k, float factor)
{
	float values[COUNT];

	enter(rank);
	assert_cuda(cuCtxSynchronize());
	assert_cuda(cuMemcpyDtoH(values, from, sizeof(values)));
	for (size_t i = 0; i < COUNT; i++)
		if (values[i] != factor * sum(k, i))
			fail_msg("rank %d, element %zu: %g instead of %g", rank, i, values[i],
				 factor * sum(k, i));
}

static void check_all(int k, float factor)
{
	for (int r = 0; r < n_ranks; r++)
		check(r, ranks[r].recv, k, factor);
}

static void make_buffers(int n)
{
	n_ranks = n;
	for (int r = 0; r < n; r++) {
		assert_cuda(cuDevicePrimaryCtxRetain(&ranks[r].context, r));
		enter(r);
		assert_cuda(cuMemAlloc(&ranks[r].send, COUNT * sizeof(float)));
		assert_cuda(cuMemAlloc(&ranks[r].recv, COUNT * sizeof(float)));
		assert_cuda(cuStreamCreate(&ranks[r].stream, CU_STREAM_NON_BLOCKING));
		assert_cuda(cuStreamCreate(&ranks[r].second, CU_STREAM_NON_BLOCKING));
	}
}

static void free_buffers(void)
{
	for (int r = 0; r < n_ranks; r++) {
		enter(r);
		assert_cuda(cuMemFree(ranks[r].send));
		assert_cuda(cuMemFree(ranks[r].recv));
		assert_cuda(cuStreamDestroy(ranks[r].stream));
		assert_cuda(cuStreamDestroy(ranks[r].second));
		assert_cuda(cuCtxSetCurrent(NULL));
		assert_cuda(cuDevicePrimaryCtxRelease(r));
	}
}

static void make_ranks(int n)
{
	ncclComm_t comms[MOST_RANKS];

	make_buffers(n);
	assert_nccl(ncclCommInitAll(comms, n, NULL));
	for (int r = 0; r < n; r++)
		ranks[r].comm = comms[r];
}

static void free_ranks(void)
{
	for (int r = 0; r < n_ranks; r++)
		assert_nccl(ncclCommDestroy(ranks[r].comm));
	free_buffers();
}

static ncclResult_t reduce(int rank, ncclRedOp_t op, CUstream stream)
{
	return ncclAllReduce((void *)ranks[rank].send, (void *)ranks[rank].recv, COUNT, ncclFloat,
			     op, ranks[rank].comm, (cudaStream_t)stream);
}

static void reduce_all(ncclRedOp_t op)
{
	assert_nccl(ncclGroupStart());
	for (int r = 0; r < n_ranks; r++)
		assert_nccl(reduce(r, op, ranks[r].stream));
	assert_nccl(ncclGroupEnd());
}

static void test_one_thread_reduces_over_all_its_devices(void **state)
{
	for (int n = 1; n <= MOST_RANKS; n++) {
		make_ranks(n);
		for (int k = 0; k < 3; k++) {
			fill_all(k);
			reduce_all(ncclSum);
			check_all(k, 1);
		}
		free_ranks();
	}
}

static void test_current_context_survives_every_call(void **state)
{
	CUcontext current;

	make_ranks(2);
	assert_cuda(cuCtxGetCurrent(&current));
	assert_ptr_equal(current, ranks[1].context); /* the newest that make_buffers() set */
	fill_all(0);
	enter(0);
	reduce_all(ncclSum);
	assert_cuda(cuCtxGetCurrent(&current));
	assert_ptr_equal(current, ranks[0].context);
	check_all(0, 1);
	free_ranks();
}

static void test_many_calls_of_one_group_are_all_right(void **state)
{
	enum { CALLS = 40 };

	make_ranks(3);
	for (int k = 0; k < 4; k++) {
		fill_all(k);
		assert_nccl(ncclGroupStart());
		for (int r = 0; r < n_ranks; r++)
			for (int call = 0; call < CALLS; call++)
				assert_nccl(reduce(r, ncclSum, ranks[r].stream));
		assert_nccl(ncclGroupEnd());
		check_all(k, 1);
	}
	free_ranks();
}

/* Call 2 reads on the second stream what call 1 wrote on the first, and the first stream goes on
 * only after both. */
static void test_streams_of_a_group_are_joined(void **state)
{
	CUdeviceptr third[2];

	make_ranks(2);
	for (int r = 0; r < 2; r++) {
		enter(r);
		assert_cuda(cuMemAlloc(&third[r], COUNT * sizeof(float)));
	}
	for (int k = 0; k < 20; k++) {
		fill_all(k);
		assert_nccl(ncclGroupStart());
		for (int r = 0; r < 2; r++) {
			assert_nccl(reduce(r, ncclSum, ranks[r].second));
			assert_nccl(reduce(r, ncclSum, ranks[r].stream));
		}
		assert_nccl(ncclGroupEnd());
		for (int r = 0; r < 2; r++) {
			enter(r);
			assert_cuda(cuMemcpyDtoDAsync(third[r], ranks[r].recv,
						      COUNT * sizeof(float), ranks[r].second));
			check(r, third[r], k, 1);
		}
	}
	for (int r = 0; r < 2; r++) {
		enter(r);
		assert_cuda(cuMemFree(third[r]));
	}
	free_ranks();
}

static void test_scaled_sum_outlives_its_operator(void **state)
{
	float half = 0.5f;

	make_ranks(2);
	fill_all(0);
	assert_nccl(ncclGroupStart());
	for (int r = 0; r < 2; r++) {
		ncclRedOp_t op;

		assert_nccl(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat, ncclScalarHostImmediate,
						     ranks[r].comm));
		assert_nccl(reduce(r, op, ranks[r].stream));
		assert_nccl(ncclRedOpDestroy(op, ranks[r].comm));
	}
	assert_nccl(ncclGroupEnd());
	check_all(0, 0.5f);
	free_ranks();
}

static void test_captured_groups_replay(void **state)
{
	CUgraphExec graphs[2];

	make_ranks(2);
	for (int r = 0; r < 2; r++) {
		enter(r);
		assert_cuda(cuStreamBeginCapture(ranks[r].stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	}
	reduce_all(ncclSum);
	for (int r = 0; r < 2; r++) {
		CUgraph graph;

		enter(r);
		assert_cuda(cuStreamEndCapture(ranks[r].stream, &graph));
		assert_cuda(cuGraphInstantiateWithFlags(&graphs[r], graph, 0));
		assert_cuda(cuGraphDestroy(graph));
	}
	for (int k = 0; k < 20; k++) {
		fill_all(k);
		for (int r = 0; r < 2; r++) {
			enter(r);
			assert_cuda(cuGraphLaunch(graphs[r], ranks[r].stream));
		}
		check_all(k, 1);
	}
	for (int r = 0; r < 2; r++) {
		enter(r);
		assert_cuda(cuGraphExecDestroy(graphs[r]));
	}
	free_ranks();
}

static void test_captured_and_uncaptured_streams_do_not_mix(void **state)
{
	CUgraph graph;

	make_ranks(2);
	enter(0);
	assert_cuda(cuStreamBeginCapture(ranks[0].stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	assert_nccl(ncclGroupStart());
	assert_nccl(reduce(0, ncclSum, ranks[0].stream));
	assert_nccl(reduce(0, ncclSum, ranks[0].second));
	assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
	enter(0);
	assert_cuda(cuStreamEndCapture(ranks[0].stream, &graph));
	assert_cuda(cuGraphDestroy(graph));
	free_ranks();
}

static void test_memory_of_nccls_own_allocator_is_reduced(void **state)
{
	make_ranks(2);
	for (int r = 0; r < 2; r++) {
		enter(r);
		assert_cuda(cuMemFree(ranks[r].send));
		assert_nccl(ncclMemAlloc((void **)&ranks[r].send, COUNT * sizeof(float)));
	}
	fill_all(3);
	reduce_all(ncclSum);
	check_all(3, 1);
	for (int r = 0; r < 2; r++) {
		enter(r);
		assert_nccl(ncclMemFree((void *)ranks[r].send));
		assert_cuda(cuMemAlloc(&ranks[r].send, 16)); /* for free_buffers() */
	}
	free_ranks();
}

static void test_repeated_device_is_refused_as_nccl_refuses_it(void **state)
{
	const int devices[] = {0, 0};
	ncclComm_t comms[2];
	ncclUniqueId id;

	assert_int_equal(ncclCommInitAll(comms, 2, devices), ncclInvalidUsage);
	make_buffers(1);
	enter(0);
	assert_nccl(ncclGetUniqueId(&id));
	assert_nccl(ncclGroupStart());
	for (int r = 0; r < 2; r++)
		assert_nccl(ncclCommInitRank(&comms[r], 2, id, r));
	assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
	assert_null(comms[0]);
	assert_null(comms[1]);
	free_buffers();
}

static void make_nonblocking_ranks(ncclUniqueId id)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclResult_t result;

	config.blocking = 0;
	for (int r = 0; r < n_ranks; r++) {
		enter(r);
		assert_int_equal(ncclCommInitRankConfig(&ranks[r].comm, n_ranks, id, r, &config),
				 ncclInProgress);
	}
	for (int r = 0; r < n_ranks; r++) {
		do
			assert_nccl(ncclCommGetAsyncError(ranks[r].comm, &result));
		while (result == ncclInProgress);
		assert_nccl(result);
	}
}

static void test_nonblocking_communicators_become_ready(void **state)
{
	ncclUniqueId id;

	make_buffers(3);
	assert_nccl(ncclGetUniqueId(&id));
	make_nonblocking_ranks(id);
	fill_all(0);
	reduce_all(ncclSum);
	check_all(0, 1);
	for (int r = 0; r < n_ranks; r++)
		assert_nccl(ncclCommFinalize(ranks[r].comm));
	free_ranks();
}

static void *abort_rank(void *comm)
{
	return (void *)(intptr_t)ncclCommAbort(comm);
}

static void test_abort_frees_a_kernel_that_waits_for_a_peer(void **state)
{
	pthread_t threads[2];
	void *result;

	make_ranks(2);
	fill_all(0);
	assert_nccl(reduce(0, ncclSum, ranks[0].stream)); /* rank 1 never comes */
	assert_int_equal(cuStreamQuery(ranks[0].stream), CUDA_ERROR_NOT_READY);
	for (int r = 0; r < 2; r++)
		assert_int_equal(pthread_create(&threads[r], NULL, abort_rank, ranks[r].comm), 0);
	for (int r = 0; r < 2; r++) {
		assert_int_equal(pthread_join(threads[r], &result), 0);
		assert_null(result);
	}
	enter(0);
	assert_cuda(cuStreamSynchronize(ranks[0].stream));
	free_buffers();

	make_ranks(2);
	fill_all(1);
	reduce_all(ncclSum);
	check_all(1, 1);
	free_ranks();
}

static void test_abort_ends_a_set_up_whose_peer_never_comes(void **state)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclUniqueId id;

	make_buffers(1);
	enter(0);
	config.blocking = 0;
	assert_nccl(ncclGetUniqueId(&id));
	assert_int_equal(ncclCommInitRankConfig(&ranks[0].comm, 2, id, 0, &config), ncclInProgress);
	assert_nccl(ncclCommAbort(ranks[0].comm));
	free_buffers();
}

static void test_communicators_are_made_and_destroyed_many_times(void **state)
{
	for (int round = 0; round < 10; round++) {
		make_ranks(2);
		fill_all(round);
		reduce_all(ncclSum);
		check_all(round, 1);
		free_ranks();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_thread_reduces_over_all_its_devices),
		cmocka_unit_test(test_current_context_survives_every_call),
		cmocka_unit_test(test_many_calls_of_one_group_are_all_right),
		cmocka_unit_test(test_streams_of_a_group_are_joined),
		cmocka_unit_test(test_scaled_sum_outlives_its_operator),
		cmocka_unit_test(test_captured_groups_replay),
		cmocka_unit_test(test_captured_and_uncaptured_streams_do_not_mix),
		cmocka_unit_test(test_memory_of_nccls_own_allocator_is_reduced),
		cmocka_unit_test(test_repeated_device_is_refused_as_nccl_refuses_it),
		cmocka_unit_test(test_nonblocking_communicators_become_ready),
		cmocka_unit_test(test_abort_frees_a_kernel_that_waits_for_a_peer),
		cmocka_unit_test(test_abort_ends_a_set_up_whose_peer_never_comes),
		cmocka_unit_test(test_communicators_are_made_and_destroyed_many_times),
	};

	alarm(240); /* a hang is a failure */
	return cuInit(0) || cmocka_run_group_tests(tests, NULL, NULL);
}
