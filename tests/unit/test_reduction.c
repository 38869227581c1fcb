/* SPDX-License-Identifier: Apache-2.0 */
/* Types and operators as instances and data: what the data must mean for the kernel's three
 * operations to give NCCL's five and the scaled sum. */
#include "algorithms/reduction.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct {
	enum strait_type type;
	unsigned bytes;
	bool is_float, is_signed;
	const char *element;
} types[] = {
	{STRAIT_INT8, 1, false, true, "i8"},        {STRAIT_UINT8, 1, false, false, "i8"},
	{STRAIT_INT32, 4, false, true, "i32"},      {STRAIT_UINT32, 4, false, false, "i32"},
	{STRAIT_INT64, 8, false, true, "i64"},      {STRAIT_UINT64, 8, false, false, "i64"},
	{STRAIT_FLOAT16, 2, true, true, "f16"},     {STRAIT_FLOAT32, 4, true, true, "f32"},
	{STRAIT_FLOAT64, 8, true, true, "f64"},     {STRAIT_BFLOAT16, 2, true, true, "bf16"},
	{STRAIT_FLOAT8E4M3, 1, true, true, "e4m3"}, {STRAIT_FLOAT8E5M2, 1, true, true, "e5m2"},
};
enum { N_TYPES = sizeof(types) / sizeof(*types) };

static struct strait_reduction_args map(int t, enum strait_reduction_kind kind, int n_ranks,
					const char *operation)
{
	const struct strait_reduction reduction = {.kind = kind};
	struct strait_reduction_args args;
	char name[32];
	const int instance = strait_reduction_map(types[t].type, &reduction, n_ranks, &args);

	snprintf(name, sizeof(name), "%s_%s", types[t].element, operation);
	assert_string_equal(strait_instance_name(instance), name);
	return args;
}

/* The lowest element of eight bytes. */
static uint64_t low(uint64_t word, unsigned bytes)
{
	return bytes == 8 ? word : word & ((1ull << 8 * bytes) - 1);
}

static void check_replicated(uint64_t word, unsigned bytes)
{
	for (unsigned at = 0; at < 8; at += bytes)
		assert_int_equal(low(word >> 8 * at, bytes), low(word, bytes));
}

/* Nothing but what the test names. */
static void check_plain(struct strait_reduction_args args)
{
	assert_int_equal(args.flip, 0);
	assert_int_equal(args.scaling, STRAIT_SCALING_NONE);
	assert_int_equal(args.division, STRAIT_DIVISION_NONE);
	assert_int_equal(args.divisor, 1);
	assert_true(args.average == 1);
}

static void test_types_have_their_bytes(void **state)
{
	assert_int_equal(N_TYPES, STRAIT_N_TYPES);
	for (int t = 0; t < N_TYPES; t++)
		assert_int_equal(strait_type_bytes(types[t].type), types[t].bytes);
}

static void test_sum_and_product_carry_no_data(void **state)
{
	for (int t = 0; t < N_TYPES; t++) {
		check_plain(map(t, STRAIT_SUM, 3, "sum"));
		check_plain(map(t, STRAIT_PROD, 3, "prod"));
	}
}

static int64_t sign_extended(uint64_t bits, unsigned bytes)
{
	const unsigned shift = 64 - 8 * bytes;

	return (int64_t)(bits << shift) >> shift;
}

/* What the kernel does, on integers: an unsigned minimum of flipped values. */
static void check_integer_extremum(int t, bool is_max, uint64_t a, uint64_t b)
{
	const unsigned bytes = types[t].bytes;
	const uint64_t flip = low(map(t, is_max ? STRAIT_MAX : STRAIT_MIN, 2, "min").flip, bytes);
	const uint64_t fa = low(a, bytes) ^ flip, fb = low(b, bytes) ^ flip;
	const uint64_t got = (fa < fb ? fa : fb) ^ flip;
	const bool a_is_less = types[t].is_signed
				       ? sign_extended(a, bytes) < sign_extended(b, bytes)
				       : low(a, bytes) < low(b, bytes);

	assert_int_equal(got, low(a_is_less == is_max ? b : a, bytes));
}

