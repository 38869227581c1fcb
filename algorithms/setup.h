/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collective steps of making a communicator: what the ranks tell each other, what follows from
 * it for all of them alike, the exchange of scratch, and the probe. Private to communicator.c and
 * setup*.c.
 */
#pragma once
#include "algorithms/algorithm.h"
#include "algorithms/communicator.h"
#include "algorithms/resources.h"
#include "channels/bootstrap.h"
#include "channels/layout.h"

/* What a rank says of itself. Plain data, sent over the bootstrap; all ranks run the same build. */
struct strait_member {
	uint64_t host, process, parameters;
	unsigned char uuid[16]; /* of the GPU: ordinals differ between processes */
	char bus_id[32];
	int32_t n_multiprocessors, max_threads, compute_capability, driver_version;
	int32_t max_blocks, reserved; /* the user's limit on grids, or 0 */
};

int strait_member_init(struct strait_member *member, CUdevice device, int max_blocks);

/* Checks the table of all members and derives the limits of grids. Equal tables give equal answers
 * on every rank. */
int strait_members_check(const struct strait_member *members, int n_ranks,
			 struct strait_limits *ret_limits);

/* Collective: allocates and maps scratch, zeroes it, and leaves all pointers in the device
 * communicator. */
int strait_setup_scratch(struct strait_bootstrap *bootstrap, struct strait_resources *resources,
			 const struct strait_member *members, const struct strait_layout *layout,
			 const struct strait_limits *limits, CUstream stream,
			 struct strait_device_communicator *ret);

/* Collective: tries every mapping in every direction. */
int strait_setup_probe(struct strait_bootstrap *bootstrap, struct strait_resources *resources,
		       const struct strait_device_communicator *device, CUstream stream);
