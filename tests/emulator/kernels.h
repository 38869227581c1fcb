/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The argument of the emulator's test kernels, and where they keep what in a rank's scratch.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define RANKS 8
#define BLOCKS 16
#define SLOT_BYTES 8192u /* of one source rank and one parity */

#define OFFSET_PACKETS 0u
#define OFFSET_DATA (2u * RANKS * SLOT_BYTES)
#define OFFSET_FLAGS (4u * RANKS * SLOT_BYTES)             /* uint64_t [BLOCKS][RANKS] */
#define OFFSET_EPOCHS (OFFSET_FLAGS + 8u * BLOCKS * RANKS) /* uint32_t [2][BLOCKS] */
#define SCRATCH_BYTES (2u << 20)

struct arguments {
	uint64_t in, out, count;
	uint64_t scratch[RANKS]; /* each rank's, as this rank sees it */
	int32_t rank, n_ranks;
};
