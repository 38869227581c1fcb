/* SPDX-License-Identifier: Apache-2.0 */
/* One table of types; operators become an operation and data. */
#include "algorithms/reduction.h"

enum number { UNSIGNED, SIGNED, FLOATING };

static const struct {
	unsigned bytes;
	enum number number;
	int sum; /* instance; product and minimum follow it in the table of instances */
} types[STRAIT_N_TYPES] = {
	[STRAIT_INT8] = {1, SIGNED, STRAIT_INSTANCE_i8_sum},
	[STRAIT_UINT8] = {1, UNSIGNED, STRAIT_INSTANCE_i8_sum},
	[STRAIT_INT32] = {4, SIGNED, STRAIT_INSTANCE_i32_sum},
	[STRAIT_UINT32] = {4, UNSIGNED, STRAIT_INSTANCE_i32_sum},
	[STRAIT_INT64] = {8, SIGNED, STRAIT_INSTANCE_i64_sum},
	[STRAIT_UINT64] = {8, UNSIGNED, STRAIT_INSTANCE_i64_sum},
	[STRAIT_FLOAT16] = {2, FLOATING, STRAIT_INSTANCE_f16_sum},
	[STRAIT_FLOAT32] = {4, FLOATING, STRAIT_INSTANCE_f32_sum},
	[STRAIT_FLOAT64] = {8, FLOATING, STRAIT_INSTANCE_f64_sum},
	[STRAIT_BFLOAT16] = {2, FLOATING, STRAIT_INSTANCE_bf16_sum},
	[STRAIT_FLOAT8E4M3] = {1, FLOATING, STRAIT_INSTANCE_e4m3_sum},
	[STRAIT_FLOAT8E5M2] = {1, FLOATING, STRAIT_INSTANCE_e5m2_sum},
};

_Static_assert(STRAIT_INSTANCE_e5m2_min == STRAIT_INSTANCE_e5m2_sum + 2,
	       "sum, prod, min in this order");

size_t strait_type_bytes(enum strait_type type)
{
	return types[type].bytes;
}

const char *strait_instance_name(int instance)
{
	static const char *const names[] = {
#define INSTANCE(element, operation) #element "_" #operation,
#include "algorithms/instances.def"
#undef INSTANCE
	};
	return names[instance];
}

/* `bits` of an element of `bytes` bytes, in all 8 bytes of a word. */
static uint64_t replicated(uint64_t bits, unsigned bytes)
{
	for (unsigned width = bytes; width < 8; width *= 2)
		bits |= bits << 8 * width;
	return bits;
}

/* Maximum and signed comparison through an unsigned minimum: see strait_reduction_args. */
static uint64_t flip(enum strait_type type, enum strait_reduction_kind kind)
{
	const unsigned bytes = types[type].bytes;
	const uint64_t all = bytes == 8 ? UINT64_MAX : (1ull << 8 * bytes) - 1;
	const uint64_t sign = 1ull << (8 * bytes - 1);
	uint64_t bits = 0;
	if (types[type].number == FLOATING)
		bits = kind == STRAIT_MAX ? sign : 0;
	else
		bits = (kind == STRAIT_MAX ? all : 0) ^ (types[type].number == SIGNED ? sign : 0);
	return replicated(bits, bytes);
}

int strait_reduction_map(enum strait_type type, const struct strait_reduction *reduction,
			 int n_ranks, struct strait_reduction_args *ret_args)
{
	struct strait_reduction_args args = {.average = 1, .divisor = 1};
	int instance = types[type].sum;
	switch (reduction->kind) {
	case STRAIT_PROD:
		instance += 1;
		break;
	case STRAIT_MAX:
	case STRAIT_MIN:
		instance += 2;
		args.flip = flip(type, reduction->kind);
		break;
	case STRAIT_AVG:
		if (types[type].number == FLOATING) {
			args.average = 1.0 / n_ranks;
		} else {
			args.division = types[type].number == SIGNED ? STRAIT_DIVISION_SIGNED
								     : STRAIT_DIVISION_UNSIGNED;
			args.divisor = n_ranks;
		}
		break;
	case STRAIT_PREMULSUM:
		args.scaling =
			reduction->scalar_device ? STRAIT_SCALING_DEVICE : STRAIT_SCALING_IMMEDIATE;
		args.factor = reduction->scalar_bits;
		args.factor_device = reduction->scalar_device;
		break;
	default:
		break;
	}
	*ret_args = args;
	return instance;
}
