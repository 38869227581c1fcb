/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of a user: handles are told apart, slots are reused, others' handles are not found. */
#include "tests/unit/child.h"

#include "shim/nccl_abi.h"
#include "shim/operators.h"

static const struct strait_reduction half = {.kind = STRAIT_PREMULSUM, .scalar_bits = 0x3800};

static void test_operator_is_found_by_its_handle_alone(void **state)
{
	struct strait_operators table;
	int op;

	strait_operators_init(&table);
	assert_int_equal(strait_operators_add(&table, STRAIT_FLOAT16, &half, &op), 0);
	assert_true(op >= STRAIT_NCCL_N_OPS);
	assert_non_null(strait_operators_find(&table, op));
	assert_int_equal(strait_operators_find(&table, op)->type, STRAIT_FLOAT16);
	assert_int_equal(strait_operators_find(&table, op)->reduction.scalar_bits, 0x3800);
	assert_null(strait_operators_find(&table, op + 1));
	assert_null(strait_operators_find(&table, op - 1));
	assert_null(strait_operators_find(&table, -1));
	assert_null(strait_operators_find(&table, INT_MIN));
	assert_null(strait_operators_find(&table, INT_MAX));
	assert_null(strait_operators_find(&table, STRAIT_NCCL_N_OPS));
	strait_operators_deinit(&table);
}

static void test_handle_of_another_communicator_is_unknown(void **state)
{
	struct strait_operators one, other;
	int op, its;

	strait_operators_init(&one);
	strait_operators_init(&other);
	assert_int_equal(strait_operators_add(&one, STRAIT_FLOAT32, &half, &op), 0);
	assert_int_equal(strait_operators_add(&other, STRAIT_FLOAT32, &half, &its), 0);
	assert_int_not_equal(op, its);
	assert_null(strait_operators_find(&other, op));
	assert_int_equal(strait_operators_remove(&other, op), 0);
	assert_non_null(strait_operators_find(&one, op));
	strait_operators_deinit(&one);
	strait_operators_deinit(&other);
}

static void test_removed_operator_is_gone_and_its_slot_reused(void **state)
{
	struct strait_operators table;
	int op, slots = 0;

	strait_operators_init(&table);
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(strait_operators_add(&table, STRAIT_FLOAT32, &half, &op), 0);
		assert_int_equal(strait_operators_remove(&table, op), 1);
		assert_int_equal(strait_operators_remove(&table, op), 0);
		assert_null(strait_operators_find(&table, op));
		if (i == 0)
			slots = table.n_slots;
	}
	assert_int_equal(table.n_slots, slots);
	strait_operators_deinit(&table);
}

static void test_many_live_operators_have_different_handles(void **state)
{
	enum { N = 300 };
	struct strait_operators table;
	int ops[N];

	strait_operators_init(&table);
	for (uint64_t i = 0; i < N; i++) {
		struct strait_reduction reduction = {.kind = STRAIT_PREMULSUM, .scalar_bits = i};
		assert_int_equal(strait_operators_add(&table, STRAIT_INT32, &reduction, &ops[i]),
				 0);
	}
	for (uint64_t i = 0; i < N; i++)
		assert_int_equal(strait_operators_find(&table, ops[i])->reduction.scalar_bits, i);
	strait_operators_deinit(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_operator_is_found_by_its_handle_alone),
		cmocka_unit_test(test_handle_of_another_communicator_is_unknown),
		cmocka_unit_test(test_removed_operator_is_gone_and_its_slot_reused),
		cmocka_unit_test(test_many_live_operators_have_different_handles),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
