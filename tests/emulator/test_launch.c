/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels: indices, barriers, warp operations, shared memory, atomics, own stores, many blocks, and
 * the reports of what cannot go on.
 */
#include "tests/emulator/rig.h"
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int open_device(void **state)
{
	rig_open(0);
	return 0;
}

/* Runs a kernel on zeroed memory and gives what it left. */
static void run(const char *kernel, unsigned blocks, unsigned threads, struct arguments arguments,
		void *out, size_t bytes)
{
	arguments.out = rig_alloc(bytes);
	rig_launch(kernel, blocks, threads, &arguments, NULL);
	OK(cuCtxSynchronize());
	OK(cuMemcpyDtoH(out, arguments.out, bytes));
	OK(cuMemFree(arguments.out));
}

static void test_every_thread_of_every_block_runs_once(void **state)
{
	static uint32_t in[10000], out[10000];
	struct arguments arguments = {.in = rig_alloc(sizeof in), .count = 10000, .rank = 3};
	for (unsigned i = 0; i < 10000; i++)
		in[i] = i * 5;
	OK(cuMemcpyHtoD(arguments.in, in, sizeof in));
	for (unsigned blocks = 1; blocks <= 200; blocks = blocks * 3 + 1) {
		run("add_rank", blocks, 33, arguments, out, sizeof out);
		for (unsigned i = 0; i < 10000; i++)
			assert_int_equal(out[i], i * 5 + 3);
	}
	OK(cuMemFree(arguments.in));
}

static void test_indices_cover_three_dimensions(void **state)
{
	uint32_t out[2 * 3 * 2 * 24];
	struct arguments arguments = {.out = rig_alloc(sizeof out)};
	void *params[] = {&arguments};
	OK(cuLaunchKernel(rig_kernel("block_index"), 2, 3, 2, 4, 3, 2, 0, NULL, params, NULL));
	OK(cuMemcpyDtoH(out, arguments.out, sizeof out));
	for (unsigned i = 0; i < sizeof out / 4; i++)
		assert_int_equal(out[i], i / 24 * 1000 + i % 24);
	OK(cuMemFree(arguments.out));
}

static void test_warps_exchange_values_and_votes(void **state)
{
	uint32_t out[3 * 64];
	run("warp_operations", 1, 64, (struct arguments){0}, out, sizeof out);
	for (unsigned t = 0; t < 64; t++) {
		assert_int_equal(out[t], t < 32 ? 496 : 496 + 32 * 32);
		assert_int_equal(out[64 + t], 0x49249249);
		assert_int_equal(out[128 + t], out[t ^ 1]);
	}
}

static void test_a_barrier_counts_only_threads_that_are_left(void **state)
{
	uint32_t out[128];
	run("barrier_after_return", 1, 64, (struct arguments){.count = 10}, out, sizeof out);
	for (unsigned t = 0; t < 64; t++) {
		assert_int_equal(out[t], 63 - t);
		assert_int_equal(out[64 + t], t % 2 == 0);
	}
}

static void test_shared_memory_starts_with_poison(void **state)
{
	uint32_t out[64];
	for (int i = 0; i < 3; i++) {
		run("read_shared", 1, 64, (struct arguments){0}, out, sizeof out);
		for (unsigned t = 0; t < 64; t++)
			assert_int_equal(out[t], 0xa5a5a5a5);
	}
}

static void test_atomic_adds_lose_nothing(void **state)
{
	uint64_t out[2];
	run("add_atomically", 8, 64, (struct arguments){0}, out, sizeof out);
	assert_int_equal(out[0], 8 * 64);
	assert_int_equal(out[1], 3 * 8 * 64);
}

static int read_own_stores(struct rig_rank *rank, long value)
{
	uint64_t out[128];
	struct arguments arguments = {.out = rank->scratch[rank->rank], .count = 200};
	int wrong = 0;
	rig_launch("read_own_stores", 1, 64, &arguments, rank->stream);
	OK(cuStreamSynchronize(rank->stream));
	OK(cuMemcpyDtoH(out, arguments.out, sizeof out));
	for (int t = 0; t < 64; t++)
		wrong += out[2 * t + 1] != 0;
	return wrong;
}

