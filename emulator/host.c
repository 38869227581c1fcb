/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pinned memory of the host, and managed memory, which is the same here. Its address is one for
 * host and device, and kernels reach it directly.
 */
#include "emulator/capture.h"
#include "emulator/context.h"
#include "emulator/memory.h"
#include "emulator/stream.h"
#include <stdlib.h>
#include <sys/mman.h>

struct piece {
	uintptr_t address;
	size_t bytes;
	uint64_t id;
	unsigned flags, device;
	int registered, managed;
	struct piece *next;
};
static struct piece *pieces; /* under the memory lock */

static struct piece **find(uintptr_t address)
{
	struct piece **link = &pieces;
	while (*link &&
	       (address < (*link)->address || address - (*link)->address >= (*link)->bytes))
		link = &(*link)->next;
	return link;
}

int strait_emu_host_area(uintptr_t address, struct strait_emu_area *ret_area)
{
	struct piece *piece = *find(address);
	if (!piece)
		return 0;
	*ret_area = (struct strait_emu_area){.address = piece->address,
					     .bytes = piece->bytes,
					     .id = piece->id,
					     .device = piece->device,
					     .host = 1,
					     .managed = piece->managed,
					     .access = UINT64_MAX};
	return 1;
}

static CUresult enter(CUcontext *ret_context)
{
	CUresult error = strait_emu_context_enter(ret_context);
	return error ? error : strait_emu_capture_forbid();
}

static CUresult add(uintptr_t address, size_t bytes, unsigned flags, unsigned device,
		    int registered, int managed)
{
	struct piece *piece = calloc(1, sizeof *piece);
	if (!piece)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*piece = (struct piece){address, bytes, strait_emu_machine_id(), flags, device, registered,
				managed, NULL};
	strait_emu_memory_lock();
	piece->next = pieces;
	pieces = piece;
	strait_emu_memory_unlock();
	return CUDA_SUCCESS;
}

static CUresult allocate(void **ret_address, size_t bytes, unsigned flags, int managed)
{
	CUcontext context;
	CUresult error = enter(&context);
	if (error)
		return error;
	if (!ret_address || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	error = add((uintptr_t)memory, bytes, flags, context->device, 0, managed);
	if (error)
		munmap(memory, bytes);
	else
		*ret_address = memory;
	return error;
}

CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags)
{
	return allocate(address, bytes, flags | CU_MEMHOSTALLOC_DEVICEMAP, 0);
}

CUresult cuMemAllocHost(void **address, size_t bytes)
{
	return allocate(address, bytes, CU_MEMHOSTALLOC_DEVICEMAP, 0);
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags)
{
	return allocate((void **)address, bytes, flags, 1);
}

/* Removes the piece that begins at the address, of one kind; gives a copy of it. */
static CUresult take(void *address, int registered, struct piece *ret_piece)
{
	CUcontext context;
	CUresult error = enter(&context);
	if (error)
		return error;
	strait_emu_memory_lock();
	struct piece **link = find((uintptr_t)address), *piece = *link;
	if (!piece || piece->address != (uintptr_t)address) {
		error = CUDA_ERROR_INVALID_VALUE;
	} else if (piece->registered != registered) {
		error = registered ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
				   : CUDA_ERROR_INVALID_VALUE;
	} else {
		*ret_piece = *piece;
		*link = piece->next;
		free(piece);
	}
	strait_emu_memory_unlock();
	return error;
}

static void drain(CUcontext context, void *data)
{
	strait_emu_stream_drain(context);
}

/* As the real one, it waits for the work that may use it. */
CUresult cuMemFreeHost(void *address)
{
	struct piece piece;
	CUcontext context = strait_emu_context_current();
	CUresult error = take(address, 0, &piece);
	if (error)
		return error;
	drain(context, NULL);
	munmap(address, piece.bytes);
	return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void *address, size_t bytes, unsigned flags)
{
	CUcontext context;
	CUresult error = enter(&context);
	if (error)
		return error;
	if (!address || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	strait_emu_memory_lock();
	int known = *find((uintptr_t)address) != NULL;
	strait_emu_memory_unlock();
	if (known)
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	return add((uintptr_t)address, bytes, flags, context->device, 1, 0);
}

CUresult cuMemHostUnregister(void *address)
{
	struct piece piece;
	return take(address, 1, &piece);
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *device, void *host, unsigned flags)
{
	if (!device || flags)
		return CUDA_ERROR_INVALID_VALUE;
	strait_emu_memory_lock();
	int known = *find((uintptr_t)host) != NULL;
	strait_emu_memory_unlock();
	if (!known)
		return CUDA_ERROR_INVALID_VALUE;
	*device = (CUdeviceptr)(uintptr_t)host;
	return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned *flags, void *host)
{
	CUresult error = CUDA_ERROR_INVALID_VALUE;
	strait_emu_memory_lock();
	struct piece *piece = *find((uintptr_t)host);
	if (piece && flags) {
		*flags = piece->flags;
		error = CUDA_SUCCESS;
	}
	strait_emu_memory_unlock();
	return error;
}
