/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parent of all ranks. It never opens the driver, so it can always act: it starts MPS and
 * processes, gives each case its time, kills and names what hangs, and goes on with the next case.
 */
#include "bench/machine.h"
#include "bench/mps.h"
#include "bench/report.h"
#include "tests/gpu/options.h"
#include "tests/gpu/session.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct launcher {
	const struct options *options;
	struct bench_machine machine;
	struct bench_mps mps;
	bool mps_on, mps_spoiled;
	int n_ranks;
	int passed, failed, skipped;
};

/* MPS as the next processes need it. A server that lived through a killed rank is not used again.
 */
static void arrange_mps(struct launcher *launcher, bool wanted)
{
	if (launcher->machine.emulator || launcher->options->no_mps)
		return;
	if (launcher->mps_on && (!wanted || launcher->mps_spoiled)) {
		bench_mps_stop(&launcher->mps);
		launcher->mps_on = false;
	}
	launcher->mps_spoiled = false;
	if (wanted && !launcher->mps_on)
		launcher->mps_on = bench_mps_start(&launcher->mps);
}

static void print_outcome(struct launcher *launcher, const struct test_case *test,
			  const struct outcome *outcome)
{
	static const char *const words[] = {"FAIL", "PASS", "SKIP"};

	printf("%s %s, %d ranks%s, %.1f s%s%s\n", words[outcome->kind], test->name,
	       launcher->n_ranks, launcher->options->threads ? " as threads" : "", outcome->seconds,
	       *outcome->text ? ": " : "", outcome->text);
	fflush(stdout);
	launcher->passed += outcome->kind == OUTCOME_PASS;
	launcher->failed += outcome->kind == OUTCOME_FAIL;
	launcher->skipped += outcome->kind == OUTCOME_SKIP;
}

/* Runs cases[0..n-1] in one set of processes. Returns how many were judged: all, or up to the one
 * that failed. */
static int run_session(struct launcher *launcher, const int *cases, int n,
		       struct outcome *ret_outcomes)
{
	const struct test_case *first = &test_cases[cases[0]];
	struct session session = {
		.options = launcher->options,
		.machine = &launcher->machine,
		.n_ranks = launcher->n_ranks,
		.cases = cases,
		.n_cases = n,
		.outcomes = ret_outcomes,
	};
	bool shared =
		launcher->n_ranks > launcher->machine.n_devices && !launcher->options->threads;
	int judged;

	arrange_mps(launcher, shared && !(first->flags & CASE_NO_MPS));
	judged = session_run(&session);
	if (ret_outcomes[judged - 1].kind == OUTCOME_FAIL || first->flags & CASE_KILLS)
		launcher->mps_spoiled = true;
	return judged;
}

/* After a case that kills: a new job on the same GPUs has to be right. */
static void run_fresh(struct launcher *launcher, struct outcome *outcome)
{
	int number = test_case_find("fresh");
	struct outcome fresh;

	run_session(launcher, &number, 1, &fresh);
	if (fresh.kind == OUTCOME_PASS)
		return;
	outcome->kind = OUTCOME_FAIL;
	snprintf(outcome->text, sizeof(outcome->text), "a new job afterwards: %.380s", fresh.text);
}

static void run_in_launcher(struct launcher *launcher, const struct test_case *test,
			    struct outcome *outcome)
{
	arrange_mps(launcher, false);
	*outcome = (struct outcome){.kind = OUTCOME_PASS};
	host_case = outcome;
	host_options = launcher->options;
	host_emulator = launcher->machine.emulator;
	test->run();
}

static bool is_alone(int number)
{
	return test_cases[number].flags & (CASE_ALONE | CASE_LAUNCHER | CASE_NO_MPS | CASE_KILLS |
					   CASE_FRESH | CASE_PROCESSES | CASE_OUTSIDE);
}

/* Threads of one context cannot free memory while another's kernel waits for them. */
static bool threads_would_block(const struct launcher *launcher)
{
	return launcher->options->threads && !launcher->machine.emulator &&
	       launcher->n_ranks > launcher->machine.n_devices;
}

/* Judges at least the first of the cases; returns how many. */
static int run_some(struct launcher *launcher, const int *cases, int n)
{
	const struct test_case *test = &test_cases[cases[0]];
	struct outcome outcomes[BOARD_CASES];
	int n_together = 1, judged = 1;

	while (!is_alone(cases[0]) && n_together < n && !is_alone(cases[n_together]))
		n_together++;
	if (launcher->options->threads && test->flags & (CASE_PROCESSES | CASE_LAUNCHER))
		outcomes[0] =
			(struct outcome){.kind = OUTCOME_SKIP, .text = "for ranks as processes"};
	else if (threads_would_block(launcher))
		outcomes[0] = (struct outcome){.kind = OUTCOME_SKIP,
					       .text = "ranks as threads need a GPU each"};
	else if (test->flags & CASE_LAUNCHER)
		run_in_launcher(launcher, test, &outcomes[0]);
	else
		judged = run_session(launcher, cases, n_together, outcomes);
	if (test->flags & CASE_FRESH && outcomes[0].kind == OUTCOME_PASS)
		run_fresh(launcher, &outcomes[0]);
	for (int i = 0; i < judged; i++)
		print_outcome(launcher, &test_cases[cases[i]], &outcomes[i]);
	return judged;
}

static void stop_on_signals(void)
{
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &signals, NULL); /* taken with sigtimedwait */
}

static void run_all(struct launcher *launcher)
{
	const struct options *options = launcher->options;

	for (int r = 0; r < options->n_ranks && !session_stopped; r++) {
		launcher->n_ranks = options->ranks[r];
		for (int i = 0; i < options->n_cases && !session_stopped;)
			i += run_some(launcher, options->cases + i, options->n_cases - i);
	}
}

int launcher_main(const struct options *options)
{
	struct launcher launcher = {.options = options};

	bench_machine_probe(&launcher.machine);
	if (!launcher.machine.driver || (options->gpu_only && launcher.machine.emulator)) {
		printf("nothing to run on: %s\n",
		       launcher.machine.driver ? "this is the emulator" : launcher.machine.problem);
		return 77;
	}
	printf("# %d x %s%s, seed %llu\n", launcher.machine.n_devices, launcher.machine.gpu,
	       launcher.machine.emulator ? " (the emulator)" : "",
	       (unsigned long long)options->seed);
	stop_on_signals();
	paths_open();
	run_all(&launcher);
	if (!paths_close())
		launcher.failed++;
	bench_mps_stop(&launcher.mps);
	printf("%d passed, %d failed, %d skipped\n", launcher.passed, launcher.failed,
	       launcher.skipped);
	if (session_stopped)
		return 128 + session_stopped;
	return launcher.failed > 0;
}
