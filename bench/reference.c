/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values are made and folded one at a time, for clarity, but only for one period of the pattern;
 * the rest of a buffer is copied from that tile. The pattern at position i of call k is a function
 * of i + k alone: x mod 7 gives the size of the value, x / 7 mod n_ranks which rank plays which
 * part, x mod 3 a variation.
 */
#include "bench/numbers.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The pattern. */

static size_t period(int n_ranks)
{
	return (size_t)n_ranks * 7 * 3;
}

/* Spreads a small integer over all bits of a type; odd, so that nothing is lost modulo 2^n. */
static const uint64_t spread = 0x5851f42d4c957f2d;

static uint64_t integer_extreme(const struct format *format, bool maximum, unsigned size,
				unsigned part, unsigned x, int rank)
{
	unsigned top = part == 0 ? 135 + 20 * size : 20 * size + (rank + x) % 3 * 30;
	uint64_t byte = maximum ? top : 255 - top;
	int shift = 8 * (int)format->bytes - 8;

	if (format->number == SIGNED)
		byte ^= 0x80;
	return (byte << shift) | (shift ? size : 0);
}

static uint64_t integer_input(const struct strait_reference *reference, int rank, unsigned x)
{
	const struct format *format = &strait_formats[reference->type];
	unsigned size = x % 7, part = (rank + x / 7) % reference->n_ranks;

	switch (reference->reduction) {
	case STRAIT_PROD:
		return ((part == 0 ? 2 * size : 2 * (part % 5)) + 3) * spread;
	case STRAIT_MAX:
	case STRAIT_MIN:
		return integer_extreme(format, reference->reduction == STRAIT_MAX, size, part, x,
				       rank);
	default:
		return (rank + 1) * (uint64_t)(1 + size) * spread;
	}
}

static double scalar_value(const struct strait_reference *reference, int rank)
{
	static const double floats[] = {1, 2, 0.5}, integers[] = {1, 2, 3};

	if (reference->reduction != STRAIT_PREMULSUM)
		return 1;
	return strait_formats[reference->type].number == FLOATING ? floats[rank % 3]
								  : integers[rank % 3];
}

/* A sum is exact in every order when the sum of all magnitudes, in units of the smallest part, fits
 * the mantissa. The wide pattern is (rank + 1) * (1 + x mod 7), with a small fraction added where
 * there is room, so that arithmetic in a narrower type shows. Narrow types add up 0 and 1 times a
 * power of two and a sign, which belong to the position. */
static double sum_room(const struct strait_reference *reference)
{
	return ldexp(1, strait_formats[reference->type].mantissa_bits + 1);
}

/* The wide pattern's factor, 1 + the fraction that there is room for; 0: not even the integers fit.
 */
static double wide_factor(const struct strait_reference *reference)
{
	double total = 0, factor = 1;

	for (int r = 0; r < reference->n_ranks; r++)
		total += 7.0 * (r + 1) * scalar_value(reference, r);
	if (reference->reduction == STRAIT_PREMULSUM)
		total *= 2; /* the smallest scalar is a half */
	if (total > sum_room(reference))
		return 0;
	for (int s = 1; total * (ldexp(1, s) + 1) <= sum_room(reference); s++)
		factor = 1 + ldexp(1, -s);
	return factor;
}

static double narrow_input(const struct strait_reference *reference, int rank, unsigned x)
{
	int weight =
		reference->reduction == STRAIT_PREMULSUM ? 4 : 1; /* largest / smallest scalar */
	int part = (int)(rank + x / 7) % reference->n_ranks;
	/* Nothing cancels: no result is zero, and for avg the error of 1/n stays relative. */
	int digit = part == 0 || (5 * part + x) % 3 != 0;

	if (part >= (int)(sum_room(reference) / weight))
		digit = 0;
	if (x % 3 == 2)
		digit = -digit;
	return digit * ldexp(1, (int)(x % 7 * 3 % 7) - 3); /* neighbours differ by 8 or more */
}

