/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Legacy IPC of memory: a handle names a process, a descriptor in it, and an offset. The opener
 * maps the whole of what it finds there; opening it again gives the same address.
 */
#include "emulator/capture.h"
#include "emulator/context.h"
#include "emulator/memory.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAGIC 0x6970636d656d6f72ul

struct handle { /* the 64 bytes */
	uint64_t magic, object, offset, bytes;
	int32_t pid, fd;
};
_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "an IPC handle is 64 bytes");

static struct strait_emu_span *opened; /* under the memory lock */

CUresult cuIpcGetMemHandle(CUipcMemHandle *ret_handle, CUdeviceptr address)
{
	CUcontext context;
	CUresult error = strait_emu_context_enter(&context);
	if (error)
		return error;
	if (!ret_handle)
		return CUDA_ERROR_INVALID_VALUE;
	strait_emu_memory_lock();
	struct strait_emu_span *span = strait_emu_span_at(address);
	if (!span || (span->kind != SPAN_ALLOCATION && span->kind != SPAN_HEAP)) {
		error = CUDA_ERROR_INVALID_VALUE;
	} else {
		struct handle handle = {MAGIC,       span->object->id, address - span->base,
					span->bytes, getpid(),         span->object->fd};
		span->exported = 1;
		strait_emu_span_share(span);
		memset(ret_handle, 0, sizeof *ret_handle);
		memcpy(ret_handle, &handle, sizeof handle);
	}
	strait_emu_memory_unlock();
	return error;
}

static struct strait_emu_span *find(uint64_t object, unsigned device)
{
	struct strait_emu_span *span = opened;
	while (span && (span->object->id != object || span->device != device))
		span = span->next;
	return span;
}

static CUresult open_object(const struct handle *handle, unsigned device,
			    struct strait_emu_span **ret_span)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->pid, handle->fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct strait_emu_object *object = fd < 0 ? NULL : strait_emu_object_import(fd);
	if (!object) {
		if (fd >= 0)
			close(fd);
		return CUDA_ERROR_MAP_FAILED;
	}
	uintptr_t address = 0;
	struct strait_emu_span *span = NULL;
	if (object->id == handle->object) /* else the descriptor is another's by now */
		address = strait_emu_window_reserve(object->bytes, 0);
	if (address)
		span = strait_emu_span_new(SPAN_OPENED, address, object, 0, handle->bytes);
	if (address && !span)
		strait_emu_window_release(address, object->bytes);
	strait_emu_object_unref(object);
	if (!span)
		return CUDA_ERROR_MAP_FAILED;
	span->device = device;
	strait_emu_span_share(span);
	strait_emu_span_access(span, 1ul << device);
	span->next = opened;
	opened = span;
	*ret_span = span;
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *ret_address, CUipcMemHandle bytes, unsigned flags)
{
	CUcontext context;
	struct handle handle;
	CUresult error = strait_emu_context_enter(&context);
	if (!error)
		error = strait_emu_capture_forbid();
	if (error)
		return error;
	memcpy(&handle, &bytes, sizeof handle);
	if (!ret_address || handle.magic != MAGIC)
		return CUDA_ERROR_INVALID_VALUE;
	if (handle.pid == getpid()) /* a process cannot open its own */
		return CUDA_ERROR_INVALID_CONTEXT;
	strait_emu_memory_lock();
	struct strait_emu_span *span = find(handle.object, context->device);
	if (!span)
		error = open_object(&handle, context->device, &span);
	if (!error) {
		span->opens++;
		*ret_address = span->base + handle.offset;
	}
	strait_emu_memory_unlock();
	return error;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
	CUcontext context;
	CUresult error = strait_emu_context_enter(&context);
	if (!error)
		error = strait_emu_capture_forbid();
	if (error)
		return error;
	strait_emu_memory_lock();
	struct strait_emu_span *span = strait_emu_span_at(address);
	if (!span || span->kind != SPAN_OPENED) {
		error = CUDA_ERROR_INVALID_VALUE;
	} else if (!--span->opens) {
		struct strait_emu_span **link = &opened;
		while (*link != span)
			link = &(*link)->next;
		*link = span->next;
		strait_emu_span_free(span);
	}
	strait_emu_memory_unlock();
	return error;
}
