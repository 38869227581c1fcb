/* SPDX-License-Identifier: Apache-2.0 */
/* Signals are taken with sigtimedwait: nothing runs in a handler. */
#include "bench/launcher.h"
#include "bench/board.h"
#include "bench/machine.h"
#include "bench/mps.h"
#include "bench/place.h"
#include "bench/report.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct child {
	pid_t pid; /* 0: ended */
	int process;
	unsigned ticks;
	struct bench_board_entry *entry;
};

struct crew {
	int n, n_alive;
	struct child *children;
	int64_t limit_s;
	double progress_at;
	bool wrong, failed;
};

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Ranks that share a GPU need to be told apart by the real NCCL (a host each), and allowed to share
 * by ours (one host). Switch multicast cannot be used by two ranks of one GPU. What the user set
 * stays. */
static void set_shared_gpu_environment(int process)
{
	char host[48];

	snprintf(host, sizeof(host), "strait-bench-%d-%d", (int)getppid(), process);
	setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
	setenv("STRAIT_HOSTID", "one", 0);
	setenv("NCCL_HOSTID", host, 0);
	setenv("NCCL_NVLS_ENABLE", "0", 0);
}

/* In the child. The arguments are the user's; the place goes first, so that nothing can stand
 * before it. */
static _Noreturn void become_worker(int argc, char **argv, const struct bench_place *place,
				    bool floor, bool shared)
{
	char worker[256], **arguments = calloc((size_t)argc + 4, sizeof(*arguments));
	int n = 0;
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (shared)
		set_shared_gpu_environment(place->process);
	strcpy(worker, "--worker=");
	bench_place_print(place, worker + strlen(worker), (int)(sizeof(worker) - strlen(worker)));
	arguments[n++] = argv[0];
	arguments[n++] = worker;
	if (floor)
		arguments[n++] = "--floor";
	for (int i = 1; i < argc; i++)
		arguments[n++] = argv[i];
	execv("/proc/self/exe", arguments);
	bench_die("cannot start this program again: %s", strerror(errno));
}

static void kill_all(struct crew *crew)
{
	for (int i = 0; i < crew->n; i++)
		if (crew->children[i].pid)
			kill(crew->children[i].pid, SIGKILL);
	for (int i = 0; i < crew->n; i++)
		if (crew->children[i].pid)
			waitpid(crew->children[i].pid, NULL, 0);
	crew->n_alive = 0;
}

static void take_end(struct crew *crew, struct child *child, int status)
{
	child->pid = 0;
	crew->n_alive--;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return;
	if (WIFEXITED(status) && WEXITSTATUS(status) == BENCH_EXIT_WRONG) {
		crew->wrong = true;
		return;
	}
	crew->failed = true;
	if (WIFSIGNALED(status))
		bench_note("process %d was killed by signal %d (%s); its phase: %s", child->process,
			   WTERMSIG(status), strsignal(WTERMSIG(status)), child->entry->phase);
	else
		bench_note("process %d ended with status %d; its phase: %s", child->process,
			   WEXITSTATUS(status), child->entry->phase);
}

static void reap(struct crew *crew)
{
	for (int i = 0; i < crew->n; i++) {
		struct child *child = &crew->children[i];
		int status;

		if (child->pid && waitpid(child->pid, &status, WNOHANG) == child->pid)
			take_end(crew, child, status);
	}
}

static void look_for_progress(struct crew *crew)
{
	for (int i = 0; i < crew->n; i++) {
		struct child *child = &crew->children[i];
		unsigned ticks = atomic_load_explicit(&child->entry->ticks, memory_order_relaxed);

		if (ticks != child->ticks)
			crew->progress_at = now_s();
		child->ticks = ticks;
	}
	if (now_s() - crew->progress_at < (double)crew->limit_s)
		return;
	for (int i = 0; i < crew->n; i++)
		if (crew->children[i].pid)
			bench_note("process %d: no progress for %ld s; its phase: %s",
				   crew->children[i].process, (long)crew->limit_s,
				   crew->children[i].entry->phase);
	crew->failed = true;
}

/* A rank that lost a dead one may be seen to end before it: let both be told. */
static void wait_for_others(struct crew *crew, const sigset_t *signals)
{
	struct timespec turn = {.tv_nsec = 20000000};
	double end = now_s() + 0.5;

	while (crew->n_alive > 0 && now_s() < end) {
		sigtimedwait(signals, NULL, &turn);
		reap(crew);
	}
}

