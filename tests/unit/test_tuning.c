/* SPDX-License-Identifier: Apache-2.0 */
/* The tuning table names what the registry has, and leaves no rank count and size without a row. */
#include "algorithms/tuning.h"
#include "algorithms/algorithm.h"
#include "channels/device_communicator.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>

static void test_rows_name_algorithms_of_their_collective(void **state)
{
	for (const struct strait_tuning_row *row = strait_tuning; row->algorithm; row++) {
		const struct strait_algorithm *a = strait_algorithms;

		while (a->name && strcmp(a->name, row->algorithm))
			a++;
		assert_non_null(a->name);
		assert_int_equal(a->collective, row->collective);
		assert_in_range(row->min_ranks, 1, STRAIT_MAX_RANKS);
		assert_in_range(row->max_ranks, row->min_ranks, STRAIT_MAX_RANKS);
	}
}

static void test_every_rank_count_has_a_row_for_any_size(void **state)
{
	for (int collective = 0; collective < STRAIT_N_COLLECTIVES; collective++)
		for (int n = 1; n <= STRAIT_MAX_RANKS; n++) {
			const struct strait_tuning_row *row = strait_tuning;

			while (row->algorithm &&
			       ((int)row->collective != collective || n < row->min_ranks ||
				n > row->max_ranks || row->max_bytes != UINT64_MAX))
				row++;
			assert_non_null(row->algorithm);
		}
}

/* A row behind one that takes the same ranks and more bytes is dead, but for a fallback. */
static void test_sizes_of_a_rank_count_grow_from_row_to_row(void **state)
{
	for (int n = 1; n <= STRAIT_MAX_RANKS; n++) {
		uint64_t before = 0;

		for (const struct strait_tuning_row *row = strait_tuning; row->algorithm; row++) {
			if (n < row->min_ranks || n > row->max_ranks)
				continue;
			assert_true(row->max_bytes > before);
			before = row->max_bytes;
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows_name_algorithms_of_their_collective),
		cmocka_unit_test(test_every_rank_count_has_a_row_for_any_size),
		cmocka_unit_test(test_sizes_of_a_rank_count_grow_from_row_to_row),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
