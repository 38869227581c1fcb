/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool of block threads. A launch asks for as many workers as it has blocks, up to the limit of
 * resident blocks; each worker takes block after block in order of index.
 */
#include "emulator/grid.h"
#include "emulator/settings.h"
#include <cuda.h>
#include <pthread.h>
#include <signal.h>

static struct {
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	struct seat *seats; /* launches that still want workers */
	unsigned idle, wanted;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER,
	  .work = PTHREAD_COND_INITIALIZER,
	  .done = PTHREAD_COND_INITIALIZER};

struct seat { /* on the stack of strait_emu_grid_run */
	struct strait_emu_launch *launch;
	unsigned wanted;
	struct seat *next;
};

static void run_blocks(struct strait_emu_launch *launch)
{
	unsigned total = launch->grid.x * launch->grid.y * launch->grid.z, index;
	while ((index = atomic_fetch_add(&launch->next, 1)) < total)
		if (!atomic_load(&launch->failed))
			strait_emu_block_run(launch, index);
}

static void *work(void *unused)
{
	pthread_mutex_lock(&pool.lock);
	for (;;) {
		while (!pool.seats) {
			pool.idle++;
			pthread_cond_wait(&pool.work, &pool.lock);
			pool.idle--;
		}
		struct seat *seat = pool.seats;
		struct strait_emu_launch *launch = seat->launch;
		pool.wanted--;
		if (!--seat->wanted)
			pool.seats = seat->next;
		pthread_mutex_unlock(&pool.lock);
		run_blocks(launch);
		pthread_mutex_lock(&pool.lock);
		if (!--launch->left)
			pthread_cond_broadcast(&pool.done);
	}
	return NULL;
}

/* Signals of the application are for its own threads. */
static int start_worker(void)
{
	sigset_t all, before;
	pthread_attr_t attributes;
	pthread_t thread;
	sigfillset(&all);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&thread, &attributes, work, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return error;
}

static int seat_workers(struct seat *seat)
{
	int error = 0;
	pthread_mutex_lock(&pool.lock);
	seat->next = pool.seats;
	pool.seats = seat;
	pool.wanted += seat->wanted;
	for (unsigned n = pool.idle; n < pool.wanted && !error; n++)
		error = start_worker();
	pthread_cond_broadcast(&pool.work);
	pthread_mutex_unlock(&pool.lock);
	return error;
}

void strait_emu_grid_run(struct strait_emu_launch *launch)
{
	unsigned total = launch->grid.x * launch->grid.y * launch->grid.z;
	unsigned limit = (unsigned)strait_emu_settings_get()->resident_blocks;
	unsigned extra = (total < limit ? total : limit) - 1;
	struct seat seat = {launch, extra, NULL};
	launch->left = extra;
	if (extra && seat_workers(&seat) != 0)
		strait_emu_say("no more threads: blocks of %s may wait for each other for ever",
			       launch->name);
	run_blocks(launch);
	if (!extra)
		return;
	pthread_mutex_lock(&pool.lock);
	while (launch->left)
		pthread_cond_wait(&pool.done, &pool.lock);
	pthread_mutex_unlock(&pool.lock);
}