/* Returns the exit status: 0, 1, or 128 + the signal that ended the run. */
static int watch(struct crew *crew, const sigset_t *signals)
{
	struct timespec turn = {.tv_nsec = 200000000};
	int stopped_by = 0;

	crew->progress_at = now_s();
	while (crew->n_alive > 0 && !crew->failed && !stopped_by) {
		int signal = sigtimedwait(signals, NULL, &turn);

		if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP)
			stopped_by = signal;
		reap(crew);
		if (!crew->failed && crew->n_alive > 0)
			look_for_progress(crew);
	}
	if (crew->failed)
		wait_for_others(crew, signals);
	kill_all(crew);
	if (stopped_by)
		return 128 + stopped_by;
	return crew->failed || crew->wrong;
}

/* Starts the processes first..first+n-1 of the run and waits for their end. */
static int run_crew(int argc, char **argv, const struct bench_options *options,
		    const struct bench_place *first, int n, bool floor, bool shared)
{
	struct crew crew = {.n = n, .n_alive = n, .limit_s = options->limit_s};
	struct bench_place place = *first;
	struct bench_board_entry *board;
	sigset_t signals;
	int status;

	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	place.board_fd = bench_board_create(place.n_local);
	board = bench_board_map(place.board_fd, place.n_local);
	crew.children = calloc((size_t)n, sizeof(*crew.children));
	fflush(stdout);
	for (int i = 0; i < n; i++, place.process++, place.local++) {
		struct child *child = &crew.children[i];

		child->process = place.process;
		child->entry = &board[place.local];
		snprintf(child->entry->phase, BENCH_PHASE_BYTES, "starting");
		child->pid = fork();
		if (child->pid == 0)
			become_worker(argc, argv, &place, floor, shared);
		if (child->pid < 0)
			bench_die("cannot start a process: %s", strerror(errno));
	}
	status = watch(&crew, &signals);
	close(place.board_fd);
	free(crew.children);
	return status;
}

/* Enough ranks to measure something: one for each GPU, at least 2, at most 8. */
static int default_ranks(const struct bench_machine *machine)
{
	return machine->n_devices < 2 ? 2 : machine->n_devices < 8 ? machine->n_devices : 8;
}

/* Who runs. Returns how many processes are ours to start, from ret->process on. */
static int find_place(const struct bench_options *options, const struct bench_machine *machine,
		      struct bench_place *ret)
{
	/* Whoever says --ranks wants them started here, whatever a job script has left in the
	 * environment. */
	bool external = options->processes <= 0 && bench_place_external(ret, options->rendezvous);
	int64_t n = options->processes, per_process = options->threads * options->gpus;

	if (!external) {
		if (n <= 0)
			n = per_process > 1 ? 1 : default_ranks(machine);
		memset(ret, 0, sizeof(*ret));
		ret->n_processes = ret->n_local = options->as_threads ? 1 : (int)n;
		snprintf(ret->rendezvous, sizeof(ret->rendezvous), "unix:strait-bench-%d",
			 (int)getpid());
	}
	ret->n_threads = (int)options->threads * (options->as_threads && !external ? (int)n : 1);
	ret->n_gpus = (int)options->gpus;
	return external ? 1 : ret->n_processes;
}

static int run_all(int argc, char **argv, const struct bench_options *options,
		   const struct bench_machine *machine)
{
	struct bench_place place;
	int n = find_place(options, machine, &place), status = 0;
	bool shared = place.n_local * place.n_threads * place.n_gpus > machine->n_devices;
	struct bench_mps mps = {.ours = false};

	if (options->floor || options->with_floor) {
		struct bench_place alone = {.n_processes = 1,
					    .n_local = 1,
					    .n_threads = 1,
					    .n_gpus = 1,
					    .rendezvous = "none"};

		if (machine->emulator)
			puts("# The floor of a machine is a property of GPUs; on the emulator it "
			     "means nothing.");
		else if (place.process == 0)
			status = run_crew(argc, argv, options, &alone, 1, true, false);
		if (options->floor || status)
			return status;
	}
	if (shared && place.n_local > 1 && !machine->emulator && !options->no_mps &&
	    n == place.n_local)
		bench_mps_start(&mps);
	status = run_crew(argc, argv, options, &place, n, false, shared);
	bench_mps_stop(&mps);
	return status;
}

int bench_launch(int argc, char **argv, struct bench_options *options)
{
	struct bench_machine machine;

	bench_machine_probe(&machine);
	if (!machine.driver)
		bench_die("%s (without a GPU, the emulator can stand in: put the folder of its "
			  "libcuda.so.1 on "
			  "LD_LIBRARY_PATH)",
			  machine.problem);
	bench_options_resolve(options, machine.emulator);
	return run_all(argc, argv, options, &machine);
}
