/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements of the 12 types as bits and as numbers: the part of the reference that knows formats.
 * Private to reference.c and numbers.c; everybody else includes reference.h.
 */
#pragma once
#include "bench/reference.h"

enum number { SIGNED, UNSIGNED, FLOATING };

struct format {
	const char *name;
	unsigned bytes;
	enum number number;
	int exponent_bits, mantissa_bits; /* of floats */
	uint64_t largest;                 /* bits of the largest finite float */
	bool saturates;                   /* what is larger becomes that, not infinity */
};

extern const struct format strait_formats[STRAIT_N_TYPES];

/* Element i of an array of any alignment, as bits in the low bytes. */
uint64_t strait_element_load(const struct format *format, const void *elements, size_t i);
void strait_element_store(const struct format *format, void *elements, size_t i, uint64_t bits);
/* Integers of the format in 64 bits. */
uint64_t strait_integer_truncated(const struct format *format, uint64_t value);
int64_t strait_integer_extended(const struct format *format, uint64_t value);
/* Floats. */
uint64_t strait_float_encode(const struct format *format, double value);
double strait_float_decode(const struct format *format, uint64_t bits);
