/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a reduction means, for each algorithm and for the library's own choice: order and rounding
 * of sums, NaN and infinity, wrap of integers, averages, saturation, scaled sums. Each test runs in
 * a child for each algorithm.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/collectives/case.h"
#include "tests/collectives/elements.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const enum strait_type small_floats[] = {STRAIT_FLOAT32, STRAIT_FLOAT16, STRAIT_BFLOAT16};
enum { N_SMALL_FLOATS = 3 };

/* A normal variate, times a power of ten that depends on the rank. */
static double variate(uint64_t seed, int rank, size_t i)
{
	uint64_t state = rig_mix(seed * 64 + (uint64_t)rank, i);
	double u = ((double)(rig_random(&state) >> 11) + 1) * 0x1p-53;
	double v = (double)(rig_random(&state) >> 11) * 0x1p-53;

	return sqrt(-2 * log(u)) * cos(2 * M_PI * v) * pow(10, rank % 5);
}

/* The sum in float, in the order of the ranks, rounded once. */
static uint64_t ordered_sum(const struct elements *e, size_t i)
{
	size_t size = strait_reference_type_bytes(e->type);
	float sum = 0;

	for (int r = 0; r < e->rig->n_ranks; r++) {
		uint64_t bits = 0;

		memcpy(&bits, e->in[r] + i * size, size);
		float value = (float)strait_reference_to_double(e->type, bits);
		sum = r == 0 ? value : sum + value;
	}
	return strait_reference_from_double(e->type, (double)sum);
}

static void check_random_sums(struct rig *rig, enum strait_type type, size_t count)
{
	struct elements e;

	elements_init(&e, rig, type, count);
	for (int r = 0; r < rig->n_ranks; r++)
		for (size_t i = 0; i < count; i++)
			elements_set(&e, r, i, elements_bits(type, variate(count, r, i)));
	for (int repeat = 0; repeat < 3; repeat++) {
		elements_reduce(&e, ncclSum, NULL);
		for (size_t i = 0; i < count; i++)
			elements_expect(&e, i, ordered_sum(&e, i));
	}
	elements_deinit(&e);
}

static void random_sums(void *argument)
{
	static const size_t counts[] = {5, 4096, 30001};
	const int numbers[] = {2, 3, 8};
	struct rig rig;

	for (size_t n = 0; n < 3; n++) {
		rig_init(&rig, numbers[n]);
		for (int t = 0; t < N_SMALL_FLOATS; t++)
			for (size_t c = 0; c < 3; c++)
				check_random_sums(&rig, small_floats[t], counts[c]);
		rig_deinit(&rig);
	}
}

/* So all ranks, all algorithms, all runs and all sizes have the same bits. */
static void test_sums_are_in_rank_order_with_one_rounding_everywhere(void **state)
{
	assert_int_equal(rig_each_algorithm(random_sums, NULL), 0);
}

static void extremes_beside_nan(struct rig *rig, enum strait_type type)
{
	static const double others[] = {1, 3, 4};

	for (int holder = 0; holder < 4; holder++) {
		double values[4];

		for (int r = 0, other = 0; r < 4; r++)
			values[r] = r == holder ? NAN : others[other++];
		elements_check(rig, type, ncclMin, values, 1);
		elements_check(rig, type, ncclMax, values, 4);
		elements_check(rig, type, ncclSum, values, NAN);
		elements_check(rig, type, ncclAvg, values, NAN);
		elements_check(rig, type, ncclProd, values, NAN);
	}
	elements_check(rig, type, ncclMin, (double[]){NAN, NAN, NAN, NAN}, NAN);
	elements_check(rig, type, ncclMax, (double[]){NAN, NAN, NAN, NAN}, NAN);
}

