/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference arithmetic: conversions against CUDA's host functions, expected values worked out
 * by hand, and the promise that the patterns are exact in every order of summation even when each
 * step rounds.
 */
#include "bench/reference.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

uint64_t cuda_from_double(int type, double value);
double cuda_to_double(int type, uint64_t bits);

#define N_ELEMENTS 400 /* more than two periods of the pattern for 8 ranks */

static const enum strait_type small_floats[] = {STRAIT_FLOAT16, STRAIT_BFLOAT16, STRAIT_FLOAT8E4M3,
						STRAIT_FLOAT8E5M2};

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void test_every_small_float_reads_as_cuda_reads_it(void **state)
{
	for (size_t t = 0; t < 4; t++) {
		enum strait_type type = small_floats[t];
		uint64_t end = 1ULL << 8 * strait_reference_type_bytes(type);

		for (uint64_t bits = 0; bits < end; bits++) {
			double ours = strait_reference_to_double(type, bits),
			       cuda = cuda_to_double((int)type, bits);

			if (isnan(cuda) ? !isnan(ours) : memcmp(&ours, &cuda, 8) != 0)
				fail_msg("%s 0x%x: %g, CUDA %g", strait_reference_type_name(type),
					 (unsigned)bits, ours, cuda);
		}
	}
}

static void expect_rounds_as_cuda(enum strait_type type, double value)
{
	uint64_t ours = strait_reference_from_double(type, value),
		 cuda = cuda_from_double((int)type, value);

	if (isnan(value))
		assert_true(isnan(strait_reference_to_double(type, ours)));
	else if (ours != cuda)
		fail_msg("%s of %.17g: 0x%x, CUDA 0x%x", strait_reference_type_name(type), value,
			 (unsigned)ours, (unsigned)cuda);
}

/* Every value, the midpoint to the next one (a tie) and the doubles right beside the midpoint. */
static void test_rounding_is_cudas_at_and_beside_every_tie(void **state)
{
	for (size_t t = 0; t < 4; t++) {
		enum strait_type type = small_floats[t];
		uint64_t sign = 1ULL << (8 * strait_reference_type_bytes(type) - 1);

		for (uint64_t bits = 0; bits < sign; bits++) {
			double low = strait_reference_to_double(type, bits);
			double high = strait_reference_to_double(type, bits + 1);
			double middle = (low + high) / 2;

			expect_rounds_as_cuda(type, low);
			expect_rounds_as_cuda(type, -low);
			if (!isfinite(high))
				continue;
			expect_rounds_as_cuda(type, middle);
			expect_rounds_as_cuda(type, nextafter(middle, low));
			expect_rounds_as_cuda(type, nextafter(middle, high));
			expect_rounds_as_cuda(type, -nextafter(middle, high));
		}
	}
}

static void test_rounding_is_cudas_for_large_small_and_special_values(void **state)
{
	static const double values[] = {
		0,       -0.0,  1e300, -1e300, 1e-300,  INFINITY, -INFINITY,    NAN,
		448,     464,   465,   480,    57344,   61440,    61441,        65504,
		65519.9, 65520, 1e5,   3.4e38, 3.39e38, 0x1p-25,  0x1.0001p-25, 0x1p-134};

	for (size_t t = 0; t < 4; t++)
		for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)
			expect_rounds_as_cuda(small_floats[t], values[i]);
}

static void test_float_and_double_are_those_of_the_machine(void **state)
{
	uint64_t seed = 0x1234567;

	for (int i = 0; i < 100000; i++) {
		uint64_t bits = random_next(&seed);
		double value;
		float narrow;
		uint32_t narrow_bits;

		memcpy(&value, &bits, 8);
		if (isnan(value))
			continue;
		narrow = (float)value;
		memcpy(&narrow_bits, &narrow, 4);
		assert_int_equal(strait_reference_from_double(STRAIT_FLOAT64, value), bits);
		assert_true(strait_reference_to_double(STRAIT_FLOAT64, bits) == value);
		assert_int_equal(strait_reference_from_double(STRAIT_FLOAT32, value), narrow_bits);
		memcpy(&narrow, &bits, 4);
		if (!isnan(narrow))
			assert_true(strait_reference_to_double(STRAIT_FLOAT32, bits & 0xffffffff) ==
				    (double)narrow);
	}
}

