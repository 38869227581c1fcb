/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formats of the 12 types, conversions in software, text and the comparison. Hosts are little
 * endian, as all hosts of CUDA are.
 */
#include "bench/numbers.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const struct format strait_formats[STRAIT_N_TYPES] = {
	[STRAIT_INT8] = {"int8", 1, SIGNED, 0, 0, 0, false},
	[STRAIT_UINT8] = {"uint8", 1, UNSIGNED, 0, 0, 0, false},
	[STRAIT_INT32] = {"int32", 4, SIGNED, 0, 0, 0, false},
	[STRAIT_UINT32] = {"uint32", 4, UNSIGNED, 0, 0, 0, false},
	[STRAIT_INT64] = {"int64", 8, SIGNED, 0, 0, 0, false},
	[STRAIT_UINT64] = {"uint64", 8, UNSIGNED, 0, 0, 0, false},
	[STRAIT_FLOAT16] = {"half", 2, FLOATING, 5, 10, 0x7bff, false},
	[STRAIT_FLOAT32] = {"float", 4, FLOATING, 8, 23, 0x7f7fffff, false},
	[STRAIT_FLOAT64] = {"double", 8, FLOATING, 11, 52, 0x7fefffffffffffff, false},
	[STRAIT_BFLOAT16] = {"bfloat16", 2, FLOATING, 8, 7, 0x7f7f, false},
	[STRAIT_FLOAT8E4M3] = {"f8e4m3", 1, FLOATING, 4, 3, 0x7e, true},
	[STRAIT_FLOAT8E5M2] = {"f8e5m2", 1, FLOATING, 5, 2, 0x7b, true},
};

static const char *const reduction_names[STRAIT_N_REDUCTIONS] = {
	[STRAIT_SUM] = "sum", [STRAIT_PROD] = "prod", [STRAIT_MAX] = "max",
	[STRAIT_MIN] = "min", [STRAIT_AVG] = "avg",   [STRAIT_PREMULSUM] = "mulsum",
};

const char *strait_reference_type_name(enum strait_type type)
{
	return strait_formats[type].name;
}

const char *strait_reference_reduction_name(enum strait_reduction_kind kind)
{
	return reduction_names[kind];
}

size_t strait_reference_type_bytes(enum strait_type type)
{
	return strait_formats[type].bytes;
}

bool strait_reference_type_is_float(enum strait_type type)
{
	return strait_formats[type].number == FLOATING;
}

uint64_t strait_element_load(const struct format *format, const void *elements, size_t i)
{
	uint64_t bits = 0;

	memcpy(&bits, (const char *)elements + i * format->bytes, format->bytes);
	return bits;
}

void strait_element_store(const struct format *format, void *elements, size_t i, uint64_t bits)
{
	memcpy((char *)elements + i * format->bytes, &bits, format->bytes);
}

uint64_t strait_integer_truncated(const struct format *format, uint64_t value)
{
	return format->bytes == 8 ? value : value & ((1ULL << 8 * format->bytes) - 1);
}

int64_t strait_integer_extended(const struct format *format, uint64_t value)
{
	int shift = 64 - 8 * (int)format->bytes;

	return (int64_t)(value << shift) >> shift;
}

/* Floats of any format. The exponent's bias is half its range; e4m3 alone has numbers where the
 * others have infinity. */

static int bias(const struct format *format)
{
	return (1 << (format->exponent_bits - 1)) - 1;
}

static uint64_t sign_bit(const struct format *format)
{
	return 1ULL << (8 * format->bytes - 1);
}

static bool is_nan(const struct format *format, uint64_t bits)
{
	uint64_t magnitude = bits & ~sign_bit(format);
	bool has_infinity = (format->largest & ((1ULL << format->mantissa_bits) - 1)) ==
			    (1ULL << format->mantissa_bits) - 1;

	return magnitude > format->largest + has_infinity;
}

/* The number of bits above the mantissa is exponent - 1 + the carry out of the rounded mantissa,
 * which holds the hidden bit when normal: so subnormal, normal and a carry into the next binade are
 * one formula. */