static double float_input(const struct strait_reference *reference, double factor, int rank,
			  unsigned x)
{
	static const double below[] = {0.5, 1, -1};
	unsigned size = x % 7, part = (rank + x / 7) % reference->n_ranks;
	double extreme = ldexp(part == 0 ? 1.5 : below[(rank + x) % 3], (int)size - 3);

	switch (reference->reduction) {
	case STRAIT_PROD:
		if (part == 0)
			return 1 + size;
		return (part == 1 ? 2 : part == 2 ? 0.5 : 1) * ((part + x) % 3 ? 1 : -1);
	case STRAIT_MAX:
		return extreme;
	case STRAIT_MIN:
		return -extreme;
	default:
		return factor > 0 ? (rank + 1) * (1 + x % 7) * factor
				  : narrow_input(reference, rank, x);
	}
}

uint64_t strait_reference_scalar(const struct strait_reference *reference, int rank)
{
	const struct format *format = &strait_formats[reference->type];
	double value = scalar_value(reference, rank);

	return format->number == FLOATING ? strait_float_encode(format, value) : (uint64_t)value;
}

unsigned strait_reference_tolerance(const struct strait_reference *reference)
{
	return reference->reduction == STRAIT_AVG &&
			       strait_formats[reference->type].number == FLOATING
		       ? 2
		       : 0;
}

static void *checked_calloc(size_t bytes)
{
	void *memory = calloc(1, bytes);

	if (!memory) {
		fprintf(stderr, "reference: out of memory (%zu bytes)\n", bytes);
		abort();
	}
	return memory;
}

/* One period of what a rank sends, with k = 0. */
static void *input_tile(const struct strait_reference *reference, int rank)
{
	const struct format *format = &strait_formats[reference->type];
	size_t n = period(reference->n_ranks);
	double factor = wide_factor(reference);
	void *tile = checked_calloc(n * format->bytes);

	for (unsigned x = 0; x < n; x++)
		strait_element_store(
			format, tile, x,
			format->number == FLOATING
				? strait_float_encode(format,
						      float_input(reference, factor, rank, x))
				: integer_input(reference, rank, x));
	return tile;
}

/* Copies the periodic tile from phase `first + k` on: one period from the tile, then doubling
 * within `out`. */
static void repeat(const struct strait_reference *reference, const void *tile, size_t first,
		   size_t count, void *out)
{
	size_t bytes = strait_formats[reference->type].bytes, n = period(reference->n_ranks);
	size_t phase = (first % n + reference->k % n) % n, done = 0, total = count * bytes;
	size_t head = (n - phase) * bytes;

	if (head > total)
		head = total;
	memcpy(out, (const char *)tile + phase * bytes, head);
	done = head;
	head = phase * bytes < total - done ? phase * bytes : total - done;
	memcpy((char *)out + done, tile, head);
	done += head;
	while (done < total) {
		size_t piece = done < total - done ? done : total - done;

		memcpy((char *)out + done, out, piece);
		done += piece;
	}
}

void strait_reference_input(const struct strait_reference *reference, int rank, size_t first,
			    size_t count, void *out)
{
	if (count == 0)
		return;
	void *tile = input_tile(reference, rank);

	repeat(reference, tile, first, count, out);
	free(tile);
}

void strait_reference_output(const struct strait_reference *reference, size_t first, size_t count,
			     void *out)
{
	size_t n_ranks = (size_t)reference->n_ranks, n = period(reference->n_ranks);

	if (count == 0)
		return;
	void **inputs = checked_calloc(n_ranks * sizeof(*inputs));
	uint64_t *scalars = checked_calloc(n_ranks * sizeof(*scalars));
	void *tile = checked_calloc(n * strait_formats[reference->type].bytes);

	for (size_t r = 0; r < n_ranks; r++) {
		inputs[r] = input_tile(reference, (int)r);
		scalars[r] = strait_reference_scalar(reference, (int)r);
	}
	strait_reference_reduce(reference->type, reference->reduction, reference->n_ranks,
				(const void *const *)inputs, scalars, n, tile);
	repeat(reference, tile, first, count, out);
	for (size_t r = 0; r < n_ranks; r++)
		free(inputs[r]);
	free(inputs);
	free(scalars);
	free(tile);
}

