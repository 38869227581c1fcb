/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slot table with a free list. The tag is a count of communicators; it comes round after 32768 of
 * them.
 */
#include "shim/operators.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "strait/status.h"

enum { SLOT_BITS = 15, TAG_BITS = 15, MARK = 1 << 30, MAX_SLOTS = 1 << SLOT_BITS };

static atomic_uint n_tables;

void strait_operators_init(struct strait_operators *operators)
{
	unsigned count = atomic_fetch_add_explicit(&n_tables, 1, memory_order_relaxed);

	*operators = (struct strait_operators){.tag = (int)(count % (1u << TAG_BITS))};
}

void strait_operators_deinit(struct strait_operators *operators)
{
	free(operators->slots);
	operators->slots = NULL;
	operators->n_slots = operators->first_free = 0;
}

static int grow(struct strait_operators *operators)
{
	int n = operators->n_slots ? 2 * operators->n_slots : 4;
	struct strait_operator *slots;

	if (n > MAX_SLOTS)
		return strait_fail(STRAIT_ERROR_USAGE,
				   "more than %d reduction operators on a communicator", MAX_SLOTS);
	slots = realloc(operators->slots, (size_t)n * sizeof(*slots));
	if (!slots)
		return strait_fail(STRAIT_ERROR_SYSTEM, "out of memory for reduction operators");
	for (int i = operators->n_slots; i < n; i++)
		slots[i] = (struct strait_operator){.next_free = i + 1 < n ? i + 2 : 0};
	operators->first_free = operators->n_slots + 1;
	operators->slots = slots;
	operators->n_slots = n;
	return 0;
}

int strait_operators_add(struct strait_operators *operators, enum strait_type type,
			 const struct strait_reduction *reduction, int *ret_op)
{
	struct strait_operator *slot;
	int index;

	if (!operators->first_free) {
		int r = grow(operators);
		if (r < 0)
			return strait_trace(r);
	}
	index = operators->first_free - 1;
	slot = &operators->slots[index];
	operators->first_free = slot->next_free;
	*slot = (struct strait_operator){.type = type, .reduction = *reduction, .live = 1};
	*ret_op = MARK | operators->tag << SLOT_BITS | index;
	return 0;
}

static int slot_of(const struct strait_operators *operators, int op)
{
	int index = op & (MAX_SLOTS - 1);

	if (op < 0 || op >> SLOT_BITS != (MARK >> SLOT_BITS | operators->tag))
		return -1;
	return index < operators->n_slots && operators->slots[index].live ? index : -1;
}

const struct strait_operator *strait_operators_find(const struct strait_operators *operators,
						    int op)
{
	int index = slot_of(operators, op);

	return index < 0 ? NULL : &operators->slots[index];
}

int strait_operators_remove(struct strait_operators *operators, int op)
{
	int index = slot_of(operators, op);

	if (index < 0)
		return 0;
	operators->slots[index] = (struct strait_operator){.next_free = operators->first_free};
	operators->first_free = index + 1;
	return 1;
}