/* Results worked out by hand from NCCL's rules. */

static uint64_t reduced(enum strait_type type, enum strait_reduction_kind reduction, int n_ranks,
			const double *values)
{
	uint64_t bits[8], scalars[8], result = 0;
	const void *inputs[8];

	for (int r = 0; r < n_ranks; r++) {
		bits[r] = strait_reference_type_is_float(type)
				  ? strait_reference_from_double(type, values[r])
				  : (uint64_t)(int64_t)values[r];
		scalars[r] = strait_reference_type_is_float(type)
				     ? strait_reference_from_double(type, 0.5)
				     : 3;
		inputs[r] = &bits[r];
	}
	strait_reference_reduce(type, reduction, n_ranks, inputs, scalars, 1, &result);
	return result;
}

static double reduced_float(enum strait_type type, enum strait_reduction_kind reduction,
			    int n_ranks, const double *values)
{
	return strait_reference_to_double(type, reduced(type, reduction, n_ranks, values));
}

#define VALUES(...)         \
	(const double[])    \
	{                   \
		__VA_ARGS__ \
	}

static void test_integers_wrap_and_their_average_truncates(void **state)
{
	assert_int_equal((int8_t)reduced(STRAIT_INT8, STRAIT_SUM, 2, VALUES(120, 100)), -36);
	assert_int_equal((uint8_t)reduced(STRAIT_UINT8, STRAIT_SUM, 2, VALUES(200, 100)), 44);
	assert_int_equal((int32_t)reduced(STRAIT_INT32, STRAIT_AVG, 2, VALUES(-3, 0)), -1);
	assert_int_equal((int8_t)reduced(STRAIT_INT8, STRAIT_AVG, 4, VALUES(100, 100, 100, 100)),
			 -28);
	assert_int_equal((uint8_t)reduced(STRAIT_UINT8, STRAIT_AVG, 2, VALUES(255, 3)), 1);
	assert_int_equal((int8_t)reduced(STRAIT_INT8, STRAIT_PROD, 3, VALUES(100, 3, -1)), -44);
	assert_int_equal((int32_t)reduced(STRAIT_INT32, STRAIT_PREMULSUM, 2, VALUES(5, -7)), -6);
	assert_int_equal((int64_t)reduced(STRAIT_INT64, STRAIT_MIN, 3, VALUES(5, -7, 0)), -7);
	assert_int_equal((uint8_t)reduced(STRAIT_UINT8, STRAIT_MAX, 3, VALUES(5, 200, 0)), 200);
	assert_int_equal((int8_t)reduced(STRAIT_INT8, STRAIT_MAX, 3, VALUES(5, -56, 0)), 5);
}

static void test_a_nan_loses_in_minimum_and_maximum_and_spreads_in_sums(void **state)
{
	for (size_t t = 0; t < 4; t++) {
		enum strait_type type = small_floats[t];

		for (int q = 0; q < 4; q++) {
			double values[] = {1, 3, 4, 2};

			values[q] = NAN;
			double least = q == 0 ? 2 : 1, most = q == 2 ? 3 : 4;
			assert_true(reduced_float(type, STRAIT_MIN, 4, values) == least);
			assert_true(reduced_float(type, STRAIT_MAX, 4, values) == most);
			assert_true(isnan(reduced_float(type, STRAIT_SUM, 4, values)));
		}
		assert_true(isnan(reduced_float(type, STRAIT_MAX, 2, VALUES(NAN, NAN))));
	}
	assert_true(
		isnan(reduced_float(STRAIT_FLOAT32, STRAIT_SUM, 2, VALUES(INFINITY, -INFINITY))));
	assert_true(isinf(reduced_float(STRAIT_BFLOAT16, STRAIT_SUM, 2, VALUES(INFINITY, 1))));
}

