/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Non-blocking sockets, the waits on them, and the list of all descriptors that a forked child
 * closes.
 *
 * The list is a byte for each descriptor number. A descriptor is made and entered under one lock,
 * which fork() takes as well: no child can be born between the two. All calls under the lock return
 * at once.
 */
#include "channels/socket.h"
#include "strait/status.h"
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { POLL_MS = 50, BACKLOG = 4096 };

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t *listed; /* [n_listed], 1 where the descriptor is ours */
static size_t n_listed;
static bool has_fork_handlers;
static atomic_uint generation;

static void before_fork(void)
{
	pthread_mutex_lock(&list_lock);
}

static void after_fork_in_parent(void)
{
	pthread_mutex_unlock(&list_lock);
}

/* Only close: a shutdown or a goodbye would go out on the parent's connections. */
static void after_fork_in_child(void)
{
	for (size_t fd = 0; fd < n_listed; fd++) {
		if (listed[fd])
			close((int)fd);
		listed[fd] = 0;
	}
	atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
	pthread_mutex_unlock(&list_lock);
}

unsigned strait_socket_generation(void)
{
	return atomic_load_explicit(&generation, memory_order_relaxed);
}

/* Under the lock. Enters `fd`, or closes it when there is no memory. Returns fd or -1. */
static int enter(int fd)
{
	if (fd < 0)
		return -1;
	if (!has_fork_handlers) {
		if (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child)) {
			close(fd);
			errno = ENOMEM;
			return -1;
		}
		has_fork_handlers = true;
	}
	if ((size_t)fd >= n_listed) {
		size_t n = ((size_t)fd + 64) * 2;
		uint8_t *larger = realloc(listed, n);

		if (!larger) {
			close(fd);
			errno = ENOMEM;
			return -1;
		}
		memset(larger + n_listed, 0, n - n_listed);
		listed = larger;
		n_listed = n;
	}
	listed[fd] = 1;
	return fd;
}

static int open_listed(int family)
{
	int fd;

	pthread_mutex_lock(&list_lock);
	fd = enter(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	pthread_mutex_unlock(&list_lock);
	return fd;
}

int strait_socket_unix(void)
{
	return open_listed(AF_UNIX);
}

int strait_socket_event(void)
{
	int fd;

	pthread_mutex_lock(&list_lock);
	fd = enter(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	pthread_mutex_unlock(&list_lock);
	return fd;
}

bool strait_socket_is_ours(int fd)
{
	bool is_ours;

	pthread_mutex_lock(&list_lock);
	is_ours = fd >= 0 && (size_t)fd < n_listed && listed[fd];
	pthread_mutex_unlock(&list_lock);
	return is_ours;
}

int strait_socket_close(int fd)
{
	if (fd < 0)
		return -1;
	pthread_mutex_lock(&list_lock);
	if ((size_t)fd < n_listed && listed[fd]) {
		listed[fd] = 0;
		close(fd);
	}
	pthread_mutex_unlock(&list_lock);
	return -1;
}

int strait_socket_close_softly(int fd)
{
	char unread[512];

	if (!strait_socket_is_ours(fd))
		return -1;
	shutdown(fd, SHUT_WR);
	/* Linux answers close() with unread input by a reset, which can overtake our last words. A
	 * peer that keeps sending cannot hold us here. */
	for (int i = 0; i < 64 && recv(fd, unread, sizeof(unread), MSG_DONTWAIT) > 0; i++)
		;
	return strait_socket_close(fd);
}

int64_t strait_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

const char *strait_address_text(const struct strait_address *address,
				char text[STRAIT_ADDRESS_TEXT])
{
	char ip[INET6_ADDRSTRLEN] = "?";

	if (address->family == 4) {
		inet_ntop(AF_INET, address->ip, ip, sizeof(ip));
		snprintf(text, STRAIT_ADDRESS_TEXT, "%s:%u", ip, address->port);
	} else {
		inet_ntop(AF_INET6, address->ip, ip, sizeof(ip));
		snprintf(text, STRAIT_ADDRESS_TEXT, "[%s]:%u", ip, address->port);
	}
	return text;
}

bool strait_address_is_link_local(const struct strait_address *address)
{
	return address->family == 6 && address->ip[0] == 0xfe && (address->ip[1] & 0xc0) == 0x80;
}

static socklen_t to_sockaddr(const struct strait_address *address, struct sockaddr_storage *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (address->family == 4) {
		struct sockaddr_in *in = (struct sockaddr_in *)ret;

		in->sin_family = AF_INET;
		in->sin_port = htons(address->port);
		memcpy(&in->sin_addr, address->ip, 4);
		return sizeof(*in);
	}
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret;

	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(address->port);
	in6->sin6_scope_id = strait_address_is_link_local(address) ? address->scope : 0;
	memcpy(&in6->sin6_addr, address->ip, 16);
	return sizeof(*in6);
}

static bool from_sockaddr(const struct sockaddr *from, struct strait_address *ret)
{
	struct strait_address address = {0};

	if (from->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)from;

		address.family = 4;
		address.port = ntohs(in->sin_port);
		memcpy(address.ip, &in->sin_addr, 4);
	} else if (from->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)from;

		address.family = 6;
		address.port = ntohs(in6->sin6_port);
		address.scope = in6->sin6_scope_id;
		memcpy(address.ip, &in6->sin6_addr, 16);
	} else {
		return false;
	}
	*ret = address;
	return true;
}

