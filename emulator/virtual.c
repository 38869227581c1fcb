/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory management: physical handles, reserved addresses, mapping, access, export by
 * descriptor.
 *
 * A handle is a counted name for an object; mappings keep the object too, so a handle may be
 * released while it is mapped. Access is checked at each access of a kernel: a device that was not
 * given it faults.
 */
#include "emulator/capture.h"
#include "emulator/context.h"
#include "emulator/memory.h"
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define HANDLE_MAGIC 0x68616e646c65u

struct handle {
	uint64_t magic;
	struct strait_emu_object *object;
	unsigned references;
	CUmemAllocationProp properties;
	struct handle *next; /* all handles of the process */
};
static struct handle *handles;

/* NULL for what is no live handle. */
static struct handle *find(CUmemGenericAllocationHandle number)
{
	struct handle *handle = handles;
	while (handle && (CUmemGenericAllocationHandle)(uintptr_t)handle != number)
		handle = handle->next;
	return handle;
}

static CUresult add(struct strait_emu_object *object, const CUmemAllocationProp *properties,
		    CUmemGenericAllocationHandle *ret_handle)
{
	struct handle *handle = calloc(1, sizeof *handle);
	if (!handle)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*handle = (struct handle){HANDLE_MAGIC, object, 1, *properties, handles};
	handles = handle;
	*ret_handle = (CUmemGenericAllocationHandle)(uintptr_t)handle;
	return CUDA_SUCCESS;
}

