/* SPDX-License-Identifier: Apache-2.0 */
/* Connections before their greeting: see the header. Guests are kept in order of arrival. */
#include "channels/lobby.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GREETING_NS INT64_C(5000000000)
#define SAFE_NS INT64_C(1000000000) /* nobody is sent away for another before that */

struct strait_lobby *strait_lobby_new(int listen_fd)
{
	struct strait_lobby *lobby = calloc(1, sizeof(*lobby));

	if (lobby)
		lobby->listen_fd = listen_fd;
	return lobby;
}

struct strait_lobby *strait_lobby_free(struct strait_lobby *lobby)
{
	if (!lobby)
		return NULL;
	strait_lobby_lock(lobby);
	for (unsigned i = 0; i < lobby->n_guests; i++)
		strait_socket_close(lobby->guests[i].fd);
	free(lobby);
	return NULL;
}

void strait_lobby_lock(struct strait_lobby *lobby)
{
	lobby->listen_fd = strait_socket_close(lobby->listen_fd);
}

/* Full of guests that must have their time first: who comes now waits in the kernel's queue. */
static bool is_full(const struct strait_lobby *lobby, int64_t now_ns)
{
	return lobby->n_guests == STRAIT_LOBBY_PLACES &&
	       now_ns < lobby->guests[0].deadline_ns - GREETING_NS + SAFE_NS;
}

unsigned strait_lobby_fill(const struct strait_lobby *lobby, struct pollfd *ret_fds)
{
	unsigned n = 0;

	/* Without a free descriptor or place the waiting connection would wake every poll() for
	 * nothing. */
	if (lobby->listen_fd >= 0 && !lobby->is_short_of_descriptors &&
	    !is_full(lobby, strait_now_ns()))
		ret_fds[n++] = (struct pollfd){.fd = lobby->listen_fd, .events = POLLIN};
	for (unsigned i = 0; i < lobby->n_guests; i++)
		ret_fds[n++] = (struct pollfd){.fd = lobby->guests[i].fd, .events = POLLIN};
	return n;
}

static void remove_guest(struct strait_lobby *lobby, unsigned i)
{
	lobby->n_guests--;
	memmove(&lobby->guests[i], &lobby->guests[i + 1],
		(lobby->n_guests - i) * sizeof(lobby->guests[0]));
}

/* One connection more. False: there is none, or no place for it. */
static bool let_in(struct strait_lobby *lobby, int64_t now_ns)
{
	struct strait_guest *guest;
	int fd;

	lobby->is_short_of_descriptors = false;
	if (lobby->listen_fd < 0 || is_full(lobby, now_ns))
		return false;
	fd = strait_socket_accept(lobby->listen_fd);
	if (fd < 0) {
		lobby->is_short_of_descriptors = errno == EMFILE || errno == ENFILE;
		return false;
	}
	if (lobby->n_guests == STRAIT_LOBBY_PLACES) {
		strait_socket_close(lobby->guests[0].fd);
		remove_guest(lobby, 0);
	}
	guest = &lobby->guests[lobby->n_guests++];
	memset(guest, 0, sizeof(*guest));
	guest->fd = fd;
	guest->deadline_ns = now_ns + GREETING_NS;
	return true;
}

/* False: this is nobody of ours. */
static bool may_stay(const struct strait_guest *guest, int64_t now_ns)
{
	static const uint64_t magic = STRAIT_GREETING_MAGIC;
	size_t n = guest->got < sizeof(magic) ? guest->got : sizeof(magic);

	return now_ns < guest->deadline_ns && !memcmp(&guest->greeting.magic, &magic, n);
}

/* Bytes of the greeting that must have come: of another protocol's, only the part that never
 * changes. */
static size_t goal_of(const struct strait_guest *guest)
{
	size_t fixed = offsetof(struct strait_greeting, build);

	if (guest->got < fixed)
		return fixed;
	return guest->greeting.protocol == STRAIT_PROTOCOL ? sizeof(guest->greeting) : fixed;
}

/* -1: close it; 1: complete; 0: not yet. */
static int read_guest(struct strait_guest *guest, int64_t now_ns)
{
	while (guest->got < goal_of(guest)) {
		struct iovec piece = {(char *)&guest->greeting + guest->got,
				      goal_of(guest) - guest->got};
		long n = strait_socket_receive_some(guest->fd, &piece, 1);

		if (n < 0)
			return -1;
		guest->got += (size_t)n;
		if (!may_stay(guest, now_ns))
			return -1;
		if (!n)
			return 0;
	}
	return 1;
}

/* Reads guest `i`. 1: its greeting is complete and given out; 0: it stays; -1: it was sent away. */
static int serve(struct strait_lobby *lobby, unsigned i, int64_t now_ns, int *ret_fd,
		 struct strait_greeting *ret_greeting)
{
	struct strait_guest *guest = &lobby->guests[i];
	int r = read_guest(guest, now_ns);

	if (!r)
		return 0;
	if (r > 0) {
		*ret_fd = guest->fd;
		*ret_greeting = guest->greeting;
	} else {
		strait_socket_close(guest->fd);
	}
	remove_guest(lobby, i);
	return r;
}

bool strait_lobby_next(struct strait_lobby *lobby, int *ret_fd,
		       struct strait_greeting *ret_greeting)
{
	int64_t now_ns = strait_now_ns();
	unsigned i = 0;

	/* Those inside first: many ranks may knock at once, and none must lose its place unread. */
	do {
		while (i < lobby->n_guests) {
			int r = serve(lobby, i, now_ns, ret_fd, ret_greeting);

			if (r > 0)
				return true;
			i += !r;
		}
		i = lobby->n_guests - (lobby->n_guests == STRAIT_LOBBY_PLACES);
	} while (let_in(lobby, now_ns));
	return false;
}
