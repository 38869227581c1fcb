/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reduction as a kernel gets it: plain C, shared between host and device. The kernel instance
 * fixes the type class and one of three operations (sum, product, minimum); what remains of NCCL's
 * five operators and the scaled sum is data:
 *
 *   max            minimum of the flipped values, flipped back
 *   signed         a minimum of integers compares unsigned after the sign bit is flipped
 *   avg, floats    each contribution times `factor` in the arithmetic type, then a sum
 *   avg, integers  a sum that wraps, then a division
 *   scaled sum     the own contribution times `factor`, rounded in the type, before it is sent
 */
#pragma once
#include <stdint.h>

enum strait_scaling {
	STRAIT_SCALING_NONE,
	STRAIT_SCALING_IMMEDIATE, /* `factor` holds the scalar, in the storage type */
	STRAIT_SCALING_DEVICE,    /* `factor_device` points to it */
};

enum strait_division { STRAIT_DIVISION_NONE, STRAIT_DIVISION_UNSIGNED, STRAIT_DIVISION_SIGNED };

struct strait_reduction_args {
	uint64_t flip;             /* exclusive-or on every 8 bytes, before and after */
	uint64_t factor;           /* see strait_scaling */
	const void *factor_device; /* device memory, read when the kernel runs */
	double average; /* floats: factor of every contribution in the arithmetic type; 1 for none
			 */
	uint32_t scaling, division, divisor, reserved;
};
