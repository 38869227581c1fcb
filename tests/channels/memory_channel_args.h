/* SPDX-License-Identifier: Apache-2.0 */
/* One round of the test of MemoryChannel: what both ranks' kernels are told. Offsets are into the
 * memory of a rank, and the same on both. */
#pragma once
#include <stdint.h>

enum round_kind { ROUND_PUT, ROUND_GET, ROUND_WRITE, ROUND_READ, ROUND_PACKETS, N_ROUND_KINDS };

struct memory_channel_args {
	char *remote, *local;
	uint64_t *remote_signal, *local_signal;
	const uint32_t *abort_word;
	uint32_t *verdict; /* own memory: 1 where every wait succeeded, else 2 */
	uint64_t source, landing, result, bytes;
	uint64_t signal; /* what the peer waits for; grows from round to round */
	uint32_t kind, width;
};