static void test_fp8_saturates_and_averages_do_not_overflow(void **state)
{
	double eights[8], threes[] = {3, 3, 3};

	for (int r = 0; r < 8; r++)
		eights[r] = 60000;
	assert_true(reduced_float(STRAIT_FLOAT8E4M3, STRAIT_SUM, 2, VALUES(448, 448)) == 448);
	assert_true(reduced_float(STRAIT_FLOAT8E5M2, STRAIT_SUM, 2, VALUES(-57344, -57344)) ==
		    -57344);
	assert_true(reduced_float(STRAIT_FLOAT16, STRAIT_AVG, 8, eights) == 60000);
	assert_true(reduced_float(STRAIT_BFLOAT16, STRAIT_AVG, 3, threes) == 3);
	assert_true(isinf(reduced_float(STRAIT_FLOAT16, STRAIT_SUM, 8, eights)));
	assert_true(reduced_float(STRAIT_BFLOAT16, STRAIT_PREMULSUM, 2, VALUES(10, 6)) == 8);
}

static void test_sixteen_bit_sums_round_once(void **state)
{
	double values[8] = {256, 1, 1, 1, 1, 1, 1, 1};

	/* 263 lies between 262 and 264 in bfloat16 and the tie goes to even. */
	assert_true(reduced_float(STRAIT_BFLOAT16, STRAIT_SUM, 8, values) == 264);
}

/* The promise on which all comparisons rest: folding in any order, rounding at every step, gives
 * the same bits. */

static uint64_t fold_rounding_each_step(const struct strait_reference *reference,
					uint8_t *const *inputs, size_t i, const int *order)
{
	size_t bytes = strait_reference_type_bytes(reference->type);
	enum strait_reduction_kind step =
		reference->reduction == STRAIT_PREMULSUM ? STRAIT_SUM : reference->reduction;
	uint64_t result = 0;

	for (int n = 0; n < reference->n_ranks; n++) {
		uint64_t value = 0, scalar = strait_reference_scalar(reference, order[n]);
		const void *one = &value, *both[] = {&result, &value};

		memcpy(&value, inputs[order[n]] + i * bytes, bytes);
		if (reference->reduction == STRAIT_PREMULSUM)
			strait_reference_reduce(reference->type, STRAIT_PREMULSUM, 1, &one, &scalar,
						1, &value);
		if (n == 0)
			result = value;
		else
			strait_reference_reduce(reference->type, step, 2, both, NULL, 1, &result);
	}
	return result;
}

static void shuffle(int *order, int n, uint64_t *seed)
{
	for (int i = 0; i < n; i++)
		order[i] = i;
	for (int i = n - 1; i > 0; i--) {
		int j = (int)(random_next(seed) % (uint64_t)(i + 1)), swap = order[i];

		order[i] = order[j];
		order[j] = swap;
	}
}

static void expect_exact_in_any_order(const struct strait_reference *reference, uint64_t *seed)
{
	size_t bytes = strait_reference_type_bytes(reference->type);
	uint8_t *inputs[64], output[N_ELEMENTS * 8];
	int order[64];

	for (int r = 0; r < reference->n_ranks; r++) {
		inputs[r] = malloc(N_ELEMENTS * 8);
		strait_reference_input(reference, r, 0, N_ELEMENTS, inputs[r]);
	}
	strait_reference_output(reference, 0, N_ELEMENTS, output);
	for (size_t i = 0; i < N_ELEMENTS; i++) {
		uint64_t folded, expected = 0;

		shuffle(order, reference->n_ranks, seed);
		folded = fold_rounding_each_step(reference, inputs, i, order);
		memcpy(&expected, output + i * bytes, bytes);
		if (folded != expected)
			fail_msg("%s %s of %d ranks, element %zu: 0x%llx, expected 0x%llx",
				 strait_reference_type_name(reference->type),
				 strait_reference_reduction_name(reference->reduction),
				 reference->n_ranks, i, (unsigned long long)folded,
				 (unsigned long long)expected);
	}
	for (int r = 0; r < reference->n_ranks; r++)
		free(inputs[r]);
}

