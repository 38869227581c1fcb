/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses, the list of descriptors, and the ends that a wait can have. */
#include "channels/socket.h"
#include "strait/status.h"
#include "tests/unit/ranks.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>

static const struct strait_address loopback = {.family = 4, .ip = {127, 0, 0, 1}};
static const struct strait_wait forever = {.alarm_fd = -1};

static void make_pair(int *ret_near, int *ret_far)
{
	struct strait_address bound;
	struct pollfd poll_fd = {.events = POLLIN};
	int listen_fd;

	assert_int_equal(strait_socket_listen(&loopback, &listen_fd, &bound), 0);
	assert_int_equal(strait_socket_connect(&bound, &forever, ret_near), 0);
	poll_fd.fd = listen_fd;
	assert_int_equal(poll(&poll_fd, 1, 10000), 1);
	*ret_far = strait_socket_accept(listen_fd);
	assert_true(*ret_far >= 0);
	strait_socket_close(listen_fd);
}

static void test_address_text_parses_back_to_the_address(void **state)
{
	static const char *const texts[] = {"10.1.2.3:4567", "[::1]:80", "[fe80::1:2]:65535",
					    "0.0.0.0:1"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		struct strait_address address;
		char text[STRAIT_ADDRESS_TEXT];

		assert_int_equal(strait_address_parse(texts[i], 0, &address), 0);
		assert_string_equal(strait_address_text(&address, text), texts[i]);
	}
}

static void test_text_that_is_no_address_is_an_argument_error(void **state)
{
	static const char *const texts[] = {"",         "1.2.3.4", ":80",
					    "1.2.3.4:", "[]:3",    "no.such.host.invalid:1"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		struct strait_address address = {.family = 99};

		assert_int_equal(strait_address_parse(texts[i], 0, &address),
				 STRAIT_ERROR_ARGUMENT);
		assert_int_equal(address.family, 99);
	}
}

