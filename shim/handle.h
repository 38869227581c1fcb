/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The communicator handle of standalone mode: what an ncclComm_t of ours points to.
 *
 * Handles live in memory that is never given back, so that a stale handle is still readable and is
 * told by its magic; a freed one is reused as late as possible. A foreign handle is told by the
 * first word.
 *
 * Ownership: whoever wins strait_handle_claim() (Destroy or Abort) frees. Creation holds the handle
 * (`in_call`) until the creating call is done with it, and Abort from another thread waits for
 * that. `lock` is held while a call is put on a stream, so that the native part is not freed under
 * it; nobody waits for a peer with it held.
 */
#pragma once
#include "algorithms/communicator.h"
#include "shim/config.h"
#include "shim/operators.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ncclComm {
	_Atomic uint64_t magic_start; /* atomic: a stale handle is looked at while another thread
					 reuses it */
	uint64_t generation; /* of this piece of memory: tells a queued call from the next user's */
	atomic_int state;    /* ncclResult_t: in progress, ready (0), or how the set-up failed */
	atomic_int n_readers; /* threads that look at `native` without the lock */
	_Atomic(struct strait_communicator *) native; /* NULL until ready */

	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool in_call; /* the creating call still uses the handle */
	bool claimed; /* Destroy or Abort frees it */
	bool finalized;
	atomic_bool aborted, revoked, loss_told;
	bool background; /* `setup` has to be joined */
	pthread_t setup;

	int rank, n_ranks, ordinal; /* ordinal: the CUDA runtime's number of the device */
	CUdevice device;
	CUcontext context;
	bool primary_retained;
	atomic_uint cancel; /* ends a set-up that is under way */
	uint8_t id[STRAIT_NCCL_ID_BYTES];
	struct strait_config config;
	struct strait_operators operators;
	CUevent join; /* for groups over several streams; made at first use outside capture */

	struct ncclComm *next_free;
	_Atomic uint64_t magic_end;
};

/* A handle in progress, with in_call set. STRAIT_ERROR_SYSTEM when out of memory. */
int strait_handle_new(struct ncclComm **ret_comm);

/* 0 for a live handle. STRAIT_ERROR_ARGUMENT for NULL (the message says which `argument` of which
 * `function`), a freed and a foreign one. Reads the memory that a foreign handle points to. */
int strait_handle_check(const struct ncclComm *comm, const char *function, const char *argument);

/* strait_handle_check(), then: is it ready for calls? STRAIT_ERROR_ARGUMENT while the set-up runs,
 * the stored error of one that failed. */
int strait_handle_check_ready(const struct ncclComm *comm, const char *function);

/* Takes the lock of a handle that a queued call names; the caller unlocks. STRAIT_ERROR_USAGE, and
 * no lock, when it was freed since, or is being freed, whoever uses the memory now. */
int strait_handle_lock(struct ncclComm *comm, uint64_t generation);

/* The asynchronous state as an ncclResult_t. Any thread, lock-free. */
int strait_handle_state(struct ncclComm *comm);

/* The creating call is done. When that call failed (`status` < 0) and nobody aborts meanwhile, the
 * handle is freed and true returned: the caller forgets it. */
bool strait_handle_leave_call(struct ncclComm *comm, int status, bool free_on_failure);

/* Decides who frees. False: somebody else does. Waits until the creating call is done; `abort`
 * first makes it give up. */
bool strait_handle_claim(struct ncclComm *comm, bool abort);

/* Frees the kernels that wait for peers, now and in future; the handle stays. */
void strait_handle_revoke(struct ncclComm *comm);

/* Frees a claimed handle and all that belongs to it. */
void strait_handle_free(struct ncclComm *comm);
