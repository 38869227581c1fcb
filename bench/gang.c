/* SPDX-License-Identifier: Apache-2.0 */
/* Process 0 collects from all and answers all: two messages a process and step, which is enough for
 * a hundred. */
#include "bench/gang.h"
#include "bench/report.h"
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

struct hello {
	uint32_t magic, process, n_processes, n_threads;
};

#define HELLO_MAGIC 0x53425231

struct address {
	struct sockaddr_storage storage;
	socklen_t length;
	int family;
};

static void resolve_unix(const char *name, struct address *ret)
{
	struct sockaddr_un *sun = (struct sockaddr_un *)&ret->storage;
	size_t length = strlen(name);

	if (length >= sizeof(sun->sun_path) - 1)
		bench_die("rendezvous name too long: %s", name);
	sun->sun_family = AF_UNIX;
	memcpy(sun->sun_path + 1, name,
	       length); /* the leading NUL makes it abstract: no file is left behind */
	ret->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
	ret->family = AF_UNIX;
}

static void resolve_tcp(const char *text, struct address *ret)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
	char host[256];
	const char *port = strrchr(text, ':');
	int r;

	if (!port || port == text || port - text >= (long)sizeof(host))
		bench_die("rendezvous %s: HOST:PORT is wanted", text);
	snprintf(host, sizeof(host), "%.*s", (int)(port - text), text);
	r = getaddrinfo(host, port + 1, &hints, &found);
	if (r != 0)
		bench_die("rendezvous %s: %s", text, gai_strerror(r));
	memcpy(&ret->storage, found->ai_addr, found->ai_addrlen);
	ret->length = found->ai_addrlen;
	ret->family = found->ai_family;
	freeaddrinfo(found);
}

static void resolve(const char *text, struct address *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (strncmp(text, "unix:", 5) == 0)
		resolve_unix(text + 5, ret);
	else if (strncmp(text, "tcp:", 4) == 0)
		resolve_tcp(text + 4, ret);
	else
		bench_die("rendezvous %s: unix:NAME or tcp:HOST:PORT is wanted", text);
}

static void transfer(int fd, void *data, size_t bytes, bool sends, int peer)
{
	char *at = data;

	while (bytes > 0) {
		ssize_t n = sends ? send(fd, at, bytes, MSG_NOSIGNAL) : recv(fd, at, bytes, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			bench_die("process %d is gone", peer);
		at += n;
		bytes -= (size_t)n;
	}
}

static int new_socket(const struct address *address)
{
	int fd = socket(address->family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (fd < 0)
		bench_die("socket: %s", strerror(errno));
	if (address->family != AF_UNIX) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	}
	return fd;
}

static void accept_all(struct bench_gang *gang, const struct address *address, const char *text,
		       int limit_s)
{
	struct timeval limit = {.tv_sec = limit_s};
	int listener = new_socket(address), one = 1;

	if (bind(listener, (const struct sockaddr *)&address->storage, address->length) < 0 ||
	    listen(listener, gang->n_processes) < 0)
		bench_die("cannot listen at %s: %s", text, strerror(errno));
	setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	for (int n = 1; n < gang->n_processes; n++) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		struct hello hello;

		if (fd < 0)
			bench_die("%d of %d processes came within %d s", n, gang->n_processes,
				  limit_s);
		transfer(fd, &hello, sizeof(hello), false, -1);
		if (hello.magic != HELLO_MAGIC ||
		    hello.n_processes != (uint32_t)gang->n_processes ||
		    hello.n_threads != (uint32_t)gang->n_threads || hello.process == 0 ||
		    hello.process >= hello.n_processes || gang->sockets[hello.process] >= 0)
			bench_die("a process that does not belong to this run called at %s", text);
		if (address->family != AF_UNIX)
			setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		gang->sockets[hello.process] = fd;
	}
	close(listener);
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int connect_within(const struct address *address, const char *text, int limit_s)
{
	struct timespec pause = {.tv_nsec = 5000000};
	double end = now_s() + limit_s;

	for (;;) {
		int fd = new_socket(address);

		if (connect(fd, (const struct sockaddr *)&address->storage, address->length) == 0)
			return fd;
		close(fd);
		if (now_s() > end)
			bench_die("nobody answers at %s: %s", text, strerror(errno));
		nanosleep(&pause, NULL); /* process 0 may not listen yet */
	}
}

void bench_gang_init(struct bench_gang *gang, const char *address_text, int process,
		     int n_processes, int n_threads, int limit_s)
{
	struct hello hello = {HELLO_MAGIC, (uint32_t)process, (uint32_t)n_processes,
			      (uint32_t)n_threads};
	struct address address;

	memset(gang, 0, sizeof(*gang));
	gang->process = process;
	gang->n_processes = n_processes;
	gang->n_threads = n_threads;
	pthread_barrier_init(&gang->barrier, NULL, (unsigned)n_threads);
	gang->sockets = malloc((size_t)n_processes * sizeof(int));
	for (int p = 0; p < n_processes; p++)
		gang->sockets[p] = -1;
	if (n_processes == 1)
		return;
	resolve(address_text, &address);
	if (process == 0) {
		accept_all(gang, &address, address_text, limit_s);
	} else {
		gang->sockets[0] = connect_within(&address, address_text, limit_s);
		transfer(gang->sockets[0], &hello, sizeof(hello), true, 0);
	}
}

void bench_gang_deinit(struct bench_gang *gang)
{
	for (int p = 0; p < gang->n_processes; p++)
		if (gang->sockets[p] >= 0)
			close(gang->sockets[p]);
	free(gang->sockets);
	pthread_barrier_destroy(&gang->barrier);
}

static void gather_processes(struct bench_gang *gang, size_t bytes)
{
	size_t total = bytes * (size_t)gang->n_processes;

	if (gang->process == 0) {
		for (int p = 1; p < gang->n_processes; p++)
			transfer(gang->sockets[p], gang->all + (size_t)p * bytes, bytes, false, p);
		for (int p = 1; p < gang->n_processes; p++)
			transfer(gang->sockets[p], gang->all, total, true, p);
	} else {
		transfer(gang->sockets[0], gang->all + (size_t)gang->process * bytes, bytes, true,
			 0);
		transfer(gang->sockets[0], gang->all, total, false, 0);
	}
}

void bench_gang_allgather(struct bench_gang *gang, int thread, void *data, size_t bytes)
{
	size_t per_process = bytes * (size_t)gang->n_threads,
	       total = per_process * (size_t)gang->n_processes;
	size_t mine = (size_t)gang->process * per_process + (size_t)thread * bytes;

	if (thread == 0)
		gang->all = malloc(total);
	pthread_barrier_wait(&gang->barrier);
	memcpy(gang->all + mine, (char *)data + mine, bytes);
	pthread_barrier_wait(&gang->barrier);
	if (thread == 0)
		gather_processes(gang, per_process);
	pthread_barrier_wait(&gang->barrier);
	memcpy(data, gang->all, total);
	pthread_barrier_wait(&gang->barrier);
	if (thread == 0)
		free(gang->all);
}

void bench_gang_barrier(struct bench_gang *gang, int thread)
{
	char *nothing = calloc((size_t)gang->n_processes, (size_t)gang->n_threads);

	bench_gang_allgather(gang, thread, nothing, 1);
	free(nothing);
}
