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
	/* How the message is cut; divided on the host, since a 64-bit division takes a third of a
	 * microsecond here. allreduce_ll: `chunk` 8-byte words for each block allreduce_ll_twoshot:
	 * `slice` words for each rank, `chunk` words of every slice for each block
	 * allreduce_simple: `chunk` 16-byte units that a block moves to each peer in a step */
	uint64_t slice;
	uint32_t chunk, reserved;
};
