/* SPDX-License-Identifier: Apache-2.0 */
/* Order and time: streams side by side, groups, ranks that are late, and what else a GPU does
 * meanwhile. */
#include "tests/gpu/case.h"
#include "tests/gpu/user.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { PATTERNS = 61, RING = 8, MOST_COMMS = 8 };

/* One stream of calls of one size; RING of them are under way at a time. */
struct lane {
	const char *name;
	CUstream stream;
	struct series series;
	struct buffer outputs;
	char *got;
};

static struct lane lane_new(const char *name, size_t bytes, int priority)
{
	struct lane lane = {.name = name};
	void *host;

	GPU(cuStreamCreateWithPriority, &lane.stream, CU_STREAM_NON_BLOCKING, priority);
	lane.series = series_new(STRAIT_FLOAT16, STRAIT_SUM, bytes / 2, PATTERNS);
	lane.outputs = buffer_new(MEMORY_DEVICE, RING * lane.series.bytes, 0);
	GPU(cuMemHostAlloc, &host, RING * lane.series.bytes, 0);
	lane.got = host;
	return lane;
}

static void lane_free(struct lane *lane)
{
	GPU(cuMemFreeHost, lane->got);
	buffer_free(&lane->outputs);
	series_free(&lane->series);
	GPU(cuStreamDestroy, lane->stream);
}

static void lane_reduce(struct lane *lane, uint64_t k, ncclComm_t comm)
{
	series_reduce(&lane->series, series_input(&lane->series, k),
		      lane->outputs.at + k % RING * lane->series.bytes, comm, lane->stream);
}

static void lane_check(struct lane *lane, uint64_t first)
{
	GPU(cuMemcpyDtoHAsync, lane->got, lane->outputs.at, RING * lane->series.bytes,
	    lane->stream);
	wait_stream(lane->stream);
	for (uint64_t k = first; k < first + RING; k++)
		series_check(&lane->series, k, lane->got + k % RING * lane->series.bytes,
			     lane->name);
}

static void run_pairs(size_t n_pairs, int priority)
{
	ncclComm_t comm = communicator_new();
	struct lane small = lane_new("small", 8 << 10, 0);
	struct lane large = lane_new("large", pick(256 << 10, 32 << 10), priority);

	for (uint64_t first = 0; first < n_pairs; first += RING) {
		say("pair %llu", (unsigned long long)first);
		for (uint64_t k = first; k < first + RING; k++) {
			lane_reduce(&small, k, comm);
			lane_reduce(&large, k, comm);
		}
		lane_check(&small, first);
		lane_check(&large, first);
	}
	lane_free(&small);
	lane_free(&large);
	communicator_free(comm);
}

void case_two_streams(void)
{
	run_pairs(pick(20000, 200), 0);
}

void case_two_priorities(void)
{
	int least = 0, greatest = 0;

	EXTRA_GPU(cuCtxGetStreamPriorityRange, &least, &greatest);
	if (least == greatest) {
		skip("the device has one priority only");
		return;
	}
	run_pairs(pick(20000, 200), greatest);
}

static void group_of_three(ncclComm_t *comms, uint64_t k, int depth)
{
	struct lane lanes[3] = {lane_new("first", 1 << 10, 0), lane_new("second", 16 << 10, 0),
				lane_new("third", pick(2 << 20, 64 << 10), 0)};

	for (uint64_t i = 0; i < RING; i++) {
		for (int d = 0; d < depth; d++)
			NCCL(GroupStart);
		for (int c = 0; c < 3; c++)
			lane_reduce(&lanes[c], k + i, comms[c]);
		for (int d = 0; d < depth; d++)
			NCCL(GroupEnd);
	}
	for (int c = 0; c < 3; c++) {
		lane_check(&lanes[c], k);
		lane_free(&lanes[c]);
	}
}

