/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native side of a communicator: topology, scratch, peer mappings, kernels, order of calls. It
 * knows nothing of NCCL's handles; shim/ owns one for each native ncclComm_t.
 *
 * A communicator works in the CUDA context that was current when it was made (none: the primary
 * context of device 0 of the thread, retained) and pushes it where another is current. One thread
 * at a time may issue on it; strait_communicator_abort() and strait_communicator_error() may be
 * called from any thread.
 */
#pragma once
#include "algorithms/request.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct strait_communicator;

struct strait_communicator_config {
	int rank, n_ranks;
	const uint8_t *id; /* STRAIT_ID_BYTES, from strait_bootstrap_id_create() on any process */
	CUdevice device;   /* the GPU, and */
	CUcontext context; /* its context; current on the calling thread */
	int max_blocks;    /* config.maxCTAs; 0: no limit of the user's */
	const char *name;  /* config.commName for the log, or NULL; copied */
	const atomic_uint *cancel; /* non-zero: give up the set-up (abort during init); outlives the
				      communicator. Or NULL */
};

/* Collective over all ranks; waits for late ones. On return everything that a call needs is
 * allocated, mapped, loaded and probed. n_ranks = 1 needs no peer and no network. The verdict is
 * the same on all ranks. STRAIT_ERROR_USAGE: two ranks on one GPU without
 * NCCL_MULTI_RANK_GPU_ENABLE=1, or a set-up that is not native yet (several hosts, no peer access).
 */
int strait_communicator_new(const struct strait_communicator_config *config,
			    struct strait_communicator **ret);

/* Waits for the kernels in flight (aborted ones leave by themselves), says goodbye and gives
 * everything back. Never waits for a peer's process. What captured graphs still refer to lives
 * until they are destroyed. NULL is fine. */
struct strait_communicator *strait_communicator_free(struct strait_communicator *communicator);

/* Puts the call on its stream, after every earlier call of this communicator in host order,
 * whatever their streams; captured when the stream captures. Returns at once. count = 0 does
 * nothing. */
int strait_communicator_issue(struct strait_communicator *communicator,
			      const struct strait_request *request);

/* Frees every kernel that waits for a peer, now and in future. Sticky. Any thread, signal-safe. */
void strait_communicator_abort(struct strait_communicator *communicator);

/* 0, or the asynchronous error of this communicator (a lost peer: STRAIT_ERROR_REMOTE). Any thread,
 * lock-free. */
int strait_communicator_error(const struct strait_communicator *communicator);

int strait_communicator_rank(const struct strait_communicator *communicator);
int strait_communicator_n_ranks(const struct strait_communicator *communicator);
CUdevice strait_communicator_device(const struct strait_communicator *communicator);

/* Name of the algorithm that a call of this shape takes; a literal. For the path report. */
const char *strait_communicator_path(const struct strait_communicator *communicator,
				     const struct strait_request *request);
