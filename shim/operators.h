/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reduction operators that a user made on one communicator (PreMulSum).
 *
 * A handle is a positive int: a mark, a tag of the communicator and a slot, so that one of another
 * communicator is recognised and never taken for ours. A call copies what it needs, so an operator
 * may be destroyed at once after it. One thread at a time, as for the communicator.
 */
#pragma once
#include "algorithms/request.h"

struct strait_operator {
	enum strait_type type;
	struct strait_reduction reduction;
	int next_free; /* slot + 1, or 0; meaningful while free */
	int live;
};

struct strait_operators {
	struct strait_operator *slots;
	int n_slots, first_free; /* slot + 1, or 0 */
	int tag;
};

void strait_operators_init(struct strait_operators *operators);
void strait_operators_deinit(struct strait_operators *operators);

int strait_operators_add(struct strait_operators *operators, enum strait_type type,
			 const struct strait_reduction *reduction, int *ret_op);
/* NULL: not a live operator of this table. Valid until the next add or remove. */
const struct strait_operator *strait_operators_find(const struct strait_operators *operators,
						    int op);
/* False: not a live operator of this table. */
int strait_operators_remove(struct strait_operators *operators, int op);
