/* SPDX-License-Identifier: Apache-2.0 */
/* Loading and launching the embedded kernels. */
#include "algorithms/kernels.h"
#include "algorithms/allreduce.h"
#include "channels/probe.h"
#include "strait/gpu.h"
#include "strait/log.h"
#include "strait/status.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* From algorithms/kernels_embedded.S, made by the build: one image for each .cu file. */
#define IMAGE(name) extern const char strait_image_##name[] __attribute__((visibility("hidden")));
IMAGE(probe)
IMAGE(allreduce_ll)
IMAGE(allreduce_ll_twoshot)
IMAGE(allreduce_simple)
#undef IMAGE

static const struct {
	const char *name; /* of the algorithm; NULL: the probe */
	const char *image;
} images[] = {
	{NULL, strait_image_probe},
	{"allreduce_ll", strait_image_allreduce_ll},
	{"allreduce_ll_twoshot", strait_image_allreduce_ll_twoshot},
	{"allreduce_simple", strait_image_allreduce_simple},
};

/* Process-wide like the driver table: set once by load_all(), never unloaded. */
static CUkernel kernels[STRAIT_N_ALGORITHMS][STRAIT_N_INSTANCES];
static CUkernel probe;
static int load_status;

static int load_image(const char *image, CUlibrary *ret_library)
{
	int version = 0;
	CUresult r =
		strait_gpu->cuLibraryLoadData(ret_library, image, NULL, NULL, 0, NULL, NULL, 0);
	if (r == CUDA_SUCCESS)
		return 0;
	strait_gpu->cuDriverGetVersion(&version);
	strait_gpu_check(r, "cuLibraryLoadData");
	return strait_fail(STRAIT_ERROR_CUDA,
			   "Strait's kernels do not load: %s; they were compiled by CUDA %d.%d, "
			   "the driver supports CUDA %d.%d. "
			   "Install a newer driver, or build Strait with a CUDA toolkit of the "
			   "driver's version",
			   strait_status_message(), CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10,
			   version / 1000, version % 1000 / 10);
}

static int find_kernel(CUlibrary library, const char *name, CUkernel *ret)
{
	return strait_trace(STRAIT_GPU(cuLibraryGetKernel, ret, library, name));
}

static int load_algorithm(CUlibrary library, const char *name)
{
	char kernel[128];
	for (int i = 0; i < STRAIT_N_ALGORITHMS; i++) {
		if (strcmp(strait_algorithms[i].name, name) != 0)
			continue;
		for (int j = 0; j < STRAIT_N_INSTANCES; j++) {
			snprintf(kernel, sizeof kernel, "strait_%s_%s", name,
				 strait_instance_name(j));
			int r = find_kernel(library, kernel, &kernels[i][j]);
			if (r)
				return strait_trace(r);
		}
	}
	return 0;
}

static int load_images(void)
{
	for (size_t i = 0; i < sizeof images / sizeof *images; i++) {
		CUlibrary library;
		int r = load_image(images[i].image, &library);
		if (!r)
			r = images[i].name ? load_algorithm(library, images[i].name)
					   : find_kernel(library, "strait_probe", &probe);
		if (r)
			return strait_trace(r);
	}
	return 0;
}

static void load_all(void)
{
	load_status = load_images();
}

int strait_kernels_load(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, load_all);
	if (load_status)
		return strait_fail(load_status,
				   "Strait's kernels could not be loaded in this process");
	return 0;
}

CUfunction strait_kernels_get(int algorithm, int instance)
{
	return (CUfunction)kernels[algorithm][instance];
}

CUfunction strait_kernels_probe(void)
{
	return (CUfunction)probe;
}

int strait_kernels_launch(CUfunction kernel, unsigned n_blocks, unsigned n_threads, CUstream stream,
			  void *argument)
{
	const CUlaunchConfig config = {
		.gridDimX = n_blocks,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = n_threads,
		.blockDimY = 1,
		.blockDimZ = 1,
		.hStream = stream,
	};
	void *arguments[] = {argument};
	return strait_trace(STRAIT_GPU(cuLaunchKernelEx, &config, kernel, arguments, NULL));
}

int strait_kernels_prepare(CUstream stream)
{
	struct strait_allreduce_args none = {.count = 0};
	struct strait_probe_args no_phase = {.phase = UINT32_MAX};
	for (int i = 0; i < STRAIT_N_ALGORITHMS; i++)
		for (int j = 0; j < STRAIT_N_INSTANCES; j++) {
			int r = strait_kernels_launch(strait_kernels_get(i, j), 1, 32, stream,
						      &none);
			if (r)
				return strait_trace(r);
		}
	int r = strait_kernels_launch(strait_kernels_probe(), 1, 32, stream, &no_phase);
	if (r)
		return strait_trace(r);
	return strait_trace(STRAIT_GPU(cuStreamSynchronize, stream));
}
