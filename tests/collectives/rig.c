/* SPDX-License-Identifier: Apache-2.0 */
/* Copies go over the rank's own stream: those of pageable memory on the default stream may return
 * too early. */
#include "tests/collectives/rig.h"
#include "algorithms/algorithm.h"
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned most_seconds = 60;
static char note[1024];

void rig_note(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vsnprintf(note, sizeof(note), format, list);
	va_end(list);
}

void rig_limit(unsigned seconds)
{
	most_seconds = seconds;
}

void rig_die(const char *format, ...)
{
	va_list list;

	fflush(stdout);
	fprintf(stderr, "FAILED %s\n       ", note);
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fprintf(stderr, "\n");
	_exit(1);
}

void rig_check_gpu(CUresult result, const char *what)
{
	if (result != CUDA_SUCCESS)
		rig_die("%s gave %d", what, (int)result);
}

void rig_check_nccl(ncclResult_t result, const char *what)
{
	if (result != ncclSuccess)
		rig_die("%s gave %s: %s", what, ncclGetErrorString(result), ncclGetLastError(NULL));
}

static void on_alarm(int signal)
{
	static const char message[] = "HUNG ", tail[] = "\n";

	if (write(STDERR_FILENO, message, sizeof(message) - 1) > 0 &&
	    write(STDERR_FILENO, note, strlen(note)) >= 0 && write(STDERR_FILENO, tail, 1) > 0)
		_exit(1);
	_exit(1);
}

void rig_enter(const struct rig *rig, int rank)
{
	RIG_GPU(cuCtxSetCurrent(rig->ranks[rank].context));
}

void rig_init(struct rig *rig, int n_ranks)
{
	ncclComm_t comms[RIG_MOST_RANKS];

	signal(SIGALRM, on_alarm);
	alarm(most_seconds);
	memset(rig, 0, sizeof(*rig));
	rig->n_ranks = n_ranks;
	RIG_GPU(cuInit(0));
	for (int r = 0; r < n_ranks; r++) {
		struct rig_rank *rank = &rig->ranks[r];

		RIG_GPU(cuDevicePrimaryCtxRetain(&rank->context, r));
		rig_enter(rig, r);
		RIG_GPU(cuStreamCreate(&rank->stream, CU_STREAM_NON_BLOCKING));
		RIG_GPU(cuStreamCreate(&rank->second, CU_STREAM_NON_BLOCKING));
		RIG_GPU(cuMemAlloc(&rank->scalar, 8));
	}
	RIG_NCCL(ncclCommInitAll(comms, n_ranks, NULL));
	for (int r = 0; r < n_ranks; r++)
		rig->ranks[r].comm = comms[r];
	alarm(0);
}

static void free_arenas(struct rig *rig)
{
	for (int r = 0; r < rig->n_ranks && rig->arena_bytes; r++) {
		rig_enter(rig, r);
		for (int a = 0; a < 2; a++)
			RIG_GPU(cuMemFree(rig->ranks[r].arenas[a]));
	}
	rig->arena_bytes = 0;
}

void rig_deinit(struct rig *rig)
{
	alarm(most_seconds);
	for (int r = 0; r < rig->n_ranks; r++)
		RIG_NCCL(ncclCommDestroy(rig->ranks[r].comm));
	free_arenas(rig);
	for (int r = 0; r < rig->n_ranks; r++) {
		rig_enter(rig, r);
		RIG_GPU(cuMemFree(rig->ranks[r].scalar));
		RIG_GPU(cuStreamDestroy(rig->ranks[r].stream));
		RIG_GPU(cuStreamDestroy(rig->ranks[r].second));
		RIG_GPU(cuCtxSetCurrent(NULL));
		RIG_GPU(cuDevicePrimaryCtxRelease(r));
	}
	alarm(0);
}

void rig_reserve(struct rig *rig, size_t bytes)
{
	if (bytes <= rig->arena_bytes)
		return;
	free_arenas(rig);
	bytes = bytes < 1 << 20 ? 1 << 20 : bytes * 2;
	for (int r = 0; r < rig->n_ranks; r++) {
		rig_enter(rig, r);
		for (int a = 0; a < 2; a++)
			RIG_GPU(cuMemAlloc(&rig->ranks[r].arenas[a], bytes));
	}
	rig->arena_bytes = bytes;
}