int strait_address_parse(const char *text, int family, struct strait_address *ret_address)
{
	const char *colon = strrchr(text, ':');
	const char *begin = text, *end = colon;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
	char host[256];
	bool is_known;
	int r;

	if (text[0] == '[' && colon && colon > text && colon[-1] == ']') {
		begin++;
		end--;
	}
	if (!colon || end <= begin || (size_t)(end - begin) >= sizeof(host) || !colon[1])
		return strait_fail(STRAIT_ERROR_ARGUMENT, "\"%s\" is not address:port", text);
	memcpy(host, begin, (size_t)(end - begin));
	host[end - begin] = 0;
	hints.ai_family = family == 4 ? AF_INET : family == 6 ? AF_INET6 : AF_UNSPEC;
	r = getaddrinfo(host, colon + 1, &hints, &found);
	if (r)
		return strait_fail(STRAIT_ERROR_ARGUMENT, "cannot resolve \"%s\": %s", text,
				   gai_strerror(r));
	is_known = from_sockaddr(found->ai_addr, ret_address);
	freeaddrinfo(found);
	return is_known ? 0 : strait_fail(STRAIT_ERROR_ARGUMENT, "\"%s\" is no IP address", text);
}

static int fail_open(void)
{
	if (errno == EMFILE || errno == ENFILE)
		return strait_fail(STRAIT_ERROR_SYSTEM,
				   "no file descriptor left for a socket (%s): raise ulimit -n",
				   strerror(errno));
	return strait_fail(STRAIT_ERROR_SYSTEM, "cannot make a socket: %s", strerror(errno));
}

int strait_socket_listen(const struct strait_address *address, int *ret_fd,
			 struct strait_address *ret_bound)
{
	struct sockaddr_storage name;
	struct sockaddr *name_p = (struct sockaddr *)&name;
	socklen_t name_bytes = to_sockaddr(address, &name), bound_bytes = sizeof(name);
	char text[STRAIT_ADDRESS_TEXT];
	int fd = open_listed(name.ss_family), one = 1;

	if (fd < 0)
		return fail_open();
	/* A port that was given must be free again at once after a root ended; any other is never
	 * shared. */
	if (address->port)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, name_p, name_bytes) || listen(fd, BACKLOG) ||
	    getsockname(fd, name_p, &bound_bytes) || !from_sockaddr(name_p, ret_bound)) {
		int error = errno;

		strait_socket_close(fd);
		return strait_fail(STRAIT_ERROR_SYSTEM, "cannot listen at %s: %s",
				   strait_address_text(address, text), strerror(error));
	}
	*ret_fd = fd;
	return 0;
}