static void for_every_case(void (*check)(const struct strait_reference *, uint64_t *))
{
	static const int n_ranks[] = {1, 2, 3, 4, 5, 7, 8, 16, 64};
	uint64_t seed = 0x9e3779b97f4a7c15;

	for (int type = 0; type < STRAIT_N_TYPES; type++)
		for (int reduction = 0; reduction < STRAIT_N_REDUCTIONS; reduction++)
			for (size_t n = 0; n < sizeof(n_ranks) / sizeof(*n_ranks); n++) {
				struct strait_reference reference = {type, reduction, n_ranks[n],
								     5 + n};

				check(&reference, &seed);
			}
}

static void check_order(const struct strait_reference *reference, uint64_t *seed)
{
	if (reference->reduction != STRAIT_AVG)
		expect_exact_in_any_order(reference, seed);
}

static void test_results_are_exact_in_every_order_with_rounding_at_every_step(void **state)
{
	for_every_case(check_order);
}

/* What the pattern must show: a lost rank, a rank counted twice, data of the call before, a shift
 * by one. */

static size_t differences(const struct strait_reference *reference, int lost, int doubled)
{
	size_t bytes = strait_reference_type_bytes(reference->type), n = 0;
	uint8_t *inputs[64], output[N_ELEMENTS * 8], wrong[N_ELEMENTS * 8];
	uint64_t scalars[64];
	const void *pointers[64];

	strait_reference_output(reference, 0, N_ELEMENTS, output);
	for (int r = 0; r < reference->n_ranks; r++) {
		int source = r == lost ? doubled : r;

		inputs[r] = malloc(N_ELEMENTS * 8);
		strait_reference_input(reference, source, 0, N_ELEMENTS, inputs[r]);
		scalars[r] = strait_reference_scalar(reference, source);
		pointers[r] = inputs[r];
	}
	strait_reference_reduce(reference->type, reference->reduction, reference->n_ranks, pointers,
				scalars, N_ELEMENTS, wrong);
	for (size_t i = 0; i < N_ELEMENTS; i++)
		n += memcmp(output + i * bytes, wrong + i * bytes, bytes) != 0;
	for (int r = 0; r < reference->n_ranks; r++)
		free(inputs[r]);
	return n;
}

static void check_lost_rank(const struct strait_reference *reference, uint64_t *seed)
{
	int n = reference->n_ranks > 8
			? 0
			: reference->n_ranks; /* narrow types leave ranks of larger jobs out */

	for (int lost = 0; lost < n; lost++)
		if (differences(reference, lost, (lost + 1) % n) == 0 && n > 1)
			fail_msg("%s %s of %d ranks: rank %d may be replaced unnoticed",
				 strait_reference_type_name(reference->type),
				 strait_reference_reduction_name(reference->reduction), n, lost);
}

static void test_replacing_any_rank_by_another_shows(void **state)
{
	for_every_case(check_lost_rank);
}

static void check_stale(const struct strait_reference *reference, uint64_t *seed)
{
	size_t bytes = strait_reference_type_bytes(reference->type), same = 0;
	uint8_t output[N_ELEMENTS * 8], other[N_ELEMENTS * 8];
	struct strait_reference before = *reference;

	before.k--;
	strait_reference_output(reference, 0, N_ELEMENTS, output);
	strait_reference_output(&before, 0, N_ELEMENTS, other);
	for (size_t i = 0; i < N_ELEMENTS; i++)
		same += memcmp(output + i * bytes, other + i * bytes, bytes) == 0;
	if (same > N_ELEMENTS / 4)
		fail_msg("%s %s of %d ranks: %zu of %d elements are those of the call before",
			 strait_reference_type_name(reference->type),
			 strait_reference_reduction_name(reference->reduction), reference->n_ranks,
			 same, N_ELEMENTS);
}

static void test_data_of_the_call_before_shows(void **state)
{
	for_every_case(check_stale);
}

static void check_window(const struct strait_reference *reference, uint64_t *seed)
{
	size_t bytes = strait_reference_type_bytes(reference->type);
	size_t first = random_next(seed) % N_ELEMENTS,
	       count = random_next(seed) % (N_ELEMENTS - first + 1);
	uint8_t whole[N_ELEMENTS * 8], window[N_ELEMENTS * 8];

	strait_reference_output(reference, 0, N_ELEMENTS, whole);
	strait_reference_output(reference, first, count, window);
	assert_memory_equal(window, whole + first * bytes, count * bytes);
	strait_reference_input(reference, 0, 0, N_ELEMENTS, whole);
	strait_reference_input(reference, 0, first, count, window);
	assert_memory_equal(window, whole + first * bytes, count * bytes);
}

