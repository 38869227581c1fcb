/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of an algorithm over all rank counts and sizes, and what the chosen shape promises its
 * kernel. Limits come from the layout, as in a communicator. */
#include "algorithms/algorithm.h"
#include "algorithms/tuning.h"
#include "channels/layout.h"
#include "tests/unit/child.h"

enum { UNIT = 16, WORD = 8, PACKET = 16 };

/* Sizes around every power of two up to 2^40, and between them. */
static uint64_t size_number(int i)
{
	const uint64_t power = 1ull << i / 5;
	const uint64_t sizes[] = {power, power - 1, power + 1, power + power / 2,
				  power + power / 3};
	const uint64_t bytes = sizes[i % 5];

	return bytes ? bytes : 1;
}
enum { N_SIZES = 40 * 5 + 1 };

static struct strait_limits limits_of(int n_ranks, unsigned max_blocks, unsigned max_threads,
				      uint64_t budget)
{
	struct strait_limits limits = {
		.n_ranks = n_ranks, .max_blocks = max_blocks, .max_threads = max_threads};
	struct strait_layout layout;

	assert_int_equal(strait_layout_compute(n_ranks, (int)max_blocks, budget, &layout), 0);
	limits.packet_slot_bytes = layout.packet_slot_bytes;
	limits.bulk_slot_bytes = layout.bulk_slot_bytes;
	return limits;
}

static void for_all_limits(void (*function)(const struct strait_limits *))
{
	const unsigned blocks[] = {1, 2, 5, 16, 32}, threads[] = {32, 64, 512, 1024};
	const uint64_t budgets[] = {1 << 20, 32 << 20, 1 << 30};

	for (int n = 1; n <= STRAIT_MAX_RANKS; n++)
		for (int b = 0; b < 5; b++)
			for (int t = 0; t < 4; t++)
				for (int s = 0; s < 3; s++) {
					const struct strait_limits limits =
						limits_of(n, blocks[b], threads[t], budgets[s]);

					function(&limits);
				}
}

static uint64_t divide_up(uint64_t a, uint64_t b)
{
	return (a + b - 1) / b;
}

static void check_grid(const struct strait_limits *limits, const struct strait_shape *shape)
{
	assert_in_range(shape->n_blocks, 1, limits->max_blocks);
	assert_in_range(shape->n_threads, 32, limits->max_threads);
	assert_int_equal(shape->n_threads % 32, 0);
	/* Thread p speaks with rank p. */
	assert_true(shape->n_threads >= (unsigned)limits->n_ranks);
}

/* All words of the message, or of a slice, are some block's, and a block's fit a slot. */
static void check_ll(const struct strait_limits *limits, uint64_t bytes)
{
	struct strait_shape shape;

	if (!strait_allreduce_ll_shape(limits, bytes, &shape))
		return;
	check_grid(limits, &shape);
	assert_true((uint64_t)shape.chunk * shape.n_blocks >= divide_up(bytes, WORD));
	if (limits->n_ranks > 1)
		assert_true((uint64_t)shape.chunk * PACKET <= limits->packet_slot_bytes);
}

static void check_ll_twoshot(const struct strait_limits *limits, uint64_t bytes)
{
	struct strait_shape shape;

	if (!strait_allreduce_ll_twoshot_shape(limits, bytes, &shape))
		return;
	check_grid(limits, &shape);
	assert_true(shape.slice * (uint64_t)limits->n_ranks >= divide_up(bytes, WORD));
	assert_true((uint64_t)shape.chunk * shape.n_blocks >= shape.slice);
	if (limits->n_ranks > 1)
		assert_true((uint64_t)shape.chunk * PACKET <= limits->packet_slot_bytes / 2);
}

static void check_simple(const struct strait_limits *limits, uint64_t bytes)
{
	struct strait_shape shape;

	if (!strait_allreduce_simple_shape(limits, bytes, &shape)) {
		assert_int_equal(limits->n_ranks, 1); /* it serves any size */
		return;
	}
	check_grid(limits, &shape);
	assert_true(shape.chunk > 0);
	assert_true((uint64_t)shape.chunk * UNIT <= limits->bulk_slot_bytes);
	/* Threads get equal shares of a chunk. */
	if (shape.chunk > shape.n_threads)
		assert_int_equal(shape.chunk % shape.n_threads, 0);
}

static void check_shapes(const struct strait_limits *limits)
{
	for (int i = 0; i < N_SIZES; i++) {
		const uint64_t bytes = size_number(i);

		/* A block's words are counted in 32 bits: what one rank alone holds today. */
		if (limits->n_ranks > 1 ||
		    divide_up(bytes, WORD) / limits->max_blocks < UINT32_MAX) {
			check_ll(limits, bytes);
			check_ll_twoshot(limits, bytes);
		}
		check_simple(limits, bytes);
	}
}

