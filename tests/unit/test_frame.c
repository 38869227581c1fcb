/* SPDX-License-Identifier: Apache-2.0 */
/* Frames over socket pairs: whole or in pieces, expected or not. The far end is this file. */
#include "channels/frame.h"
#include "strait/status.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

static int near, far;
static struct strait_wait wait_10_s;

static int make_pair(void **state)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
			 0);
	near = fds[0];
	far = fds[1];
	wait_10_s = (struct strait_wait){NULL, strait_now_ns() + INT64_C(10000000000), -1};
	return 0;
}

static int close_pair(void **state)
{
	close(near);
	if (far >= 0)
		close(far);
	return 0;
}

static void put(const void *bytes, size_t n)
{
	assert_int_equal(send(far, bytes, n, MSG_NOSIGNAL), n);
}

static void test_inbox_takes_a_frame_byte_by_byte(void **state)
{
	struct strait_verdict verdict = {.status = -5, .text = "a reason"};
	struct strait_frame head = {STRAIT_FRAME_MAGIC, STRAIT_FRAME_VERDICT, 3, 7,
				    sizeof(verdict)};
	struct strait_inbox inbox;
	uint8_t bytes[sizeof(head) + sizeof(verdict)];

	memcpy(bytes, &head, sizeof(head));
	memcpy(bytes + sizeof(head), &verdict, sizeof(verdict));
	strait_inbox_clear(&inbox);
	for (size_t i = 0; i < sizeof(bytes); i++) {
		assert_int_equal(strait_inbox_read(&inbox, near), STRAIT_INBOX_EMPTY);
		put(&bytes[i], 1);
	}
	assert_int_equal(strait_inbox_read(&inbox, near), STRAIT_INBOX_FULL);
	assert_int_equal(inbox.head.rank, 3);
	assert_string_equal(inbox.body.verdict.text, "a reason");
}

static void test_inbox_tells_frames_apart_that_come_at_once(void **state)
{
	struct strait_inbox inbox;

	assert_true(strait_frame_post(far, STRAIT_FRAME_HEARTBEAT, 1, 0, NULL, 0));
	assert_true(strait_frame_post(far, STRAIT_FRAME_LOST, 1, 9, NULL, 0));
	close(far);
	far = -1;
	strait_inbox_clear(&inbox);
	assert_int_equal(strait_inbox_read(&inbox, near), STRAIT_INBOX_FULL);
	assert_int_equal(inbox.head.type, STRAIT_FRAME_HEARTBEAT);
	strait_inbox_clear(&inbox);
	assert_int_equal(strait_inbox_read(&inbox, near), STRAIT_INBOX_FULL);
	assert_int_equal(inbox.head.step, 9);
	strait_inbox_clear(&inbox);
	assert_int_equal(strait_inbox_read(&inbox, near), STRAIT_INBOX_CLOSED);
}

static void test_inbox_refuses_what_is_no_frame_or_too_long(void **state)
{
	const struct strait_frame wrong[] = {
		{0x12345678, STRAIT_FRAME_HEARTBEAT, 0, 0, 0},
		{STRAIT_FRAME_MAGIC, STRAIT_FRAME_HEARTBEAT, 0, 0, 1 << 20},
		{STRAIT_FRAME_MAGIC, STRAIT_FRAME_VERDICT, 0, 0, 5},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		struct strait_inbox inbox;

		strait_inbox_clear(&inbox);
		put(&wrong[i], sizeof(wrong[i]));
		assert_int_equal(strait_inbox_read(&inbox, near), STRAIT_INBOX_GARBLED);
	}
}

