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