static void nan_and_infinity(void *argument)
{
	static const enum strait_type types[] = {STRAIT_FLOAT64,    STRAIT_FLOAT32,
						 STRAIT_FLOAT16,    STRAIT_BFLOAT16,
						 STRAIT_FLOAT8E4M3, STRAIT_FLOAT8E5M2};
	struct rig rig;

	rig_init(&rig, 4);
	for (size_t t = 0; t < sizeof(types) / sizeof(*types); t++)
		extremes_beside_nan(&rig, types[t]);
	for (int t = 0; t < N_SMALL_FLOATS; t++) {
		elements_check(&rig, small_floats[t], ncclSum, (double[]){INFINITY, 1, 1, 1},
			       INFINITY);
		elements_check(&rig, small_floats[t], ncclSum, (double[]){1, 1, -INFINITY, 1},
			       -INFINITY);
		elements_check(&rig, small_floats[t], ncclSum,
			       (double[]){1, INFINITY, -INFINITY, 1}, NAN);
		elements_check(&rig, small_floats[t], ncclMin,
			       (double[]){1, INFINITY, -INFINITY, 1}, -INFINITY);
		elements_check(&rig, small_floats[t], ncclMax,
			       (double[]){NAN, INFINITY, -INFINITY, 1}, INFINITY);
		elements_check(&rig, small_floats[t], ncclSum, (double[]){-0.0, -0.0, -0.0, -0.0},
			       -0.0);
		elements_check(&rig, small_floats[t], ncclSum, (double[]){-0.0, 0, -0.0, -0.0}, 0);
	}
	rig_deinit(&rig);
}

static void test_nan_loses_in_extremes_wherever_it_is_and_spreads_in_sums(void **state)
{
	assert_int_equal(rig_each_algorithm(nan_and_infinity, NULL), 0);
}

static void one_nan(void *argument)
{
	enum { COUNT = 2001 };
	struct elements e;
	struct rig rig;

	rig_init(&rig, 3);
	elements_init(&e, &rig, STRAIT_BFLOAT16, COUNT);
	for (size_t at = 0; at < COUNT; at += 667) {
		for (int r = 0; r < 3; r++)
			for (size_t i = 0; i < COUNT; i++)
				elements_set(
					&e, r, i,
					elements_bits(e.type, r == 1 && i == at ? NAN : 1 + r));
		elements_reduce(&e, ncclSum, NULL);
		for (size_t i = 0; i < COUNT; i++)
			elements_expect(&e, i, elements_bits(e.type, i == at ? NAN : 6));
	}
	elements_deinit(&e);
	rig_deinit(&rig);
}

static void test_a_nan_stays_at_its_element(void **state)
{
	assert_int_equal(rig_each_algorithm(one_nan, NULL), 0);
}

static void poisoned_scratch(void *argument)
{
	static const size_t counts[] = {1, 2, 3, 7, 65, 1023, 8191, 20001};
	struct elements e;
	struct rig rig;

	rig_init(&rig, 3);
	elements_init(&e, &rig, STRAIT_FLOAT32, ELEMENTS_MOST_BYTES / 4);
	for (int r = 0; r < 3; r++)
		memset(e.in[r], 0xff, ELEMENTS_MOST_BYTES);
	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		struct collective_case c = {.n_ranks = 3,
					    .type = i & 1 ? STRAIT_BFLOAT16 : STRAIT_FLOAT32,
					    .count = counts[i],
					    .placement = i,
					    .n_calls = 3};

		for (e.count = 1000; e.count < ELEMENTS_MOST_BYTES / 4; e.count *= 2) {
			elements_reduce(&e, ncclSum, NULL);
			elements_expect(&e, e.count - 1, elements_bits(e.type, NAN));
		}
		case_run(&rig, &c);
	}
	elements_deinit(&e);
	rig_deinit(&rig);
}

static void test_what_lies_in_scratch_never_reaches_the_user(void **state)
{
	assert_int_equal(rig_each_algorithm(poisoned_scratch, NULL), 0);
}

