/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens libcuda.so.1 and fills the table of its functions.
 *
 * Every function is asked for by its plain name and by the version whose signature we compiled,
 * with the legacy meaning of stream 0: the application's headers decide what it means by 0, and
 * NCCL takes it so. The library is opened without entering the global scope and stays open: an
 * application may share it, and a driver cannot be unloaded safely. Nothing is tried twice: a
 * process without a driver will not get one.
 */
#include "strait/gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>

#include "strait/log.h"
#include "strait/status.h"

enum { LOWEST_VERSION = 12000 };

struct row {
	const char *name;
	size_t offset;
	int version;
	bool optional;
};

static const struct row rows[] = {
#define DRIVER(name, version) {#name, offsetof(struct strait_gpu_functions, name), version, false},
#define DRIVER_OPTIONAL(name, version) \
	{#name, offsetof(struct strait_gpu_functions, name), version, true},
#define DRIVER_AS(name, type, version) \
	{#name, offsetof(struct strait_gpu_functions, name##_), version, false},
#include "base/driver.def"
#undef DRIVER
#undef DRIVER_OPTIONAL
#undef DRIVER_AS
};

/* How the driver hands out its functions: the form of CUDA 12, or that of 11.3, which a stand-in
 * may have. */
struct source {
	PFN_cuGetProcAddress_v12000 get;
	PFN_cuGetProcAddress_v11030 get_old;
	int driver_version;
};

struct strait_gpu_functions strait_gpu_table;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int load_status;
static char load_message[512]; /* repeated by each later call, so that the user sees the cause every
				  time */

static int version_check(int version)
{
	if (version >= LOWEST_VERSION)
		return 0;
	return strait_fail(
		STRAIT_ERROR_CUDA,
		"The GPU driver supports CUDA %d.%d; Strait needs a driver of CUDA %d.%d or newer",
		version / 1000, version % 1000 / 10, LOWEST_VERSION / 1000,
		LOWEST_VERSION % 1000 / 10);
}

/* The few functions that are needed before the table is there. */
static int source_open(void *library, struct source *ret_source)
{
	struct source source = {0};
	PFN_cuDriverGetVersion_v2020 get_version;
	int r;

	get_version = (PFN_cuDriverGetVersion_v2020)dlsym(library, "cuDriverGetVersion");
	if (get_version)
		get_version(&source.driver_version);
	r = version_check(source.driver_version);
	if (r)
		return strait_trace(r);
	source.get = (PFN_cuGetProcAddress_v12000)dlsym(library, "cuGetProcAddress_v2");
	source.get_old = (PFN_cuGetProcAddress_v11030)dlsym(library, "cuGetProcAddress");
	if (!source.get && !source.get_old)
		return strait_fail(STRAIT_ERROR_CUDA, "libcuda.so.1 has no cuGetProcAddress");
	*ret_source = source;
	return 0;
}

static void *source_find(const struct source *source, const char *name, int version)
{
	const cuuint64_t flags = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
	CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
	void *function = NULL;
	CUresult result;

	if (source->get)
		result = source->get(name, &function, version, flags, &found);
	else
		result = source->get_old(name, &function, version, flags);
	return result == CUDA_SUCCESS && found == CU_GET_PROC_ADDRESS_SUCCESS ? function : NULL;
}

static int table_fill(const struct source *source)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		void *function = source_find(source, rows[i].name, rows[i].version);

		if (!function && !rows[i].optional)
			return strait_fail(STRAIT_ERROR_CUDA,
					   "The GPU driver (CUDA %d.%d) lacks %s of CUDA %d.%d; a "
					   "newer driver is needed",
					   source->driver_version / 1000,
					   source->driver_version % 1000 / 10, rows[i].name,
					   rows[i].version / 1000, rows[i].version % 1000 / 10);
		*(void **)((char *)&strait_gpu_table + rows[i].offset) = function;
	}
	return 0;
}

static int driver_open(void)
{
	struct source source;
	PFN_cuInit_v2000 init;
	void *library;
	int r;

	library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return strait_fail(STRAIT_ERROR_CUDA, "No GPU driver: %s", dlerror());
	r = source_open(library, &source);
	if (!r)
		r = table_fill(&source);
	if (r)
		return strait_trace(r);
	init = (PFN_cuInit_v2000)source_find(&source, "cuInit", 2000);
	if (!init)
		return strait_fail(STRAIT_ERROR_CUDA, "libcuda.so.1 has no cuInit");
	r = strait_gpu_check(init(0), "cuInit");
	if (r)
		return strait_trace(r);
	strait_info(DRIVER, "driver of CUDA %d.%d", source.driver_version / 1000,
		    source.driver_version % 1000 / 10);
	return 0;
}

static void load_once(void)
{
	load_status = driver_open();
	if (load_status)
		snprintf(load_message, sizeof(load_message), "%s", strait_status_message());
}

int strait_gpu_load(void)
{
	pthread_once(&once, load_once);
	return load_status ? strait_fail(load_status, "%s", load_message) : 0;
}

int strait_gpu_check(CUresult result, const char *call)
{
	const char *name = NULL, *text = NULL;

	if (result == CUDA_SUCCESS)
		return 0;
	if (strait_gpu->cuGetErrorName)
		strait_gpu->cuGetErrorName(result, &name);
	if (strait_gpu->cuGetErrorString)
		strait_gpu->cuGetErrorString(result, &text);
	return strait_fail(STRAIT_ERROR_CUDA, "%s: %s (%d, %s)", call,
			   name ? name : "unknown CUDA error", (int)result,
			   text ? text : "no text");
}
