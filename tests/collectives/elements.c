/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/collectives/elements.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void elements_init(struct elements *e, struct rig *rig, enum strait_type type, size_t count)
{
	size_t bytes = count * strait_reference_type_bytes(type);

	*e = (struct elements){.rig = rig, .type = type, .count = count};
	if (bytes > ELEMENTS_MOST_BYTES)
		rig_die("%zu bytes are too many", bytes);
	rig_reserve(rig, bytes);
	for (int r = 0; r < rig->n_ranks; r++) {
		e->in[r] = calloc(1, bytes);
		e->out[r] = calloc(1, bytes);
		if (!e->in[r] || !e->out[r])
			rig_die("out of memory");
	}
}

void elements_deinit(struct elements *e)
{
	for (int r = 0; r < e->rig->n_ranks; r++) {
		free(e->in[r]);
		free(e->out[r]);
	}
}

uint64_t elements_bits(enum strait_type type, double value)
{
	size_t bytes = strait_reference_type_bytes(type);

	if (strait_reference_type_is_float(type))
		return strait_reference_from_double(type, value);
	return (uint64_t)(int64_t)value & (UINT64_MAX >> (64 - 8 * bytes));
}

void elements_set(struct elements *e, int rank, size_t i, uint64_t bits)
{
	size_t size = strait_reference_type_bytes(e->type);

	memcpy(e->in[rank] + i * size, &bits, size);
}

uint64_t elements_got(const struct elements *e, int rank, size_t i)
{
	size_t size = strait_reference_type_bytes(e->type);
	uint64_t bits = 0;

	memcpy(&bits, e->out[rank] + i * size, size);
	return bits;
}

void elements_reduce(struct elements *e, ncclRedOp_t op, const ncclRedOp_t *ops)
{
	size_t bytes = e->count * strait_reference_type_bytes(e->type);
	struct rig_rank *ranks = e->rig->ranks;

	for (int r = 0; r < e->rig->n_ranks; r++) {
		memset(e->out[r], 0x5a, bytes);
		rig_copy_in(e->rig, r, ranks[r].arenas[0], e->in[r], bytes);
		rig_copy_in(e->rig, r, ranks[r].arenas[1], e->out[r], bytes);
	}
	RIG_NCCL(ncclGroupStart());
	for (int r = 0; r < e->rig->n_ranks; r++) {
		rig_enter(e->rig, r);
		RIG_NCCL(ncclAllReduce((void *)ranks[r].arenas[0], (void *)ranks[r].arenas[1],
				       e->count, (ncclDataType_t)e->type, ops ? ops[r] : op,
				       ranks[r].comm, (cudaStream_t)ranks[r].stream));
	}
	RIG_NCCL(ncclGroupEnd());
	rig_wait(e->rig);
	for (int r = 0; r < e->rig->n_ranks; r++)
		rig_copy_out(e->rig, r, e->out[r], ranks[r].arenas[1], bytes);
}

static bool is_nan(enum strait_type type, uint64_t bits)
{
	return strait_reference_type_is_float(type) &&
	       isnan(strait_reference_to_double(type, bits));
}

void elements_expect(const struct elements *e, size_t i, uint64_t bits)
{
	for (int r = 0; r < e->rig->n_ranks; r++) {
		uint64_t got = elements_got(e, r, i);

		if (got != bits && !(is_nan(e->type, got) && is_nan(e->type, bits)))
			rig_die("%s, %d ranks: rank %d has bits 0x%" PRIx64 " instead of 0x%" PRIx64
				" at element %zu",
				strait_reference_type_name(e->type), e->rig->n_ranks, r, got, bits,
				i);
	}
}

void elements_check(struct rig *rig, enum strait_type type, ncclRedOp_t op, const double *values,
		    double expected)
{
	enum { COUNT = 37 };
	struct elements e;

	elements_init(&e, rig, type, COUNT);
	for (int r = 0; r < rig->n_ranks; r++)
		for (size_t i = 0; i < COUNT; i++)
			elements_set(&e, r, i, elements_bits(type, values[r]));
	elements_reduce(&e, op, NULL);
	for (size_t i = 0; i < COUNT; i++)
		elements_expect(&e, i, elements_bits(type, expected));
	elements_deinit(&e);
}