static void test_verdict_is_returned_as_the_failure_it_tells_of(void **state)
{
	struct strait_inbox inbox;

	strait_frame_post_verdict(far, 4, STRAIT_ERROR_SYSTEM, "disk full");
	assert_int_equal(strait_frame_receive(near, STRAIT_FRAME_GO, &inbox, &wait_10_s, "it"),
			 STRAIT_ERROR_SYSTEM);
	assert_string_equal(strait_status_message(), "disk full");
	/* A verdict without a failure is none of ours; it must not pass for success. */
	strait_frame_post_verdict(far, 4, 0, "nothing");
	assert_int_equal(strait_frame_receive(near, STRAIT_FRAME_GO, &inbox, &wait_10_s, "it"),
			 STRAIT_ERROR_REMOTE);
}

static void test_other_frame_than_expected_is_named(void **state)
{
	struct strait_inbox inbox;

	strait_frame_post(far, STRAIT_FRAME_READY, 4, 0, NULL, 0);
	assert_int_equal(strait_frame_receive(near, STRAIT_FRAME_GO, &inbox, &wait_10_s, "rank 4"),
			 STRAIT_ERROR_REMOTE);
	assert_string_equal(strait_status_message(),
			    "rank 4 sent \"ready\" where \"go\" was expected");
}

/* ---- exchange ---- */

/* This rank (0) and the far one (1) over one connection: both directions at once. */
static int exchange(void *out, size_t out_bytes, void *in, size_t in_bytes, uint32_t step)
{
	struct strait_transfer send = {.fd = near, .peer = 1, .data = {{out, out_bytes}, {0}}};
	struct strait_transfer receive = {.fd = near, .peer = 1, .data = {{in, in_bytes / 2}}};

	receive.data[1] = (struct iovec){(char *)in + in_bytes / 2, in_bytes - in_bytes / 2};
	send.head =
		(struct strait_frame){STRAIT_FRAME_MAGIC, STRAIT_FRAME_GATHER, 0, step, out_bytes};
	receive.head =
		(struct strait_frame){STRAIT_FRAME_MAGIC, STRAIT_FRAME_GATHER, 1, step, in_bytes};
	return strait_frame_exchange(&send, &receive, &wait_10_s);
}

enum { LARGE = 5 << 20 };

/* Sends all before it receives anything: only a peer that does both at once gets on with it. */
static void *send_then_receive(void *argument)
{
	struct strait_frame head = {STRAIT_FRAME_MAGIC, STRAIT_FRAME_GATHER, 1, 32, LARGE};
	char *data = argument;
	int fd = dup(far);

	for (size_t at = 0; at < sizeof(head) + LARGE;) {
		const char *from =
			at < sizeof(head) ? (char *)&head + at : data + at - sizeof(head);
		size_t n = at < sizeof(head) ? sizeof(head) - at : sizeof(head) + LARGE - at;
		ssize_t r = send(fd, from, n, MSG_NOSIGNAL);

		if (r > 0)
			at += (size_t)r;
		else
			usleep(100);
	}
	for (size_t at = 0; at < sizeof(head) + LARGE;) {
		ssize_t r =
			recv(fd, at < sizeof(head) ? (char *)&head + at : data + at - sizeof(head),
			     at < sizeof(head) ? sizeof(head) - at : sizeof(head) + LARGE - at, 0);

		if (r > 0)
			at += (size_t)r;
		else
			usleep(100);
	}
	close(fd);
	return NULL;
}

static void test_exchange_moves_more_than_any_buffer_both_ways(void **state)
{
	uint8_t *out = malloc(LARGE), *in = calloc(1, LARGE), *theirs = malloc(LARGE);
	size_t wrong = 0;
	pthread_t peer;

	for (size_t i = 0; i < LARGE; i++) {
		out[i] = (uint8_t)(i * 7 + (i >> 9));
		theirs[i] = (uint8_t)(i * 11 + (i >> 7));
	}
	assert_int_equal(pthread_create(&peer, NULL, send_then_receive, theirs), 0);
	assert_int_equal(exchange(out, LARGE, in, LARGE, 32), 0);
	pthread_join(peer, NULL);
	for (size_t i = 0; i < LARGE; i++)
		wrong += in[i] != (uint8_t)(i * 11 + (i >> 7)) || theirs[i] != out[i];
	assert_int_equal(wrong, 0);
	free(out);
	free(in);
	free(theirs);
}

