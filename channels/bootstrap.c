/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids, life cycle and collectives of the bootstrap. In step k of a collective a rank sends to rank
 * - 2^k and receives from rank + 2^k (Bruck's all-gather; a barrier is the same without data), so
 * each is over in log2(n) steps.
 *
 * A failure is final: the rank tells its neighbours why and closes its side, they fail in the step
 * that waits for it and pass it on. So all ranks that are in, or come to, a collective end with the
 * same reason.
 */
#include "channels/bootstrap.h"
#include "channels/bootstrap_root.h"
#include "channels/interfaces.h"
#include "channels/monitor.h"
#include "channels/rendezvous.h"
#include "strait/log.h"
#include "strait/params.h"
#include "strait/status.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* With NCCL_COMM_ID every process makes the same id by itself; rank 0 starts the root when it
 * joins. */
static int create_fixed_id(const char *comm_id, uint8_t ret_id[STRAIT_ID_BYTES])
{
	struct strait_address address;
	uint8_t nonce[STRAIT_NONCE_BYTES];
	uint64_t hash = strait_hash_bytes(comm_id, strlen(comm_id));
	int r = strait_address_parse(
		comm_id, strait_interface_family(strait_params()->socket_family), &address);

	if (r)
		return strait_trace(r);
	memcpy(nonce, &hash, sizeof(hash));
	memset(nonce + sizeof(hash), 0x5a, sizeof(nonce) - sizeof(hash));
	strait_unique_id_write(&address, nonce, STRAIT_ID_FIXED_ADDRESS, ret_id);
	return 0;
}

/* The root's socket. A machine without any interface makes no root, and single ranks only. */
static int listen_for_ranks(struct strait_address *ret_address, int *ret_fd)
{
	const struct strait_params *params = strait_params();
	int r = strait_interface_choose(params->socket_ifname, params->socket_family, ret_address);

	if (!r)
		r = strait_socket_listen(ret_address, ret_fd, ret_address);
	if (r && !(params->socket_ifname && *params->socket_ifname)) {
		strait_info(BOOTSTRAP,
			    "no network: this unique id is for a communicator of one rank");
		*ret_address = (struct strait_address){0};
		*ret_fd = -1;
		return 0;
	}
	return strait_trace(r);
}

int strait_bootstrap_id_create(uint8_t ret_id[STRAIT_ID_BYTES])
{
	const char *comm_id = strait_params()->comm_id;
	struct strait_address address;
	uint8_t nonce[STRAIT_NONCE_BYTES];
	char text[STRAIT_ADDRESS_TEXT];
	int fd, r;

	if (comm_id && *comm_id)
		return strait_trace(create_fixed_id(comm_id, ret_id));
	r = strait_random_bytes(nonce, sizeof(nonce));
	if (!r)
		r = listen_for_ranks(&address, &fd);
	if (!r && fd >= 0)
		r = strait_bootstrap_root_start(fd, nonce, true);
	if (r)
		return strait_trace(r);
	if (fd >= 0)
		strait_info(BOOTSTRAP, "root listens at %s", strait_address_text(&address, text));
	strait_unique_id_write(&address, nonce, fd < 0 ? STRAIT_ID_NO_ROOT : 0, ret_id);
	return 0;
}

int strait_bootstrap_new(const uint8_t id[STRAIT_ID_BYTES], int rank, int n_ranks,
			 const atomic_uint *abort_word, struct strait_bootstrap **ret_bootstrap)
{
	struct strait_bootstrap *b;
	int r;

	if (n_ranks < 1 || n_ranks > 1 << STRAIT_MAX_LINKS || rank < 0 || rank >= n_ranks)
		return strait_fail(STRAIT_ERROR_ARGUMENT, "there is no rank %d of %d", rank,
				   n_ranks);
	b = calloc(1, sizeof(*b));
	if (!b)
		return strait_fail(STRAIT_ERROR_SYSTEM, "no memory for a bootstrap");
	b->rank = rank;
	b->n_ranks = n_ranks;
	b->abort_word = abort_word;
	b->generation = strait_socket_generation();
	atomic_init(&b->lost_rank, -1);
	for (int k = 0; k < STRAIT_MAX_LINKS; k++)
		b->down[k] = b->up[k] = -1;
	r = strait_rendezvous(b, id);
	if (r) {
		b->broken = r;
		strait_bootstrap_free(b);
		return strait_trace(r);
	}
	*ret_bootstrap = b;
	return 0;
}

static void leave(struct strait_bootstrap *b, int fd)
{
	if (!b->broken && fd >= 0)
		strait_frame_post(fd, STRAIT_FRAME_GOODBYE, b->rank, 0, NULL, 0);
	strait_socket_close_softly(fd);
}

struct strait_bootstrap *strait_bootstrap_free(struct strait_bootstrap *b)
{
	if (!b)
		return NULL;
	if (b->generation == strait_socket_generation()) {
		strait_monitor_remove(b);
		for (int k = 0; k < b->n_links; k++) {
			leave(b, b->down[k]);
			leave(b, b->up[k]);
		}
	} else {
		/* In a forked child the numbers may be other files by now, and there is no monitor.
		 */
		free(b->monitored);
	}
	free(b);
	return NULL;
}

int strait_bootstrap_rank(const struct strait_bootstrap *bootstrap)
{
	return bootstrap->rank;
}

int strait_bootstrap_n_ranks(const struct strait_bootstrap *bootstrap)
{
	return bootstrap->n_ranks;
}

/* Ends the collectives for good: the neighbours learn the reason, then the end of what this rank
 * sends. `cut`: a connection on which a frame is half sent, or -1. */
static int fail_collectives(struct strait_bootstrap *b, int status, int cut)
{
	b->broken = status;
	for (int k = 0; k < b->n_links; k++) {
		if (b->down[k] != cut)
			strait_frame_post_verdict(b->down[k], b->rank, status,
						  strait_status_message());
		strait_frame_post_verdict(b->up[k], b->rank, status, strait_status_message());
		shutdown(b->down[k], SHUT_WR);
		shutdown(b->up[k], SHUT_WR);
	}
	return strait_trace(status);
}

static int begin_collective(struct strait_bootstrap *b)
{
	if (b->generation != strait_socket_generation())
		return strait_fail(STRAIT_ERROR_USAGE,
				   "a communicator cannot be used in a forked child");
	if (b->broken)
		return strait_fail(b->broken, "an earlier failure ended this bootstrap");
	if (b->monitored)
		return strait_fail(STRAIT_ERROR_INTERNAL,
				   "a collective of a bootstrap that is watched");
	b->n_collectives++;
	return 0;
}

/* The entries [first, first + n) of a ring of n_ranks, as at most two pieces. */
static void ring_pieces(const struct strait_bootstrap *b, uint8_t *data, size_t bytes, int first,
			int n, struct iovec pieces[2])
{
	int before_end = b->n_ranks - first < n ? b->n_ranks - first : n;

	pieces[0] = (struct iovec){data + (size_t)first * bytes, (size_t)before_end * bytes};
	pieces[1] = (struct iovec){data, (size_t)(n - before_end) * bytes};
}

/* Step k: the 2^k entries from the own one on go down; those that follow them come from above. */
static int gather_step(struct strait_bootstrap *b, uint32_t type, int k, uint8_t *data,
		       size_t bytes)
{
	int have = 1 << k, n = b->n_ranks - have < have ? b->n_ranks - have : have;
	uint32_t step = b->n_collectives * 32 + (uint32_t)k;
	struct strait_transfer down = {.fd = b->down[k], .peer = strait_bootstrap_down(b, k)};
	struct strait_transfer up = {.fd = b->up[k], .peer = strait_bootstrap_up(b, k)};
	struct strait_wait wait = strait_bootstrap_limit(b);
	int r;

	down.head =
		(struct strait_frame){STRAIT_FRAME_MAGIC, type, b->rank, step, (uint64_t)n * bytes};
	up.head =
		(struct strait_frame){STRAIT_FRAME_MAGIC, type, up.peer, step, (uint64_t)n * bytes};
	if (bytes) {
		ring_pieces(b, data, bytes, b->rank, n, down.data);
		ring_pieces(b, data, bytes, up.peer, n, up.data);
	}
	r = strait_frame_exchange(&down, &up, &wait);
	return r ? fail_collectives(b, r, down.is_partial ? down.fd : -1) : 0;
}

static int gather(struct strait_bootstrap *b, uint32_t type, void *data, size_t bytes)
{
	int r = begin_collective(b);

	for (int k = 0; !r && k < b->n_links; k++)
		r = gather_step(b, type, k, data, bytes);
	return strait_trace(r);
}

int strait_bootstrap_allgather(struct strait_bootstrap *bootstrap, void *data, size_t bytes)
{
	return strait_trace(gather(bootstrap, STRAIT_FRAME_GATHER, data, bytes));
}

int strait_bootstrap_barrier(struct strait_bootstrap *bootstrap)
{
	return strait_trace(gather(bootstrap, STRAIT_FRAME_BARRIER, NULL, 0));
}

int strait_bootstrap_agree(struct strait_bootstrap *b, int status)
{
	struct strait_verdict *verdicts = calloc((size_t)b->n_ranks, sizeof(*verdicts));
	int r;

	if (!verdicts)
		return strait_fail(STRAIT_ERROR_SYSTEM, "no memory for %d verdicts", b->n_ranks);
	verdicts[b->rank].status = status;
	if (status)
		snprintf(verdicts[b->rank].text, STRAIT_VERDICT_TEXT, "%s",
			 strait_status_message());
	r = strait_bootstrap_allgather(b, verdicts, sizeof(*verdicts));
	for (int rank = 0; !r && rank < b->n_ranks; rank++)
		if (verdicts[rank].status)
			r = strait_fail(verdicts[rank].status, "rank %d: %.*s", rank,
					STRAIT_VERDICT_TEXT - 1, verdicts[rank].text);
	free(verdicts);
	return strait_trace(r);
}

int strait_bootstrap_lost(const struct strait_bootstrap *bootstrap)
{
	return atomic_load_explicit(&bootstrap->lost_rank, memory_order_acquire);
}

int strait_bootstrap_watch(struct strait_bootstrap *b)
{
	if (b->generation != strait_socket_generation())
		return strait_fail(STRAIT_ERROR_USAGE,
				   "a communicator cannot be used in a forked child");
	if (b->broken)
		return strait_fail(b->broken, "an earlier failure ended this bootstrap");
	if (b->monitored || !b->n_links)
		return 0;
	return strait_trace(strait_monitor_add(b));
}
