/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that Strait needs of a GPU: the CUDA driver API, found at run time. libcuda.so.1 is opened at
 * the first strait_gpu_load(); its functions come through cuGetProcAddress into one table. Each row
 * of base/driver.def carries the version of the signature that we compiled against.
 *
 * The structs and enumerators are those of <cuda.h> (build time only; nothing links to libcuda).
 */
#pragma once
#include <cuda.h>
#include <cudaTypedefs.h>
#include <stdbool.h>

/* The table. A mandatory entry is never NULL after strait_gpu_load() succeeded; an optional one can
 * be. */
struct strait_gpu_functions {
#define DRIVER(name, version) __typeof__(&name) name;
#define DRIVER_OPTIONAL(name, version) __typeof__(&name) name;
#define DRIVER_AS(name, type, version) type name##_;
#include "base/driver.def"
#undef DRIVER
#undef DRIVER_OPTIONAL
#undef DRIVER_AS
};

/* Opens the driver and calls cuInit, once in a process; later calls return the first result.
 * Thread-safe. STRAIT_ERROR_CUDA where there is no driver, no device, or a driver older than 12.0.
 */
int strait_gpu_load(void);

/* The table. Only after a successful strait_gpu_load(). */
extern struct strait_gpu_functions strait_gpu_table;
#define strait_gpu (&strait_gpu_table)

/* A failure of a driver call as a status, with the driver's own words: strait_gpu_check(r,
 * "cuMemCreate"). */
int strait_gpu_check(CUresult result, const char *call);
#define STRAIT_GPU(call, ...) strait_trace(strait_gpu_check(strait_gpu->call(__VA_ARGS__), #call))
