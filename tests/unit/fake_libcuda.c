/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libcuda.so.1 that does nothing, for the tests of the driver table. It hands out one function
 * for every name, and takes its faults from the environment of the child that opens it:
 * FAKE_VERSION (default 12000), FAKE_MISSING (a name it does not know), FAKE_INIT (what cuInit
 * returns).
 */
#include <cuda.h>
#include <cudaTypedefs.h>

#include <stdlib.h>
#include <string.h>

#undef cuGetProcAddress
#define EXPORT __attribute__((visibility("default")))

static int setting(const char *name, int fallback)
{
	const char *text = getenv(name);

	return text ? atoi(text) : fallback;
}

static CUresult any(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult init(unsigned flags)
{
	return (CUresult)setting("FAKE_INIT", CUDA_SUCCESS);
}

static CUresult error_name(CUresult result, const char **ret_name)
{
	*ret_name = result == CUDA_ERROR_NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : NULL;
	return *ret_name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult error_string(CUresult result, const char **ret_text)
{
	*ret_text = result == CUDA_ERROR_NO_DEVICE ? "no device, says the fake" : NULL;
	return *ret_text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult CUDAAPI cuDriverGetVersion(int *ret_version)
{
	*ret_version = setting("FAKE_VERSION", 12000);
	return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuGetProcAddress_v2(const char *name, void **ret_function, int version,
					    cuuint64_t flags,
					    CUdriverProcAddressQueryResult *ret_found)
{
	const char *missing = getenv("FAKE_MISSING");

	*ret_function = NULL;
	if (flags != CU_GET_PROC_ADDRESS_LEGACY_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	if (version > setting("FAKE_VERSION", 12000)) {
		*ret_found = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
		return CUDA_SUCCESS;
	}
	if (missing && strcmp(missing, name) == 0) {
		*ret_found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
		return CUDA_ERROR_NOT_FOUND;
	}
	*ret_found = CU_GET_PROC_ADDRESS_SUCCESS;
	*ret_function = strcmp(name, "cuInit") == 0             ? (void *)init
			: strcmp(name, "cuGetErrorName") == 0   ? (void *)error_name
			: strcmp(name, "cuGetErrorString") == 0 ? (void *)error_string
								: (void *)any;
	return CUDA_SUCCESS;
}
