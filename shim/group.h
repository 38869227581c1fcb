/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ncclGroupStart and ncclGroupEnd: depth, error and queue of the calling thread.
 *
 * Nothing runs before the outermost End, but for calls on a communicator of one rank. An error
 * inside is returned by the call and again by the outermost End, which then drops all that was
 * queued; afterwards the thread is clean.
 */
#pragma once
#include "algorithms/request.h"
#include "shim/handle.h"
#include "shim/setup.h"

void strait_group_start(void);
/* 0, the error of the group, or 1: a nonblocking set-up was started and is in progress. */
int strait_group_end(void);
/* Closes a level and launches nothing; at the outermost level what was queued is dropped. */
int strait_group_simulate_end(struct strait_nccl_sim_info *info);

/* Records a failure as the group's, if a group is open. Returns `status`. */
int strait_group_note(int status);

/* Runs a call now or queues it. The handle is ready, the request is validated and count > 0. */
int strait_group_call(struct ncclComm *comm, const struct strait_request *request);

/* Starts a set-up now or queues it. As strait_setup_start(); 1: in progress. */
int strait_group_setup(struct ncclComm *comm, struct ncclComm **user);

/* Refuses a communicator that is blocking where the group's others are not, or the reverse. */
int strait_group_join(const struct ncclComm *comm);

/* Forgets what this thread has queued for a handle that is about to be freed. */
void strait_group_forget(const struct ncclComm *comm);
