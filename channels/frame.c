/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames: small ones through an inbox, which can be read whenever poll() says so, and the two-way
 * exchange that collectives are made of. A head is looked at before any byte behind it is taken for
 * data.
 */
#include "channels/frame.h"
#include "strait/status.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames travel as they lie in memory");

const char *strait_frame_name(uint32_t type)
{
	static const char *const names[] = {"nothing",   "neighbours", "ready",      "go",
					    "verdict",   "goodbye",    "all-gather", "barrier",
					    "heartbeat", "loss"};

	return type < sizeof(names) / sizeof(*names) ? names[type] : "an unknown frame";
}

void strait_inbox_clear(struct strait_inbox *inbox)
{
	inbox->got = 0;
}

/* Reads up to `goal` bytes of the frame in all. */
static int read_up_to(struct strait_inbox *inbox, int fd, size_t goal)
{
	while (inbox->got < goal) {
		bool in_head = inbox->got < sizeof(inbox->head);
		uint8_t *to = in_head ? (uint8_t *)&inbox->head + inbox->got
				      : inbox->body.bytes + (inbox->got - sizeof(inbox->head));
		struct iovec piece = {to, goal - inbox->got};
		long n = strait_socket_receive_some(fd, &piece, 1);

		if (n <= 0)
			return n ? STRAIT_INBOX_CLOSED : STRAIT_INBOX_EMPTY;
		inbox->got += (size_t)n;
	}
	return STRAIT_INBOX_FULL;
}

int strait_inbox_read(struct strait_inbox *inbox, int fd)
{
	struct strait_frame *head = &inbox->head;
	int r = STRAIT_INBOX_FULL;

	if (inbox->got < sizeof(*head))
		r = read_up_to(inbox, fd, sizeof(*head));
	if (r != STRAIT_INBOX_FULL)
		return r;
	if (head->magic != STRAIT_FRAME_MAGIC || head->bytes > sizeof(inbox->body) ||
	    (head->type == STRAIT_FRAME_VERDICT && head->bytes != sizeof(struct strait_verdict)))
		return STRAIT_INBOX_GARBLED;
	r = read_up_to(inbox, fd, sizeof(*head) + head->bytes);
	if (r == STRAIT_INBOX_FULL && head->type == STRAIT_FRAME_VERDICT)
		inbox->body.verdict.text[STRAIT_VERDICT_TEXT - 1] = 0;
	return r;
}

bool strait_frame_post(int fd, uint32_t type, int rank, uint32_t step, const void *body,
		       size_t bytes)
{
	struct strait_frame head = {STRAIT_FRAME_MAGIC, type, rank, step, bytes};
	struct iovec pieces[2] = {{&head, sizeof(head)}, {(void *)body, bytes}};

	long whole = (long)(sizeof(head) + bytes);
	long sent = strait_socket_send_some(fd, pieces, bytes ? 2 : 1);

	/* Half a frame would garble all that follows, so nothing may: the peer has not read for a
	 * long time. */
	if (sent > 0 && sent < whole)
		shutdown(fd, SHUT_WR);
	return sent == whole;
}

void strait_frame_post_verdict(int fd, int rank, int status, const char *text)
{
	struct strait_verdict verdict = {.status = status};

	snprintf(verdict.text, sizeof(verdict.text), "%s", text);
	strait_frame_post(fd, STRAIT_FRAME_VERDICT, rank, 0, &verdict, sizeof(verdict));
}

static int fail_verdict(const struct strait_verdict *verdict)
{
	return strait_fail(verdict->status < 0 ? verdict->status : STRAIT_ERROR_REMOTE, "%s",
			   verdict->text);
}

