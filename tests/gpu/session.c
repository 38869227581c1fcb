/* SPDX-License-Identifier: Apache-2.0 */
/* Signals are taken with sigtimedwait: nothing runs in a handler. */
#include "tests/gpu/session.h"
#include "bench/report.h"
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { START_LIMIT_S = 90, TERM_LIMIT_S = 10, WORDS = 16 };

int session_stopped;

static double clock_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static const struct test_case *case_at(const struct session *session, int i)
{
	return &test_cases[session->cases[i]];
}

/* In the child. What the user set stays, but for what the cases are about. */
static void set_environment(const struct session *session, int process)
{
	setenv("STRAIT_NCCL", "off", 0);
	setenv("NCCL_NVLS_ENABLE", "0", 0);
	setenv("CUDA_MODULE_LOADING", "LAZY", 1);
	if (session->n_ranks > session->machine->n_devices)
		setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
	paths_set_environment();
	test_case_environment(case_at(session, 0), process, session->n_ranks);
}

static _Noreturn void become_worker(const struct session *session, const struct worker_place *place)
{
	char worker[160], seed[40], *arguments[WORDS + BOARD_CASES];
	int n = 0;
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	set_environment(session, place->process);
	strcpy(worker, "--worker=");
	worker_place_print(place, worker + strlen(worker), sizeof(worker) - strlen(worker));
	snprintf(seed, sizeof(seed), "--seed=%llu", (unsigned long long)session->options->seed);
	arguments[n++] = "cases";
	arguments[n++] = worker;
	arguments[n++] = seed;
	if (session->options->library) {
		arguments[n++] = "--lib";
		arguments[n++] = (char *)session->options->library;
	}
	for (int i = 0; i < session->n_cases; i++)
		arguments[n++] = (char *)case_at(session, i)->name;
	arguments[n] = NULL;
	execv("/proc/self/exe", arguments);
	bench_die("cannot start this program again: %s", strerror(errno));
}

static void start(struct session *session)
{
	static int number;
	struct worker_place place = {
		.n_processes = session->n_processes,
		.n_threads = session->options->threads ? session->n_ranks : 1,
		.n_devices = session->machine->n_devices,
		.emulator = session->machine->emulator,
		.board_fd = board_create(),
	};

	snprintf(place.rendezvous, sizeof(place.rendezvous), "unix:strait-cases-%d-%d",
		 (int)getpid(), number++);
	session->board = board_map(place.board_fd);
	for (int r = 0; r < session->n_ranks; r++)
		atomic_store_explicit(&session->board->ranks[r].case_now, -1, memory_order_relaxed);
	fflush(stdout);
	for (int p = 0; p < session->n_processes; p++) {
		place.process = p;
		session->pids[p] = fork();
		if (session->pids[p] == 0)
			become_worker(session, &place);
		if (session->pids[p] < 0)
			bench_die("cannot start a process: %s", strerror(errno));
	}
	close(place.board_fd);
	session->n_alive = session->n_processes;
	session->since = clock_s();
}

static void kill_all(struct session *session)
{
	for (int p = 0; p < session->n_processes; p++)
		if (session->pids[p])
			kill(session->pids[p], SIGKILL);
	for (int p = 0; p < session->n_processes; p++)
		if (session->pids[p])
			waitpid(session->pids[p], NULL, 0);
	session->n_alive = 0;
}

static struct outcome *outcome_now(struct session *session)
{
	return &session->outcomes[session->current];
}

