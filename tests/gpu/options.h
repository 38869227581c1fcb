/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of the program; the hidden --worker makes it a rank. */
#pragma once
#include "tests/gpu/case.h"
#include <stdint.h>

enum { MOST_RANK_COUNTS = 8 };

struct options {
	int ranks[MOST_RANK_COUNTS], n_ranks; /* how many ranks; each is one pass over the cases */
	bool list, threads, gpu_only, no_mps;
	const char *library; /* NULL: looked for beside the program */
	uint64_t seed;
	double patience;        /* factor on all time limits */
	int cases[BOARD_CASES]; /* numbers of the table */
	int n_cases;
	const char *worker;
};

/* Dies with a message about what is wrong. */
void options_parse(int argc, char **argv, struct options *ret);

/* What the launcher tells a process. */
struct worker_place {
	int process, n_processes, n_threads, n_devices, emulator, board_fd;
	char rendezvous[64];
};
void worker_place_print(const struct worker_place *place, char *ret, size_t size);
void worker_place_parse(const char *text, struct worker_place *ret);

/* The library under test: what was asked for, or what lies beside the program, in ../lib, or at the
 * root of a build folder; NULL if there is none. `room` holds PATH_MAX + 32 bytes. */
const char *options_library(const struct options *options, char *room);

/* Runs the cases of the options as the process of --worker. Returns the exit status. */
int worker_main(const struct options *options);
/* Starts the ranks, judges, prints. Returns the exit status. */
int launcher_main(const struct options *options);
