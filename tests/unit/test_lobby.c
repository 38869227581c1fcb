/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that have not said yet who they are. */
#include "channels/lobby.h"
#include "tests/unit/ranks.h"
#include <errno.h>
#include <sys/socket.h>

static const struct strait_wait forever = {.alarm_fd = -1};
static const struct strait_greeting greeting = {.magic = STRAIT_GREETING_MAGIC,
						.protocol = STRAIT_PROTOCOL,
						.bytes = sizeof(greeting),
						.rank = 5};
static struct strait_lobby *lobby;
static struct strait_address address;

static int open_lobby(void **state)
{
	const struct strait_address loopback = {.family = 4, .ip = {127, 0, 0, 1}};
	int fd;

	assert_int_equal(strait_socket_listen(&loopback, &fd, &address), 0);
	lobby = strait_lobby_new(fd);
	return !lobby;
}

static int close_lobby(void **state)
{
	lobby = strait_lobby_free(lobby);
	return count_sockets();
}

static int connect_guest(const void *bytes, size_t n)
{
	int fd;

	assert_int_equal(strait_socket_connect(&address, &forever, &fd), 0);
	assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), n);
	return fd;
}

/* Waits for the next greeting; its rank. */
static int next_rank(void)
{
	struct strait_greeting came = {.rank = -1};
	int fd = -1;

	assert_true(becomes_true(strait_lobby_next(lobby, &fd, &came), 5000));
	assert_true(fd >= 0);
	strait_socket_close(fd);
	return came.rank;
}

static void test_whole_greeting_is_given_out_with_its_connection(void **state)
{
	int fd = connect_guest(&greeting, sizeof(greeting));

	assert_int_equal(next_rank(), 5);
	strait_socket_close(fd);
}

static void test_slow_greeting_does_not_hold_up_another(void **state)
{
	struct strait_greeting other = greeting;
	int slow = connect_guest(&greeting, 40), fast;

	other.rank = 6;
	fast = connect_guest(&other, sizeof(other));
	assert_int_equal(next_rank(), 6);
	assert_int_equal(send(slow, (char *)&greeting + 40, sizeof(greeting) - 40, MSG_NOSIGNAL),
			 sizeof(greeting) - 40);
	assert_int_equal(next_rank(), 5);
	strait_socket_close(slow);
	strait_socket_close(fast);
}

static void test_bytes_behind_a_greeting_are_left_for_its_owner(void **state)
{
	char both[sizeof(greeting) + 1], byte = 0;
	struct strait_greeting came;
	int fd, guest;

	memcpy(both, &greeting, sizeof(greeting));
	both[sizeof(greeting)] = 'x';
	fd = connect_guest(both, sizeof(both));
	assert_true(becomes_true(strait_lobby_next(lobby, &guest, &came), 5000));
	assert_int_equal(recv(guest, &byte, 1, 0), 1);
	assert_int_equal(byte, 'x');
	strait_socket_close(guest);
	strait_socket_close(fd);
}

static void test_other_protocol_is_given_out_with_its_fixed_part(void **state)
{
	struct strait_greeting other = greeting, came;
	int fd, guest;

	other.protocol = STRAIT_PROTOCOL + 1;
	fd = connect_guest(&other, offsetof(struct strait_greeting, build));
	assert_true(becomes_true(strait_lobby_next(lobby, &guest, &came), 5000));
	assert_int_equal(came.protocol, STRAIT_PROTOCOL + 1);
	strait_socket_close(guest);
	strait_socket_close(fd);
}

