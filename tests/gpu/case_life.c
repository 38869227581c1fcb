/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators that come and go, and ranks that die. */
#include "tests/gpu/case.h"
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 16 << 10 }; /* floats: 64 KiB */

/* From here on the end of this process is part of the case. */
static void expect_death(void)
{
	/* pairs with the acquire in the launcher */
	atomic_store_explicit(&me->board->ranks[me->number].dying, 1, memory_order_release);
}

static ncclComm_t start_exactly(void)
{
	ncclComm_t comm = communicator_new();

	for (uint64_t k = 0; k < pick(200, 5); k++)
		call_check(comm, me->stream,
			   &(struct call){.type = STRAIT_FLOAT32, .count = COUNT, .k = k});
	return comm;
}

static ncclResult_t reduce(CUdeviceptr data, ncclComm_t comm)
{
	return me->library->AllReduce((void *)data, (void *)data, COUNT, ncclFloat, ncclSum, comm,
				      me->stream);
}

/* A survivor is told, and an abort frees what waits. */
static void survive(ncclComm_t comm)
{
	ncclResult_t state = ncclSuccess;
	double start = now_s(), told, aborted;

	say("waiting for the error");
	while (state == ncclSuccess && now_s() - start < 10)
		NCCL(CommGetAsyncError, comm, &state);
	told = now_s() - start;
	MUST_SAY(state == ncclRemoteError || state == ncclSystemError,
		 "the state after %.1f s is %d", told, (int)state);
	say("aborting");
	NCCL(CommAbort, comm);
	aborted = now_s() - start;
	say("waiting for the stream after the abort");
	while (strait_gpu->cuStreamQuery(me->stream) == CUDA_ERROR_NOT_READY)
		MUST_SAY(now_s() - start < 30, "the stream is not ready 30 s after the loss");
	note("told after %.2f s, abort took %.2f s", told, aborted - told);
}

/* Between two calls; the next call of the others cannot end. */
static ncclComm_t lose_a_rank(CUdeviceptr data)
{
	ncclComm_t comm = start_exactly();
	ncclResult_t result;

	if (me->number == me->n - 1) {
		expect_death();
		raise(SIGKILL);
	}
	result = reduce(data, comm);
	/* An error if the loss is known already. */
	MUST(result == ncclSuccess || result == ncclRemoteError);
	return comm;
}

void case_killed_rank(void)
{
	struct buffer data = buffer_new(MEMORY_DEVICE, COUNT * sizeof(float), 0);

	if (me->n < 2)
		skip("needs 2 ranks");
	else
		survive(lose_a_rank(data.at));
}

/* Dies while its own kernel waits for the others. */
void case_killed_in_kernel(void)
{
	struct buffer data = buffer_new(MEMORY_DEVICE, COUNT * sizeof(float), 0);
	ncclComm_t comm;

	if (me->n < 2 || (me->shared && !me->emulator)) {
		skip("needs 2 ranks, each with a GPU: MPS ends all of its clients then");
		return;
	}
	comm = start_exactly();
	if (me->number == me->n - 1) {
		MUST(reduce(data.at, comm) == ncclSuccess);
		MUST(strait_gpu->cuStreamQuery(me->stream) == CUDA_ERROR_NOT_READY);
		expect_death();
		raise(SIGKILL);
	}
	survive(comm);
}

void case_killed_rank_sigterm(void)
{
	struct buffer data = buffer_new(MEMORY_DEVICE, COUNT * sizeof(float), 0);

	if (me->n < 2) {
		skip("needs 2 ranks");
		return;
	}
	lose_a_rank(data.at);
	say("waiting for SIGTERM");
	expect_death();
	(void)strait_gpu->cuStreamSynchronize(me->stream);
	for (;;)
		pause_us(100000);
}

static size_t free_bytes(void)
{
	size_t free_now, total;

	GPU(cuMemGetInfo, &free_now, &total);
	return free_now;
}

/* Device memory that is free when no rank is at work. */
static size_t free_bytes_of_all(void)
{
	size_t bytes;

	barrier();
	bytes = free_bytes();
	barrier();
	return bytes;
}

static void use(ncclComm_t comm, uint64_t k)
{
	call_check(comm, me->stream, &(struct call){.type = STRAIT_FLOAT32, .count = 1000, .k = k});
}

