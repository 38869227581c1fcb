/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root against good ranks, bad ranks and strangers. Good ones are threads that call
 * strait_bootstrap_new(); bad ones are connections of this file that speak the protocol up to the
 * fault.
 */
#include "channels/bootstrap_root.h"
#include "channels/unique_id.h"
#include "strait/status.h"
#include "tests/unit/ranks.h"
#include <poll.h>
#include <sys/socket.h>

static uint8_t id[STRAIT_ID_BYTES];

static struct rank *start_good(int rank, int n_ranks)
{
	struct rank *good = calloc(1, sizeof(*good));

	*good = (struct rank){.id = id, .rank = rank, .n_ranks = n_ranks};
	start_rank(good);
	return good;
}

static int finish_good(struct rank *good)
{
	int result;

	finish_rank(good);
	result = good->result;
	free(good);
	return result;
}

static int connect_stranger(void)
{
	struct strait_wait wait = {.deadline_ns = strait_now_ns() + INT64_C(10000000000),
				   .alarm_fd = -1};
	struct strait_unique_id ours;
	int fd;

	assert_int_equal(strait_unique_id_read(id, &ours), 0);
	assert_int_equal(strait_socket_connect(&ours.root, &wait, &fd), 0);
	return fd;
}

static void send_bytes(int fd, const void *bytes, size_t n)
{
	assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), n);
}

static struct strait_greeting greeting_of(int rank, int n_ranks)
{
	struct strait_unique_id ours;
	struct strait_greeting greeting = {.magic = STRAIT_GREETING_MAGIC,
					   .protocol = STRAIT_PROTOCOL,
					   .bytes = sizeof(greeting),
					   .build = strait_build_hash(),
					   .kind = STRAIT_GREETING_JOIN,
					   .rank = rank,
					   .n_ranks = n_ranks};

	assert_int_equal(strait_unique_id_read(id, &ours), 0);
	memcpy(greeting.nonce, ours.nonce, sizeof(greeting.nonce));
	greeting.address = ours.root;
	return greeting;
}

static int join_by_hand(int rank, int n_ranks)
{
	struct strait_greeting greeting = greeting_of(rank, n_ranks);
	int fd = connect_stranger();

	send_bytes(fd, &greeting, sizeof(greeting));
	return fd;
}

/* The status of the verdict that comes; its text in `ret_text`. */
static int read_verdict(int fd, char ret_text[STRAIT_VERDICT_TEXT])
{
	struct strait_wait wait = {.deadline_ns = strait_now_ns() + INT64_C(10000000000),
				   .alarm_fd = -1};
	struct strait_inbox inbox;
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	int r;

	strait_inbox_clear(&inbox);
	while ((r = strait_inbox_read(&inbox, fd)) == STRAIT_INBOX_EMPTY)
		assert_int_equal(strait_socket_poll(&poll_fd, 1, &wait, "a verdict"), 0);
	assert_int_equal(r, STRAIT_INBOX_FULL);
	assert_int_equal(inbox.head.type, STRAIT_FRAME_VERDICT);
	strait_socket_close(fd);
	snprintf(ret_text, STRAIT_VERDICT_TEXT, "%s", inbox.body.verdict.text);
	return inbox.body.verdict.status;
}

static void assert_message_has(const char *words)
{
	if (!strstr(strait_status_message(), words))
		fail_msg("\"%s\" is not in \"%s\"", words, strait_status_message());
}

static int create_id(void **state)
{
	return strait_bootstrap_id_create(id);
}

static void test_rank_that_comes_twice_fails_all_and_late_ones_too(void **state)
{
	struct rank *good[] = {start_good(0, 4), start_good(1, 4), start_good(1, 4)};

	for (int i = 0; i < 3; i++)
		assert_int_equal(finish_good(good[i]), STRAIT_ERROR_ARGUMENT);
	assert_message_has("rank 1 came twice");
	strait_fail(STRAIT_ERROR_INTERNAL, "another message");
	assert_int_equal(finish_good(start_good(3, 4)), STRAIT_ERROR_ARGUMENT);
	assert_message_has("rank 1 came twice");
}

