/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors between ranks: what arrives is the peer's file, whoever wants whom, and failures keep
 * all in step. */
#include "channels/bootstrap.h"
#include "strait/status.h"
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { MAX_RANKS = 8 };

/* A file that holds its maker's rank. */
static int make_file(int rank)
{
	int fd = memfd_create("rank", MFD_CLOEXEC);

	if (fd < 0 || pwrite(fd, &rank, sizeof(rank), 0) != sizeof(rank))
		abort();
	return fd;
}

static bool holds(int fd, int rank)
{
	int found = -1;

	return fd >= 0 && pread(fd, &found, sizeof(found), 0) == sizeof(found) && found == rank;
}

/* Ranks want each other when a bit of `pairs` says so, symmetric in the two. */
static bool wants(unsigned pairs, int a, int b)
{
	int low = a < b ? a : b, high = a < b ? b : a;

	return a != b && (pairs >> ((low * 3 + high * 5) % 32) & 1);
}

/* 0 when every rank that is wanted, and no other, gave its own file. Ranks divisible by `none_each`
 * give none. */
static int exchange(struct strait_bootstrap *bootstrap, unsigned pairs, int none_each)
{
	int rank = strait_bootstrap_rank(bootstrap), n = strait_bootstrap_n_ranks(bootstrap), r;
	int fds[MAX_RANKS], file = rank % none_each ? make_file(rank) : -1;
	bool wanted[MAX_RANKS];

	for (int i = 0; i < n; i++) {
		wanted[i] = wants(pairs, rank, i);
		fds[i] = -2;
	}
	r = strait_bootstrap_exchange_fds(bootstrap, file, wanted, fds);
	for (int i = 0; i < n && !r; i++) {
		bool must_come = wanted[i] && i % none_each;

		if (must_come ? !holds(fds[i], i) : fds[i] != -1)
			r = 1;
		if (fds[i] >= 0)
			close(fds[i]);
	}
	if (file >= 0)
		close(file);
	return r;
}

static int join_and_exchange(const uint8_t *id, int rank, int n)
{
	static const unsigned pairs[] = {~0u, 0, 0x5a5a5a5a, 0x12481248, ~0u};
	struct strait_bootstrap *bootstrap;
	int r = strait_bootstrap_new(id, rank, n, NULL, &bootstrap);

	if (r)
		return r;
	for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs) && !r; i++)
		r = exchange(bootstrap, pairs[i], i % 2 ? 3 : 100);
	strait_bootstrap_free(bootstrap);
	return r;
}

/* Forks `n` ranks; the statuses of their bodies. */
static void fork_ranks(int n, int (*body)(const uint8_t *, int, int), int *ret_statuses)
{
	uint8_t id[STRAIT_ID_BYTES];
	pid_t pids[MAX_RANKS];

	assert_int_equal(strait_bootstrap_id_create(id), 0);
	for (int rank = 0; rank < n; rank++) {
		pids[rank] = fork();
		assert_true(pids[rank] >= 0);
		if (!pids[rank])
			_exit(body(id, rank, n) & 0xff);
	}
	for (int rank = 0; rank < n; rank++) {
		int status;

		assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
		ret_statuses[rank] = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	}
}

static void test_processes_get_the_files_of_those_they_want(void **state)
{
	for (int n = 1; n <= MAX_RANKS; n++) {
		int statuses[MAX_RANKS];

		fork_ranks(n, join_and_exchange, statuses);
		for (int rank = 0; rank < n; rank++)
			assert_int_equal(statuses[rank], 0);
	}
}

/* A descriptor that is not open cannot be sent: the exchange fails, and the bootstrap goes on. */
static int offer_a_closed_file(const uint8_t *id, int rank, int n)
{
	struct strait_bootstrap *bootstrap;
	int file = rank == 1 ? 12345 : make_file(rank), fds[MAX_RANKS], r;
	bool wanted[MAX_RANKS];

	if (strait_bootstrap_new(id, rank, n, NULL, &bootstrap))
		return 1;
	for (int i = 0; i < n; i++)
		wanted[i] = i != rank;
	r = strait_bootstrap_exchange_fds(bootstrap, file, wanted, fds);
	if (!r || strait_bootstrap_agree(bootstrap, r) >= 0)
		return 2;
	return strait_bootstrap_barrier(bootstrap) ? 3 : exchange(bootstrap, ~0u, 100);
}

static void test_failed_exchange_leaves_ranks_in_step(void **state)
{
	int statuses[3];

	fork_ranks(3, offer_a_closed_file, statuses);
	for (int rank = 0; rank < 3; rank++)
		assert_int_equal(statuses[rank], 0);
}

static int n_open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* Rank 1 moves its Unix sockets out of sight of the others; the TCP connections stand already. */
static int hide_one_rank(const uint8_t *id, int rank, int n)
{
	struct strait_bootstrap *bootstrap;
	int fds[MAX_RANKS], r, hidden[MAX_RANKS] = {0};
	bool wanted[MAX_RANKS];

	if (strait_bootstrap_new(id, rank, n, NULL, &bootstrap))
		return 1;
	hidden[rank] = rank == 1 && !unshare(CLONE_NEWNET);
	if (strait_bootstrap_allgather(bootstrap, hidden, sizeof(hidden[0])))
		return 2;
	int before = n_open_files(), file = make_file(rank);

	for (int i = 0; i < n; i++)
		wanted[i] = i != rank;
	r = strait_bootstrap_exchange_fds(bootstrap, file, wanted, fds);
	close(file);
	if (!hidden[1])
		return 77;
	if (!r || n_open_files() != before)
		return 3;
	return strait_bootstrap_agree(bootstrap, r) < 0 ? 0 : 4;
}

static void test_other_network_namespace_is_a_failure_without_a_hang_or_a_leak(void **state)
{
	int statuses[3];

	fork_ranks(3, hide_one_rank, statuses);
	if (statuses[1] == 77)
		skip(); /* no permission to make a network namespace */
	for (int rank = 0; rank < 3; rank++)
		assert_int_equal(statuses[rank], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_processes_get_the_files_of_those_they_want),
		cmocka_unit_test(test_failed_exchange_leaves_ranks_in_step),
		cmocka_unit_test(
			test_other_network_namespace_is_a_failure_without_a_hang_or_a_leak),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
