/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strait_bootstrap_exchange_fds(). Of two ranks that want each other, the lower one connects to the
 * higher one's Unix socket (abstract, with a random name), and each sends its descriptor over that
 * connection.
 *
 * Nobody waits on a Unix socket: connects and sends on one are done when the call returns, so after
 * a barrier of the bootstrap all that will ever come is there. Three steps, a barrier between each:
 * connect and send; accept, receive and answer; receive the answers. What is missing then has
 * failed, and no rank is out of step for it.
 *
 * A name can be seen by any process of the host, a nonce only by the ranks: it proves who connects.
 */
#include "channels/bootstrap.h"
#include "channels/unique_id.h"
#include "strait/status.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* What every rank tells all others beforehand. An empty name: this rank cannot be reached. */
struct offer {
	uint8_t nonce[STRAIT_NONCE_BYTES];
	char name[48];
};

/* What goes with a descriptor. `nonce` is the receiver's. */
struct parcel {
	uint8_t nonce[STRAIT_NONCE_BYTES];
	int32_t rank;
	int32_t has_fd;
};

struct exchange {
	struct strait_bootstrap *bootstrap;
	int rank, n_ranks, fd;
	const bool *wanted;
	int listen_fd;
	struct offer *offers; /* [n_ranks] */
	int *connections;     /* [n_ranks], to higher ranks */
	int *fds;             /* [n_ranks] */
	bool *has_come;       /* [n_ranks] */
	int result;           /* the first local failure */
};

static socklen_t name_socket(const char *name, struct sockaddr_un *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->sun_family = AF_UNIX;
	snprintf(ret->sun_path + 1, sizeof(ret->sun_path) - 1, "%s",
		 name); /* abstract: a zero comes first */
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

static bool wants_any(const struct exchange *x)
{
	for (int rank = 0; rank < x->n_ranks; rank++)
		if (x->wanted[rank] && rank != x->rank)
			return true;
	return false;
}

static int make_offer(struct exchange *x)
{
	struct offer *offer = &x->offers[x->rank];
	uint64_t name[2];
	struct sockaddr_un address;
	socklen_t bytes;
	int r;

	r = strait_random_bytes(offer->nonce, sizeof(offer->nonce));
	if (!r)
		r = strait_random_bytes(name, sizeof(name));
	if (r)
		return strait_trace(r);
	snprintf(offer->name, sizeof(offer->name), "strait-%016llx%016llx",
		 (unsigned long long)name[0], (unsigned long long)name[1]);
	bytes = name_socket(offer->name, &address);
	x->listen_fd = strait_socket_unix();
	if (x->listen_fd >= 0 && !bind(x->listen_fd, (struct sockaddr *)&address, bytes) &&
	    !listen(x->listen_fd, 4096))
		return 0;
	offer->name[0] = 0;
	return strait_fail(STRAIT_ERROR_SYSTEM, "cannot listen on a Unix socket: %s",
			   strerror(errno));
}

static int send_parcel(struct exchange *x, int connection, int to)
{
	struct parcel parcel = {.rank = x->rank, .has_fd = x->fd >= 0};
	struct iovec piece = {&parcel, sizeof(parcel)};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
	ssize_t n;

	memcpy(parcel.nonce, x->offers[to].nonce, sizeof(parcel.nonce));
	if (parcel.has_fd) {
		struct cmsghdr *head;

		message.msg_control = control.bytes;
		message.msg_controllen = sizeof(control.bytes);
		head = CMSG_FIRSTHDR(&message);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(head), &x->fd, sizeof(int));
	}
	do
		n = sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n == (ssize_t)sizeof(parcel))
		return 0;
	return strait_fail(STRAIT_ERROR_SYSTEM, "cannot send a descriptor to rank %d: %s", to,
			   strerror(errno));
}

/* The first descriptor that came with a message, or -1; any other is closed. */
static int take_fd(struct msghdr *message)
{
	int taken = -1;

	for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head;
	     head = CMSG_NXTHDR(message, head)) {
		if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; at + sizeof(int) <= head->cmsg_len - CMSG_LEN(0);
		     at += sizeof(int)) {
			int fd;

			memcpy(&fd, CMSG_DATA(head) + at, sizeof(fd));
			if (taken < 0)
				taken = fd;
			else
				close(fd);
		}
	}
	return taken;
}

/* Takes what lies ready on a connection. The sender's rank, or -1 for what no rank of ours sent.
 * `from`: the rank it must be; -1: any that is still missing. */