void case_many_communicators(void)
{
	enum { MOST = 64 };
	const int n = (int)pick(MOST, 16);
	ncclComm_t comms[MOST];
	size_t before, after;
	int n_devices = 1, sharing;

	GPU(cuDeviceGetCount, &n_devices);
	/* Free memory is that of the device on GPUs; the emulator counts each process by itself. */
	sharing = me->emulator && !me->threads ? 1 : (me->n + n_devices - 1) / n_devices;
	use(comms[0] = communicator_new(), 0); /* what is needed once is not counted */
	before = free_bytes_of_all();
	for (int i = 1; i < n; i++) {
		comms[i] = communicator_new();
		use(comms[i], (uint64_t)i);
	}
	after = free_bytes_of_all();
	for (int i = 0; i < n; i++)
		use(comms[i], (uint64_t)i + 100);
	for (int i = n - 1; i >= 0; i--)
		communicator_free(comms[i]);
	note("%d communicators, %.1f MiB of device memory each", n,
	     (double)(before - after) / (n - 1) / sharing / (1 << 20));
	MUST_SAY(after <= before &&
			 (before - after) / (size_t)(n - 1) / (size_t)sharing <= 32 << 20,
		 "%zu bytes of device memory for %d communicators of %d ranks", before - after,
		 n - 1, sharing);
}

static int entries_of(const char *folder)
{
	DIR *entries = opendir(folder);
	int n = 0;

	MUST(entries);
	while (readdir(entries))
		n++;
	closedir(entries);
	return n;
}

static int mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	int n = 0, c;

	MUST(maps);
	while ((c = getc(maps)) != EOF)
		n += c == '\n';
	fclose(maps);
	return n;
}

struct possession {
	size_t free_bytes;
	int descriptors, threads, mappings;
};

static struct possession possess(void)
{
	struct possession now;

	barrier();
	now.free_bytes = free_bytes();
	now.descriptors = entries_of("/proc/self/fd");
	now.threads = entries_of("/proc/self/task");
	now.mappings = mappings();
	barrier();
	return now;
}

void case_create_and_destroy(void)
{
	const int n = (int)pick(200, 60);
	struct possession early = {0}, late;

	for (int i = 0; i < n; i++) {
		ncclComm_t comm = communicator_new();

		use(comm, (uint64_t)i);
		communicator_free(comm);
		if (i == n / 10)
			early = possess();
	}
	late = possess();
	note("%d rounds: %+.1f MiB, %+d descriptors, %+d threads, %+d mappings", n - n / 10 - 1,
	     ((double)early.free_bytes - (double)late.free_bytes) / (1 << 20),
	     late.descriptors - early.descriptors, late.threads - early.threads,
	     late.mappings - early.mappings);
	MUST_SAY(late.free_bytes + (8 << 20) >= early.free_bytes,
		 "device memory: %zu free, then %zu", early.free_bytes, late.free_bytes);
	MUST_SAY(late.descriptors <= early.descriptors + 4, "descriptors: %d, then %d",
		 early.descriptors, late.descriptors);
	MUST_SAY(late.threads <= early.threads + 1, "threads: %d, then %d", early.threads,
		 late.threads);
	MUST_SAY(late.mappings <= early.mappings + 20, "mappings: %d, then %d", early.mappings,
		 late.mappings);
}

/* One rank was started with another setting: all are refused, or all agree and are exact. */
static void meet_with_other_settings(void)
{
	ncclUniqueId ids[BOARD_RANKS];
	ncclResult_t results[BOARD_RANKS];
	ncclComm_t comm = NULL;

	if (me->n < 2) {
		skip("needs 2 ranks");
		return;
	}
	if (me->number == 0)
		NCCL(GetUniqueId, &ids[0]);
	share(ids, sizeof(*ids));
	say("creating a communicator");
	results[me->number] = me->library->CommInitRank(&comm, me->n, ids[0], me->number);
	share(results, sizeof(*results));
	for (int r = 0; r < me->n; r++)
		MUST_SAY((results[r] == ncclSuccess) == (results[0] == ncclSuccess),
			 "rank %d got %d, rank 0 got %d", r, (int)results[r], (int)results[0]);
	if (results[0] != ncclSuccess) {
		note("refused: %s", me->library->GetLastError(NULL));
		return;
	}
	for (uint64_t k = 0; k < 10; k++)
		use(comm, k);
	communicator_free(comm);
	note("agreed");
}

void case_settings_differ(void)
{
	meet_with_other_settings();
}

void case_forced_path_differs(void)
{
	meet_with_other_settings();
}
