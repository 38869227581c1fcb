/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuMemAlloc and its family. Below a megabyte, allocations of a device share heaps of one granule,
 * as the driver does it (an IPC handle of a small allocation then opens its neighbours too); larger
 * ones are objects of their own.
 */
#include "emulator/memory.h"
#include "emulator/capture.h"
#include "emulator/context.h"
#include "emulator/settings.h"
#include "emulator/stream.h"
#include <pthread.h>
#include <stdlib.h>

#define SMALL_BYTES (1ul << 20)
#define PIECE_ALIGNMENT 512ul

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct strait_emu_span *heaps;
static uint64_t peers[STRAIT_EMU_DEVICES]; /* devices that enabled access to this one */

void strait_emu_memory_lock(void)
{
	pthread_mutex_lock(&lock);
}
void strait_emu_memory_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

struct strait_emu_span *strait_emu_span_new(enum strait_emu_span_kind kind, uintptr_t address,
					    struct strait_emu_object *object, size_t offset,
					    size_t bytes)
{
	struct strait_emu_span *span = calloc(1, sizeof *span);
	size_t mapped = (bytes + STRAIT_EMU_GRANULE - 1) & ~(STRAIT_EMU_GRANULE - 1);
	if (!span || strait_emu_window_map(address, mapped, object, offset) != 0) {
		free(span);
		return NULL;
	}
	span->kind = kind;
	span->base = address;
	span->bytes = bytes;
	span->mapped_bytes = mapped;
	span->object = strait_emu_object_ref(object);
	span->device = object->device;
	span->id = strait_emu_machine_id();
	struct strait_emu_granule *granule = strait_emu_window_granule(address);
	for (size_t i = 0; i < mapped / STRAIT_EMU_GRANULE; i++)
		granule[i].span = span;
	return span;
}

void strait_emu_span_free(struct strait_emu_span *span)
{
	strait_emu_window_unmap(span->base, span->mapped_bytes);
	if (span->kind != SPAN_MAPPED)
		strait_emu_window_release(span->base, span->mapped_bytes);
	strait_emu_object_unref(span->object);
	free(span);
}

struct strait_emu_span *strait_emu_span_at(uintptr_t address)
{
	struct strait_emu_granule *granule = strait_emu_window_granule(address);
	return granule ? granule->span : NULL;
}

void strait_emu_span_access(struct strait_emu_span *span, uint64_t devices)
{
	struct strait_emu_granule *granule = strait_emu_window_granule(span->base);
	for (size_t i = 0; i < span->mapped_bytes / STRAIT_EMU_GRANULE; i++)
		atomic_store(&granule[i].access, devices);
}

void strait_emu_span_share(struct strait_emu_span *span)
{
	struct strait_emu_granule *granule = strait_emu_window_granule(span->base);
	for (size_t i = 0; i < span->mapped_bytes / STRAIT_EMU_GRANULE; i++)
		atomic_store(&granule[i].weak, 1);
}

uint64_t strait_emu_memory_accessors(unsigned device)
{
	return peers[device] | 1ul << device;
}

static void update_access(unsigned device)
{
	struct strait_emu_granule *granule = strait_emu_window.granules;
	for (size_t i = 0; i < STRAIT_EMU_WINDOW_BYTES / STRAIT_EMU_GRANULE; i++)
		if (granule[i].span && granule[i].span->device == device &&
		    (granule[i].span->kind == SPAN_ALLOCATION ||
		     granule[i].span->kind == SPAN_HEAP))
			atomic_store(&granule[i].access, strait_emu_memory_accessors(device));
}

CUresult strait_emu_memory_enable_peer(unsigned device, unsigned peer)
{
	CUresult error = CUDA_SUCCESS;
	strait_emu_memory_lock();
	if (peers[peer] >> device & 1)
		error = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	peers[peer] |= 1ul << device;
	update_access(peer);
	strait_emu_memory_unlock();
	return error;
}

CUresult strait_emu_memory_disable_peer(unsigned device, unsigned peer)
{
	CUresult error = CUDA_SUCCESS;
	strait_emu_memory_lock();
	if (!(peers[peer] >> device & 1))
		error = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	peers[peer] &= ~(1ul << device);
	update_access(peer);
	strait_emu_memory_unlock();
	return error;
}

/* A new object of its own, mapped. */
static struct strait_emu_span *new_span(enum strait_emu_span_kind kind, unsigned device,
					size_t bytes)
{
	size_t mapped = (bytes + STRAIT_EMU_GRANULE - 1) & ~(STRAIT_EMU_GRANULE - 1);
	struct strait_emu_object *object = strait_emu_object_new(device, mapped);
	uintptr_t address = object ? strait_emu_window_reserve(mapped, 0) : 0;
	struct strait_emu_span *span =
		address ? strait_emu_span_new(kind, address, object, 0, bytes) : NULL;
	if (address && !span)
		strait_emu_window_release(address, mapped);
	strait_emu_object_unref(object); /* the span has its own */
	if (span)
		strait_emu_span_access(span, strait_emu_memory_accessors(device));
	return span;
}

