/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the ranks of a run meet and keep step, without the library that is measured and without MPI:
 * a star of sockets between the processes (Unix or TCP), pthread barriers between the threads of
 * one.
 *
 * A member is a thread; its number is process x threads a process + thread. A process that finds
 * another one gone says so and ends; a process that hangs is its launcher's business.
 */
#pragma once
#include <pthread.h>
#include <stddef.h>

struct bench_gang {
	int process, n_processes, n_threads;
	int *sockets; /* process 0: one to each process (its own is -1); others: one, to process 0
		       */
	pthread_barrier_t barrier;
	char *all; /* the gathered entries, while a gather is on */
};

/* Meets the others at `address`: "unix:NAME" (abstract) or "tcp:HOST:PORT", where process 0
 * listens. Waits up to limit_s. Dies on failure. */
void bench_gang_init(struct bench_gang *gang, const char *address, int process, int n_processes,
		     int n_threads, int limit_s);

/* Closes the connections. After the last collective; by one thread. */
void bench_gang_deinit(struct bench_gang *gang);

/* Collective over all members. data: one entry a member; own entry set on entry, all set on return.
 */
void bench_gang_allgather(struct bench_gang *gang, int thread, void *data, size_t bytes);
void bench_gang_barrier(struct bench_gang *gang, int thread);
