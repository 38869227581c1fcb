/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks for the tests of the bootstrap: threads of this process, or forked processes where one has
 * to die. Every wait is on an event; the only limits of time are those that the properties
 * themselves name.
 */
#pragma once
#include "channels/bootstrap.h"
#include "channels/socket.h"
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { MAX_RANKS = 33 };

struct rank {
	const uint8_t *id;
	int rank, n_ranks;
	void (*body)(struct rank *rank); /* runs with a bootstrap, adds to the result */
	const void *argument;
	const atomic_uint *abort_word;
	struct strait_bootstrap *bootstrap;
	int result; /* of strait_bootstrap_new, then of the body */
	pthread_t thread;
};

static inline void *run_rank(void *argument)
{
	struct rank *rank = argument;

	rank->result = strait_bootstrap_new(rank->id, rank->rank, rank->n_ranks, rank->abort_word,
					    &rank->bootstrap);
	if (!rank->result && rank->body)
		rank->body(rank);
	rank->bootstrap = strait_bootstrap_free(rank->bootstrap);
	return NULL;
}

static inline void start_rank(struct rank *rank)
{
	assert_int_equal(pthread_create(&rank->thread, NULL, run_rank, rank), 0);
}

static inline void finish_rank(struct rank *rank)
{
	assert_int_equal(pthread_join(rank->thread, NULL), 0);
}

static inline void run_ranks(struct rank *ranks, int n, void (*body)(struct rank *),
			     const void *argument)
{
	uint8_t id[STRAIT_ID_BYTES];

	assert_int_equal(strait_bootstrap_id_create(id), 0);
	for (int i = 0; i < n; i++) {
		ranks[i] = (struct rank){
			.id = id, .rank = i, .n_ranks = n, .body = body, .argument = argument};
		start_rank(&ranks[i]);
	}
	for (int i = 0; i < n; i++)
		finish_rank(&ranks[i]);
}

static inline void run_well(int n, void (*body)(struct rank *), const void *argument)
{
	struct rank ranks[MAX_RANKS];

	run_ranks(ranks, n, body, argument);
	for (int i = 0; i < n; i++)
		assert_int_equal(ranks[i].result, 0);
}

/* Forks one rank; the child ends with what the body returns. */
static inline pid_t fork_rank(const uint8_t *id, int rank, int n,
			      int (*body)(const uint8_t *, int, int))
{
	pid_t pid;

	fflush(NULL); /* or a child that exits would print it again */
	pid = fork();

	assert_true(pid >= 0);
	if (!pid)
		_exit(body(id, rank, n) & 0xff);
	return pid;
}

/* The exit status; -1 for a process that a signal ended. */
static inline int wait_exit(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/*
 * An id from a process of its own, which lives until end_maker(). A process that forks ranks must
 * not run a root itself when they start threads: ThreadSanitizer cannot follow threads of a child
 * whose parent had some. Ranks that are forked later hold the pipe too, so they have to end first.
 */
struct maker {
	pid_t pid;
	int end_fd;
};

static inline struct maker start_maker(uint8_t ret_id[STRAIT_ID_BYTES])
{
	struct maker maker;
	int id_pipe[2], end_pipe[2];

	if (pipe(id_pipe) || pipe(end_pipe))
		abort();
	maker.pid = fork();
	if (!maker.pid) {
		close(end_pipe[1]);
		if (strait_bootstrap_id_create(ret_id) ||
		    write(id_pipe[1], ret_id, STRAIT_ID_BYTES) != STRAIT_ID_BYTES)
			_exit(1);
		_exit(read(end_pipe[0], ret_id, 1) != 0);
	}
	close(id_pipe[1]);
	close(end_pipe[0]);
	if (read(id_pipe[0], ret_id, STRAIT_ID_BYTES) != STRAIT_ID_BYTES)
		abort();
	close(id_pipe[0]);
	maker.end_fd = end_pipe[1];
	return maker;
}

static inline int end_maker(struct maker maker)
{
	close(maker.end_fd);
	return wait_exit(maker.pid);
}

static inline int count_entries(const char *path, const char *link_prefix)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	int n = 0;

	while ((entry = readdir(dir))) {
		char target[64] = "";

		if (entry->d_name[0] == '.')
			continue;
		if (link_prefix &&
		    readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1) < 0)
			continue;
		n += !link_prefix || !strncmp(target, link_prefix, strlen(link_prefix));
	}
	closedir(dir);
	return n;
}

static inline int count_files(void)
{
	return count_entries("/proc/self/fd", NULL);
}

static inline int count_sockets(void)
{
	return count_entries("/proc/self/fd", "socket:") +
	       count_entries("/proc/self/fd", "anon_inode:[eventfd]");
}

static inline int count_threads(void)
{
	return count_entries("/proc/self/task", NULL);
}

static inline void *do_nothing(void *unused)
{
	return unused;
}

/* Before any other thread was made. Sanitizers have one of their own, from the first on. */
static inline int count_threads_at_rest(void)
{
	pthread_t first;

	pthread_create(&first, NULL, do_nothing, NULL);
	pthread_join(first, NULL);
	return count_threads();
}

/* Looks again and again, for at most `limit_ms`. */
#define becomes_true(condition, limit_ms)                                        \
	({                                                                       \
		int64_t end_ns_ = strait_now_ns() + (limit_ms)*INT64_C(1000000); \
		bool is_true_;                                                   \
		while (!(is_true_ = (condition)) && strait_now_ns() < end_ns_)   \
			usleep(1000);                                            \
		is_true_;                                                        \
	})
