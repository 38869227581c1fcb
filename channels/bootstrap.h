/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the ranks of a communicator find each other and agree, before and beside the GPU: TCP.
 *
 * Whoever makes the unique id starts the root, a thread that listens at the address in the id; the
 * maker need not be a rank. Every rank connects to the root, says who it is, and gets the addresses
 * of its neighbours; from then on ranks talk directly, in patterns of log2(n) steps
 * (dissemination). The connections stay open for the life of the object: a peer that dies is
 * noticed by its neighbours and relayed to all.
 *
 * Every message carries a version; ranks of different builds are refused with a clear error on all
 * of them. All waits look at an abort word and have a limit (STRAIT_BOOTSTRAP_TIMEOUT), but for the
 * wait for ranks that have not come yet, which is as long as it takes. No descriptor leaks into
 * exec'ed children, and pthread_atfork closes them in forked ones.
 *
 * One thread at a time may use an object, but for strait_bootstrap_lost(). Different objects are
 * independent.
 */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STRAIT_ID_BYTES 128 /* NCCL_UNIQUE_ID_BYTES */

struct strait_bootstrap;

/* Makes an id (layout: unique_id.h) and starts its root in this process. The root lives until all
 * ranks have met or the process ends; it needs no communicator. With NCCL_COMM_ID, as in NCCL,
 * every process may make the id by itself, all get the same one, and the root listens at that
 * address from when rank 0 calls strait_bootstrap_new(); ranks that come earlier wait. One
 * communicator at a time can be made that way. */
int strait_bootstrap_id_create(uint8_t ret_id[STRAIT_ID_BYTES]);

/* 0: an id of ours. STRAIT_ERROR_ARGUMENT with the reason otherwise (foreign, damaged, other
 * version). */
int strait_bootstrap_id_check(const uint8_t id[STRAIT_ID_BYTES]);

/* Collective over the n_ranks ranks. `abort_word` non-zero ends every wait with
 * STRAIT_ERROR_REMOTE; it must outlive the object. `n_ranks` and the build must agree, a rank must
 * come once: else an error on all ranks. */
int strait_bootstrap_new(const uint8_t id[STRAIT_ID_BYTES], int rank, int n_ranks,
			 const atomic_uint *abort_word, struct strait_bootstrap **ret_bootstrap);

/* Says goodbye to the neighbours and closes. Never waits for a peer. NULL is fine. Returns NULL. */
struct strait_bootstrap *strait_bootstrap_free(struct strait_bootstrap *bootstrap);

int strait_bootstrap_rank(const struct strait_bootstrap *bootstrap);
int strait_bootstrap_n_ranks(const struct strait_bootstrap *bootstrap);

/* Collective. `data` holds n_ranks entries of `bytes` each; the own entry is set on entry, all on
 * return. */
int strait_bootstrap_allgather(struct strait_bootstrap *bootstrap, void *data, size_t bytes);

/* Collective. Returns after every rank has entered. */
int strait_bootstrap_barrier(struct strait_bootstrap *bootstrap);

/* Collective. Exchanges verdicts: returns 0 on all ranks if every rank passed 0; otherwise the same
 * error on all ranks, with a message that names the first rank that failed and carries its message.
 */
int strait_bootstrap_agree(struct strait_bootstrap *bootstrap, int status);

/* Collective over all ranks. Gives the descriptor `fd` (or -1: none) to every rank for which
 * wanted[rank] is true, over Unix sockets in the abstract namespace (SCM_RIGHTS); all ranks that
 * want each other must be on one host and in other processes. ret_fds[rank] is the peer's
 * descriptor, owned by the caller, or -1. wanted is symmetric: rank a wants b exactly when b wants
 * a. A failure is the caller's to agree upon: the function itself stays in step. */
int strait_bootstrap_exchange_fds(struct strait_bootstrap *bootstrap, int fd, const bool *wanted,
				  int *ret_fds);

/* Starts to watch the connections, on one thread of the process that serves all objects (heartbeats
 * every 2 s). From then on no collective of the bootstrap may be called. When a rank is lost
 * (closed without a goodbye, or silent for 10 s) *lost_rank is set once from -1 to its number, on
 * every rank within seconds. */
int strait_bootstrap_watch(struct strait_bootstrap *bootstrap);

/* The rank that was lost, or -1. Any thread, lock-free. */
int strait_bootstrap_lost(const struct strait_bootstrap *bootstrap);
