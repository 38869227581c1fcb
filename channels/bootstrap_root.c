/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root's thread: one poll() over the lobby and all ranks that have joined. Everything it says
 * fits into an empty socket buffer, so it never waits to send, and a rank that does not read harms
 * only itself.
 */
#include "channels/bootstrap_root.h"
#include "channels/lobby.h"
#include "strait/log.h"
#include "strait/params.h"
#include "strait/status.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 1 << 20, LINGER_S = 30, POLL_MS = 500 };

struct member {
	int fd; /* -1: has not come */
	bool is_ready;
	struct strait_address address;
	struct strait_inbox inbox;
};

struct root {
	struct strait_lobby *lobby;
	uint8_t nonce[STRAIT_NONCE_BYTES];
	uint64_t build;
	bool lingers;
	int n_ranks, n_joined, n_ready; /* n_ranks 0: nobody has come */
	struct member *members;         /* [n_ranks] */
	struct pollfd *poll_fds;        /* [n_ranks + STRAIT_LOBBY_PLACES + 1] */
	int64_t deadline_ns;            /* 0: none */
	bool is_done, has_warned;
	struct strait_verdict verdict; /* status 0: all well so far */
	int n_told;
};

int strait_bootstrap_n_links(int n_ranks)
{
	int n = 0;

	while (n < 31 && (1 << n) < n_ranks)
		n++;
	return n;
}

static void refuse(struct root *root, int fd, int status, const char *text)
{
	strait_frame_post_verdict(fd, -1, status, text);
	strait_socket_close_softly(fd);
	root->n_told++;
}

