/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listening socket and the connections that have not said yet who they are. Each gets the bytes
 * of one greeting and 5 seconds; what does not begin as a greeting is closed at the first wrong
 * byte. Nobody waits for anybody: a port scanner that connects and stays silent takes a place among
 * 256, of which the oldest is given away first.
 */
#pragma once
#include "channels/frame.h"
#include <poll.h>

enum { STRAIT_LOBBY_PLACES = 256 };

struct strait_lobby {
	int listen_fd;
	unsigned n_guests;
	struct strait_guest {
		int fd;
		size_t got;
		int64_t deadline_ns;
		struct strait_greeting greeting;
	} guests[STRAIT_LOBBY_PLACES];
	bool is_short_of_descriptors;
};

struct strait_lobby *strait_lobby_new(int listen_fd); /* takes the socket over; NULL: no memory */
struct strait_lobby *strait_lobby_free(struct strait_lobby *lobby);

/* Room for STRAIT_LOBBY_PLACES + 1 entries. Returns how many were written. */
unsigned strait_lobby_fill(const struct strait_lobby *lobby, struct pollfd *ret_fds);

/* Lets connections in and reads greetings, without waiting. True: one is complete, and its
 * connection is the caller's. Call again until false. */
bool strait_lobby_next(struct strait_lobby *lobby, int *ret_fd,
		       struct strait_greeting *ret_greeting);

/* Closes the listening socket; guests stay. */
void strait_lobby_lock(struct strait_lobby *lobby);
