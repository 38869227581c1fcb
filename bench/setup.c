/* SPDX-License-Identifier: Apache-2.0 */
/* As nccl-tests: communicators are made in one group, by one thread for the whole process or by
 * each for its own. */
#include "bench/setup.h"
#include "bench/reference.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

void bench_gpu_check(CUresult result, const char *call)
{
	const char *text = "unknown error";

	if (result == CUDA_SUCCESS)
		return;
	strait_gpu->cuGetErrorString(result, &text);
	bench_die("%s: %s (%d)", call, text, (int)result);
}

double bench_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

size_t bench_type_bytes(enum strait_type type)
{
	return strait_reference_type_bytes(type);
}

void bench_rank_enter(const struct bench_rank *rank)
{
	BENCH_GPU(cuCtxSetCurrent, rank->context);
}

static void open_device(struct bench_run *run, struct bench_rank *rank)
{
	int per_process = run->place.n_threads * run->place.n_gpus;
	int local = run->place.local * per_process + rank->rank % per_process;

	rank->device_index = local % run->machine.n_devices;
	BENCH_GPU(cuDeviceGet, &rank->device, rank->device_index);
	BENCH_GPU(cuDevicePrimaryCtxRetain, &rank->context, rank->device);
	bench_rank_enter(rank);
	for (int l = 0; l < run->n_libraries && !run->options->null_stream; l++)
		BENCH_GPU(cuStreamCreate, &rank->sides[l].stream, CU_STREAM_NON_BLOCKING);
}

static void allocate(struct bench_run *run, int l, struct bench_buffer *buffer)
{
	const struct bench_library *library = &run->libraries[l];
	void *pointer = NULL;

	buffer->bytes = (size_t)run->options->max_bytes + (size_t)run->options->offset * 8 +
			2 * BENCH_MARGIN;
	if (run->options->register_buffers && library->MemAlloc) {
		bench_library_check(library, library->MemAlloc(&pointer, buffer->bytes),
				    "ncclMemAlloc");
		buffer->base = (CUdeviceptr)pointer;
	} else {
		BENCH_GPU(cuMemAlloc, &buffer->base, buffer->bytes);
	}
}

static void release(struct bench_run *run, int l, struct bench_buffer *buffer)
{
	const struct bench_library *library = &run->libraries[l];

	if (run->options->register_buffers && library->MemAlloc)
		bench_library_check(library, library->MemFree((void *)buffer->base), "ncclMemFree");
	else
		BENCH_GPU(cuMemFree, buffer->base);
}

/* Windows are collective: they are registered in a group where a thread has several ranks. */
static void register_buffer(struct bench_run *run, int l, struct bench_side *side,
			    struct bench_buffer *buffer)
{
	const struct bench_library *library = &run->libraries[l];
	void *base = (void *)buffer->base;

	if (run->options->register_buffers == 1 && library->CommRegister)
		bench_library_check(library,
				    library->CommRegister(side->communicator, base, buffer->bytes,
							  &buffer->registration),
				    "ncclCommRegister");
	else if (run->options->register_buffers == 2 && library->CommWindowRegister)
		bench_library_check(
			library,
			library->CommWindowRegister(side->communicator, base, buffer->bytes,
						    (ncclWindow_t *)&buffer->registration,
						    NCCL_WIN_COLL_SYMMETRIC),
			"ncclCommWindowRegister");
	else if (run->options->register_buffers)
		bench_die("%s cannot register buffers in this way (-R)", library->path);
}

static void deregister_buffer(struct bench_run *run, int l, struct bench_side *side,
			      struct bench_buffer *buffer)
{
	const struct bench_library *library = &run->libraries[l];

	if (!buffer->registration)
		return;
	if (run->options->register_buffers == 1)
		library->CommDeregister(side->communicator, buffer->registration);
	else
		library->CommWindowDeregister(side->communicator,
					      (ncclWindow_t)buffer->registration);
}

