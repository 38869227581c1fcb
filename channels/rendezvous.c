/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joining. Until the root has told the neighbours there is no limit of time: ranks may come minutes
 * apart. From then on every step has one. While ranks connect, the root's connection stays open: it
 * brings the news of a rank that failed elsewhere, and carries the news of a failure here.
 */
#include "channels/rendezvous.h"
#include "channels/bootstrap_root.h"
#include "channels/interfaces.h"
#include "channels/lobby.h"
#include "strait/log.h"
#include "strait/params.h"
#include "strait/status.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct joining {
	struct strait_bootstrap *bootstrap;
	struct strait_unique_id id;
	struct strait_address here; /* where this rank listens */
	int root_fd;
	struct strait_lobby *lobby;
	struct strait_inbox inbox; /* of the root's words */
};

int strait_bootstrap_down(const struct strait_bootstrap *bootstrap, int k)
{
	return (bootstrap->rank - (1 << k) + bootstrap->n_ranks) % bootstrap->n_ranks;
}

int strait_bootstrap_up(const struct strait_bootstrap *bootstrap, int k)
{
	return (bootstrap->rank + (1 << k)) % bootstrap->n_ranks;
}

struct strait_wait strait_bootstrap_limit(const struct strait_bootstrap *bootstrap)
{
	int64_t limit_ns = strait_params()->bootstrap_timeout_s * INT64_C(1000000000);

	return (struct strait_wait){bootstrap->abort_word, strait_now_ns() + limit_ns, -1};
}

static void fill_greeting(const struct joining *j, struct strait_greeting *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->magic = STRAIT_GREETING_MAGIC;
	ret->protocol = STRAIT_PROTOCOL;
	ret->bytes = sizeof(*ret);
	memcpy(ret->nonce, j->id.nonce, sizeof(ret->nonce));
	ret->build = strait_build_hash();
	ret->rank = j->bootstrap->rank;
	ret->n_ranks = j->bootstrap->n_ranks;
}

/* A greeting fits into the buffer of a fresh connection. */
static int send_greeting(int fd, const struct strait_greeting *greeting)
{
	struct iovec piece = {(void *)greeting, sizeof(*greeting)};

	if (strait_socket_send_some(fd, &piece, 1) == (long)sizeof(*greeting))
		return 0;
	return strait_fail(STRAIT_ERROR_REMOTE, "cannot greet on a new connection: %s",
			   strerror(errno));
}

static int start_fixed_root(struct joining *j)
{
	struct strait_address bound;
	int fd, r = strait_socket_listen(&j->id.root, &fd, &bound);

	if (r) /* the address is not this host's, or another communicator is being made there just
		  now */
		return strait_trace(r);
	return strait_trace(strait_bootstrap_root_start(fd, j->id.nonce, false));
}

static int connect_to_root(struct joining *j)
{
	struct strait_wait nap = {j->bootstrap->abort_word, 0, -1};
	bool may_be_late = j->id.flags & STRAIT_ID_FIXED_ADDRESS;
	char text[STRAIT_ADDRESS_TEXT];
	int r;

	do {
		struct strait_wait wait = strait_bootstrap_limit(j->bootstrap);

		r = strait_socket_connect(&j->id.root, &wait, &j->root_fd);
		if (r != STRAIT_SOCKET_REFUSED || !may_be_late)
			break;
		/* NCCL_COMM_ID: rank 0, which runs the root, has not come yet. */
		r = strait_socket_poll(NULL, 0, &nap, "rank 0");
	} while (!r);
	if (r == STRAIT_SOCKET_REFUSED)
		return strait_fail(
			STRAIT_ERROR_REMOTE,
			"nobody listens at %s any more: the process that made the unique id has "
			"ended, or its ranks have met already",
			strait_address_text(&j->id.root, text));
	return strait_trace(r);
}

/* Peers must be able to reach this rank: at the interface that the user named, else at the one by
 * which this rank reached the root. */
