/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks of one process on the emulator, and what a test does with them: buffers with guards,
 * calls through the exported nccl* functions by one thread that holds all ranks, exact comparison
 * with the reference.
 *
 * A fault ends the process with a line that names what ran (rig_note) and exit code 1; so does a
 * wait that does not end within a minute. Programs that go through several algorithms or seeds fork
 * a child for each (rig_fork): the library and the emulator read their variables once a process.
 */
#pragma once
#include "bench/reference.h"
#include <cuda.h>
#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RIG_MOST_RANKS = 8 };

struct rig_rank {
	CUcontext context;
	CUstream stream, second;
	ncclComm_t comm;
	CUdeviceptr arenas[2]; /* of sends, of receives */
	CUdeviceptr scalar;    /* 8 bytes for the factor of a scaled sum */
};

struct rig {
	int n_ranks;
	size_t arena_bytes;
	struct rig_rank ranks[RIG_MOST_RANKS];
};

/* What runs now, for the line of a fault. */
void rig_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void rig_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Of a wait, instead of a minute. */
void rig_limit(unsigned seconds);

#define RIG_GPU(call) rig_check_gpu(call, #call)
#define RIG_NCCL(call) rig_check_nccl(call, #call)
void rig_check_gpu(CUresult result, const char *what);
void rig_check_nccl(ncclResult_t result, const char *what);

/* Ranks on devices 0, 1, ... with a communicator. Buffers grow with what is asked of them. */
void rig_init(struct rig *rig, int n_ranks);
void rig_deinit(struct rig *rig);
void rig_enter(const struct rig *rig, int rank);
/* Two arenas a rank of at least that many bytes; their contents are lost when they grow. */
void rig_reserve(struct rig *rig, size_t bytes);

void rig_copy_in(const struct rig *rig, int rank, CUdeviceptr to, const void *from, size_t bytes);
void rig_copy_out(const struct rig *rig, int rank, void *to, CUdeviceptr from, size_t bytes);
/* All streams of all ranks are idle. */
void rig_wait(const struct rig *rig);

/* Captures a thread's calls on the stream of every rank; end() makes graphs of them. */
void rig_capture_begin(const struct rig *rig, CUstreamCaptureMode mode);
void rig_capture_end(const struct rig *rig, CUgraphExec *ret_graphs);
void rig_launch(const struct rig *rig, const CUgraphExec *graphs);
void rig_free_graphs(const struct rig *rig, CUgraphExec *graphs);

/* Runs body(argument) in a child and waits. True: it ended with exit code 0. */
bool rig_fork(void (*body)(void *), void *argument);

/* Runs body(argument) in a child for each algorithm, forced, and once with the library's own
 * choice, on 1 MiB of scratch. Returns how many failed. */
int rig_each_algorithm(void (*body)(void *), void *argument);

/* A small generator: the same numbers everywhere. */
uint64_t rig_random(uint64_t *state);
uint64_t rig_mix(uint64_t a, uint64_t b);