static CUresult enter(void)
{
	if (!strait_emu_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	return strait_emu_capture_forbid();
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
				       CUmemAllocationGranularity_flags option)
{
	if (!granularity || !properties)
		return CUDA_ERROR_INVALID_VALUE;
	*granularity = STRAIT_EMU_GRANULE;
	return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
		     const CUmemAllocationProp *properties, unsigned long long flags)
{
	CUresult error = enter();
	if (error)
		return error;
	if (!handle || !properties || !bytes || bytes % STRAIT_EMU_GRANULE || flags ||
	    properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    (properties->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!strait_emu_device_known(properties->location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	strait_emu_memory_lock();
	struct strait_emu_object *object =
		strait_emu_object_new((unsigned)properties->location.id, bytes);
	error = object ? add(object, properties, handle) : CUDA_ERROR_OUT_OF_MEMORY;
	if (error)
		strait_emu_object_unref(object);
	strait_emu_memory_unlock();
	return error;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle number)
{
	CUresult error = enter();
	if (error)
		return error;
	strait_emu_memory_lock();
	struct handle *handle = find(number);
	if (!handle) {
		error = CUDA_ERROR_INVALID_VALUE;
	} else if (!--handle->references) {
		struct handle **link = &handles;
		while (*link != handle)
			link = &(*link)->next;
		*link = handle->next;
		strait_emu_object_unref(handle->object);
		free(handle);
	}
	strait_emu_memory_unlock();
	return error;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wish,
			     unsigned long long flags)
{
	CUresult error = enter();
	if (error)
		return error;
	if (!address || !bytes || bytes % STRAIT_EMU_GRANULE || flags)
		return CUDA_ERROR_INVALID_VALUE;
	strait_emu_memory_lock();
	uintptr_t at = strait_emu_window_reserve(bytes, alignment);
	strait_emu_memory_unlock();
	if (!at)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*address = at;
	return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
	CUresult error = enter();
	if (error)
		return error;
	if (!strait_emu_window_granule(address) || address % STRAIT_EMU_GRANULE ||
	    bytes % STRAIT_EMU_GRANULE)
		return CUDA_ERROR_INVALID_VALUE;
	strait_emu_memory_lock();
	struct strait_emu_granule *granule = strait_emu_window_granule(address);
	for (size_t i = 0; i < bytes / STRAIT_EMU_GRANULE && !error; i++)
		if (!granule[i].reserved || granule[i].mapped)
			error = CUDA_ERROR_INVALID_VALUE;
	if (!error)
		strait_emu_window_release(address, bytes);
	strait_emu_memory_unlock();
	return error;
}

static CUresult map(struct handle *handle, uintptr_t address, size_t bytes, size_t offset)
{
	struct strait_emu_granule *granule = strait_emu_window_granule(address);
	if (!handle || !granule || address % STRAIT_EMU_GRANULE || bytes % STRAIT_EMU_GRANULE ||
	    offset || bytes != handle->object->bytes)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < bytes / STRAIT_EMU_GRANULE; i++)
		if (!granule[i].reserved || granule[i].mapped)
			return CUDA_ERROR_INVALID_VALUE;
	struct strait_emu_span *span =
		strait_emu_span_new(SPAN_MAPPED, address, handle->object, 0, bytes);
	if (!span)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (handle->properties.requestedHandleTypes)
		strait_emu_span_share(span);
	return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
		  CUmemGenericAllocationHandle number, unsigned long long flags)
{
	CUresult error = enter();
	if (error)
		return error;
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	strait_emu_memory_lock();
	error = map(find(number), address, bytes, offset);
	strait_emu_memory_unlock();
	return error;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
	CUresult error = enter();
	if (error)
		return error;
	strait_emu_memory_lock();
	uintptr_t at = address, end = address + bytes;
	while (at < end && !error) {
		struct strait_emu_span *span = strait_emu_span_at(at);
		if (!span || span->kind != SPAN_MAPPED || span->base != at ||
		    span->bytes > end - at) {
			error = CUDA_ERROR_INVALID_VALUE;
			break;
		}
		at += span->bytes;
		strait_emu_span_free(span);
	}
	strait_emu_memory_unlock();
	return error;
}

/* With the handle kept by whoever holds it: only access that was given counts. */
static void give_access(struct strait_emu_granule *granule, size_t n, const CUmemAccessDesc *access)
{
	uint64_t bit = 1ul << access->location.id;
	for (size_t i = 0; i < n; i++)
		if (access->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
			atomic_fetch_and(&granule[i].access, ~bit);
		else
			atomic_fetch_or(&granule[i].access, bit);
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
			size_t count)
{
	CUresult error = enter();
	if (error)
		return error;
	struct strait_emu_granule *granule = strait_emu_window_granule(address);
	size_t n = bytes / STRAIT_EMU_GRANULE;
	if (!granule || !access || !n || bytes % STRAIT_EMU_GRANULE)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t k = 0; k < count; k++)
		if (access[k].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
		    !strait_emu_device_known(access[k].location.id))
			return CUDA_ERROR_INVALID_DEVICE;
	strait_emu_memory_lock();
	for (size_t i = 0; i < n && !error; i++)
		if (!granule[i].span || granule[i].span->kind != SPAN_MAPPED)
			error = CUDA_ERROR_INVALID_VALUE;
	for (size_t k = 0; k < count && !error; k++)
		give_access(granule, n, &access[k]);
	strait_emu_memory_unlock();
	return error;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
			CUdeviceptr address)
{
	struct strait_emu_granule *granule = strait_emu_window_granule(address);
	if (!flags || !location || !granule || !granule->mapped)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = atomic_load(&granule->access) >> location->id & 1
			 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
			 : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle number,
				      CUmemAllocationHandleType type, unsigned long long flags)
{
	CUresult error = enter();
	if (error)
		return error;
	if (!out || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	strait_emu_memory_lock();
	struct handle *handle = find(number);
	int fd = -1;
	if (!handle || !(handle->properties.requestedHandleTypes & type))
		error = CUDA_ERROR_INVALID_VALUE;
	else if ((fd = fcntl(handle->object->fd, F_DUPFD_CLOEXEC, 3)) < 0)
		error = CUDA_ERROR_OPERATING_SYSTEM;
	strait_emu_memory_unlock();
	if (!error)
		*(int *)out = fd;
	return error;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
					CUmemAllocationHandleType type)
{
	CUresult error = enter();
	if (error)
		return error;
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	int fd = fcntl((int)(intptr_t)shareable, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	strait_emu_memory_lock();
	struct strait_emu_object *object = strait_emu_object_import(fd);
	if (object) {
		CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
						  .requestedHandleTypes =
							  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
						  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
							       .id = (int)object->device}};
		error = add(object, &properties, handle);
		if (error)
			strait_emu_object_unref(object);
	} else {
		error = CUDA_ERROR_INVALID_VALUE;
		close(fd);
	}
	strait_emu_memory_unlock();
	return error;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
						CUmemGenericAllocationHandle number)
{
	strait_emu_memory_lock();
	struct handle *handle = find(number);
	if (handle && properties)
		*properties = handle->properties;
	strait_emu_memory_unlock();
	return handle && properties ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUmemAllocationProp properties_of(const struct strait_emu_span *span)
{
	struct strait_emu_granule *granule = strait_emu_window_granule(span->base);
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = atomic_load(&granule->weak)
						? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
						: CU_MEM_HANDLE_TYPE_NONE,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)span->object->device}};
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *ret_handle, void *address)
{
	CUresult error = CUDA_ERROR_INVALID_VALUE;
	strait_emu_memory_lock();
	struct strait_emu_span *span = strait_emu_span_at((uintptr_t)address);
	if (span && span->kind == SPAN_MAPPED) {
		struct handle *handle = handles;
		while (handle && handle->object != span->object)
			handle = handle->next;
		if (handle) {
			handle->references++;
			*ret_handle = (CUmemGenericAllocationHandle)(uintptr_t)handle;
			error = CUDA_SUCCESS;
		} else { /* released since it was mapped */
			CUmemAllocationProp properties = properties_of(span);
			error = add(strait_emu_object_ref(span->object), &properties, ret_handle);
		}
	}
	strait_emu_memory_unlock();
	return error;
}
