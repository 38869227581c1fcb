/* SPDX-License-Identifier: Apache-2.0 */
/* Host images hold a guard, the payload and a guard, as they lie in device memory. */
#include "tests/collectives/case.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEND, RECV, MARGIN = STRAIT_GUARD_BYTES, MOST_OFFSET = 33 };

struct run {
	struct rig *rig;
	const struct collective_case *c;
	size_t size, bytes; /* of an element, of a buffer */
	uint8_t *input, *expected, *first, *image;
	ncclRedOp_t ops[RIG_MOST_RANKS];
};

static const char *const reductions[STRAIT_N_REDUCTIONS] = {
	[STRAIT_SUM] = "sum", [STRAIT_PROD] = "prod", [STRAIT_MAX] = "max",
	[STRAIT_MIN] = "min", [STRAIT_AVG] = "avg",   [STRAIT_PREMULSUM] = "premulsum"};

void case_text(const struct collective_case *c, char *ret, size_t size)
{
	snprintf(ret, size,
		 "ranks=%d type=%s op=%s scalar=%d count=%zu k=%" PRIu64 " placement=%" PRIu64
		 " in-place=%d graph=%d group=%d calls=%d",
		 c->n_ranks, strait_reference_type_name(c->type), reductions[c->reduction],
		 c->device_scalar, c->count, c->k, c->placement, c->in_place, c->graph, c->group,
		 c->n_calls);
}

bool case_parse(const char *text, struct collective_case *ret)
{
	int scalar, in_place, graph, group, type = 0, op = 0;
	struct collective_case c;
	char type_name[32], op_name[32];

	if (sscanf(text,
		   "ranks=%d type=%31s op=%31s scalar=%d count=%zu k=%" SCNu64 " placement=%" SCNu64
		   " in-place=%d graph=%d group=%d calls=%d",
		   &c.n_ranks, type_name, op_name, &scalar, &c.count, &c.k, &c.placement, &in_place,
		   &graph, &group, &c.n_calls) != 11)
		return false;
	while (type < STRAIT_N_TYPES &&
	       strcmp(type_name, strait_reference_type_name((enum strait_type)type)) != 0)
		type++;
	while (op < STRAIT_N_REDUCTIONS && strcmp(op_name, reductions[op]) != 0)
		op++;
	c.type = (enum strait_type)type;
	c.reduction = (enum strait_reduction_kind)op;
	c.device_scalar = scalar;
	c.in_place = in_place;
	c.graph = graph;
	c.group = group;
	*ret = c;
	return type < STRAIT_N_TYPES && op < STRAIT_N_REDUCTIONS && c.n_ranks >= 1 &&
	       c.n_ranks <= RIG_MOST_RANKS && c.n_calls >= 1;
}

/* Where the payload of a buffer lies. */
static CUdeviceptr place(const struct run *run, int rank, int which)
{
	uint64_t mixed = rig_mix(run->c->placement, (uint64_t)(2 * rank + which));
	size_t offset = run->c->placement ? mixed % MOST_OFFSET : 0;

	return run->rig->ranks[rank].arenas[which] + MARGIN + offset * run->size;
}

static int output_of(const struct run *run)
{
	return run->c->in_place ? SEND : RECV;
}

static struct strait_reference reference_of(const struct run *run, int call)
{
	return (struct strait_reference){run->c->type, run->c->reduction, run->c->n_ranks,
					 run->c->k + (uint64_t)call};
}

/* The payload is in the image already. */
static void put(const struct run *run, int rank, int which)
{
	strait_guard_fill(run->image);
	strait_guard_fill(run->image + MARGIN + run->bytes);
	rig_copy_in(run->rig, rank, place(run, rank, which) - MARGIN, run->image,
		    run->bytes + 2 * MARGIN);
}

static void fill(struct run *run, int call)
{
	const struct strait_reference reference = reference_of(run, call);

	strait_reference_output(&reference, 0, run->c->count, run->expected);
	for (int r = 0; r < run->c->n_ranks; r++) {
		strait_reference_input(&reference, r, 0, run->c->count, run->image + MARGIN);
		put(run, r, SEND);
		if (run->c->in_place)
			continue;
		strait_poison_fill(run->image + MARGIN, run->expected, run->bytes);
		put(run, r, RECV);
	}
}

static void get(const struct run *run, int rank, int which)
{
	size_t before, after;

	rig_copy_out(run->rig, rank, run->image, place(run, rank, which) - MARGIN,
		     run->bytes + 2 * MARGIN);
	before = strait_guard_check(run->image);
	after = strait_guard_check(run->image + MARGIN + run->bytes);
	if (before || after)
		rig_die("rank %d wrote %zu bytes before and %zu behind its %s", rank, before, after,
			which == SEND ? "input" : "output");
}