static void test_a_thread_sees_its_own_delayed_stores(void **state)
{
	assert_int_equal(rig_run_threads(1, read_own_stores, 0, 1), 0);
}

static void test_bad_shapes_are_refused(void **state)
{
	struct arguments arguments = {0};
	void *params[] = {&arguments};
	CUfunction empty = rig_kernel("empty");
	assert_int_equal(cuLaunchKernel(empty, 0, 1, 1, 1, 1, 1, 0, NULL, params, NULL),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuLaunchKernel(empty, 1, 1, 1, 65, 1, 1, 0, NULL, params, NULL),
			 CUDA_ERROR_INVALID_VALUE);
	CUkernel kernel;
	CUlibrary library;
	OK(cuLibraryLoadData(&library, "STRAIT-EMULATOR:" KERNELS_PATH, NULL, NULL, 0, NULL, NULL,
			     0));
	assert_int_equal(cuLibraryGetKernel(&kernel, library, "nothing"), CUDA_ERROR_NOT_FOUND);
	OK(cuLibraryUnload(library));
}

static void test_launch_attributes_are_accepted(void **state)
{
	CUlaunchAttribute attributes[] = {
		{.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = {.cooperative = 1}},
		{.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value = {.priority = -1}},
		{.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value = {.clusterDim = {1, 1, 1}}},
		{.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
		 .value = {.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE}}};
	struct arguments arguments = {.out = rig_alloc(64)};
	void *params[] = {&arguments};
	CUlaunchConfig config = {.gridDimX = 4,
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = 64,
				 .blockDimY = 1,
				 .blockDimZ = 1,
				 .attrs = attributes,
				 .numAttrs = 4};
	uint32_t got;
	OK(cuLaunchKernelEx(&config, rig_kernel("increment"), params, NULL));
	OK(cuMemcpyDtoH(&got, arguments.out, 4));
	assert_int_equal(got, 1);
	attributes[2].value.clusterDim.x = 2;
	assert_int_equal(cuLaunchKernelEx(&config, rig_kernel("increment"), params, NULL),
			 CUDA_ERROR_NOT_SUPPORTED);
	OK(cuMemFree(arguments.out));
}

static void test_a_divergent_barrier_is_reported_and_fails(void **state)
{
	int pipe_[2], status;
	char text[1024] = {0};
	assert_int_equal(pipe(pipe_), 0);
	pid_t pid = fork();
	if (!pid) {
		dup2(pipe_[1], 2);
		rig_open(0);
		struct arguments arguments = {.out = rig_alloc(64)};
		rig_launch("divergent_barrier", 2, 64, &arguments, NULL);
		_exit(cuCtxSynchronize() != CUDA_ERROR_LAUNCH_FAILED);
	}
	close(pipe_[1]);
	for (size_t n = 0, got = 1; got > 0 && got < sizeof text; n += got) {
		ssize_t r = read(pipe_[0], text + n, sizeof text - 1 - n);
		got = r > 0 ? (size_t)r : 0;
	}
	close(pipe_[0]);
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
	assert_non_null(strstr(text, "divergent_barrier"));
}

int main(void)
{
	const struct CMUnitTest fresh[] = {
		cmocka_unit_test(test_a_divergent_barrier_is_reported_and_fails)};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_thread_of_every_block_runs_once),
		cmocka_unit_test(test_indices_cover_three_dimensions),
		cmocka_unit_test(test_warps_exchange_values_and_votes),
		cmocka_unit_test(test_a_barrier_counts_only_threads_that_are_left),
		cmocka_unit_test(test_shared_memory_starts_with_poison),
		cmocka_unit_test(test_atomic_adds_lose_nothing),
		cmocka_unit_test(test_a_thread_sees_its_own_delayed_stores),
		cmocka_unit_test(test_bad_shapes_are_refused),
		cmocka_unit_test(test_launch_attributes_are_accepted),
	};
	int failed = cmocka_run_group_tests_name("reports", fresh, NULL, NULL);
	return failed + cmocka_run_group_tests_name("launch", tests, open_device, NULL);
}