/* Where a piece fits: the link to hang it on, or NULL. */
static struct strait_emu_piece **find_gap(struct strait_emu_span *heap, size_t bytes,
					  uintptr_t *ret_address)
{
	uintptr_t free_from = heap->base;
	for (struct strait_emu_piece **link = &heap->pieces;; link = &(*link)->next) {
		uintptr_t free_to = *link ? (*link)->address : heap->base + heap->mapped_bytes;
		if (free_to - free_from >= bytes) {
			*ret_address = free_from;
			return link;
		}
		if (!*link)
			return NULL;
		free_from = ((*link)->address + (*link)->bytes + PIECE_ALIGNMENT - 1) &
			    ~(PIECE_ALIGNMENT - 1);
	}
}

static CUresult allocate_piece(unsigned device, size_t bytes, CUdeviceptr *ret_address)
{
	struct strait_emu_piece **link = NULL, *piece = calloc(1, sizeof *piece);
	if (!piece)
		return CUDA_ERROR_OUT_OF_MEMORY;
	size_t room = (bytes + PIECE_ALIGNMENT - 1) & ~(PIECE_ALIGNMENT - 1);
	for (struct strait_emu_span *heap = heaps; heap && !link; heap = heap->next)
		if (heap->device == device && !heap->exported)
			link = find_gap(heap, room, &piece->address);
	if (!link) {
		struct strait_emu_span *heap = new_span(SPAN_HEAP, device, STRAIT_EMU_GRANULE);
		if (!heap) {
			free(piece);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		heap->next = heaps;
		heaps = heap;
		link = find_gap(heap, room, &piece->address);
	}
	piece->bytes = bytes;
	piece->id = strait_emu_machine_id();
	piece->next = *link;
	*link = piece;
	*ret_address = piece->address;
	return CUDA_SUCCESS;
}

CUresult strait_emu_memory_allocate(unsigned device, size_t bytes, CUdeviceptr *ret_address)
{
	CUresult error = CUDA_SUCCESS;
	strait_emu_memory_lock();
	if (bytes <= SMALL_BYTES) {
		error = allocate_piece(device, bytes, ret_address);
	} else {
		struct strait_emu_span *span = new_span(SPAN_ALLOCATION, device, bytes);
		if (span)
			*ret_address = span->base;
		else
			error = CUDA_ERROR_OUT_OF_MEMORY;
	}
	strait_emu_memory_unlock();
	return error;
}

static CUresult free_piece(struct strait_emu_span *heap, uintptr_t address)
{
	struct strait_emu_piece **link = &heap->pieces;
	while (*link && (*link)->address != address)
		link = &(*link)->next;
	struct strait_emu_piece *piece = *link;
	if (!piece)
		return CUDA_ERROR_INVALID_VALUE;
	*link = piece->next;
	free(piece);
	if (!heap->pieces) {
		struct strait_emu_span **at = &heaps;
		while (*at != heap)
			at = &(*at)->next;
		*at = heap->next;
		strait_emu_span_free(heap);
	}
	return CUDA_SUCCESS;
}

CUresult strait_emu_memory_free(CUdeviceptr address)
{
	CUresult error = CUDA_ERROR_INVALID_VALUE;
	strait_emu_memory_lock();
	struct strait_emu_span *span = strait_emu_span_at(address);
	if (span && span->kind == SPAN_HEAP) {
		error = free_piece(span, address);
	} else if (span && span->kind == SPAN_ALLOCATION && span->base == address) {
		strait_emu_span_free(span);
		error = CUDA_SUCCESS;
	}
	strait_emu_memory_unlock();
	return error;
}

CUresult cuMemAlloc(CUdeviceptr *address, size_t bytes)
{
	CUcontext context;
	CUresult error = strait_emu_context_enter(&context);
	if (!error)
		error = strait_emu_capture_forbid();
	if (error)
		return error;
	if (!address || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	return strait_emu_memory_allocate(context->device, bytes, address);
}

CUresult cuMemAllocPitch(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
			 unsigned element_bytes)
{
	if (!pitch)
		return CUDA_ERROR_INVALID_VALUE;
	*pitch = (width + PIECE_ALIGNMENT - 1) & ~(PIECE_ALIGNMENT - 1);
	return cuMemAlloc(address, *pitch * height);
}

static void drain(CUcontext context, void *data)
{
	strait_emu_stream_drain(context);
}

/* As the real one, it waits for everything that may still use the memory. */
CUresult cuMemFree(CUdeviceptr address)
{
	CUcontext context;
	CUresult error = strait_emu_context_enter(&context);
	if (!error)
		error = strait_emu_capture_forbid();
	if (error || !address)
		return error;
	struct strait_emu_area area;
	if (!strait_emu_memory_area(address, &area))
		return CUDA_ERROR_INVALID_VALUE;
	drain(strait_emu_context_primary(area.device), NULL);
	drain(context, NULL);
	if (area.managed)
		return cuMemFreeHost((void *)address);
	return strait_emu_memory_free(address);
}

CUresult cuMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
	CUcontext context;
	CUresult error = strait_emu_context_enter(&context);
	if (error)
		return error;
	size_t total = (size_t)strait_emu_settings_get()->memory_mib << 20;
	strait_emu_memory_lock();
	if (free_bytes)
		*free_bytes = total - strait_emu_object_used(context->device);
	strait_emu_memory_unlock();
	if (total_bytes)
		*total_bytes = total;
	return CUDA_SUCCESS;
}