static void test_a_window_of_a_buffer_equals_that_part_of_the_whole(void **state)
{
	for_every_case(check_window);
}

static void test_compare_counts_every_wrong_element_and_names_the_first(void **state)
{
	float got[10000], expected[10000];
	struct strait_mismatch mismatch;

	for (int i = 0; i < 10000; i++)
		got[i] = expected[i] = (float)i;
	assert_int_equal(
		strait_reference_compare(STRAIT_FLOAT32, got, expected, 10000, 0, &mismatch), 0);
	got[4500] = 1;
	got[9999] = 2;
	assert_int_equal(
		strait_reference_compare(STRAIT_FLOAT32, got, expected, 10000, 0, &mismatch), 2);
	assert_int_equal(mismatch.first, 4500);
	assert_string_equal(mismatch.got, "1 (0x3f800000)");
	assert_string_equal(mismatch.expected, "4500 (0x458ca000)");
}

static void test_compare_tolerates_ulps_only_where_told(void **state)
{
	float got = nextafterf(nextafterf(1, 2), 2), expected = 1;
	struct strait_mismatch mismatch;

	assert_int_equal(strait_reference_compare(STRAIT_FLOAT32, &got, &expected, 1, 0, &mismatch),
			 1);
	assert_int_equal(strait_reference_compare(STRAIT_FLOAT32, &got, &expected, 1, 1, &mismatch),
			 1);
	assert_int_equal(strait_reference_compare(STRAIT_FLOAT32, &got, &expected, 1, 2, &mismatch),
			 0);
	got = -0.0f;
	expected = 0;
	assert_int_equal(strait_reference_compare(STRAIT_FLOAT32, &got, &expected, 1, 0, &mismatch),
			 1);
	got = NAN;
	expected = -NAN;
	assert_int_equal(strait_reference_compare(STRAIT_FLOAT32, &got, &expected, 1, 0, &mismatch),
			 0);
	expected = 1;
	assert_int_equal(strait_reference_compare(STRAIT_FLOAT32, &got, &expected, 1, 9, &mismatch),
			 1);
}

static void test_guards_count_changed_bytes_and_poison_differs_everywhere(void **state)
{
	uint8_t guard[STRAIT_GUARD_BYTES], expected[300], out[300];

	strait_guard_fill(guard);
	assert_int_equal(strait_guard_check(guard), 0);
	guard[0] = 0;
	guard[255]++;
	assert_int_equal(strait_guard_check(guard), 2);
	for (int i = 0; i < 300; i++)
		expected[i] = (uint8_t)i;
	strait_poison_fill(out, expected, 300);
	for (int i = 0; i < 300; i++)
		assert_int_not_equal(out[i], expected[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_small_float_reads_as_cuda_reads_it),
		cmocka_unit_test(test_rounding_is_cudas_at_and_beside_every_tie),
		cmocka_unit_test(test_rounding_is_cudas_for_large_small_and_special_values),
		cmocka_unit_test(test_float_and_double_are_those_of_the_machine),
		cmocka_unit_test(test_integers_wrap_and_their_average_truncates),
		cmocka_unit_test(test_a_nan_loses_in_minimum_and_maximum_and_spreads_in_sums),
		cmocka_unit_test(test_fp8_saturates_and_averages_do_not_overflow),
		cmocka_unit_test(test_sixteen_bit_sums_round_once),
		cmocka_unit_test(test_results_are_exact_in_every_order_with_rounding_at_every_step),
		cmocka_unit_test(test_replacing_any_rank_by_another_shows),
		cmocka_unit_test(test_data_of_the_call_before_shows),
		cmocka_unit_test(test_a_window_of_a_buffer_equals_that_part_of_the_whole),
		cmocka_unit_test(test_compare_counts_every_wrong_element_and_names_the_first),
		cmocka_unit_test(test_compare_tolerates_ulps_only_where_told),
		cmocka_unit_test(test_guards_count_changed_bytes_and_poison_differs_everywhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