static void integers_of_two(void *argument)
{
	struct rig rig;

	rig_init(&rig, 2);
	elements_check(&rig, STRAIT_INT8, ncclSum, (double[]){120, 100}, -36);
	elements_check(&rig, STRAIT_UINT8, ncclSum, (double[]){200, 100}, 44);
	elements_check(&rig, STRAIT_INT32, ncclSum, (double[]){0x7fffffff, 1}, -0x1p31);
	elements_check(&rig, STRAIT_INT64, ncclSum, (double[]){0x1p62, 0x1p62}, -0x1p63);
	elements_check(&rig, STRAIT_INT8, ncclProd, (double[]){-128, 3}, -128);
	elements_check(&rig, STRAIT_INT8, ncclMax, (double[]){-128, 127}, 127);
	elements_check(&rig, STRAIT_INT8, ncclMin, (double[]){-128, 127}, -128);
	elements_check(&rig, STRAIT_UINT8, ncclMax, (double[]){128, 127}, 128);
	elements_check(&rig, STRAIT_INT64, ncclMax, (double[]){-1, 1}, 1);
	elements_check(&rig, STRAIT_UINT32, ncclMin, (double[]){0xffffffff, 1}, 1);
	elements_check(&rig, STRAIT_INT32, ncclAvg, (double[]){-3, 0}, -1);
	elements_check(&rig, STRAIT_INT64, ncclAvg, (double[]){-5, 0}, -2);
	elements_check(&rig, STRAIT_INT8, ncclAvg, (double[]){-64, -64}, -64);
	elements_check(&rig, STRAIT_INT32, ncclAvg, (double[]){-0x1p30, -0x1p30}, -0x1p30);
	elements_check(&rig, STRAIT_INT64, ncclAvg, (double[]){-0x1p63, 0}, -0x1p62);
	elements_check(&rig, STRAIT_UINT8, ncclAvg, (double[]){255, 255}, 127);
	rig_deinit(&rig);
}

static void averages_of_more(void *argument)
{
	struct rig rig;

	rig_init(&rig, 4);
	elements_check(&rig, STRAIT_INT8, ncclAvg, (double[]){100, 100, 100, 100}, -28);
	rig_deinit(&rig);
	rig_init(&rig, 3);
	elements_check(&rig, STRAIT_BFLOAT16, ncclAvg, (double[]){3, 3, 3}, 3);
	elements_check(&rig, STRAIT_FLOAT32, ncclAvg, (double[]){-6, 3, 9}, 2);
	rig_deinit(&rig);
	rig_init(&rig, 8);
	elements_check(&rig, STRAIT_FLOAT16, ncclAvg,
		       (double[]){60000, 60000, 60000, 60000, 60000, 60000, 60000, 60000}, 60000);
	elements_check(
		&rig, STRAIT_FLOAT32, ncclAvg,
		(double[]){0x1p127, 0x1p127, 0x1p127, 0x1p127, 0x1p127, 0x1p127, 0x1p127, 0x1p127},
		0x1p127);
	rig_deinit(&rig);
}

static void test_integers_wrap_and_their_average_truncates(void **state)
{
	assert_int_equal(rig_each_algorithm(integers_of_two, NULL), 0);
}

static void test_averages_do_not_overflow(void **state)
{
	assert_int_equal(rig_each_algorithm(averages_of_more, NULL), 0);
}

static void narrow_floats(void *argument)
{
	struct rig rig;

	rig_init(&rig, 2);
	elements_check(&rig, STRAIT_FLOAT8E4M3, ncclSum, (double[]){448, 448}, 448);
	elements_check(&rig, STRAIT_FLOAT8E4M3, ncclSum, (double[]){-448, -448}, -448);
	elements_check(&rig, STRAIT_FLOAT8E4M3, ncclProd, (double[]){448, -448}, -448);
	elements_check(&rig, STRAIT_FLOAT8E5M2, ncclSum, (double[]){57344, 57344}, 57344);
	elements_check(&rig, STRAIT_FLOAT8E4M3, ncclSum, (double[]){448, -448}, 0);
	rig_deinit(&rig);
	rig_init(&rig, 8);
	elements_check(&rig, STRAIT_BFLOAT16, ncclSum, (double[]){256, 1, 1, 1, 1, 1, 1, 1}, 264);
	elements_check(&rig, STRAIT_FLOAT16, ncclSum, (double[]){2048, 1, 1, 1, 1, 1, 1, 1}, 2056);
	/* Partial sums beyond the type are no harm. */
	elements_check(&rig, STRAIT_FLOAT16, ncclSum,
		       (double[]){60000, 60000, -60000, -60000, 1, 1, 1, 1}, 4);
	elements_check(&rig, STRAIT_FLOAT8E4M3, ncclSum, (double[]){448, 448, -448, 0, 0, 0, 0, 0},
		       448);
	rig_deinit(&rig);
}