static int listen_for_peers(struct joining *j)
{
	const struct strait_params *params = strait_params();
	int fd, r;

	if (params->socket_ifname && *params->socket_ifname)
		r = strait_interface_choose(params->socket_ifname, params->socket_family, &j->here);
	else
		r = strait_socket_local(j->root_fd, &j->here);
	if (!r)
		r = strait_socket_listen(&j->here, &fd, &j->here);
	if (r)
		return strait_trace(r);
	j->lobby = strait_lobby_new(fd);
	if (!j->lobby) {
		strait_socket_close(fd);
		return strait_fail(STRAIT_ERROR_SYSTEM, "no memory to accept connections");
	}
	return 0;
}

static int join_root(struct joining *j)
{
	struct strait_wait forever = {j->bootstrap->abort_word, 0, -1};
	struct strait_greeting greeting;
	int r;

	fill_greeting(j, &greeting);
	greeting.kind = STRAIT_GREETING_JOIN;
	greeting.address = j->here;
	r = send_greeting(j->root_fd, &greeting);
	if (!r)
		r = strait_frame_receive(j->root_fd, STRAIT_FRAME_NEIGHBOURS, &j->inbox, &forever,
					 "the bootstrap root");
	if (!r &&
	    j->inbox.head.bytes != (uint64_t)j->bootstrap->n_links * sizeof(struct strait_address))
		r = strait_fail(STRAIT_ERROR_REMOTE,
				"the bootstrap root speaks of another number of ranks");
	return strait_trace(r);
}

/* The root speaks out of turn only when some rank has failed. */
static int fail_by_root(struct joining *j)
{
	struct strait_wait soon = {j->bootstrap->abort_word, strait_now_ns() + INT64_C(2000000000),
				   -1};
	int r = strait_frame_receive(j->root_fd, STRAIT_FRAME_VERDICT, &j->inbox, &soon,
				     "the bootstrap root");

	return r ? strait_trace(r)
		 : strait_fail(STRAIT_ERROR_INTERNAL, "a verdict without a reason");
}

static int connect_down(struct joining *j, const struct strait_wait *wait)
{
	struct strait_bootstrap *b = j->bootstrap;
	struct strait_address neighbours[STRAIT_MAX_LINKS];
	struct strait_greeting greeting;

	memcpy(neighbours, j->inbox.body.neighbours, (size_t)b->n_links * sizeof(neighbours[0]));
	fill_greeting(j, &greeting);
	greeting.kind = STRAIT_GREETING_PEER;
	for (int k = 0; k < b->n_links; k++) {
		char text[STRAIT_ADDRESS_TEXT];
		int r;

		neighbours[k].scope =
			j->here.scope; /* a scope means something on its own host only */
		r = strait_socket_connect(&neighbours[k], wait, &b->down[k]);
		if (r == STRAIT_SOCKET_ALARM)
			return fail_by_root(j);
		if (r == STRAIT_SOCKET_REFUSED)
			return strait_fail(STRAIT_ERROR_REMOTE,
					   "rank %d does not listen at %s any more",
					   strait_bootstrap_down(b, k),
					   strait_address_text(&neighbours[k], text));
		greeting.step = k;
		if (!r)
			r = send_greeting(b->down[k], &greeting);
		if (r)
			return strait_trace(r);
	}
	return 0;
}

/* A stranger, or a rank of another communicator whose port we got, is sent away. */
static bool is_expected(const struct strait_bootstrap *b, const struct strait_unique_id *id,
			const struct strait_greeting *greeting)
{
	int k = greeting->step;

	return greeting->protocol == STRAIT_PROTOCOL && greeting->kind == STRAIT_GREETING_PEER &&
	       !memcmp(greeting->nonce, id->nonce, sizeof(id->nonce)) &&
	       greeting->n_ranks == b->n_ranks && k >= 0 && k < b->n_links && b->up[k] < 0 &&
	       greeting->rank == strait_bootstrap_up(b, k);
}

