/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread holds the lock for all that it does but poll(). A version number tells it, after
 * poll(), whether the descriptors it polled are still those of the list: if not, it looks again
 * before it touches any.
 */
#include "channels/monitor.h"
#include "strait/log.h"
#include "strait/status.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SECOND_NS INT64_C(1000000000)
#define BEAT_NS (2 * SECOND_NS)
#define SILENCE_NS (10 * SECOND_NS)

struct link {
	int fd, peer;
	bool is_over;     /* said goodbye, or broke: neither read nor written any more */
	int64_t heard_ns; /* 0: nothing yet, for the peer may not watch yet */
	struct strait_inbox inbox;
};

struct strait_monitored {
	struct strait_bootstrap *bootstrap;
	struct strait_monitored *next;
	int n_links;
	struct link links[];
};

struct monitor {
	pthread_t thread;
	int event_fd;
	bool must_stop;
	unsigned version; /* counts changes of the list */
	struct strait_monitored *first;
	struct pollfd *poll_fds; /* the thread's own */
	struct link **polled;
	unsigned n_places;
	int64_t turn_ns, next_beat_ns;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct monitor *current;
static bool has_handlers;

static void post_to_all(struct strait_monitored *m, uint32_t type, uint32_t step)
{
	for (int i = 0; i < m->n_links; i++)
		if (!m->links[i].is_over)
			strait_frame_post(m->links[i].fd, type, m->bootstrap->rank, step, NULL, 0);
}

static void lose(struct strait_monitored *m, int rank, const char *why)
{
	int none = -1;

	/* Release: who reads the rank may go on to read what was logged or set before. */
	if (!atomic_compare_exchange_strong_explicit(&m->bootstrap->lost_rank, &none, rank,
						     memory_order_release, memory_order_relaxed))
		return;
	strait_info(BOOTSTRAP, "rank %d of %d: lost rank %d: %s", m->bootstrap->rank,
		    m->bootstrap->n_ranks, rank, why);
	post_to_all(m, STRAIT_FRAME_LOST, (uint32_t)rank);
}

static void end_link(struct strait_monitored *m, struct link *link, const char *why)
{
	link->is_over = true;
	lose(m, link->peer, why);
}

static void obey(struct strait_monitored *m, struct link *link)
{
	const struct strait_frame *head = &link->inbox.head;

	if (head->type == STRAIT_FRAME_GOODBYE)
		link->is_over = true;
	else if (head->type == STRAIT_FRAME_LOST && head->step < (uint32_t)m->bootstrap->n_ranks)
		lose(m, (int)head->step, "told by a neighbour");
	else if (head->type == STRAIT_FRAME_VERDICT)
		end_link(m, link, link->inbox.body.verdict.text);
	else if (head->type != STRAIT_FRAME_HEARTBEAT)
		end_link(m, link, "it calls a collective of a bootstrap that is watched");
}

static void read_link(struct strait_monitored *m, struct link *link, int64_t now_ns)
{
	while (!link->is_over) {
		int r = strait_inbox_read(&link->inbox, link->fd);

		if (r == STRAIT_INBOX_EMPTY)
			return;
		if (r == STRAIT_INBOX_CLOSED)
			end_link(m, link,
				 errno ? strerror(errno)
				       : "its connection closed without a goodbye");
		else if (r == STRAIT_INBOX_GARBLED)
			end_link(m, link, "it sent garbage");
		else
			obey(m, link);
		link->heard_ns = now_ns;
		strait_inbox_clear(&link->inbox);
	}
}

static void check_silence(struct strait_monitored *m, int64_t now_ns)
{
	for (int i = 0; i < m->n_links; i++) {
		struct link *link = &m->links[i];

		if (!link->is_over && link->heard_ns && now_ns - link->heard_ns > SILENCE_NS)
			end_link(m, link, "no heartbeat for 10 s");
	}
}

/* When this process itself was stopped or starved, the peers' silence means nothing. */
static void forgive(struct monitor *monitor, int64_t now_ns)
{
	int64_t gap_ns = now_ns - monitor->turn_ns - BEAT_NS;

	monitor->turn_ns = now_ns;
	if (gap_ns < SECOND_NS)
		return;
	for (struct strait_monitored *m = monitor->first; m; m = m->next)
		for (int i = 0; i < m->n_links; i++)
			if (m->links[i].heard_ns)
				m->links[i].heard_ns += gap_ns;
}

static void do_the_rounds(struct monitor *monitor)
{
	int64_t now_ns = strait_now_ns();
	bool is_time_to_beat = now_ns >= monitor->next_beat_ns;

	forgive(monitor, now_ns);
	for (struct strait_monitored *m = monitor->first; m; m = m->next) {
		check_silence(m, now_ns);
		if (is_time_to_beat)
			post_to_all(m, STRAIT_FRAME_HEARTBEAT, 0);
	}
	if (is_time_to_beat)
		monitor->next_beat_ns = now_ns + BEAT_NS;
}

/* Makes room for all connections; without memory, those that fit are watched. */
static void make_room(struct monitor *monitor)
{
	unsigned n = 1;
	struct pollfd *poll_fds;
	struct link **polled;

	for (struct strait_monitored *m = monitor->first; m; m = m->next)
		n += (unsigned)m->n_links;
	if (n <= monitor->n_places)
		return;
	poll_fds = realloc(monitor->poll_fds, n * sizeof(*poll_fds));
	if (poll_fds)
		monitor->poll_fds = poll_fds;
	polled = realloc(monitor->polled, n * sizeof(*polled));
	if (polled)
		monitor->polled = polled;
	if (poll_fds && polled)
		monitor->n_places = n;
}

static unsigned fill_poll(struct monitor *monitor)
{
	unsigned n = 0;

	make_room(monitor);
	if (!monitor->n_places)
		return 0;
	monitor->poll_fds[n++] = (struct pollfd){.fd = monitor->event_fd, .events = POLLIN};
	for (struct strait_monitored *m = monitor->first; m; m = m->next) {
		for (int i = 0; i < m->n_links && n < monitor->n_places; i++) {
			if (m->links[i].is_over)
				continue;
			monitor->polled[n] = &m->links[i];
			monitor->poll_fds[n++] =
				(struct pollfd){.fd = m->links[i].fd, .events = POLLIN};
		}
	}
	return n;
}

/* The list is as it was when poll() began. Entries are in its order. */
static void read_ready(struct monitor *monitor, unsigned n)
{
	int64_t now_ns = strait_now_ns();
	unsigned at = 1;

	for (struct strait_monitored *m = monitor->first; m; m = m->next)
		for (int i = 0; i < m->n_links; i++)
			if (at < n && monitor->polled[at] == &m->links[i] &&
			    monitor->poll_fds[at++].revents)
				read_link(m, &m->links[i], now_ns);
}

static void *run(void *argument)
{
	struct monitor *monitor = argument;

	pthread_mutex_lock(&lock);
	monitor->turn_ns = strait_now_ns();
	while (!monitor->must_stop) {
		unsigned version = monitor->version, n;
		int64_t left_ns;
		uint64_t unused;

		do_the_rounds(monitor);
		n = fill_poll(monitor);
		left_ns = monitor->next_beat_ns - strait_now_ns();
		pthread_mutex_unlock(&lock);
		int r = poll(monitor->poll_fds, n, left_ns > 0 ? (int)(left_ns / 1000000) + 1 : 0);
		pthread_mutex_lock(&lock);
		if (r > 0 && monitor->poll_fds[0].revents &&
		    read(monitor->event_fd, &unused, sizeof(unused)) < 0)
			strait_debug(BOOTSTRAP, "eventfd: %s", strerror(errno));
		if (r > 0 && monitor->version == version)
			read_ready(monitor, n);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static void wake(struct monitor *monitor)
{
	uint64_t one = 1;

	if (write(monitor->event_fd, &one, sizeof(one)) < 0)
		strait_debug(BOOTSTRAP, "eventfd: %s", strerror(errno));
}

/* The child has neither the thread nor the connections; the objects are its memory, nothing more.
 */
static void forget_in_child(void)
{
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	current = NULL;
}

static void say_goodbye_at_exit(int status, void *unused)
{
	char unread[512];

	pthread_mutex_lock(&lock);
	for (struct strait_monitored *m = current && !status ? current->first : NULL; m;
	     m = m->next) {
		for (int i = 0; i < m->n_links; i++) {
			struct link *link = &m->links[i];

			if (link->is_over)
				continue;
			strait_frame_post(link->fd, STRAIT_FRAME_GOODBYE, m->bootstrap->rank, 0,
					  NULL, 0);
			shutdown(link->fd, SHUT_WR);
			/* Unread input would turn the close that follows into a reset. */
			while (recv(link->fd, unread, sizeof(unread), MSG_DONTWAIT) > 0)
				;
			link->is_over = true;
		}
	}
	pthread_mutex_unlock(&lock);
}

static void free_monitor(struct monitor *monitor)
{
	if (!monitor)
		return;
	strait_socket_close(monitor->event_fd);
	free(monitor->poll_fds);
	free(monitor->polled);
	free(monitor);
}

/* Under the lock. A thread of ours takes none of the program's signals. */
static int start(void)
{
	struct monitor *monitor = calloc(1, sizeof(*monitor));
	sigset_t all, before;
	int r;

	if (!monitor)
		return strait_fail(STRAIT_ERROR_SYSTEM, "no memory for the monitor");
	if (!has_handlers)
		has_handlers = !pthread_atfork(NULL, NULL, forget_in_child) &&
			       !on_exit(say_goodbye_at_exit, NULL);
	monitor->event_fd = strait_socket_event();
	if (monitor->event_fd < 0) {
		r = strait_fail(STRAIT_ERROR_SYSTEM, "eventfd: %s", strerror(errno));
		free_monitor(monitor);
		return r;
	}
	sigfillset(&all);
	/* On Linux this is the mask of the calling thread; pthread_sigmask would ask for a newer
	 * glibc. */
	sigprocmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&monitor->thread, NULL, run, monitor);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (r) {
		free_monitor(monitor);
		return strait_fail(STRAIT_ERROR_SYSTEM, "cannot start the monitor's thread: %s",
				   strerror(r));
	}
	current = monitor;
	return 0;
}

int strait_monitor_add(struct strait_bootstrap *b)
{
	int n_links = 2 * b->n_links, r = 0;
	struct strait_monitored *m = calloc(1, sizeof(*m) + (size_t)n_links * sizeof(m->links[0]));

	if (!m)
		return strait_fail(STRAIT_ERROR_SYSTEM, "no memory to watch a bootstrap");
	m->bootstrap = b;
	m->n_links = n_links;
	for (int k = 0; k < b->n_links; k++) {
		m->links[2 * k] =
			(struct link){.fd = b->down[k], .peer = strait_bootstrap_down(b, k)};
		m->links[2 * k + 1] =
			(struct link){.fd = b->up[k], .peer = strait_bootstrap_up(b, k)};
	}
	pthread_mutex_lock(&lock);
	if (!current)
		r = start();
	if (!r) {
		m->next = current->first;
		current->first = m;
		current->version++;
		b->monitored = m;
		/* A peer that watches already hears at once that this rank does too. */
		post_to_all(m, STRAIT_FRAME_HEARTBEAT, 0);
		wake(current);
	}
	pthread_mutex_unlock(&lock);
	if (r)
		free(m);
	return strait_trace(r);
}

void strait_monitor_remove(struct strait_bootstrap *b)
{
	struct monitor *ended = NULL;
	struct strait_monitored **at;

	if (!b->monitored)
		return;
	pthread_mutex_lock(&lock);
	for (at = &current->first; *at != b->monitored; at = &(*at)->next)
		;
	*at = b->monitored->next;
	current->version++;
	wake(current);
	if (!current->first) {
		ended = current;
		ended->must_stop = true;
		current = NULL;
	}
	pthread_mutex_unlock(&lock);
	if (ended) {
		pthread_join(ended->thread, NULL);
		free_monitor(ended);
	}
	free(b->monitored);
	b->monitored = NULL;
}