static void test_narrow_floats_are_rounded_once_and_saturate(void **state)
{
	assert_int_equal(rig_each_algorithm(narrow_floats, NULL), 0);
}

/* The same elements alone and as the beginning of larger messages: the library's own choice changes
 * on the way. */
static void prefixes(void *argument)
{
	enum { COUNT = 3000, LARGEST = ELEMENTS_MOST_BYTES / 2 };
	static uint64_t first[COUNT];
	struct elements e;
	struct rig rig;

	rig_init(&rig, 8);
	elements_init(&e, &rig, STRAIT_BFLOAT16, LARGEST);
	for (int r = 0; r < 8; r++)
		for (size_t i = 0; i < LARGEST; i++)
			elements_set(&e, r, i, elements_bits(e.type, variate(7, r, i)));
	for (e.count = COUNT; e.count <= LARGEST; e.count *= 4) {
		elements_reduce(&e, ncclSum, NULL);
		for (size_t i = 0; i < COUNT; i++) {
			if (e.count == COUNT)
				first[i] = elements_got(&e, 0, i);
			elements_expect(&e, i, first[i]);
		}
	}
	elements_deinit(&e);
	rig_deinit(&rig);
}

static void test_bits_do_not_depend_on_the_size_of_the_message(void **state)
{
	assert_int_equal(rig_each_algorithm(prefixes, NULL), 0);
}

static void make_scaled(struct rig *rig, enum strait_type type, const double *factors,
			ncclRedOp_t *ret_ops)
{
	for (int r = 0; r < rig->n_ranks; r++) {
		uint64_t bits = elements_bits(type, factors[r]);

		RIG_NCCL(ncclRedOpCreatePreMulSum(&ret_ops[r], &bits, (ncclDataType_t)type,
						  ncclScalarHostImmediate, rig->ranks[r].comm));
	}
}

static void free_scaled(struct rig *rig, const ncclRedOp_t *ops)
{
	for (int r = 0; r < rig->n_ranks; r++)
		RIG_NCCL(ncclRedOpDestroy(ops[r], rig->ranks[r].comm));
}

static void scaled_sums(void *argument)
{
	static const double factors[] = {1.0078125, 1.0078125, 1, 1},
			    halves[] = {0.5, 0.5, 0.5, 0.5};
	static const double values[] = {1.0078125, 1.0078125, -2.03125, 0};
	enum { COUNT = 777 };
	ncclRedOp_t ops[4];
	struct elements e;
	struct rig rig;

	rig_init(&rig, 4);
	elements_init(&e, &rig, STRAIT_BFLOAT16, COUNT);
	for (int r = 0; r < 4; r++)
		for (size_t i = 0; i < COUNT; i++)
			elements_set(&e, r, i,
				     elements_bits(e.type, (r + 1) * (1. + (double)(i % 7))));
	make_scaled(&rig, e.type, halves, ops);
	elements_reduce(&e, ncclSum, ops);
	for (size_t i = 0; i < COUNT; i++)
		elements_expect(&e, i, elements_bits(e.type, 5 * (1. + (double)(i % 7))));
	free_scaled(&rig, ops);
	/* 1.0078125 squared takes more bits than the type has: the product is rounded before it is
	 * added. */
	for (int r = 0; r < 4; r++)
		for (size_t i = 0; i < COUNT; i++)
			elements_set(&e, r, i, elements_bits(e.type, values[r]));
	make_scaled(&rig, e.type, factors, ops);
	elements_reduce(&e, ncclSum, ops);
	for (size_t i = 0; i < COUNT; i++)
		elements_expect(&e, i, elements_bits(e.type, 0));
	free_scaled(&rig, ops);
	elements_deinit(&e);
	rig_deinit(&rig);
}

static void test_scaled_sums_round_the_product_in_the_type(void **state)
{
	assert_int_equal(rig_each_algorithm(scaled_sums, NULL), 0);
}

static void issue_all(struct rig *rig, size_t count, ncclDataType_t type, const ncclRedOp_t *ops)
{
	for (int r = 0; r < rig->n_ranks; r++) {
		rig_enter(rig, r);
		RIG_NCCL(ncclAllReduce((void *)rig->ranks[r].arenas[0],
				       (void *)rig->ranks[r].arenas[1], count, type, ops[r],
				       rig->ranks[r].comm, (cudaStream_t)rig->ranks[r].stream));
	}
}

