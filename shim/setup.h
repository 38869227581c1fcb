/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the set-up of communicators: at once on the calling thread, on a thread of its own
 * (nonblocking), or for all that a group collected, each on a thread of its own, since one thread
 * may hold all ranks and every set-up waits for the others.
 */
#pragma once
#include "shim/handle.h"

struct strait_setup_request {
	int n_ranks, rank;
	const uint8_t *id;
	const struct strait_nccl_config *config; /* or NULL */
	int ordinal;                             /* the device; -1: that of the current context */
};

/* Checks nothing but what needs the driver. The handle is in progress and belongs to the caller's
 * call. */
int strait_setup_prepare(const struct strait_setup_request *request, struct ncclComm **ret_comm);

/* Blocking: the result. Nonblocking: 0, and the handle's state tells the result. Failed blocking
 * handles are freed (unless another thread aborts them) and *user set to NULL. */
int strait_setup_start(struct ncclComm *comm, struct ncclComm **user);

struct strait_setup_pending {
	struct ncclComm *comm;
	struct ncclComm **user; /* where the caller has the handle */
	pthread_t thread;
	bool started;
	struct strait_setup_batch *batch; /* those that are given up when this one fails */
};

/* As strait_setup_start() for all of them; if one fails the others are given up and the first
 * failure is returned. */
int strait_setup_start_all(struct strait_setup_pending *pending, int n_pending);

/* Forgets a set-up that never ran: frees the handle and sets *user to NULL. */
void strait_setup_drop(struct strait_setup_pending *pending);
