/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduces of hand-made elements: set what each rank sends, reduce, look at what each rank got.
 * Elements are bits of the type. One call at a time; up to ELEMENTS_MOST_BYTES a rank.
 */
#pragma once
#include "tests/collectives/rig.h"

enum { ELEMENTS_MOST_BYTES = 512 << 10 };

struct elements {
	struct rig *rig;
	enum strait_type type;
	size_t count;
	uint8_t *in[RIG_MOST_RANKS], *out[RIG_MOST_RANKS];
};

void elements_init(struct elements *e, struct rig *rig, enum strait_type type, size_t count);
void elements_deinit(struct elements *e);
/* A value as bits of the type; integers wrap. */
uint64_t elements_bits(enum strait_type type, double value);
void elements_set(struct elements *e, int rank, size_t i, uint64_t bits);
uint64_t elements_got(const struct elements *e, int rank, size_t i);
/* ops[rank]; a built-in one for all where `ops` is NULL. */
void elements_reduce(struct elements *e, ncclRedOp_t op, const ncclRedOp_t *ops);
/* All ranks have these bits at i; any NaN is as good as another. */
void elements_expect(const struct elements *e, size_t i, uint64_t bits);
/* One element a rank: values[rank] reduced give `expected` on all ranks, at the first and the last
 * of a few elements. */
void elements_check(struct rig *rig, enum strait_type type, ncclRedOp_t op, const double *values,
		    double expected);
