/* SPDX-License-Identifier: Apache-2.0 */
/* Bits of results that are not exact in every order: rounding, and what is not a number. */
#include "tests/gpu/case.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double random_unit(uint64_t *random)
{
	return ((double)(random_next(random) >> 11) + 0.5) / 9007199254740992.0;
}

/* Normal numbers, of another magnitude on each rank. */
static void fill_normal(enum strait_type type, int rank, uint64_t seed, size_t count, void *out)
{
	size_t element = strait_reference_type_bytes(type);
	uint64_t random = seed * 64 + (uint64_t)rank;
	double scale = pow(10, rank % (type == STRAIT_FLOAT16 ? 4 : 5));

	for (size_t i = 0; i < count; i++) {
		double radius = sqrt(-2 * log(random_unit(&random)));
		uint64_t bits = strait_reference_from_double(
			type, scale * radius * cos(2 * M_PI * random_unit(&random)));

		memcpy((char *)out + i * element, &bits, element);
	}
}

static double value_at(enum strait_type type, const void *values, size_t i)
{
	size_t element = strait_reference_type_bytes(type);
	uint64_t bits = 0;

	memcpy(&bits, (const char *)values + i * element, element);
	return strait_reference_to_double(type, bits);
}

/* The one right result: added up in rank order in float, rounded to the type once. */
static void fill_expected(enum strait_type type, uint64_t seed, size_t count, void *out)
{
	size_t element = strait_reference_type_bytes(type);
	void *values = malloc(count * element);
	float *sums = calloc(count, sizeof(*sums));

	MUST_SAY(values && sums, "out of memory");
	for (int r = 0; r < me->n; r++) {
		fill_normal(type, r, seed, count, values);
		for (size_t i = 0; i < count; i++)
			sums[i] = r == 0 ? (float)value_at(type, values, i)
					 : sums[i] + (float)value_at(type, values, i);
	}
	for (size_t i = 0; i < count; i++) {
		uint64_t bits = strait_reference_from_double(type, sums[i]);

		memcpy((char *)out + i * element, &bits, element);
	}
	free(values);
	free(sums);
}

static uint64_t hash(const void *data, size_t bytes)
{
	const unsigned char *at = data;
	uint64_t h = 0xcbf29ce484222325u;

	for (size_t i = 0; i < bytes; i++)
		h = (h ^ at[i]) * 0x100000001b3u;
	return h;
}

struct trial {
	enum strait_type type;
	size_t count, bytes;
	struct buffer send, recv;
	void *host;
};

/* The output's hash, after a call with the input that is there. */
static uint64_t reduce(const struct trial *trial, ncclComm_t comm)
{
	NCCL(AllReduce, (void *)trial->send.at, (void *)trial->recv.at, trial->count,
	     (ncclDataType_t)trial->type, ncclSum, comm, me->stream);
	download(trial->host, trial->recv.at, trial->bytes);
	return hash(trial->host, trial->bytes);
}

static void same_on_all(uint64_t mine, const struct trial *trial)
{
	uint64_t all[BOARD_RANKS];

	all[me->number] = mine;
	share(all, sizeof(*all));
	for (int r = 0; r < me->n; r++)
		MUST_SAY(all[r] == mine, "%zu %s: rank %d has other bits than rank %d",
			 trial->count, strait_reference_type_name(trial->type), r, me->number);
}

static void check_in_order(const struct trial *trial, uint64_t seed)
{
	void *expected = malloc(trial->bytes);
	struct strait_mismatch mismatch;

	MUST_SAY(expected, "out of memory");
	fill_expected(trial->type, seed, trial->count, expected);
	strait_reference_compare(trial->type, trial->host, expected, trial->count, 0, &mismatch);
	MUST_SAY(mismatch.n == 0, "%zu %s: %zu not in rank order, [%zu] is %s, not %s",
		 trial->count, strait_reference_type_name(trial->type), mismatch.n, mismatch.first,
		 mismatch.got, mismatch.expected);
	free(expected);
}

static void try_bits(enum strait_type type, size_t count, ncclComm_t comm)
{
	struct trial trial = {.type = type, .count = count};
	void *input;

	trial.bytes = count * strait_reference_type_bytes(type);
	trial.send = buffer_new(MEMORY_DEVICE, trial.bytes, 0);
	trial.recv = buffer_new(MEMORY_DEVICE, trial.bytes, 0);
	trial.host = malloc(trial.bytes);
	input = malloc(trial.bytes);
	MUST_SAY(trial.host && input, "out of memory");
	for (uint64_t call = 0; call < pick(count > 100000 ? 5 : 50, 5); call++) {
		uint64_t seed = me->seed + call, first;

		say("call %d of %zu", (int)call, count);
		fill_normal(type, me->number, seed, count, input);
		upload(trial.send.at, input, trial.bytes);
		first = reduce(&trial, comm);
		same_on_all(first, &trial);
		check_in_order(&trial, seed);
		for (size_t i = 0; i < pick(20, 3); i++)
			MUST_SAY(reduce(&trial, comm) == first, "%zu %s: other bits in run %zu",
				 count, strait_reference_type_name(type), i);
	}
	buffer_free(&trial.send);
	buffer_free(&trial.recv);
	free(trial.host);
	free(input);
}

