/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of the floor take: one struct each, by value. All memory is the device's or a
 * peer's. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct strait_bits128;

struct floor_empty_args {
	int unused;
};

/* One thread on each end: flag there, wait for the flag back, n_turns times. Flags start at 0. */
struct floor_pingpong_args {
	uint64_t *mine, *theirs;
	int first;   /* this end begins */
	int ordered; /* release and acquire instead of relaxed */
	int n_turns;
};

struct floor_copy_args {
	struct strait_bits128 *to;
	const struct strait_bits128 *from;
	size_t n; /* of 16 bytes */
};

/* An all-reduce of 32-bit words between two ends, with nothing around it. `epochs` has a word for
 * each block. */
struct floor_exchange_args {
	const uint64_t *in, *their_in; /* their_in: read by the direct kernel only */
	uint64_t *out;
	struct strait_bits128 *mine, *theirs; /* packets: two halves of `slot` */
	uint64_t *my_flags, *their_flags;     /* direct kernel: one for each block */
	uint64_t *epochs;
	size_t n, slot; /* of 8 bytes of data */
};
