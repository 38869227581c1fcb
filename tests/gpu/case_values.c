/* SPDX-License-Identifier: Apache-2.0 */
/* Which values come out: counts, alignments, kinds of memory, types, rounding, NaN. */
#include "tests/gpu/case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Every case sees another pattern than the one before it. */
static uint64_t next_k(void)
{
	static _Thread_local uint64_t k;

	return ++k;
}

static void check(ncclComm_t comm, struct call call)
{
	call.k = next_k();
	say("%s of %zu elements%s", strait_reference_type_name(call.type), call.count,
	    call.in_place ? " in place" : "");
	call_check(comm, me->stream, &call);
}

void case_fresh(void)
{
	ncclComm_t comm = communicator_new();

	for (size_t count = 1; count <= 100000; count *= 10)
		check(comm, (struct call){.type = STRAIT_FLOAT32, .count = count});
	communicator_free(comm);
}

void case_tails(void)
{
	static const enum strait_type types[] = {STRAIT_BFLOAT16, STRAIT_FLOAT32, STRAIT_UINT8};
	const size_t counts[] = {
		1,    2,    3,    7,     (size_t)me->n - 1, (size_t)me->n + 1, 127, 129,
		1023, 8191, 8193, 65537, 1048577,           10556587};
	ncclComm_t comm = communicator_new();

	for (size_t t = 0; t < sizeof(types) / sizeof(*types); t++)
		for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++)
			for (int in_place = 0; in_place < 2; in_place++)
				if (counts[c] > 0 && counts[c] <= pick(SIZE_MAX, 65537))
					check(comm, (struct call){.type = types[t],
								  .count = counts[c],
								  .in_place = in_place});
	communicator_free(comm);
}

void case_unaligned(void)
{
	static const enum strait_type types[] = {STRAIT_BFLOAT16, STRAIT_UINT8, STRAIT_FLOAT32};
	const size_t counts[] = {4096, 5, 100003, 3000001};
	size_t r = (size_t)me->number;
	ncclComm_t comm = communicator_new();

	for (size_t t = 0; t < sizeof(types) / sizeof(*types); t++)
		for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
			size_t element = strait_reference_type_bytes(types[t]);

			if (counts[c] > pick(SIZE_MAX, 5000))
				continue;
			check(comm, (struct call){.type = types[t],
						  .count = counts[c],
						  .send_offset = element * (r % 8),
						  .recv_offset = element * ((3 * r + 1) % 8)});
			check(comm, (struct call){.type = types[t],
						  .count = counts[c],
						  .in_place = true,
						  .recv_offset = element * ((5 * r + 3) % 16)});
		}
	communicator_free(comm);
}

/* Rank r and call j use another kind of memory each; the sizes span all algorithms. */
void case_mixed_memory(void)
{
	const size_t most = pick(4 << 20, 256 << 10);
	unsigned r = (unsigned)me->number;
	ncclComm_t comm = communicator_new();

	for (unsigned j = 0; j < N_MEMORIES; j++)
		for (size_t bytes = 1 << 10; bytes <= most; bytes *= 4)
			check(comm, (struct call){.type = STRAIT_BFLOAT16,
						  .count = bytes / 2,
						  .in_place = (j + r) % 3 == 0,
						  .send_memory = (r + j) % N_MEMORIES,
						  .recv_memory = (r + 2 * j + 1) % N_MEMORIES,
						  .send_offset = 2 * (r % 5),
						  .recv_offset = 2 * (r % 3)});
	communicator_free(comm);
}

void case_memory_kinds(void)
{
	const size_t most = pick(8 << 20, 256 << 10);
	ncclComm_t comm = communicator_new();

	for (unsigned memory = 0; memory < N_MEMORIES; memory++)
		for (size_t bytes = 8; bytes <= most; bytes *= 32)
			for (int way = 0; way < 4; way++)
				check(comm, (struct call){.type = STRAIT_FLOAT32,
							  .count = bytes / 4,
							  .in_place = way % 2,
							  .graph = way / 2,
							  .send_memory = memory,
							  .recv_memory = memory});
	communicator_free(comm);
}

/* 1 byte to `most`, as many of each magnitude. */
static size_t random_bytes(uint64_t *random, size_t most)
{
	size_t magnitude = (size_t)1
			   << random_next(random) % (unsigned)(64 - __builtin_clzll(most));
	size_t bytes = magnitude + random_next(random) % magnitude;

	return bytes < most ? bytes : most;
}

/* The shared state of the random numbers gives what has to be equal; a rank's own, the rest. */
void case_soak(void)
{
	uint64_t shared = me->seed, own = me->seed * 1000 + (uint64_t)me->number + 1;
	const size_t n = pick(3000, 200), most = pick(8 << 20, 64 << 10);
	ncclComm_t comm = communicator_new();

	for (size_t i = 0; i < n; i++) {
		enum strait_type type = random_next(&shared) % STRAIT_N_TYPES;
		enum strait_reduction_kind reduction = random_next(&shared) % STRAIT_N_REDUCTIONS;
		size_t element = strait_reference_type_bytes(type);
		struct call call = {
			.type = type,
			.reduction = reduction,
			.count = (random_bytes(&shared, most) + element - 1) / element,
			.in_place = random_next(&own) % 2,
			.send_memory = random_next(&own) % N_MEMORIES,
			.recv_memory = random_next(&own) % N_MEMORIES,
			.send_offset = random_next(&own) % 64 * element,
			.recv_offset = random_next(&own) % 64 * element,
		};

		check(comm, call);
	}
	note("%zu calls of 1 byte to %zu KiB", n, most >> 10);
	communicator_free(comm);
}
