/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One set of processes that runs some cases, and what came of each.
 */
#pragma once
#include "bench/machine.h"
#include "tests/gpu/options.h"

enum outcome_kind { OUTCOME_FAIL, OUTCOME_PASS, OUTCOME_SKIP };

struct outcome {
	enum outcome_kind kind;
	double seconds;
	char text[2 * BOARD_TEXT];
};

struct session {
	const struct options *options;
	const struct bench_machine *machine;
	int n_ranks;
	const int *cases;
	int n_cases;
	struct outcome *outcomes;

	struct board *board;
	int n_processes, n_alive;
	int *pids;       /* 0: ended */
	int current;     /* of cases: where the slowest rank is */
	double since;    /* when it got there */
	bool terminated; /* SIGTERM was sent */
	double terminated_at;
};

/* Returns how many cases were judged, at least 1. All processes have ended then. */
int session_run(struct session *session);
extern int session_stopped; /* a signal asked for the end of the run */

/* Which paths the calls of all processes took, from the library's reports. */
void paths_open(void);
void paths_set_environment(void); /* for a process of a rank */
/* Prints them; false if a call did not run natively. */
bool paths_close(void);

/* For cases that run in the launcher: where their verdict goes. */
extern struct outcome *host_case;
extern const struct options *host_options;
extern bool host_emulator;