static void blame(struct session *session, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static void blame(struct session *session, const char *format, ...)
{
	struct outcome *outcome = outcome_now(session);
	size_t length = strlen(outcome->text);
	va_list arguments;

	outcome->kind = OUTCOME_FAIL;
	if (length > 0 && length + 3 < sizeof(outcome->text)) {
		strcpy(outcome->text + length, "; ");
		length += 2;
	}
	va_start(arguments, format);
	vsnprintf(outcome->text + length, sizeof(outcome->text) - length, format, arguments);
	va_end(arguments);
}

/* Moves on to the case in which the slowest rank is; the ones before it have their verdict. */
static void follow(struct session *session)
{
	int slowest = session->n_cases - 1;

	for (int r = 0; r < session->n_ranks; r++) {
		/* pairs with the release in the worker */
		int number = atomic_load_explicit(&session->board->ranks[r].case_now,
						  memory_order_acquire),
		    i = 0;

		while (i < session->n_cases && session->cases[i] != number)
			i++;
		if (number < 0)
			i = 0;
		if (i < slowest)
			slowest = i;
	}
	while (session->current < slowest) {
		outcome_now(session)->seconds = clock_s() - session->since;
		session->current++;
		session->since = clock_s();
	}
}

static bool has_started(const struct session *session)
{
	for (int r = 0; r < session->n_ranks; r++)
		if (atomic_load_explicit(&session->board->ranks[r].case_now, memory_order_relaxed) <
		    0)
			return false;
	return true;
}

/* Is this end what the case is about? */
static bool is_wanted_end(const struct session *session, int process, int status)
{
	int number = session->cases[session->current];
	unsigned flags = test_cases[number].flags;
	bool skipped = atomic_load_explicit(&session->board->cases[number].verdict,
					    memory_order_acquire) == VERDICT_SKIP;

	if (WIFEXITED(status))
		return WEXITSTATUS(status) == 0 && (skipped || !(flags & CASE_TERMINATES));
	if (!atomic_load_explicit(&session->board->ranks[process].dying, memory_order_relaxed))
		return false;
	if (process == session->n_ranks - 1)
		return flags & CASE_KILLS && WTERMSIG(status) == SIGKILL;
	return flags & CASE_TERMINATES && session->terminated && WTERMSIG(status) == SIGTERM;
}

static bool has_reason(const struct session *session, int process)
{
	int first = session->options->threads ? 0 : process;
	int last = session->options->threads ? session->n_ranks - 1 : process;

	for (int r = first; r <= last; r++)
		/* pairs with the release in fail() */
		if (atomic_load_explicit(&session->board->ranks[r].failed, memory_order_acquire))
			return true;
	return false;
}

/* An end that the case does not want. A rank with a reason is named for that; see tell_reasons().
 */
static void blame_end(struct session *session, int process, int status)
{
	const char *what = session->options->threads ? "the process of ranks from" : "rank";
	const char *phase = session->board->ranks[process].phase;

	if (has_reason(session, process))
		return;
	if (WIFSIGNALED(status))
		blame(session, "%s %d was killed by signal %d (%s)", what, process,
		      WTERMSIG(status), phase);
	else if (WEXITSTATUS(status) != 1) /* 1: lost another rank, which is named */
		blame(session, "%s %d ended with status %d (%s)", what, process,
		      WEXITSTATUS(status), phase);
}

/* Returns whether a process ended in a way that it should not. */
static bool reap(struct session *session)
{
	bool wrong = false;

	for (int p = 0; p < session->n_processes; p++) {
		int status;

		if (!session->pids[p] ||
		    waitpid(session->pids[p], &status, WNOHANG) != session->pids[p])
			continue;
		session->pids[p] = 0;
		session->n_alive--;
		if (is_wanted_end(session, p, status))
			continue;
		wrong = true;
		blame_end(session, p, status);
	}
	return wrong;
}

static void tell_reasons(struct session *session)
{
	int n = 0;

	for (int r = 0; r < session->n_ranks && n < 3; r++) {
		struct board_entry *entry = &session->board->ranks[r];

		if (!atomic_load_explicit(&entry->failed, memory_order_acquire))
			continue;
		blame(session, "rank %d, %s", r, entry->reason);
		n++;
	}
	if (!*outcome_now(session)->text)
		blame(session, "a rank ended early");
}

static void tell_hang(struct session *session, double limit)
{
	blame(session, "nothing after %.0f s", limit);
	for (int r = 0; r < session->n_ranks; r++)
		if (session->options->threads || session->pids[r])
			blame(session, "rank %d %s", r,
			      *session->board->ranks[r].phase ? session->board->ranks[r].phase
							      : "hangs");
}

/* Where a case wants it: once all survivors are stuck, end them. */
static void terminate_survivors(struct session *session)
{
	if (!(case_at(session, session->current)->flags & CASE_TERMINATES) || session->terminated)
		return;
	for (int p = 0; p < session->n_processes; p++)
		if (!atomic_load_explicit(&session->board->ranks[p].dying, memory_order_acquire))
			return;
	for (int p = 0; p < session->n_processes - 1; p++)
		if (session->pids[p])
			kill(session->pids[p], SIGTERM);
	session->terminated = true;
	session->terminated_at = clock_s();
}

static bool is_late(struct session *session)
{
	double limit = (has_started(session) ? case_at(session, session->current)->limit_s
					     : START_LIMIT_S) *
		       session->options->patience;

	if (session->terminated && clock_s() - session->terminated_at > TERM_LIMIT_S) {
		blame(session, "SIGTERM did not end it within %d s", TERM_LIMIT_S);
		tell_hang(session, limit);
		return true;
	}
	if (clock_s() - session->since < limit)
		return false;
	tell_hang(session, limit);
	return true;
}

/* Gives the others a moment to say what they found, too. */
static void end_wrong(struct session *session, const sigset_t *signals)
{
	struct timespec turn = {.tv_nsec = 20000000};
	double end = clock_s() + 1;

	while (session->n_alive > 0 && clock_s() < end) {
		sigtimedwait(signals, NULL, &turn);
		reap(session);
	}
	tell_reasons(session);
}

static void watch(struct session *session, const sigset_t *signals)
{
	struct timespec turn = {.tv_nsec = 50000000};

	while (session->n_alive > 0) {
		int signal = sigtimedwait(signals, NULL, &turn);

		if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) {
			session_stopped = signal;
			blame(session, "stopped");
			break;
		}
		follow(session);
		if (reap(session)) {
			end_wrong(session, signals);
			break;
		}
		terminate_survivors(session);
		if (session->n_alive > 0 && is_late(session))
			break;
	}
	outcome_now(session)->seconds = clock_s() - session->since;
}

