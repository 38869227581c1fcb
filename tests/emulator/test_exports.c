/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the emulator says of itself: functions by name and version, devices, contexts, and images
 * that it refuses.
 */
#include "tests/emulator/rig.h"
#include <stdlib.h>
#include <string.h>

static int open_device(void **state)
{
	rig_open(0);
	return 0;
}

static void *address_of(const char *name, int version)
{
	void *function = NULL;
	CUresult result = cuGetProcAddress(name, &function, version, 0, NULL);
	assert_int_equal(result, function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
	return function;
}

static void test_the_version_chooses_the_signature(void **state)
{
	assert_ptr_not_equal(address_of("cuStreamGetCaptureInfo", 12000),
			     address_of("cuStreamGetCaptureInfo", 12030));
	assert_ptr_equal(address_of("cuStreamGetCaptureInfo", 12030),
			 address_of("cuStreamGetCaptureInfo", 13000));
	assert_ptr_equal(address_of("cuMemAlloc", 12000), (void *)cuMemAlloc);
	assert_null(address_of("cuMemAlloc", 13010)); /* newer than the driver */
	CUdriverProcAddressQueryResult status;
	void *function;
	assert_int_equal(cuGetProcAddress("cuNoSuchFunction", &function, 12000, 0, &status),
			 CUDA_ERROR_NOT_FOUND);
	assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	assert_int_equal(cuGetProcAddress("cuCtxCreate", &function, 1000, 0, &status),
			 CUDA_ERROR_NOT_FOUND);
	assert_int_equal(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

static void test_what_is_missing_says_so(void **state)
{
	CUresult (*create)(void *, const void *) =
		(CUresult(*)(void *, const void *))address_of("cuMulticastCreate", 12010);
	assert_non_null(create);
	assert_int_equal(create(NULL, NULL), CUDA_ERROR_NOT_SUPPORTED);
}

static void test_devices_differ_only_in_their_names(void **state)
{
	int count, value;
	CUuuid ids[8];
	char buses[8][16];
	OK(cuDeviceGetCount(&count));
	assert_int_equal(count, 8);
	for (int d = 0; d < count; d++) {
		CUdevice again;
		OK(cuDeviceGetUuid(&ids[d], d));
		OK(cuDeviceGetPCIBusId(buses[d], sizeof buses[d], d));
		OK(cuDeviceGetByPCIBusId(&again, buses[d]));
		assert_int_equal(again, d);
		OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, d));
		assert_int_equal(value, 4);
		OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, d));
		assert_int_equal(value, 64);
		OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, d));
		assert_int_equal(value, 9);
		for (int e = 0; e < d; e++) {
			assert_memory_not_equal(&ids[d], &ids[e], sizeof ids[d]);
			OK(cuDeviceCanAccessPeer(&value, d, e));
			assert_int_equal(value, 1);
		}
	}
	CUdevice device;
	assert_int_equal(cuDeviceGet(&device, 8), CUDA_ERROR_INVALID_DEVICE);
	OK(cuDriverGetVersion(&value));
	assert_int_equal(value, 13000);
}

static void test_contexts_form_a_stack(void **state)
{
	CUcontext first, second, top;
	CUdevice device;
	OK(cuCtxGetCurrent(&first));
	OK(cuDevicePrimaryCtxRetain(&second, 3));
	OK(cuCtxPushCurrent(second));
	OK(cuCtxGetDevice(&device));
	assert_int_equal(device, 3);
	OK(cuCtxPopCurrent(&top));
	assert_ptr_equal(top, second);
	OK(cuCtxSetCurrent(NULL));
	assert_int_equal(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
	CUdeviceptr address;
	assert_int_equal(cuMemAlloc(&address, 4), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuCtxSetCurrent(first));
	OK(cuDevicePrimaryCtxRelease(3));
}

static void test_errors_have_names(void **state)
{
	const char *text;
	OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
	assert_string_equal(text, "CUDA_ERROR_OUT_OF_MEMORY");
	OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
	assert_string_equal(text, "out of memory");
	assert_int_equal(cuGetErrorName((CUresult)54321, &text), CUDA_ERROR_INVALID_VALUE);
}

/* A fatbin's head and some bytes: enough of one to be looked at. */
struct image {
	uint32_t magic;
	uint16_t version, header_bytes;
	uint64_t bytes;
	char text[256];
	char after[256];
};

static CUresult load(const char *text, size_t bytes, CUlibrary *library)
{
	_Alignas(8) struct image image = {.magic = 0xBA55ED50, .header_bytes = 16, .bytes = 256};
	memcpy(strncmp(text, "STRAIT-NOTE", 11) == 0 ? image.after : image.text, text, bytes);
	return cuLibraryLoadData(library, &image, NULL, NULL, 0, NULL, NULL, 0);
}

/* The test kernels, told to be the host file by the environment, have the build id
 * 0123456789abcdef. */
static void test_only_kernels_of_the_same_build_are_loaded(void **state)
{
	CUlibrary library;
	CUkernel kernel;
	static const char right[] = "xx\0strait_build_id_0123456789abcdef\0.text.increment\0";
	static const char wrong[] = "strait_build_id_0123456789abcdee\0.text.increment\0";
	assert_int_equal(load(wrong, sizeof wrong, &library), CUDA_ERROR_NO_BINARY_FOR_GPU);
	assert_int_equal(load("nothing", 8, &library), CUDA_ERROR_NO_BINARY_FOR_GPU);
	OK(load(right, sizeof right, &library));
	OK(cuLibraryGetKernel(&kernel, library, "increment"));
	assert_int_equal(cuLibraryGetKernel(&kernel, library, "empty"), CUDA_ERROR_NOT_FOUND);
	OK(cuLibraryUnload(library));
	uint64_t other = 0x464c457f;
	assert_int_equal(cuLibraryLoadData(&library, &other, NULL, NULL, 0, NULL, NULL, 0),
			 CUDA_ERROR_INVALID_IMAGE);
}

static void test_a_note_speaks_for_a_compressed_image(void **state)
{
	CUlibrary library;
	CUkernel kernel;
	static const char plain[] = "STRAIT-NOTE strait_build_id_0123456789abcdef";
	static const char wrong[] = "STRAIT-NOTE strait_build_id_1123456789abcdef";
	OK(load(plain, sizeof plain, &library));
	OK(cuLibraryGetKernel(&kernel, library, "increment"));
	assert_int_equal(cuLibraryGetKernel(&kernel, library, "nothing"), CUDA_ERROR_NOT_FOUND);
	OK(cuLibraryUnload(library));
	assert_int_equal(load(wrong, sizeof wrong, &library), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

int main(void)
{
	setenv("STRAIT_EMULATOR_KERNELS", KERNELS_PATH, 1);
	setenv("STRAIT_EMULATOR_GPUS", "8", 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_version_chooses_the_signature),
		cmocka_unit_test(test_what_is_missing_says_so),
		cmocka_unit_test(test_devices_differ_only_in_their_names),
		cmocka_unit_test(test_contexts_form_a_stack),
		cmocka_unit_test(test_errors_have_names),
		cmocka_unit_test(test_only_kernels_of_the_same_build_are_loaded),
		cmocka_unit_test(test_a_note_speaks_for_a_compressed_image),
	};
	return cmocka_run_group_tests(tests, open_device, NULL);
}