static void test_extrema_of_integers_are_unsigned_minima_of_flipped_values(void **state)
{
	for (int t = 0; t < N_TYPES; t++) {
		const uint64_t sign = 1ull << (8 * types[t].bytes - 1);
		const uint64_t values[] = {0, 1, 2, sign - 1, sign, sign + 1, ~0ull, ~1ull, 77};

		if (types[t].is_float)
			continue;
		for (size_t a = 0; a < 9; a++)
			for (size_t b = 0; b < 9; b++) {
				check_integer_extremum(t, true, values[a], values[b]);
				check_integer_extremum(t, false, values[a], values[b]);
			}
	}
}

static void test_maximum_of_floats_is_a_minimum_of_negated_ones(void **state)
{
	for (int t = 0; t < N_TYPES; t++) {
		if (!types[t].is_float)
			continue;
		assert_int_equal(low(map(t, STRAIT_MAX, 2, "min").flip, types[t].bytes),
				 1ull << (8 * types[t].bytes - 1));
		assert_int_equal(map(t, STRAIT_MIN, 2, "min").flip, 0);
	}
}

static void test_flips_reach_every_element_of_a_word(void **state)
{
	for (int t = 0; t < N_TYPES; t++)
		for (int kind = STRAIT_MAX; kind <= STRAIT_MIN; kind++) {
			struct strait_reduction_args args =
				map(t, (enum strait_reduction_kind)kind, 2, "min");

			check_replicated(args.flip, types[t].bytes);
			args.flip = 0;
			check_plain(args);
		}
}

static void test_average_is_a_factor_for_floats_and_a_division_for_integers(void **state)
{
	for (int t = 0; t < N_TYPES; t++)
		for (int n = 1; n <= 16; n++) {
			struct strait_reduction_args args = map(t, STRAIT_AVG, n, "sum");

			if (types[t].is_float) {
				assert_true(args.average == 1.0 / n);
				args.average = 1;
			} else {
				assert_int_equal(args.divisor, n);
				assert_int_equal(args.division, types[t].is_signed
									? STRAIT_DIVISION_SIGNED
									: STRAIT_DIVISION_UNSIGNED);
				args.divisor = 1;
				args.division = STRAIT_DIVISION_NONE;
			}
			check_plain(args);
		}
}

static void test_scaled_sum_carries_its_scalar_or_where_it_is(void **state)
{
	for (int t = 0; t < N_TYPES; t++) {
		struct strait_reduction reduction = {.kind = STRAIT_PREMULSUM, .scalar_bits = 0x5a};
		struct strait_reduction_args args;

		assert_int_equal(strait_reduction_map(types[t].type, &reduction, 3, &args),
				 strait_reduction_map(types[t].type, &(struct strait_reduction){0},
						      3, &(struct strait_reduction_args){0}));
		assert_int_equal(args.scaling, STRAIT_SCALING_IMMEDIATE);
		assert_int_equal(args.factor, 0x5a);
		args.scaling = STRAIT_SCALING_NONE;
		check_plain(args);

		reduction.scalar_device = types;
		strait_reduction_map(types[t].type, &reduction, 3, &args);
		assert_int_equal(args.scaling, STRAIT_SCALING_DEVICE);
		assert_ptr_equal(args.factor_device, types);
		args.scaling = STRAIT_SCALING_NONE;
		check_plain(args);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_types_have_their_bytes),
		cmocka_unit_test(test_sum_and_product_carry_no_data),
		cmocka_unit_test(test_extrema_of_integers_are_unsigned_minima_of_flipped_values),
		cmocka_unit_test(test_maximum_of_floats_is_a_minimum_of_negated_ones),
		cmocka_unit_test(test_flips_reach_every_element_of_a_word),
		cmocka_unit_test(test_average_is_a_factor_for_floats_and_a_division_for_integers),
		cmocka_unit_test(test_scaled_sum_carries_its_scalar_or_where_it_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
