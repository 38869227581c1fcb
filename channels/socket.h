/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TCP sockets as the bootstrap needs them: non-blocking, close-on-exec, no Nagle delay, kept alive,
 * and never a SIGPIPE. Every wait is a poll() of at most 50 ms that looks at an abort word and a
 * deadline.
 *
 * Every descriptor made here is entered in a list of the process. A forked child closes all of them
 * before fork() returns there, so it never keeps a dead parent's connections open;
 * strait_socket_generation() then differs, by which owners of descriptors know that their numbers
 * mean nothing any more.
 */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An address as it travels in ids and messages. family 0: none. */
struct strait_address {
	uint16_t family; /* 4 or 6 */
	uint16_t port;   /* host byte order */
	uint32_t scope;  /* IPv6 link-local: the interface, on the host that wrote it */
	uint8_t ip[16];  /* network byte order; IPv4 in the first four */
};

#define STRAIT_ADDRESS_TEXT 64
/* "1.2.3.4:5" or "[::1]:5"; returns `text`. */
const char *strait_address_text(const struct strait_address *address,
				char text[STRAIT_ADDRESS_TEXT]);
/* From "host:port", "1.2.3.4:5" or "[::1]:5"; names are looked up. `family`: 4, 6 or 0 (either). */
int strait_address_parse(const char *text, int family, struct strait_address *ret_address);
bool strait_address_is_link_local(const struct strait_address *address);

/* What ends a wait before its time. */
struct strait_wait {
	const atomic_uint *abort_word; /* non-zero: STRAIT_ERROR_REMOTE; NULL: none */
	int64_t deadline_ns;           /* of strait_now_ns(): STRAIT_ERROR_REMOTE; 0: none */
	int alarm_fd;                  /* readable: STRAIT_SOCKET_ALARM; -1: none */
};
enum { STRAIT_SOCKET_ALARM = 1, STRAIT_SOCKET_REFUSED = 2 };

int64_t strait_now_ns(void); /* monotonic */

/* How many forks lie between the first process and this one. */
unsigned strait_socket_generation(void);

/* Listens at `address` (port 0: any free one) and gives the address that was bound. */
int strait_socket_listen(const struct strait_address *address, int *ret_fd,
			 struct strait_address *ret_bound);
/* The next connection of a listening socket, or -1 when there is none (or it was gone again). */
int strait_socket_accept(int listen_fd);
/* STRAIT_SOCKET_REFUSED: nobody listens there now. */
int strait_socket_connect(const struct strait_address *address, const struct strait_wait *wait,
			  int *ret_fd);
/* The local address of a connection; the port is 0. */
int strait_socket_local(int fd, struct strait_address *ret_address);
/* A socket for descriptors, AF_UNIX, with the properties above; -1 with errno on failure. */
int strait_socket_unix(void);
/* An eventfd, to wake a poll(); -1 with errno on failure. */
int strait_socket_event(void);
/* Closes a descriptor of ours. -1 and what a fork has closed already are fine. Returns -1. */
int strait_socket_close(int fd);
/* As close, but what was sent is delivered and unread input does not reset the connection. Never
 * waits. */
int strait_socket_close_softly(int fd);
bool strait_socket_is_ours(int fd);

struct pollfd;
/* poll() for at most 50 ms. 0: look again; else why the wait ends. `what` names it for the message.
 */
int strait_socket_poll(struct pollfd *fds, unsigned n, const struct strait_wait *wait,
		       const char *what);

/* One attempt. Bytes moved, 0: would block, -1: closed or broken (errno; 0 for a closed one). */
struct iovec;
long strait_socket_send_some(int fd, struct iovec *pieces, int n_pieces);
long strait_socket_receive_some(int fd, struct iovec *pieces, int n_pieces);