static void test_frame_of_another_length_or_step_is_not_read_as_data(void **state)
{
	const struct strait_frame wrong[] = {
		{STRAIT_FRAME_MAGIC, STRAIT_FRAME_GATHER, 1, 32, 5},
		{STRAIT_FRAME_MAGIC, STRAIT_FRAME_GATHER, 1, 64, 4},
		{STRAIT_FRAME_MAGIC, STRAIT_FRAME_GATHER, 2, 32, 4},
		{STRAIT_FRAME_MAGIC, STRAIT_FRAME_BARRIER, 1, 32, 4},
		{0x41414141, STRAIT_FRAME_GATHER, 1, 32, 4},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		char out[4] = "out", in[4] = "in";

		put(&wrong[i], sizeof(wrong[i]));
		put("datum", 5);
		assert_int_equal(exchange(out, 4, in, 4, 32), STRAIT_ERROR_REMOTE);
		assert_string_equal(in, "in");
		close_pair(state);
		make_pair(state);
	}
}

static void test_reason_of_a_peer_that_failed_comes_with_the_failure(void **state)
{
	char out[4] = "out", in[4] = "in";

	strait_frame_post_verdict(far, 1, STRAIT_ERROR_CUDA, "no such device");
	assert_int_equal(exchange(out, 4, in, 4, 32), STRAIT_ERROR_CUDA);
	assert_string_equal(strait_status_message(), "no such device");
}

static void test_goodbye_and_end_in_an_exchange_are_failures(void **state)
{
	char out[4] = "out", in[4] = "in";

	strait_frame_post(far, STRAIT_FRAME_GOODBYE, 1, 0, NULL, 0);
	assert_int_equal(exchange(out, 4, in, 4, 32), STRAIT_ERROR_REMOTE);
	assert_non_null(strstr(strait_status_message(), "rank 1 left"));
	shutdown(far, SHUT_WR);
	assert_int_equal(exchange(out, 4, in, 4, 32), STRAIT_ERROR_REMOTE);
	assert_non_null(strstr(strait_status_message(), "lost the connection to rank 1"));
}

static void test_half_sent_small_frame_ends_the_stream(void **state)
{
	char byte[4096];
	int small = 1, n_posted = 0;

	setsockopt(near, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	while (strait_frame_post(near, STRAIT_FRAME_HEARTBEAT, 0, 0, NULL, 0))
		n_posted++;
	assert_true(n_posted > 0);
	/* What the peer can read is whole frames, and perhaps the beginning of one with nothing
	 * behind it. */
	size_t n_read = 0;
	ssize_t r;

	while ((r = recv(far, byte, sizeof(byte), 0)) > 0)
		n_read += (size_t)r;
	assert_true(n_read / sizeof(struct strait_frame) == (size_t)n_posted);
	assert_true(n_read % sizeof(struct strait_frame) == 0 || r == 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_pair, close_pair)
	const struct CMUnitTest tests[] = {
		CASE(test_inbox_takes_a_frame_byte_by_byte),
		CASE(test_inbox_tells_frames_apart_that_come_at_once),
		CASE(test_inbox_refuses_what_is_no_frame_or_too_long),
		CASE(test_verdict_is_returned_as_the_failure_it_tells_of),
		CASE(test_other_frame_than_expected_is_named),
		CASE(test_exchange_moves_more_than_any_buffer_both_ways),
		CASE(test_frame_of_another_length_or_step_is_not_read_as_data),
		CASE(test_reason_of_a_peer_that_failed_comes_with_the_failure),
		CASE(test_goodbye_and_end_in_an_exchange_are_failures),
		CASE(test_half_sent_small_frame_ends_the_stream),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