void case_groups(void)
{
	ncclComm_t comms[3];

	for (int c = 0; c < 3; c++)
		comms[c] = communicator_new();
	for (uint64_t k = 0; k < pick(20, 2) * RING; k += RING) {
		say("groups %llu", (unsigned long long)k);
		NCCL(GroupStart);
		NCCL(GroupEnd);
		group_of_three(comms, k, 1);
		group_of_three(comms, k, 3);
	}
	/* Several calls of one communicator in a group. */
	group_of_three((ncclComm_t[]){comms[1], comms[1], comms[1]}, 0, 2);
	for (int c = 0; c < 3; c++)
		communicator_free(comms[c]);
}

/* What one thread has for one of the ranks that it holds. */
struct held {
	CUdevice device;
	CUcontext context;
	CUstream stream;
	CUdeviceptr data;
	ncclComm_t comm;
};

static void hold(struct held *held, int device, size_t bytes)
{
	GPU(cuDeviceGet, &held->device, device);
	GPU(cuDevicePrimaryCtxRetain, &held->context, held->device);
	GPU(cuCtxSetCurrent, held->context);
	GPU(cuStreamCreate, &held->stream, CU_STREAM_NON_BLOCKING);
	GPU(cuMemAlloc, &held->data, bytes);
}

static void let_go(struct held *held)
{
	NCCL(CommDestroy, held->comm);
	GPU(cuCtxSetCurrent, held->context);
	GPU(cuMemFree, held->data);
	GPU(cuStreamDestroy, held->stream);
	GPU(cuCtxSetCurrent, me->context);
	GPU(cuDevicePrimaryCtxRelease, held->device);
}

static void reduce_all(struct held *ranks, int n, size_t bytes, char *host, char *expected)
{
	struct strait_reference reference = {STRAIT_FLOAT32, STRAIT_SUM, n, bytes};
	struct strait_mismatch mismatch;

	strait_reference_output(&reference, 0, bytes / 4, expected);
	for (int r = 0; r < n; r++) {
		strait_reference_input(&reference, r, 0, bytes / 4, host);
		GPU(cuCtxSetCurrent, ranks[r].context);
		GPU(cuMemcpyHtoDAsync, ranks[r].data, host, bytes, ranks[r].stream);
		wait_stream(ranks[r].stream);
	}
	NCCL(GroupStart);
	for (int r = 0; r < n; r++)
		NCCL(AllReduce, (void *)ranks[r].data, (void *)ranks[r].data, bytes / 4, ncclFloat,
		     ncclSum, ranks[r].comm, ranks[r].stream);
	NCCL(GroupEnd);
	for (int r = 0; r < n; r++) {
		GPU(cuCtxSetCurrent, ranks[r].context);
		GPU(cuMemcpyDtoHAsync, host, ranks[r].data, bytes, ranks[r].stream);
		wait_stream(ranks[r].stream);
		strait_reference_compare(STRAIT_FLOAT32, host, expected, bytes / 4, 0, &mismatch);
		MUST_SAY(mismatch.n == 0, "%zu bytes, rank %d: %zu wrong, [%zu] is %s, not %s",
			 bytes, r, mismatch.n, mismatch.first, mismatch.got, mismatch.expected);
	}
	GPU(cuCtxSetCurrent, me->context);
}

