/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weak memory: right kernels are exact under every seed, ranks as threads or processes; a kernel
 * that lacks its release, its acquire or its barrier is caught within a few seeds.
 */
#include "tests/emulator/rig.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COUNT 256

static const char *const kernel_names[] = {"allreduce_packets", "allreduce_flags",
					   "allreduce_no_release", "allreduce_no_acquire",
					   "allreduce_no_barrier"};
enum { PACKETS, FLAGS, NO_RELEASE, NO_ACQUIRE, NO_BARRIER };

static uint32_t value_of(int rank, unsigned i, int call)
{
	return (uint32_t)(rank * 7919 + (int)i * 31 + call * 104729 + 1);
}

static int count_wrong(const uint32_t *got, const struct rig_rank *rank, unsigned count, int call)
{
	int wrong = 0;
	for (unsigned i = 0; i < count; i++) {
		uint32_t sum = 0;
		for (int r = 0; r < rank->n; r++)
			sum += value_of(r, i, call);
		wrong += got[i] != sum;
	}
	return wrong;
}

/* value: kernel + 16 * blocks + 1024 * calls; returns wrong elements. */
static int reduce(struct rig_rank *rank, long value)
{
	const char *kernel = kernel_names[value % 16];
	unsigned blocks = (unsigned)(value / 16 % 64);
	int calls = (int)(value / 1024), wrong = 0;
	uint32_t *host;
	OK(cuMemHostAlloc((void **)&host, 8 * COUNT, 0));
	struct arguments arguments = {.in = rig_alloc(4 * COUNT),
				      .out = rig_alloc(4 * COUNT),
				      .count = COUNT,
				      .rank = rank->rank,
				      .n_ranks = rank->n};
	for (int r = 0; r < rank->n; r++)
		arguments.scratch[r] = rank->scratch[r];
	for (int call = 0; call < calls; call++) {
		for (unsigned i = 0; i < COUNT; i++)
			host[i] = value_of(rank->rank, i, call);
		OK(cuMemcpyHtoDAsync(arguments.in, host, 4 * COUNT, rank->stream));
		rig_launch(kernel, blocks, 64, &arguments, rank->stream);
		OK(cuMemcpyDtoHAsync(host + COUNT, arguments.out, 4 * COUNT, rank->stream));
		OK(cuStreamSynchronize(rank->stream));
		wrong += count_wrong(host + COUNT, rank, COUNT, call);
	}
	OK(cuMemFree(arguments.in));
	OK(cuMemFree(arguments.out));
	OK(cuMemFreeHost(host));
	return wrong;
}

static long code(int kernel, int blocks, int calls)
{
	return kernel + 16 * blocks + 1024l * calls;
}

static void test_right_kernels_are_exact_with_ranks_as_threads(void **state)
{
	for (int n = 2; n <= 8; n *= 2)
		for (int kernel = PACKETS; kernel <= FLAGS; kernel++) {
			assert_int_equal(rig_run_threads(n, reduce, code(kernel, 2, 50), 8), 0);
			assert_int_equal(rig_run_threads(n, reduce, code(kernel, 1, 20), 1), 0);
		}
}

static void test_right_kernels_are_exact_with_ranks_as_processes(void **state)
{
	for (int seed = 1; seed <= 5; seed++) {
		char text[64];
		snprintf(text, sizeof text, "STRAIT_EMULATOR_SEED=%d", seed);
		const char *environment[] = {text, NULL};
		for (int kernel = PACKETS; kernel <= FLAGS; kernel++)
			if (rig_run_processes(seed == 1 ? 8 : 2, "reduce", code(kernel, 2, 20),
					      environment) != 0)
				fail_msg("%s is wrong with seed %d", kernel_names[kernel], seed);
	}
}

static int seeds_that_catch(int kernel, const char *buffer, const char *stale)
{
	int caught = 0;
	for (int seed = 1; seed <= 10; seed++) {
		char text[64];
		snprintf(text, sizeof text, "STRAIT_EMULATOR_SEED=%d", seed);
		const char *environment[] = {text, buffer, stale, NULL};
		long wrong = rig_run_processes(2, "reduce", code(kernel, 1, 3), environment);
		assert_true(wrong < 1000000); /* wrong values, not a crash */
		caught += wrong != 0;
	}
	print_message("%s %s %s: caught by %d seeds of 10\n", kernel_names[kernel],
		      buffer ? buffer : "", stale ? stale : "", caught);
	return caught;
}

static void test_a_missing_release_is_caught(void **state)
{
	assert_true(seeds_that_catch(NO_RELEASE, NULL, NULL) >= 8);
}

static void test_a_missing_acquire_is_caught(void **state)
{
	assert_true(seeds_that_catch(NO_ACQUIRE, NULL, NULL) >= 8);
}

static void test_a_missing_barrier_is_caught(void **state)
{
	assert_true(seeds_that_catch(NO_BARRIER, NULL, NULL) >= 8);
}

static void test_delayed_stores_alone_catch_a_missing_release(void **state)
{
	assert_true(seeds_that_catch(NO_RELEASE, NULL, "STRAIT_EMULATOR_STALE=0") >= 1);
}

static void test_stale_loads_alone_catch_a_missing_acquire(void **state)
{
	assert_true(seeds_that_catch(NO_ACQUIRE, "STRAIT_EMULATOR_BUFFER=0", NULL) >= 8);
}

int main(int argc, char **argv)
{
	static const struct rig_role roles[] = {{"reduce", reduce}};
	rig_main(argc, argv, roles, 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_right_kernels_are_exact_with_ranks_as_threads),
		cmocka_unit_test(test_right_kernels_are_exact_with_ranks_as_processes),
		cmocka_unit_test(test_a_missing_release_is_caught),
		cmocka_unit_test(test_a_missing_acquire_is_caught),
		cmocka_unit_test(test_a_missing_barrier_is_caught),
		cmocka_unit_test(test_delayed_stores_alone_catch_a_missing_release),
		cmocka_unit_test(test_stale_loads_alone_catch_a_missing_acquire),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
