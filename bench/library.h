/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An NCCL-compatible library, opened by path: a table of its functions. Two of them live side by
 * side in one process (each opened by absolute path with local scope), so that a comparison shares
 * process, buffers pattern, GPU clocks and moment.
 */
#pragma once
#include <nccl.h>
#include <stdbool.h>

struct bench_library {
	void *handle;
	char *path;  /* absolute, symbolic links resolved */
	int version; /* as ncclGetVersion */
#define NCCL(name) __typeof__(&nccl##name) name;
#define NCCL_OPTIONAL(name) __typeof__(&nccl##name) name;
#include "bench/nccl_functions.def"
#undef NCCL
#undef NCCL_OPTIONAL
};

/* Opens; NULL: libnccl.so.2 in ../lib beside this program, else beside it. Dies with a message when
 * there is none. */
void bench_library_open(const char *path, struct bench_library *ret);
/* Dies with NCCL's words unless result is success. */
void bench_library_check(const struct bench_library *library, ncclResult_t result,
			 const char *what);
