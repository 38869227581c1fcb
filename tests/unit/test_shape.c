/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of grids: inside the limits, enough for the work, no block in vain. */
#include "algorithms/algorithm.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { PER_BLOCK = 256, MOST_THREADS = 512 };

static struct strait_shape shape_of(unsigned max_blocks, unsigned max_threads, uint64_t units)
{
	const struct strait_limits limits = {.max_blocks = max_blocks, .max_threads = max_threads};
	struct strait_shape shape;

	strait_shape_for(&limits, units, PER_BLOCK, MOST_THREADS, &shape);
	return shape;
}

static void test_grid_stays_inside_the_limits(void **state)
{
	for (unsigned blocks = 1; blocks <= 32; blocks++)
		for (unsigned threads = 32; threads <= 1024; threads *= 2)
			for (uint64_t units = 0; units < 1ull << 40; units += units / 2 + 1) {
				const struct strait_shape s = shape_of(blocks, threads, units);

				assert_in_range(s.n_blocks, 1, blocks);
				assert_in_range(s.n_threads, 32,
						threads < MOST_THREADS ? threads : MOST_THREADS);
				assert_int_equal(s.n_threads % 32, 0);
			}
}

static void test_small_work_gets_a_thread_for_each_unit(void **state)
{
	for (uint64_t units = 1; units <= 8 * PER_BLOCK; units++) {
		const struct strait_shape s = shape_of(8, 1024, units);

		assert_true((uint64_t)s.n_blocks * s.n_threads >= units);
		assert_true((s.n_blocks - 1) * PER_BLOCK < units);
		assert_true((uint64_t)s.n_blocks * (s.n_threads - 32) < units);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_grid_stays_inside_the_limits),
		cmocka_unit_test(test_small_work_gets_a_thread_for_each_unit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
