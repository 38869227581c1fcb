/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is behind an address.
 */
#include "emulator/context.h"
#include "emulator/memory.h"
#include <string.h>

static void span_area(struct strait_emu_span *span, uintptr_t address,
		      struct strait_emu_area *ret_area)
{
	struct strait_emu_granule *granule = strait_emu_window_granule(address);
	*ret_area = (struct strait_emu_area){.address = span->base,
					     .bytes = span->bytes,
					     .id = span->id,
					     .device = span->device,
					     .mapped_handle = span->kind == SPAN_MAPPED,
					     .access = atomic_load(&granule->access)};
}

int strait_emu_memory_area(uintptr_t address, struct strait_emu_area *ret_area)
{
	int found = 0;
	strait_emu_memory_lock();
	struct strait_emu_span *span = strait_emu_span_at(address);
	if (span) {
		span_area(span, address, ret_area);
		found = address < span->base + span->bytes;
		if (span->kind == SPAN_HEAP) {
			struct strait_emu_piece *piece = span->pieces;
			while (piece && address - piece->address >= piece->bytes)
				piece = piece->next;
			found = piece != NULL;
			if (piece) {
				ret_area->address = piece->address;
				ret_area->bytes = piece->bytes;
				ret_area->id = piece->id;
			}
		}
	} else if (!strait_emu_window_granule(address)) {
		found = strait_emu_host_area(address, ret_area);
	}
	strait_emu_memory_unlock();
	return found;
}

CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
	struct strait_emu_area area;
	if (!strait_emu_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!strait_emu_memory_area(address, &area))
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = area.address;
	if (bytes)
		*bytes = area.bytes;
	return CUDA_SUCCESS;
}

static CUresult attribute_of(const struct strait_emu_area *area, void *data,
			     CUpointer_attribute attribute, uintptr_t address)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data =
			area->mapped_handle ? NULL : strait_emu_context_primary(area->device);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data =
			area->host && !area->managed ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = address;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*(void **)data = area->host ? (void *)address : NULL;
		return area->host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(uint64_t *)data = area->id;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*(int *)data = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(char *)data = (char)area->managed;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = (int)area->device;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(int *)data = !area->host && !area->mapped_handle;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = area->address;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = area->bytes;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(char *)data = 1;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*(uint64_t *)data =
			area->mapped_handle ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*(unsigned *)data = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(void **)data = NULL;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
	struct strait_emu_area area;
	if (!strait_emu_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	if (!strait_emu_memory_area(address, &area))
		return CUDA_ERROR_INVALID_VALUE;
	return attribute_of(&area, data, attribute, address);
}

static void clear(void *data, CUpointer_attribute attribute)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_MAPPED:
		memset(data, 0, 1);
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = -2; /* what the real driver gives */
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		memset(data, 0, 4);
		break;
	default:
		memset(data, 0, 8);
	}
}

/* Unlike the single query, an address that nobody knows is no error: everything is zero. */
CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute *attributes, void **data,
				CUdeviceptr address)
{
	struct strait_emu_area area;
	if (!strait_emu_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!n || !attributes || !data)
		return CUDA_ERROR_INVALID_VALUE;
	int known = strait_emu_memory_area(address, &area);
	for (unsigned i = 0; i < n; i++) {
		uint64_t none = 0;
		CUresult error = attribute_of(known ? &area : &(struct strait_emu_area){0}, &none,
					      attributes[i], address);
		if (error == CUDA_ERROR_NOT_SUPPORTED)
			return error;
		if (known && !error)
			attribute_of(&area, data[i], attributes[i], address);
		else
			clear(data[i], attributes[i]);
	}
	return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
			       CUdeviceptr address)
{
	return attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ? CUDA_SUCCESS
							     : CUDA_ERROR_NOT_SUPPORTED;
}