static int receive_parcel(struct exchange *x, int connection, int from)
{
	struct parcel parcel = {0};
	struct iovec piece = {&parcel, sizeof(parcel)};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr message = {.msg_iov = &piece,
				 .msg_iovlen = 1,
				 .msg_control = control.bytes,
				 .msg_controllen = sizeof(control.bytes)};
	ssize_t n;
	int fd;

	do
		n = recvmsg(connection, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -1;
	fd = take_fd(&message);
	if (n == (ssize_t)sizeof(parcel) &&
	    !memcmp(parcel.nonce, x->offers[x->rank].nonce, sizeof(parcel.nonce)) &&
	    parcel.rank >= 0 && parcel.rank < x->n_ranks && parcel.rank != x->rank &&
	    (from < 0 || parcel.rank == from) && x->wanted[parcel.rank] &&
	    !x->has_come[parcel.rank] && parcel.has_fd == (fd >= 0)) {
		x->has_come[parcel.rank] = true;
		x->fds[parcel.rank] = fd;
		return parcel.rank;
	}
	if (fd >= 0)
		close(fd);
	return -1;
}

static void note(struct exchange *x, int result)
{
	if (result && !x->result)
		x->result = result;
}

static int connect_to(struct exchange *x, int rank)
{
	struct sockaddr_un address;
	socklen_t bytes = name_socket(x->offers[rank].name, &address);

	if (!x->offers[rank].name[0])
		return strait_fail(STRAIT_ERROR_REMOTE, "rank %d has no Unix socket", rank);
	x->connections[rank] = strait_socket_unix();
	if (x->connections[rank] >= 0 &&
	    !connect(x->connections[rank], (struct sockaddr *)&address, bytes))
		return strait_trace(send_parcel(x, x->connections[rank], rank));
	return strait_fail(
		STRAIT_ERROR_SYSTEM,
		"rank %d cannot be reached by a Unix socket: %s (another network namespace?)", rank,
		strerror(errno));
}

static void connect_up(struct exchange *x)
{
	for (int rank = x->rank + 1; rank < x->n_ranks; rank++)
		if (x->wanted[rank])
			note(x, connect_to(x, rank));
}

static void answer_all(struct exchange *x)
{
	int connection;

	while (x->listen_fd >= 0 && (connection = strait_socket_accept(x->listen_fd)) >= 0) {
		int rank = receive_parcel(x, connection, -1);

		if (rank >= 0)
			note(x, send_parcel(x, connection, rank));
		strait_socket_close(connection);
	}
}

static void receive_answers(struct exchange *x)
{
	for (int rank = x->rank + 1; rank < x->n_ranks; rank++)
		if (x->connections[rank] >= 0)
			receive_parcel(x, x->connections[rank], rank);
	for (int rank = 0; rank < x->n_ranks; rank++)
		if (x->wanted[rank] && rank != x->rank && !x->has_come[rank] && !x->result)
			x->result = strait_fail(
				STRAIT_ERROR_REMOTE,
				"no descriptor came from rank %d (another network namespace?)",
				rank);
}

static int run(struct exchange *x)
{
	int r;

	if (wants_any(x))
		note(x, make_offer(x));
	r = strait_bootstrap_allgather(x->bootstrap, x->offers, sizeof(*x->offers));
	if (r)
		return strait_trace(r);
	connect_up(x);
	r = strait_bootstrap_barrier(x->bootstrap);
	if (r)
		return strait_trace(r);
	answer_all(x);
	r = strait_bootstrap_barrier(x->bootstrap);
	if (r)
		return strait_trace(r);
	receive_answers(x);
	return strait_trace(x->result);
}

static bool allocate(struct exchange *x)
{
	size_t n = (size_t)x->n_ranks;

	x->offers = calloc(n, sizeof(*x->offers));
	x->connections = malloc(n * sizeof(*x->connections));
	x->fds = malloc(n * sizeof(*x->fds));
	x->has_come = calloc(n, sizeof(*x->has_come));
	if (!x->offers || !x->connections || !x->fds || !x->has_come)
		return false;
	for (size_t rank = 0; rank < n; rank++)
		x->connections[rank] = x->fds[rank] = -1;
	return true;
}

static void deinit(struct exchange *x, bool is_allocated)
{
	strait_socket_close(x->listen_fd);
	for (int rank = 0; is_allocated && rank < x->n_ranks; rank++) {
		strait_socket_close(x->connections[rank]);
		if (x->fds[rank] >= 0)
			close(x->fds[rank]);
	}
	free(x->offers);
	free(x->connections);
	free(x->fds);
	free(x->has_come);
}

int strait_bootstrap_exchange_fds(struct strait_bootstrap *bootstrap, int fd, const bool *wanted,
				  int *ret_fds)
{
	struct exchange x = {.bootstrap = bootstrap,
			     .rank = strait_bootstrap_rank(bootstrap),
			     .n_ranks = strait_bootstrap_n_ranks(bootstrap),
			     .fd = fd,
			     .wanted = wanted,
			     .listen_fd = -1};
	bool is_allocated = allocate(&x);
	int r;

	/* Without memory this rank is out of step: freeing the bootstrap is all that can follow. */
	r = is_allocated ? run(&x)
			 : strait_fail(STRAIT_ERROR_SYSTEM, "no memory to exchange descriptors");
	if (!r) {
		memcpy(ret_fds, x.fds, (size_t)x.n_ranks * sizeof(*ret_fds));
		for (int rank = 0; rank < x.n_ranks; rank++)
			x.fds[rank] = -1;
	}
	deinit(&x, is_allocated);
	return strait_trace(r);
}
