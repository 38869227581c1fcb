/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a case has at hand: the rank that this thread is, checked calls of driver and library,
 * buffers of every kind of memory with guards, and exact checks of an all-reduce.
 *
 * Every check that fails ends the process with a reason for the launcher; nothing has to be freed
 * then.
 */
#pragma once
#include "bench/gang.h"
#include "bench/library.h"
#include "bench/reference.h"
#include "strait/gpu.h"
#include "tests/gpu/board.h"
#include <stdbool.h>

struct rank {
	int number, n;         /* of the job */
	int thread;            /* in its process */
	bool emulator, shared; /* shared: ranks outnumber the GPUs */
	bool threads;          /* ranks are threads of one process */
	uint64_t seed;         /* same on all ranks */
	CUdevice device;
	CUcontext context;
	CUstream stream; /* non-blocking */
	struct bench_gang *gang;
	const struct bench_library *library;
	struct board *board;
};
extern _Thread_local struct rank *me;

struct extra_functions {
#define EXTRA(name) __typeof__(&name) name;
#include "tests/gpu/extra.def"
#undef EXTRA
};
extern struct extra_functions extra; /* after extra_load() */
void extra_load(void);

_Noreturn void fail(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
#define MUST(condition) MUST_SAY(condition, "%s", #condition)
#define MUST_SAY(condition, ...) ((condition) ? (void)0 : fail(__FILE__, __LINE__, __VA_ARGS__))
#define GPU(call, ...) check_gpu(strait_gpu->call(__VA_ARGS__), __FILE__, __LINE__, #call)
#define EXTRA_GPU(call, ...) check_gpu(extra.call(__VA_ARGS__), __FILE__, __LINE__, #call)
#define NCCL(call, ...) check_nccl(me->library->call(__VA_ARGS__), __FILE__, __LINE__, #call)
void check_gpu(CUresult result, const char *file, int line, const char *call);
void check_nccl(ncclResult_t result, const char *file, int line, const char *call);

/* What this rank does now, for the message about a hang. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Said once a case, by all ranks. skip: the case does not count; return right after it. */
void skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Shown with the verdict; rank 0's counts. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* `gpu` on GPUs, `emulator` on the emulator. */
size_t pick(size_t gpu, size_t emulator);
double now_s(void);
void pause_us(unsigned us);
uint64_t random_next(uint64_t *state);

void barrier(void);
/* Own entry set on entry, all set on return. */
void share(void *all, size_t bytes_each);
void wait_stream(CUstream stream);

ncclComm_t communicator_new(void);
void communicator_free(ncclComm_t comm);

/* A capture in global mode, by all ranks at once. */
void capture_begin(CUstream stream);
CUgraphExec capture_end(CUstream stream);

enum memory {
	MEMORY_DEVICE,
	MEMORY_VIRTUAL,
	MEMORY_POOL,
	MEMORY_MANAGED,
	MEMORY_PINNED,
	MEMORY_REGISTERED,
	N_MEMORIES
};
extern const char *const memory_names[N_MEMORIES];

struct buffer {
	enum memory memory;
	CUdeviceptr base, at; /* at: the payload, with room for guards around it */
	size_t bytes;         /* of the payload */
	size_t total;
	void *host;
};
/* The payload lies `offset` bytes behind an alignment of 4096. */
struct buffer buffer_new(enum memory memory, size_t bytes, size_t offset);
void buffer_free(struct buffer *buffer);
void upload(CUdeviceptr to, const void *from, size_t bytes);
void download(void *to, CUdeviceptr from, size_t bytes);

/* One all-reduce from the pattern `k`, checked bit for bit, with the guards of both buffers. */
struct call {
	enum strait_type type;
	enum strait_reduction_kind reduction;
	size_t count;
	bool in_place, graph; /* graph: captured and replayed, not called */
	uint64_t k;
	/* Where the payloads lie; the defaults are aligned device memory. */
	enum memory send_memory, recv_memory;
	size_t send_offset, recv_offset; /* bytes */
};
void call_check(ncclComm_t comm, CUstream stream, const struct call *call);

/* Inputs of several patterns in device memory and what they give in host memory, so that a loop
 * costs only copies. */
struct series {
	struct strait_reference reference;
	size_t count, bytes;
	int n; /* patterns */
	CUdeviceptr inputs;
	char *outputs;
};
struct series series_new(enum strait_type type, enum strait_reduction_kind reduction, size_t count,
			 int n);
void series_free(struct series *series);
CUdeviceptr series_input(const struct series *series, uint64_t k);
/* Fails unless `got`, in host memory, is what pattern k gives. */
void series_check(const struct series *series, uint64_t k, const void *got, const char *where);
void series_reduce(const struct series *series, CUdeviceptr from, CUdeviceptr to, ncclComm_t comm,
		   CUstream stream);
