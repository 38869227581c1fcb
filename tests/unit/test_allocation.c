/* SPDX-License-Identifier: Apache-2.0 */
/* ncclMemAlloc and ncclMemFree: sizes, access of the peers, and that nothing is left. */
#include "tests/unit/nccl_ranks.h"

static int check_memory_is_back(void **state)
{
	return fake.n_created || fake.n_plain || fake.n_mapped || fake.n_reserved ||
	       check_nothing_is_left(state);
}

static void test_memory_is_rounded_up_and_given_back(void **state)
{
	const size_t sizes[] = {1, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, (size_t)5 << 30};
	void *pointers[5];

	fake_set_current(fake_primary(0));
	for (int i = 0; i < 5; i++) {
		assert_int_equal(ncclMemAlloc(&pointers[i], sizes[i]), 0);
		assert_non_null(pointers[i]);
	}
	assert_int_equal(fake.n_mapped, 5);
	assert_int_equal(fake.n_created, 0); /* the mapping holds the memory alone */
	for (int i = 0; i < 5; i++)
		assert_int_equal(ncclMemFree(pointers[(i + 2) % 5]), 0);
	assert_ptr_equal(fake_current(), fake_primary(0));
	fake_set_current(NULL);
}

static void test_memory_is_accessible_on_the_devices_that_reach_it(void **state)
{
	void *pointer;

	fake_set_current(fake_primary(1));
	assert_int_equal(ncclMemAlloc(&pointer, 4096), 0);
	assert_int_equal(fake.n_access, 3); /* all but device 3, which reaches nobody */
	assert_int_equal(ncclMemFree(pointer), 0);
	fake.n_access = 0;
	fake_set_current(fake_primary(3));
	assert_int_equal(ncclMemAlloc(&pointer, 4096), 0);
	assert_int_equal(fake.n_access, 1);
	assert_int_equal(ncclMemFree(pointer), 0);
	fake_set_current(NULL);
}

static void test_memory_holds_the_primary_context_where_none_is_current(void **state)
{
	void *pointer;

	assert_int_equal(ncclMemAlloc(&pointer, 4096), 0);
	assert_null(fake_current());
	assert_int_equal(fake.n_retained, 1);
	assert_int_equal(ncclMemFree(pointer), 0);
}

static void test_plain_memory_where_there_is_no_virtual_memory(void **state)
{
	void *pointer;

	fake.no_virtual_memory = 1;
	assert_int_equal(ncclMemAlloc(&pointer, 4096), 0);
	assert_int_equal(fake.n_plain, 1);
	assert_int_equal(ncclMemFree(pointer), 0);
}

static void test_edges_of_alloc_and_free(void **state)
{
	void *pointer = (void *)0x55;

	fake_set_current(fake_primary(0));
	assert_int_equal(ncclMemAlloc(&pointer, 0), 0);
	assert_null(pointer);
	assert_int_equal(ncclMemFree(NULL), 0);
	assert_int_equal(ncclMemAlloc(NULL, 4096), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(ncclMemAlloc(&pointer, SIZE_MAX - 100), STRAIT_NCCL_UNHANDLED_CUDA_ERROR);
	assert_int_equal(ncclMemFree((void *)0x4000), STRAIT_NCCL_UNHANDLED_CUDA_ERROR);
	fake_set_current(NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, reset_fakes, check_memory_is_back)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_memory_is_rounded_up_and_given_back),
		TEST(test_memory_is_accessible_on_the_devices_that_reach_it),
		TEST(test_memory_holds_the_primary_context_where_none_is_current),
		TEST(test_plain_memory_where_there_is_no_virtual_memory),
		TEST(test_edges_of_alloc_and_free),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