void rig_copy_in(const struct rig *rig, int rank, CUdeviceptr to, const void *from, size_t bytes)
{
	CUstream stream = rig->ranks[rank].stream;

	rig_enter(rig, rank);
	RIG_GPU(cuMemcpyHtoDAsync(to, from, bytes, stream));
	RIG_GPU(cuStreamSynchronize(stream));
}

void rig_copy_out(const struct rig *rig, int rank, void *to, CUdeviceptr from, size_t bytes)
{
	CUstream stream = rig->ranks[rank].stream;

	rig_enter(rig, rank);
	RIG_GPU(cuMemcpyDtoHAsync(to, from, bytes, stream));
	RIG_GPU(cuStreamSynchronize(stream));
}

void rig_wait(const struct rig *rig)
{
	alarm(most_seconds);
	for (int r = 0; r < rig->n_ranks; r++) {
		rig_enter(rig, r);
		RIG_GPU(cuStreamSynchronize(rig->ranks[r].stream));
		RIG_GPU(cuStreamSynchronize(rig->ranks[r].second));
	}
	alarm(0);
}

void rig_capture_begin(const struct rig *rig, CUstreamCaptureMode mode)
{
	for (int r = 0; r < rig->n_ranks; r++) {
		rig_enter(rig, r);
		RIG_GPU(cuStreamBeginCapture(rig->ranks[r].stream, mode));
	}
}

void rig_capture_end(const struct rig *rig, CUgraphExec *ret_graphs)
{
	for (int r = 0; r < rig->n_ranks; r++) {
		CUgraph graph;

		rig_enter(rig, r);
		RIG_GPU(cuStreamEndCapture(rig->ranks[r].stream, &graph));
		RIG_GPU(cuGraphInstantiateWithFlags(&ret_graphs[r], graph, 0));
		RIG_GPU(cuGraphDestroy(graph));
	}
}

void rig_launch(const struct rig *rig, const CUgraphExec *graphs)
{
	for (int r = 0; r < rig->n_ranks; r++) {
		rig_enter(rig, r);
		RIG_GPU(cuGraphLaunch(graphs[r], rig->ranks[r].stream));
	}
}

void rig_free_graphs(const struct rig *rig, CUgraphExec *graphs)
{
	for (int r = 0; r < rig->n_ranks; r++) {
		rig_enter(rig, r);
		RIG_GPU(cuGraphExecDestroy(graphs[r]));
	}
}

bool rig_fork(void (*body)(void *), void *argument)
{
	int status;

	fflush(stdout);
	fflush(stderr);
	pid_t child = fork();
	if (child < 0)
		rig_die("fork failed");
	if (child == 0) {
		body(argument);
		exit(0);
	}
	if (waitpid(child, &status, 0) != child)
		rig_die("waitpid failed");
	if (WIFSIGNALED(status))
		fprintf(stderr, "FAILED a child: signal %d\n", WTERMSIG(status));
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int rig_each_algorithm(void (*body)(void *), void *argument)
{
	int n_failed = 0;

	setenv("STRAIT_SCRATCH_SIZE", "1M", 1);
	for (int i = 0; i <= STRAIT_N_ALGORITHMS; i++) {
		const char *name = strait_algorithms[i].name;

		if (name)
			setenv("STRAIT_ALGORITHM", name, 1);
		else
			unsetenv("STRAIT_ALGORITHM");
		rig_note("%s", name ? name : "own choice");
		n_failed += !rig_fork(body, argument);
	}
	return n_failed;
}

uint64_t rig_random(uint64_t *state)
{
	return rig_mix(*state += 0x9e3779b97f4a7c15u, 0);
}

uint64_t rig_mix(uint64_t a, uint64_t b)
{
	uint64_t x = a ^ (b * 0xd6e8feb86659fd93u);

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}
