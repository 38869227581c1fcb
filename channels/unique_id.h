/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a unique id of ours holds: the last 64 of its 128 bytes. The first 64 are zero: NCCL's own
 * ids keep their bootstrap address there and leave the end alone, so one can carry the other.
 */
#pragma once
#include "channels/bootstrap.h"
#include "channels/frame.h"

enum {
	/* The id comes from NCCL_COMM_ID alone: every process makes the same, and rank 0 runs the
	   root. */
	STRAIT_ID_FIXED_ADDRESS = 1,
	/* Its process has no network at all: good for a single rank. */
	STRAIT_ID_NO_ROOT = 2,
};

struct strait_unique_id {
	uint64_t magic;
	uint16_t version, flags;
	uint32_t reserved;
	struct strait_address root;
	uint8_t nonce[STRAIT_NONCE_BYTES];
	uint64_t checksum;
};
_Static_assert(sizeof(struct strait_unique_id) == 64, "half of an id");

void strait_unique_id_write(const struct strait_address *root,
			    const uint8_t nonce[STRAIT_NONCE_BYTES], unsigned flags,
			    uint8_t ret_id[STRAIT_ID_BYTES]);
/* As strait_bootstrap_id_check(). */
int strait_unique_id_read(const uint8_t id[STRAIT_ID_BYTES], struct strait_unique_id *ret);

uint64_t strait_hash_bytes(const void *bytes, size_t n);
/* Equal in two processes if and only if they run the same build of this library (or program). Never
 * 0. */
uint64_t strait_build_hash(void);
int strait_random_bytes(void *ret, size_t n);