int strait_frame_receive(int fd, uint32_t type, struct strait_inbox *inbox,
			 const struct strait_wait *wait, const char *who)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	char what[96];
	int r;

	snprintf(what, sizeof(what), "the word \"%s\" of %s", strait_frame_name(type), who);
	strait_inbox_clear(inbox);
	while ((r = strait_inbox_read(inbox, fd)) == STRAIT_INBOX_EMPTY) {
		r = strait_socket_poll(&poll_fd, 1, wait, what);
		if (r)
			return strait_trace(r);
	}
	if (r == STRAIT_INBOX_CLOSED)
		return strait_fail(STRAIT_ERROR_REMOTE,
				   "%s closed the connection before its word \"%s\"%s%s", who,
				   strait_frame_name(type), errno ? ": " : "",
				   errno ? strerror(errno) : "");
	if (r == STRAIT_INBOX_FULL && inbox->head.type == STRAIT_FRAME_VERDICT)
		return fail_verdict(&inbox->body.verdict);
	if (r == STRAIT_INBOX_GARBLED || inbox->head.type != type)
		return strait_fail(
			STRAIT_ERROR_REMOTE, "%s sent \"%s\" where \"%s\" was expected", who,
			r == STRAIT_INBOX_GARBLED ? "garbage" : strait_frame_name(inbox->head.type),
			strait_frame_name(type));
	return 0;
}

/* ---- exchange ---- */

/* After so many bytes in one direction, the other one and the abort word have their turn. */
enum { PART_BYTES = 1 << 20 };

struct progress {
	struct strait_transfer *transfer;
	struct strait_frame head; /* as it came */
	size_t done, total;       /* bytes, head included */
	bool checked;
};

/* What is left of head and data before byte `goal`, at most PART_BYTES, as pieces for one system
 * call. */
static int left_over(struct progress *p, size_t goal, struct strait_frame *head,
		     struct iovec pieces[3])
{
	struct iovec whole[3] = {{head, sizeof(*head)}, p->transfer->data[0], p->transfer->data[1]};
	size_t skip = p->done, left = goal - p->done;
	size_t budget = left < PART_BYTES ? left : PART_BYTES;
	int n = 0;

	for (int i = 0; i < 3 && budget; i++) {
		size_t bytes = whole[i].iov_len;

		if (skip >= bytes) {
			skip -= bytes;
			continue;
		}
		bytes -= skip;
		if (bytes > budget)
			bytes = budget;
		pieces[n].iov_base = (uint8_t *)whole[i].iov_base + skip;
		pieces[n++].iov_len = bytes;
		budget -= bytes;
		skip = 0;
	}
	return n;
}

/* A connection broke, or carries another frame: the reason may be in a verdict that the peer sent
 * before. */
static int fail_link(int fd, int peer, const char *what)
{
	int error = errno;
	struct strait_inbox inbox = {0};

	while (strait_inbox_read(&inbox, fd) == STRAIT_INBOX_FULL) {
		if (inbox.head.type == STRAIT_FRAME_VERDICT)
			return fail_verdict(&inbox.body.verdict);
		if (inbox.head.type == STRAIT_FRAME_GOODBYE)
			return strait_fail(STRAIT_ERROR_REMOTE, "rank %d left during %s", peer,
					   what);
		strait_inbox_clear(&inbox);
	}
	return strait_fail(STRAIT_ERROR_REMOTE, "lost the connection to rank %d during %s%s%s",
			   peer, what, error ? ": " : "", error ? strerror(error) : "");
}

static int send_more(struct progress *p)
{
	size_t stop = p->done + PART_BYTES;
	struct iovec pieces[3];

	while (p->done < p->total && p->done < stop) {
		int n = left_over(p, p->total, &p->transfer->head, pieces);
		long bytes = strait_socket_send_some(p->transfer->fd, pieces, n);

		if (bytes < 0)
			return fail_link(p->transfer->fd, p->transfer->peer,
					 strait_frame_name(p->transfer->head.type));
		if (!bytes)
			return 0;
		p->done += (size_t)bytes;
	}
	return 0;
}

