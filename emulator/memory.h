/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies in the window: spans. A span is one mapping of an object (or a part of it): an
 * allocation of its own, a heap that small allocations share, a mapped VMM handle, or memory opened
 * from another process. One lock covers spans, objects, the window and the lists of host memory.
 */
#pragma once
#include "emulator/window.h"
#include <cuda.h>

enum strait_emu_span_kind { SPAN_ALLOCATION, SPAN_HEAP, SPAN_MAPPED, SPAN_OPENED };

struct strait_emu_piece { /* an allocation in a heap, in order of address */
	uintptr_t address;
	size_t bytes;
	uint64_t id;
	struct strait_emu_piece *next;
};

struct strait_emu_span {
	enum strait_emu_span_kind kind;
	uintptr_t base;
	size_t bytes;        /* that were asked for */
	size_t mapped_bytes; /* a multiple of the granule */
	struct strait_emu_object *object;
	uint64_t id;
	unsigned device; /* of the context that made the allocation or opened it */
	int exported;    /* another process may have it: freed pieces are not given out again */
	unsigned opens;
	struct strait_emu_piece *pieces;
	struct strait_emu_span *next; /* all heaps and opened spans */
};

void strait_emu_memory_lock(void);
void strait_emu_memory_unlock(void);

/* Maps `bytes` of an object at a reserved address as a span; takes a reference of the object. */
struct strait_emu_span *strait_emu_span_new(enum strait_emu_span_kind kind, uintptr_t address,
					    struct strait_emu_object *object, size_t offset,
					    size_t bytes);
/* Unmaps; gives the reserved address back unless the span is a mapped handle's. */
void strait_emu_span_free(struct strait_emu_span *span);
struct strait_emu_span *strait_emu_span_at(uintptr_t address); /* or NULL */
void strait_emu_span_access(struct strait_emu_span *span, uint64_t devices);
void strait_emu_span_share(struct strait_emu_span *span); /* the weak model applies from now on */

/* Devices that may access what cuMemAlloc gives on this one. */
uint64_t strait_emu_memory_accessors(unsigned device);
CUresult strait_emu_memory_enable_peer(unsigned device, unsigned peer);
CUresult strait_emu_memory_disable_peer(unsigned device, unsigned peer);

/* cuMemAlloc and cuMemFree on a device, without the rules for contexts and captures. */
CUresult strait_emu_memory_allocate(unsigned device, size_t bytes, CUdeviceptr *ret_address);
CUresult strait_emu_memory_free(CUdeviceptr address);

/* The allocation around an address, in the window or host memory of the driver. 0: none. */
struct strait_emu_area {
	uintptr_t address;
	size_t bytes;
	uint64_t id;
	unsigned device;
	int host, managed, mapped_handle;
	uint64_t access;
};
int strait_emu_memory_area(uintptr_t address, struct strait_emu_area *ret_area);

/* Host memory that the driver made or registered; host.c. Under the memory lock. */
int strait_emu_host_area(uintptr_t address, struct strait_emu_area *ret_area);
