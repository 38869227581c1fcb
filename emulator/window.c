/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The windows and their granules. The places are the kernel's choice (fixed ones collide with
 * sanitizers); the distances are computed once.
 */
#include "emulator/window.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#define GRANULES (STRAIT_EMU_WINDOW_BYTES / STRAIT_EMU_GRANULE)

struct strait_emu_window strait_emu_window = {.base = UINTPTR_MAX / 2};

static void *reserve_space(size_t bytes)
{
	return mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

static void open_once(void)
{
	uintptr_t space =
		(uintptr_t)reserve_space(6 * STRAIT_EMU_WINDOW_BYTES + STRAIT_EMU_GRANULE);
	void *granules = calloc(GRANULES, sizeof *strait_emu_window.granules);
	if ((void *)space == MAP_FAILED || !granules)
		return;
	space = (space + STRAIT_EMU_GRANULE - 1) & ~(STRAIT_EMU_GRANULE - 1);
	strait_emu_window.base = space;
	strait_emu_window.data = STRAIT_EMU_WINDOW_BYTES;
	strait_emu_window.shadow = space + 2 * STRAIT_EMU_WINDOW_BYTES;
	strait_emu_window.granules = granules;
}

int strait_emu_window_open(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, open_once);
	return strait_emu_window.granules ? 0 : -1;
}

static size_t count_of(size_t bytes)
{
	return bytes >> STRAIT_EMU_GRANULE_SHIFT;
}

uintptr_t strait_emu_window_reserve(size_t bytes, size_t alignment)
{
	static size_t
		hint; /* round robin: a freed address is not reused soon, so late users fault */
	size_t n = count_of(bytes), step = count_of(alignment);
	if (step == 0)
		step = 1;
	for (int round = 0; round < 2; round++) {
		size_t first = round ? 0 : (hint + step - 1) / step * step;
		while (first + n <= GRANULES) {
			size_t i = 0;
			while (i < n && !strait_emu_window.granules[first + i].reserved)
				i++;
			if (i == n) {
				for (i = 0; i < n; i++)
					strait_emu_window.granules[first + i].reserved = 1;
				hint = first + n;
				return strait_emu_window.base + (first << STRAIT_EMU_GRANULE_SHIFT);
			}
			first = (first + i + step) / step * step;
		}
	}
	return 0;
}

void strait_emu_window_release(uintptr_t address, size_t bytes)
{
	struct strait_emu_granule *granule = strait_emu_window_granule(address);
	for (size_t i = 0; i < count_of(bytes); i++)
		granule[i].reserved = 0;
}

static int map_at(uintptr_t address, size_t bytes, int fd, size_t offset)
{
	void *at = mmap((void *)address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
			(off_t)offset);
	return at == MAP_FAILED ? -1 : 0;
}

static void unmap_at(uintptr_t address, size_t bytes)
{
	mmap((void *)address, bytes, PROT_NONE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

int strait_emu_window_map(uintptr_t address, size_t bytes, struct strait_emu_object *object,
			  size_t offset)
{
	uintptr_t shadow = (uintptr_t)strait_emu_window_shadow(address);
	if (map_at(address + strait_emu_window.data, bytes, object->fd, offset) != 0 ||
	    map_at(shadow, 4 * bytes, object->fd, object->bytes + 4 * offset) != 0) {
		strait_emu_window_unmap(address, bytes);
		return -1;
	}
	struct strait_emu_granule *granule = strait_emu_window_granule(address);
	for (size_t i = 0; i < count_of(bytes); i++) {
		granule[i].device = (uint8_t)object->device;
		granule[i].mapped = 1;
	}
	return 0;
}

void strait_emu_window_unmap(uintptr_t address, size_t bytes)
{
	struct strait_emu_granule *granule = strait_emu_window_granule(address);
	for (size_t i = 0; i < count_of(bytes); i++) {
		atomic_store(&granule[i].access, 0);
		atomic_store(&granule[i].weak, 0);
		granule[i].span = NULL;
		granule[i].mapped = 0;
	}
	unmap_at(address + strait_emu_window.data, bytes);
	unmap_at((uintptr_t)strait_emu_window_shadow(address), 4 * bytes);
}

void *strait_emu_window_data(uintptr_t address, size_t bytes)
{
	struct strait_emu_granule *granule = strait_emu_window_granule(address);
	if (!granule)
		return (void *)address;
	uintptr_t last = address + (bytes ? bytes - 1 : 0);
	struct strait_emu_granule *end = strait_emu_window_granule(last);
	if (!end || last < address)
		return NULL;
	for (; granule <= end; granule++)
		if (!granule->mapped)
			return NULL;
	return (void *)(address + strait_emu_window.data);
}
