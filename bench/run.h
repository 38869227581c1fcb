/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process holds while it measures: one bench_run, a bench_member for each of its threads,
 * and in it a bench_rank for each GPU the thread drives. Every rank has one side for each library:
 * its communicator, stream and buffers, so that two libraries never share state.
 */
#pragma once
#include "bench/board.h"
#include "bench/gang.h"
#include "bench/library.h"
#include "bench/machine.h"
#include "bench/operation.h"
#include "bench/options.h"
#include "bench/place.h"
#include "bench/reference.h"
#include "bench/report.h"
#include "strait/gpu.h"

struct bench_buffer {
	CUdeviceptr base; /* as allocated; the payload starts BENCH_MARGIN + offset behind it */
	size_t bytes;
	void *registration;
};

#define BENCH_MARGIN \
	4096 /* before and after a payload: room for guards, and the base's alignment kept */

struct bench_side {
	ncclComm_t communicator;
	CUstream stream;
	struct bench_buffer send, recv;
};

struct bench_rank {
	int rank, device_index;
	CUdevice device;
	CUcontext context;
	struct bench_side sides[BENCH_MAX_LIBRARIES];
};

struct bench_run {
	const struct bench_options *options;
	struct bench_place place;
	struct bench_machine machine;
	struct bench_gang gang;
	struct bench_board_entry *board; /* own entry */
	struct bench_library libraries[BENCH_MAX_LIBRARIES];
	int n_libraries, n_ranks;
	ncclUniqueId ids[BENCH_MAX_LIBRARIES];
	struct bench_member *members;
};

struct bench_member {
	struct bench_run *run;
	int thread, n_ranks; /* ranks of this thread: GPUs */
	struct bench_rank *ranks;
};

/* One line's half: what is called. */
struct bench_point {
	int library;
	enum strait_type type;
	enum strait_reduction_kind reduction;
	int root;
	size_t count;
	bool in_place;
	uint64_t k; /* number of the next pattern; equal on all ranks */
};

/* What one rank found. */
struct bench_result {
	double median_us, average_us, least_us; /* device time a call, over samples */
	double host_us,
		cpu_us; /* from first call to the end of the last; in the calls themselves */
	uint64_t wrong; /* elements, and changed guard bytes */
};

#define BENCH_GPU(call, ...) bench_gpu_check(strait_gpu->call(__VA_ARGS__), #call)
/* Dies with the driver's words unless result is success. */
void bench_gpu_check(CUresult result, const char *call);

double bench_now_us(void);
size_t bench_type_bytes(enum strait_type type);
/* Makes the rank's context current. */
void bench_rank_enter(const struct bench_rank *rank);