/* Verdicts of the cases that were left behind, and of the last one when all ended well. */
static int judge(struct session *session)
{
	bool stopped = *outcome_now(session)->text;
	int n = stopped ? session->current + 1 : session->n_cases;

	for (int i = 0; i < n; i++) {
		struct outcome *outcome = &session->outcomes[i];
		int number = session->cases[i];
		/* pairs with the release in the worker */
		int verdict = atomic_load_explicit(&session->board->cases[number].verdict,
						   memory_order_acquire);

		if (*outcome->text)
			continue; /* blamed */
		if (test_cases[number].flags & CASE_KILLS && verdict == VERDICT_NONE)
			verdict = VERDICT_PASS;
		outcome->kind = verdict == VERDICT_PASS   ? OUTCOME_PASS
				: verdict == VERDICT_SKIP ? OUTCOME_SKIP
							  : OUTCOME_FAIL;
		snprintf(outcome->text, sizeof(outcome->text), "%s",
			 verdict == VERDICT_NONE ? "no verdict"
						 : session->board->cases[number].text);
	}
	return n;
}

int session_run(struct session *session)
{
	sigset_t signals;
	int judged;

	sigprocmask(SIG_BLOCK, NULL, &signals);
	memset(session->outcomes, 0, sizeof(*session->outcomes) * (size_t)session->n_cases);
	session->n_processes = session->options->threads ? 1 : session->n_ranks;
	session->pids = calloc((size_t)session->n_processes, sizeof(*session->pids));
	start(session);
	watch(session, &signals);
	kill_all(session);
	judged = judge(session);
	free(session->pids);
	munmap(session->board, sizeof(*session->board));
	return judged;
}