/* The peer does something else than this rank does. */
static int fail_out_of_step(struct progress *p)
{
	const struct strait_frame *came = &p->head, *expected = &p->transfer->head;
	int peer = p->transfer->peer;

	if (came->magic != STRAIT_FRAME_MAGIC)
		return strait_fail(STRAIT_ERROR_REMOTE, "rank %d sent garbage during %s", peer,
				   strait_frame_name(expected->type));
	if (came->type == STRAIT_FRAME_GOODBYE)
		return strait_fail(STRAIT_ERROR_REMOTE, "rank %d left during %s", peer,
				   strait_frame_name(expected->type));
	if (came->type != STRAIT_FRAME_VERDICT || came->bytes != sizeof(struct strait_verdict))
		return strait_fail(STRAIT_ERROR_REMOTE,
				   "ranks are out of step: rank %d is in %s, step %u, with %llu "
				   "bytes; this rank in "
				   "%s, step %u, with %llu",
				   peer, strait_frame_name(came->type), came->step,
				   (unsigned long long)came->bytes,
				   strait_frame_name(expected->type), expected->step,
				   (unsigned long long)expected->bytes);
	/* A verdict is sent whole or not at all, but may still be on its way: the deadline is
	 * short, its loss costs only the reason. */
	struct strait_inbox inbox = {.got = sizeof(*came), .head = *came};
	struct pollfd poll_fd = {.fd = p->transfer->fd, .events = POLLIN};
	int r, n_tries = 0;

	while ((r = strait_inbox_read(&inbox, p->transfer->fd)) == STRAIT_INBOX_EMPTY &&
	       n_tries++ < 10)
		poll(&poll_fd, 1, 50);
	if (r == STRAIT_INBOX_FULL)
		return fail_verdict(&inbox.body.verdict);
	return strait_fail(STRAIT_ERROR_REMOTE, "rank %d failed during %s", peer,
			   strait_frame_name(expected->type));
}

static int receive_more(struct progress *p)
{
	struct strait_transfer *t = p->transfer;
	size_t stop = p->done + PART_BYTES;
	struct iovec pieces[3];

	while (p->done < p->total && p->done < stop) {
		size_t goal = p->checked ? p->total : sizeof(p->head);
		int n = left_over(p, goal, &p->head, pieces);
		long bytes = strait_socket_receive_some(t->fd, pieces, n);

		if (bytes < 0)
			return fail_link(t->fd, t->peer, strait_frame_name(t->head.type));
		if (!bytes)
			return 0;
		p->done += (size_t)bytes;
		if (!p->checked && p->done == sizeof(p->head)) {
			if (memcmp(&p->head, &t->head, sizeof(p->head)))
				return fail_out_of_step(p);
			p->checked = true;
		}
	}
	return 0;
}

int strait_frame_exchange(struct strait_transfer *send, struct strait_transfer *receive,
			  const struct strait_wait *wait)
{
	struct progress out = {.transfer = send, .total = sizeof(send->head) + send->head.bytes};
	struct progress in = {.transfer = receive,
			      .total = sizeof(receive->head) + receive->head.bytes};
	char what[96];

	snprintf(what, sizeof(what), "rank %d in %s (to it) or rank %d (from it)", send->peer,
		 strait_frame_name(send->head.type), receive->peer);
	for (;;) {
		struct pollfd fds[2];
		unsigned n = 0;
		int r = send_more(&out);

		if (!r)
			r = receive_more(&in);
		send->is_partial = out.done > 0 && out.done < out.total;
		if (r)
			return strait_trace(r);
		if (out.done < out.total)
			fds[n++] = (struct pollfd){.fd = send->fd, .events = POLLOUT};
		if (in.done < in.total)
			fds[n++] = (struct pollfd){.fd = receive->fd, .events = POLLIN};
		if (!n)
			return 0;
		r = strait_socket_poll(fds, n, wait, what);
		if (r)
			return strait_trace(r);
	}
}
