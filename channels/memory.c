/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registered memory over the driver's VMM calls, with legacy IPC where they are missing. Every
 * failure is an ordinary result that the caller shares with the other ranks; nothing is retried in
 * another way by one rank alone.
 */
#include "channels/memory.h"
#include "channels/host_identity.h"
#include "strait/gpu.h"
#include "strait/status.h"
#include <string.h>
#include <unistd.h>

static bool has_attribute(CUdevice device, CUdevice_attribute attribute)
{
	int value = 0;
	return strait_gpu->cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value;
}

/* Reserves addresses, maps the allocation there and lets `device` read and write. */
static int map_handle(CUmemGenericAllocationHandle handle, size_t bytes, CUdevice device,
		      CUdeviceptr *ret_address)
{
	CUdeviceptr address = 0;
	CUmemAccessDesc access = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	int r = STRAIT_GPU(cuMemAddressReserve, &address, bytes, 0, 0, 0);
	if (r)
		return strait_trace(r);
	r = STRAIT_GPU(cuMemMap, address, bytes, 0, handle, 0);
	if (r)
		goto unreserve;
	r = STRAIT_GPU(cuMemSetAccess, address, bytes, &access, 1);
	if (r)
		goto unmap;
	*ret_address = address;
	return 0;
unmap:
	strait_gpu->cuMemUnmap(address, bytes);
unreserve:
	strait_gpu->cuMemAddressFree(address, bytes);
	return strait_trace(r);
}

static void unmap(CUdeviceptr address, size_t bytes)
{
	strait_gpu->cuMemUnmap(address, bytes);
	strait_gpu->cuMemAddressFree(address, bytes);
}

static int allocate_vmm(struct strait_memory *memory, size_t bytes)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = memory->device},
	};
	size_t granularity = 0;
	int r = STRAIT_GPU(cuMemGetAllocationGranularity, &granularity, &prop,
			   CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	if (r)
		return strait_trace(r);
	bytes = (bytes + granularity - 1) / granularity * granularity;
	r = STRAIT_GPU(cuMemCreate, &memory->handle, bytes, &prop, 0);
	if (r)
		return strait_trace(r);
	r = STRAIT_GPU(cuMemExportToShareableHandle, &memory->fd, memory->handle,
		       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (!r)
		r = map_handle(memory->handle, bytes, memory->device, &memory->address);
	if (r) {
		if (memory->fd >= 0)
			close(memory->fd);
		strait_gpu->cuMemRelease(memory->handle);
		return strait_trace(r);
	}
	memory->bytes = bytes;
	memory->kind = STRAIT_MEMORY_VMM;
	return 0;
}

int strait_memory_init(struct strait_memory *memory, CUdevice device, size_t bytes)
{
	*memory = (struct strait_memory){.device = device, .fd = -1};
	if (has_attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
	    has_attribute(device,
			  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
		int r = allocate_vmm(memory, bytes);
		if (r)
			memory->fd = -1;
		return strait_trace(r);
	}
	int r = STRAIT_GPU(cuMemAlloc, &memory->address, bytes);
	if (r)
		return strait_trace(r);
	memory->bytes = bytes;
	memory->kind = STRAIT_MEMORY_LEGACY;
	return 0;
}

void strait_memory_deinit(struct strait_memory *memory)
{
	if (memory->kind == STRAIT_MEMORY_VMM) {
		unmap(memory->address, memory->bytes);
		strait_gpu->cuMemRelease(memory->handle);
		close(memory->fd);
	}
	/* LEGACY memory stays: peers may still write to it, nothing keeps it for them, and freeing
	 * it would wait for every kernel of the context. Only drivers without VMM come here. */
	*memory = (struct strait_memory){.fd = -1};
}

int strait_memory_describe(const struct strait_memory *memory,
			   struct strait_memory_description *ret)
{
	struct strait_memory_description d = {
		.kind = memory->kind,
		.bytes = memory->bytes,
		.process = strait_process_hash(),
		.handle = memory->handle,
		.address = memory->address,
	};
	if (memory->kind == STRAIT_MEMORY_LEGACY) {
		int r = STRAIT_GPU(cuIpcGetMemHandle, &d.ipc, memory->address);
		if (r)
			return strait_trace(r);
	}
	*ret = d;
	return 0;
}

static int import_vmm(struct strait_mapping *mapping, const struct strait_memory_description *peer,
		      int fd, CUdevice device)
{
	CUmemGenericAllocationHandle handle = peer->handle;
	const bool imported = peer->process != strait_process_hash();
	int r;
	if (imported) {
		if (fd < 0)
			return strait_fail(STRAIT_ERROR_SYSTEM,
					   "no descriptor came for a peer's memory");
		r = STRAIT_GPU(cuMemImportFromShareableHandle, &handle, (void *)(intptr_t)fd,
			       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
		if (r)
			return strait_trace(r);
	}
	r = map_handle(handle, peer->bytes, device, &mapping->address);
	/* The mapping keeps the memory; the handle is not needed again. */
	if (imported)
		strait_gpu->cuMemRelease(handle);
	if (!r)
		mapping->kind = STRAIT_MEMORY_VMM;
	return strait_trace(r);
}

static int open_legacy(struct strait_mapping *mapping, const struct strait_memory_description *peer)
{
	if (peer->process == strait_process_hash()) {
		mapping->address = peer->address;
		return 0;
	}
	int r = STRAIT_GPU(cuIpcOpenMemHandle, &mapping->address, peer->ipc,
			   CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	if (r)
		return strait_trace(r);
	mapping->kind = STRAIT_MEMORY_LEGACY;
	mapping->is_ipc = 1;
	return 0;
}

int strait_mapping_init(struct strait_mapping *mapping,
			const struct strait_memory_description *peer, int fd, CUdevice device)
{
	*mapping = (struct strait_mapping){.bytes = peer->bytes};
	switch (peer->kind) {
	case STRAIT_MEMORY_VMM:
		return strait_trace(import_vmm(mapping, peer, fd, device));
	case STRAIT_MEMORY_LEGACY:
		return strait_trace(open_legacy(mapping, peer));
	default:
		return strait_fail(STRAIT_ERROR_INTERNAL, "a peer described its memory as kind %d",
				   (int)peer->kind);
	}
}

void strait_mapping_deinit(struct strait_mapping *mapping)
{
	if (mapping->kind == STRAIT_MEMORY_VMM)
		unmap(mapping->address, mapping->bytes);
	else if (mapping->kind == STRAIT_MEMORY_LEGACY && mapping->is_ipc)
		strait_gpu->cuIpcCloseMemHandle(mapping->address);
	*mapping = (struct strait_mapping){0};
}