static bool is_closed(int fd)
{
	struct strait_greeting unused;
	int guest;
	char byte;

	assert_false(strait_lobby_next(lobby, &guest, &unused));
	return recv(fd, &byte, 1, MSG_DONTWAIT) == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

static void test_first_wrong_byte_ends_a_connection(void **state)
{
	int fd = connect_guest("S", 1), wrong = connect_guest("G", 1);

	assert_true(becomes_true(is_closed(wrong), 5000));
	assert_false(is_closed(fd));
	assert_int_equal(lobby->n_guests, 1);
	strait_socket_close(fd);
	strait_socket_close(wrong);
}

static void test_silent_guest_is_sent_away_when_its_time_is_over(void **state)
{
	int fd = connect_guest("", 0);

	assert_true(becomes_true((is_closed(fd), lobby->n_guests == 1), 5000));
	lobby->guests[0].deadline_ns = strait_now_ns() - 1;
	assert_true(becomes_true(is_closed(fd), 5000));
	assert_int_equal(lobby->n_guests, 0);
	strait_socket_close(fd);
}

static void test_full_lobby_gives_away_old_places_only(void **state)
{
	int fds[STRAIT_LOBBY_PLACES], last;

	for (int i = 0; i < STRAIT_LOBBY_PLACES; i++)
		fds[i] = connect_guest("", 0);
	assert_true(
		becomes_true((is_closed(fds[0]), lobby->n_guests == STRAIT_LOBBY_PLACES), 5000));
	for (int i = 0; i < STRAIT_LOBBY_PLACES; i++)
		lobby->guests[i].deadline_ns = strait_now_ns() + INT64_C(4900000000);
	last = connect_guest(&greeting, sizeof(greeting));
	assert_false(is_closed(fds[0]));
	assert_int_equal(lobby->n_guests, STRAIT_LOBBY_PLACES);
	lobby->guests[0].deadline_ns = strait_now_ns() + INT64_C(3000000000);
	assert_int_equal(next_rank(), 5);
	assert_true(is_closed(fds[0]));
	assert_false(is_closed(fds[1]));
	for (int i = 0; i < STRAIT_LOBBY_PLACES; i++)
		strait_socket_close(fds[i]);
	strait_socket_close(last);
}

/* As many as a large job has ranks: all have greeted before the first is looked at. */
static void test_burst_beyond_the_places_is_served_to_the_last(void **state)
{
	int fds[2 * STRAIT_LOBBY_PLACES];
	int sum = 0;

	for (int i = 0; i < 2 * STRAIT_LOBBY_PLACES; i++) {
		struct strait_greeting mine = greeting;

		mine.rank = i;
		fds[i] = connect_guest(&mine, sizeof(mine));
	}
	for (int i = 0; i < 2 * STRAIT_LOBBY_PLACES; i++)
		sum += next_rank();
	assert_int_equal(sum, STRAIT_LOBBY_PLACES * (2 * STRAIT_LOBBY_PLACES - 1));
	for (int i = 0; i < 2 * STRAIT_LOBBY_PLACES; i++)
		strait_socket_close(fds[i]);
}

static void test_poll_entries_are_the_listener_and_the_guests(void **state)
{
	struct pollfd poll_fds[STRAIT_LOBBY_PLACES + 1];
	int fd = connect_guest("S", 1);

	assert_int_equal(strait_lobby_fill(lobby, poll_fds), 1);
	assert_true(becomes_true((is_closed(fd), strait_lobby_fill(lobby, poll_fds) == 2), 5000));
	strait_lobby_lock(lobby);
	assert_int_equal(strait_lobby_fill(lobby, poll_fds), 1);
	assert_int_equal(poll_fds[0].fd, lobby->guests[0].fd);
	strait_socket_close(fd);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_lobby, close_lobby)
	const struct CMUnitTest tests[] = {
		CASE(test_whole_greeting_is_given_out_with_its_connection),
		CASE(test_slow_greeting_does_not_hold_up_another),
		CASE(test_bytes_behind_a_greeting_are_left_for_its_owner),
		CASE(test_other_protocol_is_given_out_with_its_fixed_part),
		CASE(test_first_wrong_byte_ends_a_connection),
		CASE(test_silent_guest_is_sent_away_when_its_time_is_over),
		CASE(test_full_lobby_gives_away_old_places_only),
		CASE(test_burst_beyond_the_places_is_served_to_the_last),
		CASE(test_poll_entries_are_the_listener_and_the_guests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