/* A dead host is noticed after about a minute even where no heartbeat runs. */
static void set_options(int fd)
{
	int one = 1, idle_s = 20, interval_s = 10, probes = 4;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

int strait_socket_accept(int listen_fd)
{
	int fd;

	pthread_mutex_lock(&list_lock);
	do
		fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	while (fd < 0 && errno == EINTR);
	fd = enter(fd);
	pthread_mutex_unlock(&list_lock);
	if (fd >= 0)
		set_options(fd);
	return fd;
}

int strait_socket_local(int fd, struct strait_address *ret_address)
{
	struct sockaddr_storage name;
	socklen_t bytes = sizeof(name);

	if (getsockname(fd, (struct sockaddr *)&name, &bytes) ||
	    !from_sockaddr((struct sockaddr *)&name, ret_address))
		return strait_fail(STRAIT_ERROR_SYSTEM, "cannot read a socket's address: %s",
				   strerror(errno));
	ret_address->port = 0;
	return 0;
}

/* A connect to a free port of one's own host can meet itself (both ends are one socket). */
static bool is_self_connected(int fd)
{
	struct sockaddr_storage here, there;
	socklen_t here_bytes = sizeof(here), there_bytes = sizeof(there);

	memset(&here, 0, sizeof(here));
	memset(&there, 0, sizeof(there));
	return !getsockname(fd, (struct sockaddr *)&here, &here_bytes) &&
	       !getpeername(fd, (struct sockaddr *)&there, &there_bytes) &&
	       here_bytes == there_bytes && !memcmp(&here, &there, here_bytes);
}

static int wait_connected(int fd, const struct strait_wait *wait, const char *what, int *ret_error)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
	socklen_t bytes = sizeof(*ret_error);

	do {
		int r = strait_socket_poll(&poll_fd, 1, wait, what);

		if (r)
			return r;
	} while (!poll_fd.revents);
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, ret_error, &bytes))
		*ret_error = errno;
	return 0;
}

int strait_socket_connect(const struct strait_address *address, const struct strait_wait *wait,
			  int *ret_fd)
{
	struct sockaddr_storage name;
	socklen_t name_bytes = to_sockaddr(address, &name);
	char text[STRAIT_ADDRESS_TEXT], what[STRAIT_ADDRESS_TEXT + 32];
	int fd = open_listed(name.ss_family), error = 0, r = 0;

	if (fd < 0)
		return fail_open();
	set_options(fd);
	snprintf(what, sizeof(what), "a connection to %s", strait_address_text(address, text));
	/* An interrupted connect goes on by itself, as one in progress does. */
	if (connect(fd, (struct sockaddr *)&name, name_bytes)) {
		error = errno;
		if (error == EINPROGRESS || error == EINTR)
			r = wait_connected(fd, wait, what, &error);
	}
	if (!r && !error && is_self_connected(fd))
		error = ECONNREFUSED;
	if (!r && !error) {
		*ret_fd = fd;
		return 0;
	}
	strait_socket_close(fd);
	if (r)
		return strait_trace(r);
	/* Reset: a listener that died with the connection in its queue. */
	if (error == ECONNREFUSED || error == ECONNRESET)
		return STRAIT_SOCKET_REFUSED;
	return strait_fail(STRAIT_ERROR_SYSTEM, "cannot connect to %s: %s (see NCCL_SOCKET_IFNAME)",
			   text, strerror(error));
}

int strait_socket_poll(struct pollfd *fds, unsigned n, const struct strait_wait *wait,
		       const char *what)
{
	int limit_ms = POLL_MS, r;

	/* Acquire: whoever raised the word may have written the reason before. */
	if (wait->abort_word && atomic_load_explicit(wait->abort_word, memory_order_acquire))
		return strait_fail(STRAIT_ERROR_REMOTE, "aborted while waiting for %s", what);
	if (wait->deadline_ns) {
		int64_t left_ns = wait->deadline_ns - strait_now_ns();

		if (left_ns <= 0)
			return strait_fail(STRAIT_ERROR_REMOTE,
					   "%s did not come in time (STRAIT_BOOTSTRAP_TIMEOUT)",
					   what);
		if (left_ns < POLL_MS * INT64_C(1000000))
			limit_ms = (int)(left_ns / 1000000) + 1;
	}
	/* The alarm has a poll entry of its own, so that the caller's array stays the caller's. */
	if (wait->alarm_fd >= 0) {
		struct pollfd alarm = {.fd = wait->alarm_fd, .events = POLLIN};

		if (poll(&alarm, 1, 0) > 0)
			return STRAIT_SOCKET_ALARM;
	}
	r = poll(fds, n, limit_ms);
	if (r < 0) {
		for (unsigned i = 0; i < n; i++)
			fds[i].revents = 0;
		if (errno != EINTR)
			return strait_fail(STRAIT_ERROR_SYSTEM, "poll: %s", strerror(errno));
	}
	return 0;
}

long strait_socket_send_some(int fd, struct iovec *pieces, int n_pieces)
{
	struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)n_pieces};
	ssize_t n;

	do
		n = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS))
		return 0;
	return n < 0 ? -1 : n;
}

long strait_socket_receive_some(int fd, struct iovec *pieces, int n_pieces)
{
	struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)n_pieces};
	ssize_t n;

	do
		n = recvmsg(fd, &message, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return 0;
	if (n == 0)
		errno = 0;
	return n <= 0 ? -1 : n;
}
