/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Argument of every all-reduce kernel. Nothing in it changes from one replay of a captured call to
 * the next.
 */
#pragma once
#include "algorithms/reduction_args.h"
#include "channels/device_communicator.h"

struct strait_allreduce_args {
	struct strait_device_communicator communicator;
	struct strait_reduction_args reduction;
	const void *send; /* aligned to the element */
	void *recv;       /* may equal send */
	uint64_t count;   /* elements; 0: the kernel does nothing */
	/* allreduce_simple: 16-byte units that a block moves to each peer in a step; at most
	 * bulk_slot_bytes / 16. */
	uint32_t chunk_units, reserved;
};