static void test_descriptors_do_not_pass_to_executed_programs(void **state)
{
	int fds[4];

	make_pair(&fds[0], &fds[1]);
	fds[2] = strait_socket_unix();
	fds[3] = strait_socket_event();
	for (int i = 0; i < 4; i++) {
		assert_true(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
		assert_true(fcntl(fds[i], F_GETFL) & O_NONBLOCK);
		assert_int_equal(strait_socket_close(fds[i]), -1);
	}
}

static void test_close_leaves_descriptors_of_others_alone(void **state)
{
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	strait_socket_close(fds[0]);
	strait_socket_close_softly(fds[1]);
	strait_socket_close(-1);
	assert_int_equal(write(fds[1], "x", 1), 1);
	close(fds[0]);
	close(fds[1]);
}

static void test_forked_child_is_another_generation_without_descriptors(void **state)
{
	unsigned generation = strait_socket_generation();
	int before = count_sockets(), near, far;
	pid_t pid;

	make_pair(&near, &far);
	pid = fork();
	if (!pid)
		_exit(count_sockets() != before || strait_socket_generation() == generation);
	assert_int_equal(wait_exit(pid), 0);
	assert_int_equal(strait_socket_generation(), generation);
	assert_int_equal(send(near, "x", 1, MSG_NOSIGNAL), 1);
	strait_socket_close(near);
	strait_socket_close(far);
}

static void test_nobody_listening_is_a_condition_not_a_failure(void **state)
{
	struct strait_address bound;
	int fd = -7, listen_fd;

	assert_int_equal(strait_socket_listen(&loopback, &listen_fd, &bound), 0);
	strait_socket_close(listen_fd);
	assert_int_equal(strait_socket_connect(&bound, &forever, &fd), STRAIT_SOCKET_REFUSED);
	assert_int_equal(fd, -7);
}

static void test_port_is_free_at_once_after_its_listener_has_closed(void **state)
{
	struct strait_address bound, again;
	int listen_fd, near, far;
	struct pollfd poll_fd = {.events = POLLIN};

	assert_int_equal(strait_socket_listen(&loopback, &listen_fd, &bound), 0);
	strait_socket_close(listen_fd);
	assert_int_equal(strait_socket_listen(&bound, &listen_fd, &again), 0);
	assert_int_equal(strait_socket_connect(&bound, &forever, &near), 0);
	poll_fd.fd = listen_fd;
	assert_int_equal(poll(&poll_fd, 1, 10000), 1);
	far = strait_socket_accept(listen_fd);
	strait_socket_close(listen_fd);
	strait_socket_close(far); /* first: its side remembers the connection */
	strait_socket_close(near);
	assert_int_equal(strait_socket_listen(&bound, &listen_fd, &again), 0);
	assert_int_equal(again.port, bound.port);
	strait_socket_close(listen_fd);
}

static void test_wait_ends_by_abort_word_deadline_and_alarm(void **state)
{
	atomic_uint word = 0;
	struct strait_wait wait = {&word, 0, -1};
	int near, far;

	make_pair(&near, &far);
	assert_int_equal(strait_socket_poll(NULL, 0, &wait, "nothing"), 0);
	wait.deadline_ns = strait_now_ns() - 1;
	assert_int_equal(strait_socket_poll(NULL, 0, &wait, "nothing"), STRAIT_ERROR_REMOTE);
	wait.deadline_ns = 0;
	wait.alarm_fd = near;
	assert_int_equal(strait_socket_poll(NULL, 0, &wait, "nothing"), 0);
	assert_int_equal(send(far, "x", 1, MSG_NOSIGNAL), 1);
	assert_true(becomes_true(
		strait_socket_poll(NULL, 0, &wait, "nothing") == STRAIT_SOCKET_ALARM, 5000));
	atomic_store(&word, 1);
	assert_int_equal(strait_socket_poll(NULL, 0, &wait, "nothing"), STRAIT_ERROR_REMOTE);
	strait_socket_close(near);
	strait_socket_close(far);
}

static void test_sending_to_a_closed_connection_raises_no_signal(void **state)
{
	char byte = 0;
	struct iovec piece = {&byte, 1};
	int near, far;
	long n;

	signal(SIGPIPE, SIG_DFL);
	make_pair(&near, &far);
	strait_socket_close(far);
	assert_true(becomes_true((n = strait_socket_send_some(near, &piece, 1)) < 0, 5000));
	strait_socket_close(near);
}

/* Unread input would make a plain close() a reset, which can drop what was said last. */
static void test_soft_close_delivers_the_last_words_despite_unread_input(void **state)
{
	char words[8] = "";
	struct iovec piece = {words, sizeof(words)};
	int near, far;
	long n;

	make_pair(&near, &far);
	assert_int_equal(send(far, "unread", 6, MSG_NOSIGNAL), 6);
	assert_int_equal(send(near, "bye", 4, MSG_NOSIGNAL), 4);
	strait_socket_close_softly(near);
	assert_true(becomes_true((n = strait_socket_receive_some(far, &piece, 1)) != 0, 5000));
	assert_int_equal(n, 4);
	assert_string_equal(words, "bye");
	assert_true(becomes_true((n = strait_socket_receive_some(far, &piece, 1)) != 0, 5000));
	assert_int_equal(n, -1);
	assert_int_equal(errno, 0); /* an end, no reset */
	strait_socket_close(far);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_address_text_parses_back_to_the_address),
		cmocka_unit_test(test_text_that_is_no_address_is_an_argument_error),
		cmocka_unit_test(test_descriptors_do_not_pass_to_executed_programs),
		cmocka_unit_test(test_close_leaves_descriptors_of_others_alone),
		cmocka_unit_test(test_forked_child_is_another_generation_without_descriptors),
		cmocka_unit_test(test_nobody_listening_is_a_condition_not_a_failure),
		cmocka_unit_test(test_port_is_free_at_once_after_its_listener_has_closed),
		cmocka_unit_test(test_wait_ends_by_abort_word_deadline_and_alarm),
		cmocka_unit_test(test_sending_to_a_closed_connection_raises_no_signal),
		cmocka_unit_test(test_soft_close_delivers_the_last_words_despite_unread_input),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
