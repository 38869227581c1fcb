/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arguments of the probe kernels, which try every mapping before it is trusted: each rank writes a
 * pattern into every peer's scratch, then (all have written) looks at what the peers wrote into its
 * own, then all exchange semaphores with kernels that are resident at the same time. A driver's yes
 * to peer access does not cover all of that.
 */
#pragma once
#include "channels/device_communicator.h"

enum strait_probe_phase {
	STRAIT_PROBE_WRITE,    /* put the pattern */
	STRAIT_PROBE_VERIFY,   /* look for it; failures[p] counts wrong words from rank p */
	STRAIT_PROBE_EXCHANGE, /* signal every peer and wait for its signal */
};

struct strait_probe_args {
	struct strait_device_communicator communicator;
	uint32_t *failures; /* host memory, one count a rank */
	uint32_t phase;     /* enum strait_probe_phase; anything else: nothing */
	uint32_t n_words;   /* 8-byte words of pattern for each peer: at most a packet slot */
};
