/* SPDX-License-Identifier: Apache-2.0 */
/* The map of scratch: inside the budget, slots side by side, and a refusal that says what to do. */
#include "channels/layout.h"
#include "strait/status.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>

static const int blocks[] = {1, 2, 3, 7, 16, 31, STRAIT_MAX_BLOCKS};
enum { N_BLOCKS = sizeof(blocks) / sizeof(*blocks) };

static uint64_t n_packet_slots(int n_ranks, int max_blocks)
{
	return 2ull * (uint64_t)(n_ranks - 1) * (uint64_t)max_blocks;
}

static uint64_t n_bulk_slots(int n_ranks, int max_blocks)
{
	return (uint64_t)STRAIT_BULK_PHASES * STRAIT_BULK_SLOTS * (uint64_t)(n_ranks - 1) *
	       (uint64_t)max_blocks;
}

/* The device numbers the slots of an area from 0 without holes, so areas that hold them all keep
 * them apart. */
static void check_layout(int n_ranks, int max_blocks, uint64_t budget,
			 const struct strait_layout *l)
{
	assert_true(l->total_bytes <= budget);
	assert_true(l->packet_offset >= (uint64_t)max_blocks * sizeof(struct strait_block_control));
	assert_true(l->bulk_offset >=
		    l->packet_offset + l->packet_slot_bytes * n_packet_slots(n_ranks, max_blocks));
	assert_true(l->total_bytes >=
		    l->bulk_offset + l->bulk_slot_bytes * n_bulk_slots(n_ranks, max_blocks));
	assert_int_equal(l->packet_offset % 128, 0);
	assert_int_equal(l->bulk_offset % 128, 0);
	assert_int_equal(l->packet_slot_bytes % 128, 0);
	assert_int_equal(l->bulk_slot_bytes % 128, 0);
	if (n_ranks > 1) {
		assert_true(l->packet_slot_bytes >= 128);
		assert_true(l->bulk_slot_bytes >= 128);
	}
}

static void test_slots_lie_side_by_side_inside_the_budget(void **state)
{
	struct strait_layout layout;

	for (int n = 1; n <= STRAIT_MAX_RANKS; n++)
		for (int b = 0; b < N_BLOCKS; b++)
			for (uint64_t budget = 1 << 20; budget <= 1 << 30;
			     budget += budget / 3 + 4321) {
				assert_int_equal(
					strait_layout_compute(n, blocks[b], budget, &layout), 0);
				check_layout(n, blocks[b], budget, &layout);
			}
}

static void test_more_budget_never_makes_slots_smaller(void **state)
{
	struct strait_layout less, more;

	for (int n = 2; n <= STRAIT_MAX_RANKS; n++) {
		assert_int_equal(strait_layout_compute(n, 32, 1 << 20, &less), 0);
		for (uint64_t budget = 2 << 20; budget <= 1 << 30; budget *= 2) {
			assert_int_equal(strait_layout_compute(n, 32, budget, &more), 0);
			assert_true(more.packet_slot_bytes >= less.packet_slot_bytes);
			assert_true(more.bulk_slot_bytes >= less.bulk_slot_bytes);
			less = more;
		}
	}
}

/* The least budget that is accepted. */
static uint64_t least_budget(int n_ranks, int max_blocks)
{
	struct strait_layout layout;
	uint64_t refused = 0, accepted = 1 << 30;

	assert_int_equal(strait_layout_compute(n_ranks, max_blocks, accepted, &layout), 0);
	while (accepted - refused > 1) {
		const uint64_t middle = (accepted + refused) / 2;

		if (strait_layout_compute(n_ranks, max_blocks, middle, &layout))
			refused = middle;
		else
			accepted = middle;
	}
	return accepted;
}

static void test_too_small_a_budget_is_refused_in_words(void **state)
{
	const struct strait_layout untouched = {.total_bytes = 77, .packet_slot_bytes = 5};
	struct strait_layout layout;

	for (int n = 2; n <= STRAIT_MAX_RANKS; n++)
		for (int b = 0; b < N_BLOCKS; b++) {
			const uint64_t least = least_budget(n, blocks[b]);

			assert_int_equal(strait_layout_compute(n, blocks[b], least, &layout), 0);
			check_layout(n, blocks[b], least, &layout);
			layout = untouched;
			assert_int_equal(strait_layout_compute(n, blocks[b], least - 1, &layout),
					 STRAIT_ERROR_ARGUMENT);
			assert_non_null(strstr(strait_status_message(), "STRAIT_SCRATCH_SIZE"));
			assert_memory_equal(&layout, &untouched, sizeof(layout));
		}
}

static void test_one_rank_needs_no_slots(void **state)
{
	struct strait_layout layout;

	assert_int_equal(strait_layout_compute(1, 32, 1 << 20, &layout), 0);
	assert_int_equal(layout.total_bytes, 32 * sizeof(struct strait_block_control));
	assert_int_equal(layout.packet_slot_bytes, 0);
	assert_int_equal(layout.bulk_slot_bytes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slots_lie_side_by_side_inside_the_budget),
		cmocka_unit_test(test_more_budget_never_makes_slots_smaller),
		cmocka_unit_test(test_too_small_a_budget_is_refused_in_words),
		cmocka_unit_test(test_one_rank_needs_no_slots),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
