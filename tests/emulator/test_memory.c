/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the emulated devices: allocations, mapped handles, host memory, what is known of an
 * address, and who may access what. A fault is the device's answer from then on, so those tests run
 * in a process of their own.
 */
#include "tests/emulator/rig.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int open_device(void **state)
{
	rig_open(0);
	return 0;
}

static void test_a_copy_brings_back_what_was_copied_there(void **state)
{
	for (size_t bytes = 1; bytes < 3u << 20; bytes = bytes * 7 + 1) {
		CUdeviceptr a, b;
		char *from = malloc(bytes), *to = calloc(1, bytes);
		for (size_t i = 0; i < bytes; i++)
			from[i] = (char)(i * 13 + bytes);
		OK(cuMemAlloc(&a, bytes));
		OK(cuMemAlloc(&b, bytes));
		OK(cuMemcpyHtoD(a, from, bytes));
		OK(cuMemcpyDtoD(b, a, bytes));
		OK(cuMemcpyDtoH(to, b, bytes));
		assert_memory_equal(from, to, bytes);
		OK(cuMemFree(a));
		OK(cuMemFree(b));
		free(from);
		free(to);
	}
}

static void test_allocations_are_aligned_and_do_not_overlap(void **state)
{
	CUdeviceptr address[100];
	for (int i = 0; i < 100; i++) {
		OK(cuMemAlloc(&address[i], 1 + (size_t)i * 300));
		assert_int_equal(address[i] % 256, 0);
		for (int k = 0; k < i; k++)
			assert_true(address[i] >= address[k] + 1 + (size_t)k * 300 ||
				    address[k] >= address[i] + 1 + (size_t)i * 300);
	}
	for (int i = 0; i < 100; i++)
		OK(cuMemFree(address[i]));
	assert_int_equal(cuMemFree(address[0]), CUDA_ERROR_INVALID_VALUE);
}

static void test_freed_memory_is_free_again(void **state)
{
	size_t before, after, total;
	OK(cuMemGetInfo(&before, &total));
	for (int i = 0; i < 20; i++) {
		CUdeviceptr address;
		OK(cuMemAlloc(&address, total / 2));
		OK(cuMemFree(address));
	}
	OK(cuMemGetInfo(&after, NULL));
	assert_int_equal(before, after);
	CUdeviceptr address;
	assert_int_equal(cuMemAlloc(&address, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
}

static void test_fills_set_every_element(void **state)
{
	CUdeviceptr address = rig_alloc(64);
	uint32_t words[16];
	OK(cuMemsetD32(address + 4, 0x12345678, 3));
	OK(cuMemsetD8(address + 16, 0xab, 2));
	OK(cuMemsetD16(address + 20, 0xcdef, 2));
	OK(cuMemcpyDtoH(words, address, 64));
	assert_int_equal(words[0], 0);
	assert_int_equal(words[1], 0x12345678);
	assert_int_equal(words[3], 0x12345678);
	assert_int_equal(words[4], 0xabab);
	assert_int_equal(words[5], 0xcdefcdef);
	assert_int_equal(words[6], 0);
	OK(cuMemFree(address));
}

static void test_an_address_knows_its_allocation(void **state)
{
	CUdeviceptr address, base;
	size_t bytes;
	int device = -1, managed = -1;
	unsigned type = 0;
	uint64_t id = 0, other = 0;
	OK(cuMemAlloc(&address, 1000));
	OK(cuMemGetAddressRange(&base, &bytes, address + 999));
	assert_int_equal(base, address);
	assert_int_equal(bytes, 1000);
	CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
				       CU_POINTER_ATTRIBUTE_BUFFER_ID};
	void *values[] = {&type, &device, &id};
	OK(cuPointerGetAttributes(3, names, values, address + 10));
	assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
	assert_int_equal(device, 0);
	OK(cuMemFree(address));
	OK(cuMemAlloc(&address, 1000));
	OK(cuPointerGetAttribute(&other, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
	assert_int_not_equal(id, other); /* of an allocation, not of an address */
	OK(cuMemFree(address));
	assert_int_equal(cuMemGetAddressRange(&base, &bytes, address), CUDA_ERROR_NOT_FOUND);
	OK(cuPointerGetAttributes(2, names, values, (CUdeviceptr)(uintptr_t)&managed));
	assert_int_equal(type, 0);
	assert_int_equal(device, -2);
}

static void test_host_memory_has_one_address_for_both(void **state)
{
	uint32_t *host, stack = 0;
	CUdeviceptr device;
	unsigned type;
	OK(cuMemHostAlloc((void **)&host, 64, CU_MEMHOSTALLOC_DEVICEMAP));
	OK(cuMemHostGetDevicePointer(&device, host, 0));
	assert_int_equal(device, (CUdeviceptr)(uintptr_t)host);
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device));
	assert_int_equal(type, CU_MEMORYTYPE_HOST);
	struct arguments arguments = {.in = rig_alloc(64), .out = device, .count = 16, .rank = 5};
	rig_launch("add_rank", 1, 16, &arguments, NULL);
	OK(cuCtxSynchronize());
	assert_int_equal(host[15], 5);
	OK(cuMemFreeHost(host));
	OK(cuMemHostRegister(&stack, sizeof stack, 0));
	assert_int_equal(cuMemHostRegister(&stack, sizeof stack, 0),
			 CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	arguments.out = (uint64_t)(uintptr_t)&stack;
	arguments.count = 1;
	rig_launch("add_rank", 1, 1, &arguments, NULL);
	OK(cuCtxSynchronize());
	assert_int_equal(stack, 5);
	OK(cuMemHostUnregister(&stack));
	OK(cuMemFree(arguments.in));
}

static CUmemGenericAllocationHandle create(CUdevice device, CUmemAllocationHandleType type)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .requestedHandleTypes = type,
				 .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
	OK(cuMemCreate(&handle, 2u << 20, &p, 0));
	return handle;
}

static CUdeviceptr map(CUmemGenericAllocationHandle handle, CUdevice device)
{
	CUdeviceptr address;
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device},
				  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	OK(cuMemAddressReserve(&address, 2u << 20, 0, 0, 0));
	OK(cuMemMap(address, 2u << 20, 0, handle, 0));
	OK(cuMemSetAccess(address, 2u << 20, &access, 1));
	return address;
}