/* The first rank alone plays them all; the other processes wait. */
void case_one_thread(void)
{
	const size_t most = pick(64 << 20, 256 << 10);
	int n = me->n < MOST_COMMS ? me->n : MOST_COMMS, devices[MOST_COMMS], n_devices = 0;
	ncclComm_t comms[MOST_COMMS];
	struct held ranks[MOST_COMMS];
	char *host, *expected;
	ncclResult_t (*init_all)(ncclComm_t *, int, const int *) =
		(ncclResult_t(*)(ncclComm_t *, int, const int *))dlsym(me->library->handle,
								       "ncclCommInitAll");

	if (me->number != 0)
		return;
	MUST(init_all);
	GPU(cuDeviceGetCount, &n_devices);
	host = malloc(most);
	expected = malloc(most);
	MUST_SAY(host && expected, "out of memory");
	for (int r = 0; r < n; r++) {
		devices[r] = r % n_devices;
		hold(&ranks[r], devices[r], most);
	}
	GPU(cuCtxSetCurrent, me->context);
	say("in ncclCommInitAll");
	check_nccl(init_all(comms, n, devices), __FILE__, __LINE__, "CommInitAll");
	for (int r = 0; r < n; r++)
		ranks[r].comm = comms[r];
	for (size_t bytes = 1 << 10; bytes <= most; bytes *= 4) {
		say("%zu bytes", bytes);
		reduce_all(ranks, n, bytes, host, expected);
	}
	for (int r = 0; r < n; r++)
		let_go(&ranks[r]);
	free(host);
	free(expected);
}

static bool is_last(void)
{
	return me->number == me->n - 1;
}

/* Late at creation, at the first call, at a later one, in the middle of a queue, and on the GPU. */
void case_late_ranks(void)
{
	const unsigned late_us = (unsigned)pick(3000000, 300000);
	struct lane lane;
	ncclComm_t comm;

	if (is_last())
		pause_us(late_us);
	comm = communicator_new();
	lane = lane_new("lane", 16 << 10, 0);
	for (uint64_t step = 0; step < 3; step++) {
		if (is_last() && step < 2)
			pause_us(late_us);
		else if (is_last() || (me->number == 0 && step == 1))
			user_delay(late_us * 500ul, lane.stream);
		for (uint64_t k = 0; k < RING; k++)
			lane_reduce(&lane, step * RING + k, comm);
		say("waiting in step %d", (int)step);
		lane_check(&lane, step * RING);
	}
	lane_free(&lane);
	communicator_free(comm);
}

/* All that takes a lock of the driver while a kernel of the first rank waits for this one. */
static void do_what_may_block(int round)
{
	const size_t bytes = pick((size_t)1 << 30, 64 << 20);
	CUdeviceptr memory;
	void *host;

	say("loading a kernel while a peer waits");
	user_write(round, me->stream);
	say("allocating while a peer waits");
	GPU(cuMemAlloc, &memory, bytes);
	say("freeing while a peer waits");
	GPU(cuMemFree, memory);
	GPU(cuMemHostAlloc, &host, 16 << 20, 0);
	GPU(cuMemFreeHost, host);
}

void case_lazy_loading(void)
{
	const size_t sizes[USER_WRITES] = {4 << 10, 64 << 10, pick(4 << 20, 200 << 10)};

	for (int round = 0; round < USER_WRITES; round++) {
		ncclComm_t comm = communicator_new();
		struct lane lane = lane_new("first calls", sizes[round], 0);

		barrier();
		if (me->number != 0) {
			pause_us((unsigned)pick(2000000, 100000)); /* until its kernel waits */
			do_what_may_block(round);
		}
		for (uint64_t k = 0; k < RING; k++)
			lane_reduce(&lane, k, comm);
		say("waiting for the peers, round %d", round);
		lane_check(&lane, 0);
		lane_free(&lane);
		communicator_free(comm);
	}
}

void case_time_sliced(void)
{
	struct lane lane;
	ncclComm_t comm;

	if (me->emulator || !me->shared) {
		skip("needs several ranks on one GPU");
		return;
	}
	comm = communicator_new();
	/* Each exchange takes a turn of every rank, some milliseconds: large calls of many ranks
	 * take long. */
	for (size_t bytes = 4; bytes <= (me->n > 4 ? 128 << 10 : 4 << 20); bytes *= 32) {
		say("%zu bytes", bytes);
		lane = lane_new("lane", bytes, 0);
		for (uint64_t k = 0; k < RING; k++)
			lane_reduce(&lane, k, comm);
		lane_check(&lane, 0);
		lane_free(&lane);
	}
	communicator_free(comm);
}