/* The first failure counts. All who have joined are told and let go. */
static void fail_all(struct root *root, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void fail_all(struct root *root, int status, const char *format, ...)
{
	va_list arguments;

	if (root->verdict.status)
		return;
	root->verdict.status = status;
	va_start(arguments, format);
	vsnprintf(root->verdict.text, sizeof(root->verdict.text), format, arguments);
	va_end(arguments);
	strait_info(BOOTSTRAP, "root: %s", root->verdict.text);
	for (int rank = 0; rank < root->n_ranks; rank++) {
		struct member *member = &root->members[rank];

		if (member->fd < 0)
			continue;
		refuse(root, member->fd, status, root->verdict.text);
		member->fd = -1;
	}
	root->deadline_ns = strait_now_ns() + LINGER_S * INT64_C(1000000000);
	root->is_done = !root->lingers;
}

/* The first rank says how many there are. */
static bool learn_size(struct root *root, int n_ranks)
{
	if (n_ranks < 1 || n_ranks > MAX_RANKS) {
		fail_all(root, STRAIT_ERROR_ARGUMENT, "a rank came that speaks of %d ranks",
			 n_ranks);
		return false;
	}
	root->members = calloc((size_t)n_ranks, sizeof(*root->members));
	struct pollfd *larger = realloc(root->poll_fds, ((size_t)n_ranks + STRAIT_LOBBY_PLACES +
							 1) * sizeof(*root->poll_fds));
	if (larger)
		root->poll_fds = larger;
	if (!root->members || !larger) {
		fail_all(root, STRAIT_ERROR_SYSTEM, "no memory for %d ranks", n_ranks);
		return false;
	}
	root->n_ranks = n_ranks;
	for (int rank = 0; rank < n_ranks; rank++)
		root->members[rank].fd = -1;
	return true;
}

static void send_neighbours(struct root *root)
{
	int n_links = strait_bootstrap_n_links(root->n_ranks);

	for (int rank = 0; rank < root->n_ranks; rank++) {
		struct strait_address neighbours[32];

		for (int k = 0; k < n_links; k++)
			neighbours[k] =
				root->members[(rank - (1 << k) + root->n_ranks) % root->n_ranks]
					.address;
		strait_frame_post(root->members[rank].fd, STRAIT_FRAME_NEIGHBOURS, -1, 0,
				  neighbours, (size_t)n_links * sizeof(*neighbours));
	}
	root->deadline_ns =
		strait_now_ns() + strait_params()->bootstrap_timeout_s * INT64_C(1000000000);
}

static void join(struct root *root, int fd, const struct strait_greeting *greeting)
{
	struct member *member = &root->members[greeting->rank];

	member->fd = fd;
	member->address = greeting->address;
	root->n_joined++;
	strait_debug(BOOTSTRAP, "root: rank %d came, %d of %d", greeting->rank, root->n_joined,
		     root->n_ranks);
	if (root->n_joined < root->n_ranks)
		return;
	/* From here on the address may serve another root (NCCL_COMM_ID), so it is given up before
	 * any rank can know that it met the others. */
	if (!root->lingers)
		strait_lobby_lock(root->lobby);
	send_neighbours(root);
}

static void greet(struct root *root, int fd, const struct strait_greeting *greeting)
{
	int rank = greeting->rank;

	if (greeting->protocol == STRAIT_PROTOCOL && greeting->kind != STRAIT_GREETING_JOIN) {
		strait_socket_close(fd);
		return;
	}
	if (memcmp(greeting->nonce, root->nonce, sizeof(root->nonce))) {
		/* Not one of ours: an old id, whose port we got. The others need not know. */
		strait_frame_post_verdict(fd, -1, STRAIT_ERROR_REMOTE,
					  "the unique id is out of date: its root is gone, another "
					  "one answers there");
		strait_socket_close_softly(fd);
		return;
	}
	if (!root->verdict.status && greeting->protocol != STRAIT_PROTOCOL)
		fail_all(root, STRAIT_ERROR_REMOTE,
			 "ranks run different versions of Strait (bootstrap protocols %u and %u): "
			 "use one on all ranks",
			 greeting->protocol, STRAIT_PROTOCOL);
	if (!root->verdict.status && greeting->build != root->build)
		fail_all(root, STRAIT_ERROR_REMOTE,
			 "rank %d runs another build of Strait than the process that made the "
			 "unique id: use one on "
			 "all ranks",
			 rank);
	if (!root->verdict.status && (root->n_ranks || learn_size(root, greeting->n_ranks))) {
		if (greeting->n_ranks != root->n_ranks)
			fail_all(root, STRAIT_ERROR_ARGUMENT,
				 "ranks disagree on their number: rank %d says %d, the ones before "
				 "it %d",
				 rank, greeting->n_ranks, root->n_ranks);
		else if (rank < 0 || rank >= root->n_ranks)
			fail_all(root, STRAIT_ERROR_ARGUMENT,
				 "rank %d is out of range: there are %d", rank, root->n_ranks);
		else if (root->members[rank].fd >= 0)
			fail_all(root, STRAIT_ERROR_ARGUMENT,
				 "rank %d came twice (two processes with one rank, or an id used "
				 "for a second "
				 "communicator)",
				 rank);
	}
	if (root->verdict.status)
		refuse(root, fd, root->verdict.status, root->verdict.text);
	else
		join(root, fd, greeting);
}

static void say_go(struct root *root)
{
	for (int rank = 0; rank < root->n_ranks; rank++) {
		struct member *member = &root->members[rank];

		strait_frame_post(member->fd, STRAIT_FRAME_GO, -1, 0, NULL, 0);
		strait_socket_close_softly(member->fd);
		member->fd = -1;
	}
	root->is_done = true;
}

static void hear(struct root *root, int rank)
{
	struct member *member = &root->members[rank];
	struct strait_inbox *inbox = &member->inbox;
	int r = strait_inbox_read(inbox, member->fd);

	if (r == STRAIT_INBOX_EMPTY)
		return;
	if (r == STRAIT_INBOX_CLOSED)
		fail_all(root, STRAIT_ERROR_REMOTE,
			 "rank %d died or gave up while ranks met (%d of %d had come)", rank,
			 root->n_joined, root->n_ranks);
	else if (r == STRAIT_INBOX_FULL && inbox->head.type == STRAIT_FRAME_VERDICT)
		fail_all(root,
			 inbox->body.verdict.status < 0 ? inbox->body.verdict.status
							: STRAIT_ERROR_REMOTE,
			 "rank %d: %.220s", rank, inbox->body.verdict.text);
	else if (r == STRAIT_INBOX_FULL && inbox->head.type == STRAIT_FRAME_READY &&
		 !member->is_ready && root->n_joined == root->n_ranks) {
		member->is_ready = true;
		strait_inbox_clear(inbox);
		if (++root->n_ready == root->n_ranks)
			say_go(root);
	} else {
		fail_all(root, STRAIT_ERROR_REMOTE,
			 "rank %d sent what a rank does not send while ranks meet", rank);
	}
}

static void check_time(struct root *root)
{
	int rank = 0;

	if (!root->deadline_ns || strait_now_ns() < root->deadline_ns)
		return;
	if (root->verdict.status) {
		root->is_done = true;
		return;
	}
	while (rank < root->n_ranks - 1 && root->members[rank].is_ready)
		rank++;
	fail_all(root, STRAIT_ERROR_REMOTE,
		 "rank %d did not connect to its neighbours in %lld s (STRAIT_BOOTSTRAP_TIMEOUT)",
		 rank, (long long)strait_params()->bootstrap_timeout_s);
}

/* False: poll() itself failed, and nothing more can be done. */
static bool turn(struct root *root)
{
	unsigned n = strait_lobby_fill(root->lobby, root->poll_fds), n_guests = n;
	struct strait_greeting greeting;
	int fd;

	for (int rank = 0; rank < root->n_ranks; rank++)
		if (root->members[rank].fd >= 0)
			root->poll_fds[n++] =
				(struct pollfd){.fd = root->members[rank].fd, .events = POLLIN};
	if (poll(root->poll_fds, n, POLL_MS) < 0 && errno != EINTR)
		return false;
	for (int rank = 0; rank < root->n_ranks && n_guests < n; rank++) {
		/* Entries are in the order of ranks; a failure on the way empties the rest. */
		if (root->members[rank].fd != root->poll_fds[n_guests].fd)
			continue;
		if (root->poll_fds[n_guests++].revents)
			hear(root, rank);
	}
	while (!root->is_done && strait_lobby_next(root->lobby, &fd, &greeting))
		greet(root, fd, &greeting);
	if (root->lobby->is_short_of_descriptors && !root->has_warned) {
		strait_warn(BOOTSTRAP, "no file descriptor left for ranks that want to join: raise "
				       "ulimit -n; they wait");
		root->has_warned = true;
	}
	if (root->verdict.status && root->n_ranks && root->n_told >= root->n_ranks)
		root->is_done = true;
	check_time(root);
	return true;
}

static void free_root(struct root *root)
{
	for (int rank = 0; rank < root->n_ranks; rank++)
		strait_socket_close(root->members[rank].fd);
	strait_lobby_free(root->lobby);
	free(root->members);
	free(root->poll_fds);
	free(root);
}

static void *run(void *argument)
{
	struct root *root = argument;

	while (!root->is_done && turn(root))
		;
	if (!root->is_done)
		fail_all(root, STRAIT_ERROR_SYSTEM, "the bootstrap root cannot wait: %s",
			 strerror(errno));
	free_root(root);
	return NULL;
}

/* A thread of ours takes none of the program's signals. */
static int start_thread(struct root *root)
{
	pthread_attr_t detached;
	pthread_t unused;
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	/* On Linux this is the mask of the calling thread; pthread_sigmask would ask for a newer
	 * glibc. */
	sigprocmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&unused, &detached, run, root);
	sigprocmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&detached);
	return r;
}

int strait_bootstrap_root_start(int listen_fd, const uint8_t nonce[STRAIT_NONCE_BYTES],
				bool lingers)
{
	struct root *root = calloc(1, sizeof(*root));
	int r;

	if (root) {
		root->lobby = strait_lobby_new(listen_fd);
		root->poll_fds = calloc(STRAIT_LOBBY_PLACES + 1, sizeof(*root->poll_fds));
	}
	if (!root || !root->lobby || !root->poll_fds) {
		if (!root || !root->lobby)
			strait_socket_close(listen_fd);
		if (root)
			free_root(root);
		return strait_fail(STRAIT_ERROR_SYSTEM, "no memory for the bootstrap root");
	}
	memcpy(root->nonce, nonce, sizeof(root->nonce));
	root->build = strait_build_hash();
	root->lingers = lingers;
	strait_params(); /* read the environment on the caller's thread */
	r = start_thread(root);
	if (r) {
		free_root(root);
		return strait_fail(STRAIT_ERROR_SYSTEM,
				   "cannot start the bootstrap root's thread: %s", strerror(r));
	}
	return 0;
}