/* The operator is destroyed before the graph runs: the address of the scalar is what the graph
 * keeps. */
static void device_scalar(void *argument)
{
	enum { COUNT = 1500 };
	CUgraphExec graphs[RIG_MOST_RANKS];
	float values[COUNT], got[COUNT];
	ncclRedOp_t ops[2];
	struct rig rig;

	rig_init(&rig, 2);
	rig_reserve(&rig, sizeof(values));
	for (size_t i = 0; i < COUNT; i++)
		values[i] = (float)(1 + i % 7);
	for (int r = 0; r < 2; r++) {
		rig_copy_in(&rig, r, rig.ranks[r].arenas[0], values, sizeof(values));
		RIG_NCCL(ncclRedOpCreatePreMulSum(&ops[r], (void *)rig.ranks[r].scalar, ncclFloat,
						  ncclScalarDevice, rig.ranks[r].comm));
	}
	rig_capture_begin(&rig, CU_STREAM_CAPTURE_MODE_GLOBAL);
	issue_all(&rig, COUNT, ncclFloat, ops);
	rig_capture_end(&rig, graphs);
	free_scaled(&rig, ops);
	for (float factor = 1; factor <= 8; factor *= 2) {
		for (int r = 0; r < 2; r++)
			rig_copy_in(&rig, r, rig.ranks[r].scalar, &factor, sizeof(factor));
		rig_launch(&rig, graphs);
		rig_wait(&rig);
		rig_copy_out(&rig, 1, got, rig.ranks[1].arenas[1], sizeof(got));
		for (size_t i = 0; i < COUNT; i++)
			if (got[i] != 2 * factor * values[i])
				rig_die("factor %g, element %zu: %g", (double)factor, i,
					(double)got[i]);
	}
	rig_free_graphs(&rig, graphs);
	rig_deinit(&rig);
}

static void test_a_scalar_on_the_device_is_read_when_the_kernel_runs(void **state)
{
	assert_int_equal(rig_each_algorithm(device_scalar, NULL), 0);
}

static void unknown_numbers(void *argument)
{
	const double ones[] = {1, 1};
	struct rig rig;
	struct rig_rank *rank = &rig.ranks[0];

	rig_init(&rig, 2);
	rig_reserve(&rig, 4096);
	rig_enter(&rig, 0);
	for (int i = 0; i < 3; i++) {
		ncclResult_t r = ncclAllReduce(
			(void *)rank->arenas[0], (void *)rank->arenas[1], 16,
			i == 0 ? (ncclDataType_t)99 : ncclFloat, i == 1 ? (ncclRedOp_t)99 : ncclSum,
			i == 2 ? NULL : rank->comm, (cudaStream_t)rank->stream);

		if (r != ncclInvalidArgument)
			rig_die("wrong argument %d gave %d", i, (int)r);
		elements_check(&rig, STRAIT_FLOAT32, ncclSum, ones, 2);
	}
	rig_deinit(&rig);
}

static void test_calls_work_after_one_that_was_refused(void **state)
{
	assert_int_equal(rig_each_algorithm(unknown_numbers, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sums_are_in_rank_order_with_one_rounding_everywhere),
		cmocka_unit_test(test_nan_loses_in_extremes_wherever_it_is_and_spreads_in_sums),
		cmocka_unit_test(test_a_nan_stays_at_its_element),
		cmocka_unit_test(test_what_lies_in_scratch_never_reaches_the_user),
		cmocka_unit_test(test_integers_wrap_and_their_average_truncates),
		cmocka_unit_test(test_averages_do_not_overflow),
		cmocka_unit_test(test_narrow_floats_are_rounded_once_and_saturate),
		cmocka_unit_test(test_bits_do_not_depend_on_the_size_of_the_message),
		cmocka_unit_test(test_scaled_sums_round_the_product_in_the_type),
		cmocka_unit_test(test_a_scalar_on_the_device_is_read_when_the_kernel_runs),
		cmocka_unit_test(test_calls_work_after_one_that_was_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
