/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plain reference that every test suite and the benchmark compare with: inputs, expected
 * outputs and the comparison, on host memory, in double and 64-bit integer arithmetic. It shares no
 * code with the library but the numbers of types and reductions.
 *
 * Inputs of a strait_reference are made so that the result is exact in every order of summation and
 * with any rounding of partial results, in every type: any differing bit is a fault. The only
 * exception is avg of floating types, which depends on how 1/n is rounded
 * (strait_reference_tolerance). Neighbouring positions, different ranks and successive k differ, so
 * that shifted, stale, doubled and missing data all show.
 *
 * Minimum and maximum follow NCCL: a NaN loses against a number. Conversions to 8-bit floats
 * saturate.
 */
#pragma once
#include "algorithms/request.h"
#include <stdbool.h>

struct strait_reference {
	enum strait_type type;
	enum strait_reduction_kind reduction;
	int n_ranks; /* 1 or more; exact for avg and premulsum of any number of ranks, too */
	uint64_t k;  /* number of the call, or a seed: shifts the pattern */
};

/* Elements first..first+count-1 of what `rank` sends. `out` holds count elements, of any alignment.
 */
void strait_reference_input(const struct strait_reference *reference, int rank, size_t first,
			    size_t count, void *out);
/* The scalar of `rank` for PREMULSUM, as bits of the type (little endian in the low bytes). Differs
 * by rank. */
uint64_t strait_reference_scalar(const struct strait_reference *reference, int rank);
/* Elements first.. of what the reduction over all ranks gives. */
void strait_reference_output(const struct strait_reference *reference, size_t first, size_t count,
			     void *out);
/* In ulp: what a right library may be off. 2 for avg of floating types, else 0. */
unsigned strait_reference_tolerance(const struct strait_reference *reference);

/* The same arithmetic on any inputs: inputs[r] holds count elements; scalars (of the type, one a
 * rank) only for PREMULSUM. Integers wrap; floats add up in double in rank order and are rounded
 * once. */
void strait_reference_reduce(enum strait_type type, enum strait_reduction_kind reduction,
			     int n_ranks, const void *const *inputs, const uint64_t *scalars,
			     size_t count, void *out);

struct strait_mismatch {
	size_t n;          /* wrong elements */
	size_t first;      /* index of the first one, when n > 0 */
	char got[40];      /* its text and bits */
	char expected[40]; /* what it should be */
};

/* Compares count elements bit for bit, or with up to `ulp` steps between representable values. Two
 * NaNs are equal. Returns the number of wrong elements; *ret is always set. */
size_t strait_reference_compare(enum strait_type type, const void *got, const void *expected,
				size_t count, unsigned ulp, struct strait_mismatch *ret);

/* One element as text: value and bits. `size` is best 40 or more. */
void strait_reference_text(enum strait_type type, const void *element, char *ret, size_t size);
const char *strait_reference_type_name(enum strait_type type); /* as nccl-tests prints it */
const char *strait_reference_reduction_name(enum strait_reduction_kind kind); /* likewise */
size_t strait_reference_type_bytes(enum strait_type type);
bool strait_reference_type_is_float(enum strait_type type);

/* Floating types only. Round to nearest even; fp8 saturates to the largest finite value, also from
 * infinity. */
uint64_t strait_reference_from_double(enum strait_type type, double value);
double strait_reference_to_double(enum strait_type type, uint64_t bits);

#define STRAIT_GUARD_BYTES 256
#define STRAIT_GUARD_BYTE 0xA5
/* Guard zones lie right before and right after a buffer. check returns how many bytes were changed.
 */
void strait_guard_fill(void *guard);
size_t strait_guard_check(const void *guard);
/* Fills an output with the complement of what is expected there, so that no element that was left
 * alone can pass. */
void strait_poison_fill(void *out, const void *expected, size_t bytes);