static void test_ranks_that_disagree_on_their_number_all_fail(void **state)
{
	struct rank *good[] = {start_good(0, 3), start_good(1, 3), start_good(2, 4)};

	for (int i = 0; i < 3; i++)
		assert_int_equal(finish_good(good[i]), STRAIT_ERROR_ARGUMENT);
	assert_message_has("disagree on their number");
}

static void test_rank_of_another_protocol_fails_all_and_is_told(void **state)
{
	struct rank *good[] = {start_good(0, 3), start_good(1, 3)};
	struct strait_greeting greeting = greeting_of(2, 3);
	char text[STRAIT_VERDICT_TEXT];
	int fd = connect_stranger();

	greeting.protocol = 77;
	/* Only the part that all versions have in common. */
	send_bytes(fd, &greeting, offsetof(struct strait_greeting, build));
	assert_int_equal(read_verdict(fd, text), STRAIT_ERROR_REMOTE);
	assert_non_null(strstr(text, "different versions"));
	for (int i = 0; i < 2; i++)
		assert_int_equal(finish_good(good[i]), STRAIT_ERROR_REMOTE);
}

static void test_rank_of_another_build_fails_all_and_is_told(void **state)
{
	struct rank *good[] = {start_good(0, 3), start_good(1, 3)};
	struct strait_greeting greeting = greeting_of(2, 3);
	char text[STRAIT_VERDICT_TEXT];
	int fd = connect_stranger();

	greeting.build ^= 1;
	send_bytes(fd, &greeting, sizeof(greeting));
	assert_int_equal(read_verdict(fd, text), STRAIT_ERROR_REMOTE);
	assert_non_null(strstr(text, "rank 2 runs another build"));
	for (int i = 0; i < 2; i++)
		assert_int_equal(finish_good(good[i]), STRAIT_ERROR_REMOTE);
}

static void test_id_of_another_root_is_refused_and_disturbs_nobody(void **state)
{
	struct rank *good = start_good(0, 2);
	struct strait_greeting greeting = greeting_of(1, 2);
	char text[STRAIT_VERDICT_TEXT];
	int fd = connect_stranger();

	greeting.nonce[3] ^= 1;
	send_bytes(fd, &greeting, sizeof(greeting));
	assert_int_equal(read_verdict(fd, text), STRAIT_ERROR_REMOTE);
	assert_non_null(strstr(text, "out of date"));
	assert_int_equal(finish_good(start_good(1, 2)), 0);
	assert_int_equal(finish_good(good), 0);
}