/* In one group over the ranks of the members given. */
static void init_communicators(struct bench_run *run, int l, struct bench_member *members, int n)
{
	const struct bench_library *library = &run->libraries[l];

	bench_library_check(library, library->GroupStart(), "ncclGroupStart");
	for (int m = 0; m < n; m++)
		for (int g = 0; g < members[m].n_ranks; g++) {
			struct bench_rank *rank = &members[m].ranks[g];

			bench_rank_enter(rank);
			bench_library_check(library,
					    library->CommInitRank(&rank->sides[l].communicator,
								  run->n_ranks, run->ids[l],
								  rank->rank),
					    "ncclCommInitRank");
		}
	bench_library_check(library, library->GroupEnd(), "communicator creation (ncclGroupEnd)");
}

static void share_ids(struct bench_member *member)
{
	struct bench_run *run = member->run;
	int n_members = run->place.n_processes * run->place.n_threads;
	struct ids {
		ncclUniqueId id[BENCH_MAX_LIBRARIES];
	} *all = calloc((size_t)n_members, sizeof(*all));

	for (int l = 0; l < run->n_libraries && run->place.process == 0 && member->thread == 0; l++)
		bench_library_check(&run->libraries[l],
				    run->libraries[l].GetUniqueId(&all[0].id[l]),
				    "ncclGetUniqueId");
	bench_gang_allgather(&run->gang, member->thread, all, sizeof(*all));
	if (member->thread == 0)
		memcpy(run->ids, all[0].id, sizeof(run->ids));
	free(all);
	bench_gang_barrier(&run->gang, member->thread);
}

void bench_member_setup(struct bench_member *member)
{
	struct bench_run *run = member->run;

	for (int g = 0; g < member->n_ranks; g++)
		open_device(run, &member->ranks[g]);
	share_ids(member);
	for (int l = 0; l < run->n_libraries; l++) {
		if (member->thread == 0)
			bench_board_say(run->board, "creating communicators of %s",
					run->libraries[l].path);
		if (run->options->parallel_init)
			init_communicators(run, l, member, 1);
		else if (member->thread == 0)
			init_communicators(run, l, run->members, run->place.n_threads);
		bench_gang_barrier(&run->gang, member->thread);
	}
	for (int l = 0; l < run->n_libraries; l++) {
		const struct bench_library *library = &run->libraries[l];

		for (int g = 0; g < member->n_ranks; g++) {
			bench_rank_enter(&member->ranks[g]);
			allocate(run, l, &member->ranks[g].sides[l].send);
			allocate(run, l, &member->ranks[g].sides[l].recv);
		}
		bench_library_check(library, library->GroupStart(), "ncclGroupStart");
		for (int g = 0; g < member->n_ranks; g++) {
			struct bench_side *side = &member->ranks[g].sides[l];

			bench_rank_enter(&member->ranks[g]);
			register_buffer(run, l, side, &side->send);
			register_buffer(run, l, side, &side->recv);
		}
		bench_library_check(library, library->GroupEnd(), "registration (ncclGroupEnd)");
	}
}

void bench_member_teardown(struct bench_member *member)
{
	struct bench_run *run = member->run;

	bench_gang_barrier(&run->gang, member->thread);
	for (int l = 0; l < run->n_libraries; l++) {
		const struct bench_library *library = &run->libraries[l];

		bench_library_check(library, library->GroupStart(), "ncclGroupStart");
		for (int g = 0; g < member->n_ranks; g++) {
			struct bench_side *side = &member->ranks[g].sides[l];

			bench_rank_enter(&member->ranks[g]);
			deregister_buffer(run, l, side, &side->send);
			deregister_buffer(run, l, side, &side->recv);
			bench_library_check(library, library->CommDestroy(side->communicator),
					    "ncclCommDestroy");
		}
		bench_library_check(library, library->GroupEnd(), "destruction (ncclGroupEnd)");
		for (int g = 0; g < member->n_ranks; g++) {
			struct bench_side *side = &member->ranks[g].sides[l];

			bench_rank_enter(&member->ranks[g]);
			release(run, l, &side->send);
			release(run, l, &side->recv);
			if (side->stream)
				BENCH_GPU(cuStreamDestroy, side->stream);
		}
	}
	for (int g = 0; g < member->n_ranks; g++)
		BENCH_GPU(cuDevicePrimaryCtxRelease, member->ranks[g].device);
	bench_gang_barrier(&run->gang, member->thread);
}