static void check(struct run *run, int call)
{
	const struct strait_reference reference = reference_of(run, call);
	struct strait_mismatch mismatch;

	for (int r = 0; r < run->c->n_ranks; r++) {
		get(run, r, output_of(run));
		if (strait_reference_compare(run->c->type, run->image + MARGIN, run->expected,
					     run->c->count, strait_reference_tolerance(&reference),
					     &mismatch))
			rig_die("call %d, rank %d: %zu wrong elements, the first at %zu: %s "
				"instead of %s",
				call, r, mismatch.n, mismatch.first, mismatch.got,
				mismatch.expected);
		if (r == 0)
			memcpy(run->first, run->image + MARGIN, run->bytes);
		else if (memcmp(run->first, run->image + MARGIN, run->bytes) != 0)
			rig_die("call %d: ranks 0 and %d have different bits", call, r);
		if (run->c->in_place)
			continue;
		get(run, r, SEND);
		strait_reference_input(&reference, r, 0, run->c->count, run->input);
		if (memcmp(run->input, run->image + MARGIN, run->bytes) != 0)
			rig_die("call %d: the input of rank %d was changed", call, r);
	}
}

static void make_ops(struct run *run)
{
	static const ncclRedOp_t built_in[STRAIT_N_REDUCTIONS] = {ncclSum, ncclProd, ncclMax,
								  ncclMin, ncclAvg,  ncclSum};
	const struct strait_reference reference = reference_of(run, 0);

	for (int r = 0; r < run->c->n_ranks; r++) {
		struct rig_rank *rank = &run->rig->ranks[r];
		uint64_t scalar = strait_reference_scalar(&reference, r);

		run->ops[r] = built_in[run->c->reduction];
		if (run->c->reduction != STRAIT_PREMULSUM)
			continue;
		if (run->c->device_scalar)
			rig_copy_in(run->rig, r, rank->scalar, &scalar, run->size);
		RIG_NCCL(ncclRedOpCreatePreMulSum(
			&run->ops[r], run->c->device_scalar ? (void *)rank->scalar : &scalar,
			(ncclDataType_t)run->c->type,
			run->c->device_scalar ? ncclScalarDevice : ncclScalarHostImmediate,
			rank->comm));
	}
}

static void free_ops(struct run *run)
{
	for (int r = 0; r < run->c->n_ranks && run->c->reduction == STRAIT_PREMULSUM; r++)
		RIG_NCCL(ncclRedOpDestroy(run->ops[r], run->rig->ranks[r].comm));
}

static void issue(struct run *run)
{
	if (run->c->group)
		RIG_NCCL(ncclGroupStart());
	for (int r = 0; r < run->c->n_ranks; r++) {
		rig_enter(run->rig, r);
		RIG_NCCL(ncclAllReduce(
			(void *)place(run, r, SEND), (void *)place(run, r, output_of(run)),
			run->c->count, (ncclDataType_t)run->c->type, run->ops[r],
			run->rig->ranks[r].comm, (cudaStream_t)run->rig->ranks[r].stream));
	}
	if (run->c->group)
		RIG_NCCL(ncclGroupEnd());
}

static void run_eager(struct run *run)
{
	for (int call = 0; call < run->c->n_calls; call++) {
		fill(run, call);
		issue(run);
		rig_wait(run->rig);
		check(run, call);
	}
}

static void run_graph(struct run *run)
{
	CUgraphExec graphs[RIG_MOST_RANKS];

	rig_capture_begin(run->rig, run->c->k & 1 ? CU_STREAM_CAPTURE_MODE_GLOBAL
						  : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	issue(run);
	rig_capture_end(run->rig, graphs);
	for (int call = 0; call < run->c->n_calls; call++) {
		fill(run, call);
		rig_launch(run->rig, graphs);
		rig_wait(run->rig);
		check(run, call);
	}
	rig_free_graphs(run->rig, graphs);
}

static uint8_t *allocate(size_t bytes)
{
	uint8_t *memory = calloc(1, bytes ? bytes : 1);

	if (!memory)
		rig_die("out of memory: %zu bytes", bytes);
	return memory;
}

void case_run(struct rig *rig, const struct collective_case *c)
{
	const size_t size = strait_reference_type_bytes(c->type), bytes = size * c->count;
	struct run run = {.rig = rig, .c = c, .size = size, .bytes = bytes};

	rig_reserve(rig, bytes + 2 * MARGIN + MOST_OFFSET * size);
	run.input = allocate(bytes);
	run.expected = allocate(bytes);
	run.first = allocate(bytes);
	run.image = allocate(bytes + 2 * MARGIN);
	make_ops(&run);
	if (c->graph)
		run_graph(&run);
	else
		run_eager(&run);
	free_ops(&run);
	free(run.input);
	free(run.expected);
	free(run.first);
	free(run.image);
}
