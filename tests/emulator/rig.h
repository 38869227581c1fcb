/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the emulator's tests share: checked calls, kernels by name, and ranks as threads or as
 * processes that have each other's scratch mapped.
 */
#pragma once
#include "tests/emulator/kernels.h"
#include <cuda.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* A driver call that has to succeed; a child process ends when it does not. */
#define OK(call) rig_check((call), #call, __FILE__, __LINE__)
void rig_check(CUresult result, const char *call, const char *file, int line);

/* A context of device 0 on this thread, and the test kernels. */
void rig_open(unsigned device);
CUfunction rig_kernel(const char *name);
void rig_launch(const char *name, unsigned blocks, unsigned threads,
		const struct arguments *arguments, CUstream stream);
CUdeviceptr rig_alloc(size_t bytes); /* zeroed */

/* Ranks, each with a stream and the scratch of all. `body` runs once on each. */
struct rig_rank {
	int rank, n;
	CUstream stream;
	CUdeviceptr scratch[RANKS];
	int socket; /* processes: to the parent */
	struct rig_group *group;
};
typedef int rig_body(struct rig_rank *rank, long value); /* a sum of all is what rig_run_ gives */

/* Every rank a thread of this process, on device rank % devices, or all held by as many contexts.
 */
long rig_run_threads(int n, rig_body *body, long value, unsigned devices);

/* Every rank a process that runs the body of that name. */
struct rig_role {
	const char *name;
	rig_body *body;
};
long rig_run_processes(int n, const char *role, long value, const char *const *environment);
/* First in main: runs the body and exits when this process is a rank. */
void rig_main(int argc, char **argv, const struct rig_role *roles, size_t n_roles);