/* The arithmetic. */

struct operands {
	const struct format *format;
	enum strait_reduction_kind reduction;
	int n_ranks;
	const void *const *inputs;
	const uint64_t *scalars;
};

static bool integer_less(const struct format *format, uint64_t a, uint64_t b)
{
	if (format->number == SIGNED)
		return strait_integer_extended(format, a) < strait_integer_extended(format, b);
	return strait_integer_truncated(format, a) < strait_integer_truncated(format, b);
}

static uint64_t integer_fold(const struct operands *operands, size_t i)
{
	const struct format *format = operands->format;
	uint64_t result = 0;

	for (int r = 0; r < operands->n_ranks; r++) {
		uint64_t value = strait_element_load(format, operands->inputs[r], i);

		if (operands->reduction == STRAIT_PREMULSUM)
			value *= operands->scalars[r];
		if (r == 0)
			result = value;
		else if (operands->reduction == STRAIT_PROD)
			result *= value;
		else if (operands->reduction == STRAIT_MAX)
			result = integer_less(format, result, value) ? value : result;
		else if (operands->reduction == STRAIT_MIN)
			result = integer_less(format, value, result) ? value : result;
		else
			result += value;
	}
	if (operands->reduction != STRAIT_AVG)
		return result;
	if (format->number == SIGNED)
		return (uint64_t)(strait_integer_extended(format, result) / operands->n_ranks);
	return strait_integer_truncated(format, result) / (uint64_t)operands->n_ranks;
}

static uint64_t float_fold(const struct operands *operands, size_t i)
{
	const struct format *format = operands->format;
	double result = 0;

	for (int r = 0; r < operands->n_ranks; r++) {
		double value = strait_float_decode(
			format, strait_element_load(format, operands->inputs[r], i));

		if (operands->reduction == STRAIT_PREMULSUM)
			value = strait_float_decode(
				format,
				strait_float_encode(
					format,
					value * strait_float_decode(format, operands->scalars[r])));
		if (operands->reduction == STRAIT_AVG)
			value /= operands->n_ranks;
		if (r == 0)
			result = value;
		else if (operands->reduction == STRAIT_PROD)
			result *= value;
		else if (operands->reduction == STRAIT_MAX)
			result = fmax(result, value);
		else if (operands->reduction == STRAIT_MIN)
			result = fmin(result, value);
		else
			result += value;
	}
	return strait_float_encode(format, result);
}

void strait_reference_reduce(enum strait_type type, enum strait_reduction_kind reduction,
			     int n_ranks, const void *const *inputs, const uint64_t *scalars,
			     size_t count, void *out)
{
	struct operands operands = {&strait_formats[type], reduction, n_ranks, inputs, scalars};
	bool floating = strait_formats[type].number == FLOATING;

	for (size_t i = 0; i < count; i++)
		strait_element_store(&strait_formats[type], out, i,
				     floating ? float_fold(&operands, i)
					      : integer_fold(&operands, i));
}

void strait_guard_fill(void *guard)
{
	memset(guard, STRAIT_GUARD_BYTE, STRAIT_GUARD_BYTES);
}

size_t strait_guard_check(const void *guard)
{
	const uint8_t *bytes = guard;
	size_t n = 0;

	for (size_t i = 0; i < STRAIT_GUARD_BYTES; i++)
		n += bytes[i] != STRAIT_GUARD_BYTE;
	return n;
}

void strait_poison_fill(void *out, const void *expected, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		((uint8_t *)out)[i] = (uint8_t) ~((const uint8_t *)expected)[i];
}