static void test_mappings_of_one_handle_show_the_same_memory(void **state)
{
	CUmemGenericAllocationHandle handle = create(0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	CUmemGenericAllocationHandle imported, retained;
	int fd;
	uint32_t word = 77, got = 0;
	CUdeviceptr a = map(handle, 0);
	OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	CUdeviceptr b = map(imported, 0);
	OK(cuMemRetainAllocationHandle(&retained, (void *)(uintptr_t)a));
	assert_int_equal(retained, handle);
	OK(cuMemRelease(retained));
	OK(cuMemRelease(handle));
	OK(cuMemRelease(imported));
	OK(cuMemcpyHtoD(a + 4096, &word, 4));
	assert_int_equal(cuMemAddressFree(a, 2u << 20), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemUnmap(a, 2u << 20));
	OK(cuMemAddressFree(a, 2u << 20));
	OK(cuMemcpyDtoH(&got, b + 4096, 4)); /* lives as long as a mapping */
	assert_int_equal(got, 77);
	OK(cuMemUnmap(b, 2u << 20));
	OK(cuMemAddressFree(b, 2u << 20));
}

static void test_a_handle_without_a_type_cannot_be_exported(void **state)
{
	CUmemGenericAllocationHandle handle = create(0, CU_MEM_HANDLE_TYPE_NONE);
	int fd = -1;
	assert_int_equal(cuMemExportToShareableHandle(&fd, handle,
						      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
			 CUDA_ERROR_INVALID_VALUE);
	OK(cuMemRelease(handle));
	assert_int_equal(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
	int other = open("/dev/zero", O_RDWR);
	assert_int_equal(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)other,
							CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
			 CUDA_ERROR_INVALID_VALUE);
	close(other);
}

static void test_own_ipc_handles_are_refused(void **state)
{
	CUipcMemHandle handle;
	CUdeviceptr address = rig_alloc(100), opened;
	OK(cuIpcGetMemHandle(&handle, address));
	assert_int_equal(cuIpcOpenMemHandle(&opened, handle, 0), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuMemFree(address));
}

static void test_stream_ordered_memory_works(void **state)
{
	CUdeviceptr address;
	CUstream stream;
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAllocAsync(&address, 4096, stream));
	OK(cuMemsetD8Async(address, 1, 4096, stream));
	OK(cuMemFreeAsync(address, stream));
	OK(cuStreamSynchronize(stream));
	assert_int_equal(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
	OK(cuStreamDestroy(stream));
}

static int count_entries(const char *folder)
{
	int n = 0;
	DIR *at = opendir(folder);
	while (at && readdir(at))
		n++;
	closedir(at);
	return n;
}

static void test_nothing_is_used_up_by_making_and_freeing(void **state)
{
	int descriptors = count_entries("/proc/self/fd"), fd;
	for (int i = 0; i < 100; i++) {
		CUmemGenericAllocationHandle imported,
			handle = create(0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
		OK(cuMemExportToShareableHandle(&fd, handle,
						CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
		OK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
		close(fd);
		CUdeviceptr mapped = map(imported, 0), small = rig_alloc(100),
			    large = rig_alloc(3u << 20);
		OK(cuMemRelease(imported));
		OK(cuMemRelease(handle));
		OK(cuMemUnmap(mapped, 2u << 20));
		OK(cuMemAddressFree(mapped, 2u << 20));
		OK(cuMemFree(small));
		OK(cuMemFree(large));
	}
	assert_int_equal(count_entries("/proc/self/fd"), descriptors);
}

/* What the last call of `run` gave, in a child that has not used the driver yet. */
static CUresult in_child(CUresult (*run)(void), int *ret_signal)
{
	int pipe_[2], status;
	CUresult result = CUDA_ERROR_UNKNOWN;
	assert_int_equal(pipe(pipe_), 0);
	pid_t pid = fork();
	if (!pid) {
		dup2(open("/dev/null", O_WRONLY), 2);
		result = run();
		_exit(write(pipe_[1], &result, sizeof result) != sizeof result);
	}
	close(pipe_[1]);
	if (read(pipe_[0], &result, sizeof result) < 0)
		result = CUDA_ERROR_UNKNOWN;
	close(pipe_[0]);
	waitpid(pid, &status, 0);
	*ret_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	return result;
}

static CUresult access_peer(int enable)
{
	CUcontext peer;
	rig_open(1);
	struct arguments arguments = {.in = rig_alloc(64), .out = rig_alloc(64), .count = 16};
	OK(cuCtxGetCurrent(&peer));
	rig_open(0);
	if (enable)
		OK(cuCtxEnablePeerAccess(peer, 0));
	rig_launch("add_rank", 1, 16, &arguments, NULL);
	CUresult first = cuCtxSynchronize();
	CUdeviceptr more;
	CUresult second = cuMemAlloc(&more, 4); /* a fault sticks */
	return first == second ? first : CUDA_ERROR_UNKNOWN;
}

static CUresult access_peer_enabled(void)
{
	return access_peer(1);
}
static CUresult access_peer_not_enabled(void)
{
	return access_peer(0);
}

static void test_peer_memory_needs_peer_access(void **state)
{
	int signal;
	assert_int_equal(in_child(access_peer_enabled, &signal), CUDA_SUCCESS);
	assert_int_equal(in_child(access_peer_not_enabled, &signal), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static CUresult use_after_free(void)
{
	rig_open(0);
	struct arguments arguments = {.in = rig_alloc(2u << 20), .out = rig_alloc(64), .count = 16};
	OK(cuMemFree(arguments.in));
	rig_launch("add_rank", 1, 16, &arguments, NULL);
	return cuCtxSynchronize();
}

static CUresult store_raw(void)
{
	rig_open(0);
	struct arguments arguments = {.out = rig_alloc(64)};
	rig_launch("raw_store", 1, 1, &arguments, NULL);
	return cuCtxSynchronize();
}

static void test_wrong_accesses_fault(void **state)
{
	int signal;
	assert_int_equal(in_child(use_after_free, &signal), CUDA_ERROR_ILLEGAL_ADDRESS);
	in_child(store_raw, &signal);
	assert_int_equal(signal, SIGSEGV);
}

int main(void)
{
	const struct CMUnitTest fresh[] = {/* fork before the driver is used */
					   cmocka_unit_test(test_peer_memory_needs_peer_access),
					   cmocka_unit_test(test_wrong_accesses_fault)};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_copy_brings_back_what_was_copied_there),
		cmocka_unit_test(test_allocations_are_aligned_and_do_not_overlap),
		cmocka_unit_test(test_freed_memory_is_free_again),
		cmocka_unit_test(test_fills_set_every_element),
		cmocka_unit_test(test_an_address_knows_its_allocation),
		cmocka_unit_test(test_host_memory_has_one_address_for_both),
		cmocka_unit_test(test_mappings_of_one_handle_show_the_same_memory),
		cmocka_unit_test(test_a_handle_without_a_type_cannot_be_exported),
		cmocka_unit_test(test_own_ipc_handles_are_refused),
		cmocka_unit_test(test_stream_ordered_memory_works),
		cmocka_unit_test(test_nothing_is_used_up_by_making_and_freeing),
	};
	int failed = cmocka_run_group_tests_name("faults", fresh, NULL, NULL);
	return failed + cmocka_run_group_tests_name("memory", tests, open_device, NULL);
}