static void test_shapes_cover_the_message_and_fit_their_slots(void **state)
{
	for_all_limits(check_shapes);
}

static void check_selection(const struct strait_limits *limits)
{
	for (int i = 0; i < N_SIZES; i++) {
		struct strait_shape shape = {.chunk = 99}, again = {.slice = 99};
		const struct strait_algorithm *algorithm =
			strait_select(limits, STRAIT_ALLREDUCE, size_number(i), &shape);

		assert_non_null(algorithm);
		check_grid(limits, &shape);
		assert_ptr_equal(strait_select(limits, STRAIT_ALLREDUCE, size_number(i), &again),
				 algorithm);
		assert_int_equal(again.n_blocks, shape.n_blocks);
		assert_int_equal(again.n_threads, shape.n_threads);
		assert_int_equal(again.slice, shape.slice);
		assert_int_equal(again.chunk, shape.chunk);
	}
}

static void test_every_size_has_an_algorithm_and_always_the_same(void **state)
{
	for_all_limits(check_selection);
}

/* Up to the size of each row, and not beyond it, where the scratch holds all that rows ask for. */
static void test_rows_of_the_table_hold_up_to_their_size(void **state)
{
	for (int n = 1; n <= STRAIT_MAX_RANKS; n++) {
		const struct strait_limits limits = limits_of(n, 32, 512, 1 << 30);
		uint64_t first = 1;

		for (const struct strait_tuning_row *row = strait_tuning; row->algorithm; row++) {
			struct strait_shape shape;

			if (n < row->min_ranks || n > row->max_ranks)
				continue;
			assert_string_equal(
				strait_select(&limits, row->collective, first, &shape)->name,
				row->algorithm);
			if (row->max_bytes == UINT64_MAX)
				break;
			assert_string_equal(
				strait_select(&limits, row->collective, row->max_bytes, &shape)
					->name,
				row->algorithm);
			first = row->max_bytes + 1;
		}
	}
}

static void test_unknown_collectives_have_no_algorithm(void **state)
{
	const struct strait_limits limits = limits_of(4, 8, 512, 32 << 20);
	struct strait_shape shape;

	assert_null(strait_select(&limits, STRAIT_N_COLLECTIVES, 1024, &shape));
}

static int select_forced(void)
{
	const struct strait_limits limits = limits_of(4, 8, 512, 32 << 20);
	struct strait_shape shape, own;

	if (strcmp(strait_select(&limits, STRAIT_ALLREDUCE, 64, &shape)->name, "allreduce_simple"))
		return 1;
	strait_allreduce_simple_shape(&limits, 64, &own);
	return memcmp(&own.chunk, &shape.chunk, sizeof(own.chunk)) ? 2 : 0;
}

/* What the forced algorithm cannot do, another does. */
static int select_beyond_forced(void)
{
	const struct strait_limits limits = limits_of(4, 8, 512, 32 << 20);
	struct strait_shape shape;

	if (strcmp(strait_select(&limits, STRAIT_ALLREDUCE, 64, &shape)->name, "allreduce_ll"))
		return 1;
	return strcmp(strait_select(&limits, STRAIT_ALLREDUCE, 1ull << 40, &shape)->name,
		      "allreduce_simple")
		       ? 2
		       : 0;
}

static void test_forced_algorithm_is_taken_wherever_it_can_run(void **state)
{
	char text[256];

	assert_int_equal(
		child_run(select_forced,
			  (const char *const[]){"STRAIT_ALGORITHM", "allreduce_simple", NULL}, text,
			  sizeof(text)),
		0);
	assert_int_equal(child_run(select_beyond_forced,
				   (const char *const[]){"STRAIT_ALGORITHM", "allreduce_ll", NULL},
				   text, sizeof(text)),
			 0);
}

static void test_unknown_name_leaves_the_choice_to_the_table(void **state)
{
	char text[256];

	assert_int_equal(child_run(select_beyond_forced,
				   (const char *const[]){"STRAIT_ALGORITHM", "no_such", NULL}, text,
				   sizeof(text)),
			 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forced_algorithm_is_taken_wherever_it_can_run),
		cmocka_unit_test(test_unknown_name_leaves_the_choice_to_the_table),
		cmocka_unit_test(test_shapes_cover_the_message_and_fit_their_slots),
		cmocka_unit_test(test_every_size_has_an_algorithm_and_always_the_same),
		cmocka_unit_test(test_rows_of_the_table_hold_up_to_their_size),
		cmocka_unit_test(test_unknown_collectives_have_no_algorithm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
