/* SPDX-License-Identifier: Apache-2.0 */
/* A process of the job: one rank, or a thread for each. */
#include "bench/report.h"
#include "strait/status.h"
#include "tests/gpu/options.h"
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>

struct worker {
	const struct options *options;
	struct worker_place place;
	struct bench_gang gang;
	struct bench_library library;
	struct board *board;
};

struct member {
	struct worker *worker;
	pthread_t thread;
	int number;
};

static void open_device(struct rank *rank, int n_devices)
{
	GPU(cuDeviceGet, &rank->device, rank->number % n_devices);
	GPU(cuDevicePrimaryCtxRetain, &rank->context, rank->device);
	GPU(cuCtxSetCurrent, rank->context);
	GPU(cuStreamCreate, &rank->stream, CU_STREAM_NON_BLOCKING);
}

static void run_case(struct rank *rank, int number)
{
	const struct test_case *test = &test_cases[number];
	struct board_entry *entry = &rank->board->ranks[rank->number];
	int none = VERDICT_NONE;

	say("starting");
	/* pairs with the acquire in the launcher: the clock of a case starts with it */
	atomic_store_explicit(&entry->case_now, number, memory_order_release);
	barrier();
	say("working");
	test->run();
	if (test->flags & CASE_KILLS)
		return; /* not all are left: the launcher judges by how they end */
	say("done, waiting for the other ranks");
	wait_stream(rank->stream);
	barrier();
	if (rank->number == 0)
		/* pairs with the acquire in the launcher */
		atomic_compare_exchange_strong_explicit(&rank->board->cases[number].verdict, &none,
							VERDICT_PASS, memory_order_release,
							memory_order_relaxed);
}

static void *member_main(void *argument)
{
	struct member *member = argument;
	struct worker *worker = member->worker;
	struct worker_place *place = &worker->place;
	struct rank rank = {
		.number = place->process * place->n_threads + member->number,
		.n = place->n_processes * place->n_threads,
		.thread = member->number,
		.emulator = place->emulator,
		.threads = place->n_threads > 1,
		.seed = worker->options->seed,
		.gang = &worker->gang,
		.library = &worker->library,
		.board = worker->board,
	};

	rank.shared = rank.n > place->n_devices;
	me = &rank;
	say("opening the device");
	open_device(&rank, place->n_devices);
	for (int i = 0; i < worker->options->n_cases; i++)
		run_case(&rank, worker->options->cases[i]);
	return NULL;
}

int worker_main(const struct options *options)
{
	struct worker worker = {.options = options};
	struct member members[BOARD_RANKS];
	char path[PATH_MAX + 32];

	worker_place_parse(options->worker, &worker.place);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	bench_report_as(worker.place.process);
	worker.board = board_map(worker.place.board_fd);
	bench_gang_init(&worker.gang, worker.place.rendezvous, worker.place.process,
			worker.place.n_processes, worker.place.n_threads, 60);
	if (strait_gpu_load() < 0)
		bench_die("%s", strait_status_message());
	extra_load();
	bench_library_open(options_library(options, path), &worker.library);
	for (int i = 0; i < worker.place.n_threads; i++) {
		members[i] = (struct member){.worker = &worker, .number = i};
		if (pthread_create(&members[i].thread, NULL, member_main, &members[i]) != 0)
			bench_die("cannot start a thread");
	}
	for (int i = 0; i < worker.place.n_threads; i++)
		pthread_join(members[i].thread, NULL);
	return 0;
}
