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
static int map_new(struct allocation *allocation, CUdevice device)
{
	CUmemAllocationProp properties = properties_for(device);
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
			r = set_access(allocation->address, allocation->bytes, device);
			if (r < 0)
				strait_gpu->cuMemUnmap(allocation->address, allocation->bytes);
		}
		if (r < 0)
			strait_gpu->cuMemAddressFree(allocation->address, allocation->bytes);
	}
	strait_gpu->cuMemRelease(handle);
	return strait_trace(r);
}

static int new_in_context(struct allocation *allocation)
{
	CUdevice device;
	int ordinal, r;
	bool retained;
	struct strait_context saved;

	/* A primary context that is retained here stays: the memory lives in it. */
	r = strait_context_current(&allocation->context, &device, &ordinal, &retained);
	if (r == 0)
		r = strait_context_enter(allocation->context, &saved);
	if (r < 0)
		return strait_trace(r);
	r = map_new(allocation, device);
	strait_context_leave(&saved);
	return strait_trace(r);
}

int strait_allocation_new(size_t bytes, void **ret_pointer)
{
	struct allocation *allocation;
	int r;

	if (bytes == 0) {
		*ret_pointer = NULL;
		return 0;
	}
	allocation = malloc(sizeof(*allocation));
	if (!allocation)
		return strait_fail(STRAIT_ERROR_SYSTEM, "out of memory");
	*allocation = (struct allocation){.bytes = bytes};
	r = new_in_context(allocation);
	if (r < 0) {
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
		/* As cudaFree does: nothing on the device may still use it. */
		r = STRAIT_GPU(cuCtxSynchronize);
		if (r == 0)
			r = STRAIT_GPU(cuMemUnmap, allocation->address, allocation->bytes);
		if (r == 0)
			r = STRAIT_GPU(cuMemAddressFree, allocation->address, allocation->bytes);
		strait_context_leave(&saved);
	}
	free(allocation);
	return strait_trace(r);
}