uint64_t strait_float_encode(const struct format *format, double value)
{
	uint64_t sign = signbit(value) ? sign_bit(format) : 0;
	double magnitude = fabs(value);
	uint64_t infinity = format->saturates ? format->largest : format->largest + 1;
	int exponent, least = 1 - bias(format);

	if (isnan(value))
		return sign_bit(format) - 1;
	if (isinf(value))
		return sign | infinity;
	if (magnitude == 0)
		return sign;
	frexp(magnitude, &exponent);
	exponent = exponent - 1 < least ? least : exponent - 1;
	uint64_t mantissa = (uint64_t)nearbyint(ldexp(magnitude, format->mantissa_bits - exponent));
	uint64_t bits = mantissa + ((uint64_t)(exponent - least) << format->mantissa_bits);
	return sign | (bits > format->largest ? infinity : bits);
}

double strait_float_decode(const struct format *format, uint64_t bits)
{
	uint64_t magnitude = bits & ~sign_bit(format);
	double sign = bits & sign_bit(format) ? -1.0 : 1.0;
	int exponent = (int)(magnitude >> format->mantissa_bits);
	uint64_t mantissa = magnitude & ((1ULL << format->mantissa_bits) - 1);

	if (is_nan(format, bits))
		return copysign(NAN, sign);
	if (magnitude > format->largest)
		return copysign(INFINITY, sign);
	if (exponent == 0)
		exponent = 1;
	else
		mantissa |= 1ULL << format->mantissa_bits;
	return sign * ldexp((double)mantissa, exponent - bias(format) - format->mantissa_bits);
}

uint64_t strait_reference_from_double(enum strait_type type, double value)
{
	return strait_float_encode(&strait_formats[type], value);
}

double strait_reference_to_double(enum strait_type type, uint64_t bits)
{
	return strait_float_decode(&strait_formats[type], bits);
}

/* The comparison. */

void strait_reference_text(enum strait_type type, const void *element, char *ret, size_t size)
{
	const struct format *format = &strait_formats[type];
	uint64_t bits = strait_element_load(format, element, 0);

	if (format->number == FLOATING)
		snprintf(ret, size, "%.17g (0x%0*" PRIx64 ")", strait_float_decode(format, bits),
			 2 * (int)format->bytes, bits);
	else if (format->number == SIGNED)
		snprintf(ret, size, "%" PRId64 " (0x%0*" PRIx64 ")",
			 strait_integer_extended(format, bits), 2 * (int)format->bytes, bits);
	else
		snprintf(ret, size, "%" PRIu64 " (0x%0*" PRIx64 ")", bits, 2 * (int)format->bytes,
			 bits);
}

/* Position of a float among all floats of its format, so that neighbours differ by one; both zeros
 * are 0. */
static int64_t ordinal(const struct format *format, uint64_t bits)
{
	int64_t magnitude = (int64_t)(bits & ~sign_bit(format));

	return bits & sign_bit(format) ? -magnitude : magnitude;
}

static bool equal(const struct format *format, uint64_t a, uint64_t b, unsigned ulp)
{
	if (a == b)
		return true;
	if (format->number != FLOATING)
		return false;
	if (is_nan(format, a) || is_nan(format, b))
		return is_nan(format, a) && is_nan(format, b);
	if (ulp == 0)
		return false;
	uint64_t distance = (uint64_t)ordinal(format, a) - (uint64_t)ordinal(format, b);
	return distance <= ulp || -distance <= ulp;
}

static void compare_piece(enum strait_type type, const char *got, const char *expected,
			  size_t first, size_t end, unsigned ulp, struct strait_mismatch *ret)
{
	const struct format *format = &strait_formats[type];

	for (size_t i = first; i < end; i++) {
		if (equal(format, strait_element_load(format, got, i),
			  strait_element_load(format, expected, i), ulp))
			continue;
		if (ret->n++ > 0)
			continue;
		ret->first = i;
		strait_reference_text(type, got + i * format->bytes, ret->got, sizeof(ret->got));
		strait_reference_text(type, expected + i * format->bytes, ret->expected,
				      sizeof(ret->expected));
	}
}

size_t strait_reference_compare(enum strait_type type, const void *got, const void *expected,
				size_t count, unsigned ulp, struct strait_mismatch *ret)
{
	const char *a = got, *b = expected;
	size_t bytes = strait_formats[type].bytes, piece = 4096;

	memset(ret, 0, sizeof(*ret));
	for (size_t i = 0; i < count; i += piece) {
		size_t end = count - i < piece ? count : i + piece;

		if (memcmp(a + i * bytes, b + i * bytes, (end - i) * bytes) != 0)
			compare_piece(type, a, b, i, end, ulp, ret);
	}
	return ret->n;
}