void case_same_bits(void)
{
	static const enum strait_type types[] = {STRAIT_FLOAT32, STRAIT_FLOAT16, STRAIT_BFLOAT16};
	const size_t counts[] = {5, 4096, 50000, 1000000};
	ncclComm_t comm = communicator_new();

	for (size_t t = 0; t < sizeof(types) / sizeof(*types); t++)
		for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++)
			if (counts[c] <= pick(SIZE_MAX, 4096))
				try_bits(types[t], counts[c], comm);
	communicator_free(comm);
}

/* Element e: NaN on one rank, on all, infinities of both signs, one infinity; else small numbers.
 */
static double odd_value(int rank, size_t e)
{
	static const double small[] = {1, 3, 4};
	size_t kind = e % (size_t)(me->n + 4);

	if (kind == (size_t)rank || kind == (size_t)me->n)
		return NAN;
	if (kind == (size_t)me->n + 1)
		return rank % 2 ? -INFINITY : INFINITY;
	if (kind == (size_t)me->n + 2 && rank == me->n / 2)
		return INFINITY;
	return small[(size_t)rank % 3];
}

static void try_odd(enum strait_type type, enum strait_reduction_kind kind, size_t count,
		    ncclComm_t comm)
{
	size_t element = strait_reference_type_bytes(type), bytes = count * element;
	struct buffer data = buffer_new(MEMORY_DEVICE, bytes, 0);
	char *inputs = malloc(bytes * (size_t)me->n), *expected = malloc(bytes),
	     *got = malloc(bytes);
	const void *all[BOARD_RANKS];
	struct strait_mismatch mismatch;

	MUST_SAY(inputs && expected && got, "out of memory");
	for (int r = 0; r < me->n; r++) {
		all[r] = inputs + (size_t)r * bytes;
		for (size_t e = 0; e < count; e++) {
			uint64_t bits = strait_reference_from_double(type, odd_value(r, e));

			memcpy(inputs + (size_t)r * bytes + e * element, &bits, element);
		}
	}
	strait_reference_reduce(type, kind, me->n, all, NULL, count, expected);
	upload(data.at, all[me->number], bytes);
	NCCL(AllReduce, (void *)data.at, (void *)data.at, count, (ncclDataType_t)type,
	     (ncclRedOp_t)kind, comm, me->stream);
	download(got, data.at, bytes);
	strait_reference_compare(type, got, expected, count, 0, &mismatch);
	MUST_SAY(mismatch.n == 0, "%s %s: %zu wrong, [%zu] is %s, not %s",
		 strait_reference_type_name(type), strait_reference_reduction_name(kind),
		 mismatch.n, mismatch.first, mismatch.got, mismatch.expected);
	buffer_free(&data);
	free(inputs);
	free(expected);
	free(got);
}

void case_not_numbers(void)
{
	static const enum strait_type types[] = {STRAIT_FLOAT32, STRAIT_BFLOAT16, STRAIT_FLOAT16,
						 STRAIT_FLOAT64};
	const size_t counts[] = {99, 3001, 70001, 900001};
	ncclComm_t comm = communicator_new();

	for (size_t t = 0; t < sizeof(types) / sizeof(*types); t++)
		for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++)
			for (int kind = STRAIT_SUM;
			     kind <= STRAIT_MIN && counts[c] <= pick(SIZE_MAX, 4000); kind++)
				try_odd(types[t], kind, counts[c], comm);
	communicator_free(comm);
}

/* Sizes that reach every algorithm and every place of the scratch. */
static void poison(ncclComm_t comm, size_t bytes)
{
	struct buffer data = buffer_new(MEMORY_DEVICE, bytes, 0);

	GPU(cuMemsetD8Async, data.at, 0xff, bytes, me->stream);
	for (int i = 0; i < 3; i++)
		NCCL(AllReduce, (void *)data.at, (void *)data.at, bytes / 4, ncclFloat, ncclSum,
		     comm, me->stream);
	wait_stream(me->stream);
	buffer_free(&data);
}

void case_poisoned_scratch(void)
{
	const size_t most = pick(8 << 20, 256 << 10);
	ncclComm_t comm = communicator_new();

	for (size_t bytes = 4 << 10; bytes <= most; bytes *= 4)
		poison(comm, bytes);
	for (size_t bytes = 4; bytes <= most; bytes *= 2) {
		struct call call = {
			.type = STRAIT_FLOAT32, .count = bytes / 4 + bytes % 3, .k = bytes};

		call_check(comm, me->stream, &call);
	}
	communicator_free(comm);
}