static void test_strangers_neither_hold_up_nor_fail_ranks(void **state)
{
	static const char http[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
	struct strait_greeting greeting = greeting_of(0, 3);
	int strangers[300], fd;
	struct rank *good[3];
	char byte;

	good[0] = start_good(0, 3);
	/* More than the lobby holds; silent, or with a part of what a rank says. */
	for (int i = 0; i < 300; i++) {
		strangers[i] = connect_stranger();
		send_bytes(strangers[i], &greeting, i % 2 ? 0 : (size_t)i % sizeof(greeting));
	}
	good[1] = start_good(1, 3);
	fd = connect_stranger();
	send_bytes(fd, http, sizeof(http));
	/* The root closes it, whether by an end or by a reset. */
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

	assert_int_equal(poll(&poll_fd, 1, 10000), 1);
	assert_true(recv(fd, &byte, 1, 0) <= 0);
	strait_socket_close(fd);
	good[2] = start_good(2, 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(finish_good(good[i]), 0);
	for (int i = 0; i < 300; i++)
		strait_socket_close(strangers[i]);
}

static void test_rank_that_dies_while_others_are_awaited_fails_them_within_2_s(void **state)
{
	struct rank *good[] = {start_good(0, 4), start_good(1, 4)};
	int fd = join_by_hand(2, 4);
	int64_t begin_ns = strait_now_ns();

	strait_socket_close(fd);
	for (int i = 0; i < 2; i++)
		assert_int_equal(finish_good(good[i]), STRAIT_ERROR_REMOTE);
	assert_true(strait_now_ns() - begin_ns < INT64_C(2000000000));
	assert_message_has("rank 2 died");
}

static void test_rank_that_never_connects_fails_all_after_the_limit(void **state)
{
	struct rank *good[] = {start_good(0, 3), start_good(1, 3)};
	struct strait_greeting greeting = greeting_of(2, 3);
	int fd = connect_stranger(), listen_fd;

	/* It can be reached, but does no more than join. */
	greeting.address.port = 0;
	assert_int_equal(strait_socket_listen(&greeting.address, &listen_fd, &greeting.address), 0);
	send_bytes(fd, &greeting, sizeof(greeting));
	for (int i = 0; i < 2; i++)
		assert_int_equal(finish_good(good[i]), STRAIT_ERROR_REMOTE);
	strait_socket_close(listen_fd);
	strait_socket_close(fd);
}

static void test_failure_of_one_rank_reaches_all_with_its_reason(void **state)
{
	struct rank *good[] = {start_good(0, 3), start_good(1, 3)};
	int fd = join_by_hand(2, 3);

	strait_frame_post_verdict(fd, 2, STRAIT_ERROR_SYSTEM, "the machine is on fire");
	for (int i = 0; i < 2; i++)
		assert_int_equal(finish_good(good[i]), STRAIT_ERROR_SYSTEM);
	assert_message_has("rank 2: the machine is on fire");
	strait_socket_close(fd);
}

static void test_rank_that_sends_garbage_after_joining_fails_all(void **state)
{
	struct rank *good[] = {start_good(0, 3), start_good(1, 3)};
	int fd = join_by_hand(2, 3);
	char garbage[64];

	memset(garbage, 0x41, sizeof(garbage));
	send_bytes(fd, garbage, sizeof(garbage));
	for (int i = 0; i < 2; i++)
		assert_int_equal(finish_good(good[i]), STRAIT_ERROR_REMOTE);
	strait_socket_close(fd);
}

static void test_absurd_number_of_ranks_is_refused(void **state)
{
	char text[STRAIT_VERDICT_TEXT];

	assert_int_equal(read_verdict(join_by_hand(0, 1 << 30), text), STRAIT_ERROR_ARGUMENT);
}

static void test_links_reach_every_rank_in_as_many_steps(void **state)
{
	for (int n = 1; n <= 2000; n++) {
		int k = strait_bootstrap_n_links(n);

		assert_true((1 << k) >= n);
		assert_true(k == 0 || (1 << (k - 1)) < n);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_rank_that_comes_twice_fails_all_and_late_ones_too,
				       create_id),
		cmocka_unit_test_setup(test_ranks_that_disagree_on_their_number_all_fail,
				       create_id),
		cmocka_unit_test_setup(test_rank_of_another_protocol_fails_all_and_is_told,
				       create_id),
		cmocka_unit_test_setup(test_rank_of_another_build_fails_all_and_is_told, create_id),
		cmocka_unit_test_setup(test_id_of_another_root_is_refused_and_disturbs_nobody,
				       create_id),
		cmocka_unit_test_setup(test_strangers_neither_hold_up_nor_fail_ranks, create_id),
		cmocka_unit_test_setup(
			test_rank_that_dies_while_others_are_awaited_fails_them_within_2_s,
			create_id),
		cmocka_unit_test_setup(test_rank_that_never_connects_fails_all_after_the_limit,
				       create_id),
		cmocka_unit_test_setup(test_failure_of_one_rank_reaches_all_with_its_reason,
				       create_id),
		cmocka_unit_test_setup(test_rank_that_sends_garbage_after_joining_fails_all,
				       create_id),
		cmocka_unit_test_setup(test_absurd_number_of_ranks_is_refused, create_id),
		cmocka_unit_test(test_links_reach_every_rank_in_as_many_steps),
	};

	/* One test waits for this limit. */
	setenv("STRAIT_BOOTSTRAP_TIMEOUT", "4", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
