/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver does not remember the size of a mapping, so every allocation is in a list of the
 * process.
 */
#include "shim/allocation.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "shim/context.h"
#include "strait/gpu.h"
#include "strait/status.h"

struct allocation {
	struct allocation *next;
	CUdeviceptr address;
	size_t bytes;
	CUcontext context;
	CUdevice device;
	bool plain;    /* from cuMemAlloc */
	bool retained; /* the primary context, for the life of the memory */
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocation *list;

static CUmemAllocationProp properties_for(CUdevice device)
{
	CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};
	int rdma = 0;

	/* So that network cards can read it directly; absent where the attribute is not known. */
	if (strait_gpu->cuDeviceGetAttribute(
		    &rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device) ==
		    CUDA_SUCCESS &&
	    rdma)
		properties.allocFlags.gpuDirectRDMACapable = 1;
	return properties;
}

static int set_access(CUdeviceptr address, size_t bytes, CUdevice owner)
{
	int n = 0;
	int r = STRAIT_GPU(cuDeviceGetCount, &n);

	for (int i = 0; r == 0 && i < n; i++) {
		CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
					  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
		CUdevice device;
		int reaches = 1;

		r = STRAIT_GPU(cuDeviceGet, &device, i);
		if (r == 0 && device != owner)
			r = STRAIT_GPU(cuDeviceCanAccessPeer, &reaches, device, owner);
		access.location.id = device;
		if (r == 0 && reaches)
			r = STRAIT_GPU(cuMemSetAccess, address, bytes, &access, 1);
	}
	return strait_trace(r);
}

/* The handle is released as soon as the mapping holds the memory. */
static int map_new(struct allocation *allocation)
{
	CUmemAllocationProp properties = properties_for(allocation->device);
	CUmemGenericAllocationHandle handle;
	size_t granularity = 0;
	int r = STRAIT_GPU(cuMemGetAllocationGranularity, &granularity, &properties,
			   CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);

	if (r < 0)
		return r;
	if (allocation->bytes > SIZE_MAX - granularity)
		return strait_fail(STRAIT_ERROR_CUDA, "Cuda failure 'out of memory' (%zu bytes)",
				   allocation->bytes);
	allocation->bytes = (allocation->bytes + granularity - 1) / granularity * granularity;
	r = STRAIT_GPU(cuMemCreate, &handle, allocation->bytes, &properties, 0);
	if (r < 0)
		return r;
	r = STRAIT_GPU(cuMemAddressReserve, &allocation->address, allocation->bytes, granularity, 0,
		       0);
	if (r == 0) {
		r = STRAIT_GPU(cuMemMap, allocation->address, allocation->bytes, 0, handle, 0);
		if (r == 0) {
			r = set_access(allocation->address, allocation->bytes, allocation->device);
			if (r < 0)
				strait_gpu->cuMemUnmap(allocation->address, allocation->bytes);
		}
		if (r < 0)
			strait_gpu->cuMemAddressFree(allocation->address, allocation->bytes);
	}
	strait_gpu->cuMemRelease(handle);
	return strait_trace(r);
}

/* False only where the driver says so. */
static bool has(CUdevice_attribute attribute, CUdevice device)
{
	int value = 0;

	return strait_gpu->cuDeviceGetAttribute(&value, attribute, device) != CUDA_SUCCESS || value;
}

static int new_in_context(struct allocation *allocation)
{
	struct strait_context saved;
	int r = strait_context_enter(allocation->context, &saved);

	if (r < 0)
		return strait_trace(r);
	if (has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, allocation->device) &&
	    has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
		allocation->device)) {
		r = map_new(allocation);
	} else { /* as NCCL does */
		allocation->plain = true;
		r = STRAIT_GPU(cuMemAlloc, &allocation->address, allocation->bytes);
	}
	strait_context_leave(&saved);
	return strait_trace(r);
}

static void release_context(const struct allocation *allocation)
{
	if (allocation->retained)
		strait_gpu->cuDevicePrimaryCtxRelease(allocation->device);
}

int strait_allocation_new(size_t bytes, void **ret_pointer)
{
	struct allocation *allocation;
	int ordinal, r;

	if (bytes == 0) {
		*ret_pointer = NULL;
		return 0;
	}
	allocation = malloc(sizeof(*allocation));
	if (!allocation)
		return strait_fail(STRAIT_ERROR_SYSTEM, "out of memory");
	*allocation = (struct allocation){.bytes = bytes};
	r = strait_context_current(&allocation->context, &allocation->device, &ordinal,
				   &allocation->retained);
	if (r == 0)
		r = new_in_context(allocation);
	if (r < 0) {
		release_context(allocation);
		free(allocation);
		return strait_trace(r);
	}
	pthread_mutex_lock(&list_lock);
	allocation->next = list;
	list = allocation;
	pthread_mutex_unlock(&list_lock);
	*ret_pointer = (void *)allocation->address;
	return 0;
}

static struct allocation *take(CUdeviceptr address)
{
	struct allocation *found = NULL;

	pthread_mutex_lock(&list_lock);
	for (struct allocation **link = &list; *link; link = &(*link)->next)
		if ((*link)->address == address) {
			found = *link;
			*link = found->next;
			break;
		}
	pthread_mutex_unlock(&list_lock);
	return found;
}

/* As cudaFree does it: nothing on the device may still use the memory. */
static int unmap(const struct allocation *allocation)
{
	int r = STRAIT_GPU(cuCtxSynchronize);

	if (r == 0)
		r = STRAIT_GPU(cuMemUnmap, allocation->address, allocation->bytes);
	if (r == 0)
		r = STRAIT_GPU(cuMemAddressFree, allocation->address, allocation->bytes);
	return r;
}

int strait_allocation_free(void *pointer)
{
	struct allocation *allocation;
	struct strait_context saved;
	int r;

	if (!pointer)
		return 0;
	allocation = take((CUdeviceptr)pointer);
	if (!allocation)
		return STRAIT_GPU(cuMemFree, (CUdeviceptr)pointer);
	r = strait_context_enter(allocation->context, &saved);
	if (r == 0) {
		r = allocation->plain ? STRAIT_GPU(cuMemFree, allocation->address)
				      : unmap(allocation);
		strait_context_leave(&saved);
	}
	release_context(allocation);
	free(allocation);
	return strait_trace(r);
}