static int accept_up(struct joining *j, const struct strait_wait *wait)
{
	struct strait_bootstrap *b = j->bootstrap;
	struct pollfd poll_fds[STRAIT_LOBBY_PLACES + 1];
	struct strait_greeting greeting;
	int missing = b->n_links, fd;

	for (;;) {
		while (missing && strait_lobby_next(j->lobby, &fd, &greeting)) {
			if (is_expected(b, &j->id, &greeting)) {
				b->up[greeting.step] = fd;
				missing--;
			} else {
				strait_socket_close(fd);
			}
		}
		if (!missing)
			return 0;
		if (j->lobby->is_short_of_descriptors)
			return strait_fail(
				STRAIT_ERROR_SYSTEM,
				"no file descriptor left for the connections of other ranks: "
				"raise ulimit -n");
		unsigned n = strait_lobby_fill(j->lobby, poll_fds);
		int r = strait_socket_poll(poll_fds, n, wait, "connections of other ranks");

		if (r == STRAIT_SOCKET_ALARM)
			return fail_by_root(j);
		if (r)
			return strait_trace(r);
	}
}

static int connect_neighbours(struct joining *j)
{
	struct strait_wait wait = strait_bootstrap_limit(j->bootstrap);
	int r;

	wait.alarm_fd = j->root_fd;
	r = connect_down(j, &wait);
	if (!r)
		r = accept_up(j, &wait);
	if (r) {
		/* The others wait for this rank; the root tells them why in vain. */
		strait_frame_post_verdict(j->root_fd, j->bootstrap->rank, r,
					  strait_status_message());
		return strait_trace(r);
	}
	wait = strait_bootstrap_limit(j->bootstrap);
	if (!strait_frame_post(j->root_fd, STRAIT_FRAME_READY, j->bootstrap->rank, 0, NULL, 0))
		return fail_by_root(j);
	return strait_trace(strait_frame_receive(j->root_fd, STRAIT_FRAME_GO, &j->inbox, &wait,
						 "the bootstrap root"));
}

static int meet(struct joining *j)
{
	int r = 0;

	if (j->id.flags & STRAIT_ID_NO_ROOT)
		return strait_fail(STRAIT_ERROR_SYSTEM,
				   "the process that made the unique id has no network interface");
	if ((j->id.flags & STRAIT_ID_FIXED_ADDRESS) && j->bootstrap->rank == 0)
		r = start_fixed_root(j);
	if (!r)
		r = connect_to_root(j);
	if (!r)
		r = listen_for_peers(j);
	if (!r)
		r = join_root(j);
	if (!r)
		r = connect_neighbours(j);
	return strait_trace(r);
}

/* One rank needs nobody; it only lets the root know that it may end. */
static void release_root(struct joining *j)
{
	if (j->id.flags & (STRAIT_ID_NO_ROOT | STRAIT_ID_FIXED_ADDRESS) || meet(j))
		strait_info(BOOTSTRAP, "a single rank goes on without a root");
}

int strait_rendezvous(struct strait_bootstrap *bootstrap, const uint8_t id[STRAIT_ID_BYTES])
{
	struct joining *j = calloc(1, sizeof(*j));
	int r;

	if (!j)
		return strait_fail(STRAIT_ERROR_SYSTEM, "no memory to join");
	j->bootstrap = bootstrap;
	j->root_fd = -1;
	bootstrap->n_links = strait_bootstrap_n_links(bootstrap->n_ranks);
	r = strait_unique_id_read(id, &j->id);
	if (!r && bootstrap->n_ranks == 1)
		release_root(j);
	else if (!r)
		r = meet(j);
	strait_socket_close_softly(j->root_fd);
	strait_lobby_free(j->lobby);
	free(j);
	return strait_trace(r);
}
