/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object is a piece of emulated device memory: an anonymous file with the data, a shadow of four
 * times the size that the weak memory model uses, and a page that says what it is. Both are sparse.
 * Whoever holds the descriptor or a mapping keeps it alive, in whatever process, also when its
 * creator was killed.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct strait_emu_object {
	int fd;
	unsigned references; /* under the memory lock */
	size_t bytes;
	unsigned device;
	uint64_t id;  /* of the memory: equal in all processes */
	int imported; /* counted against no device of this process */
};

/* NULL when the device has not that much memory left. `bytes` is a multiple of the granule. */
struct strait_emu_object *strait_emu_object_new(unsigned device, size_t bytes);
/* Takes over the descriptor; NULL, and the descriptor still the caller's, when it is no object's.
 */
struct strait_emu_object *strait_emu_object_import(int fd);
struct strait_emu_object *strait_emu_object_ref(struct strait_emu_object *object);
struct strait_emu_object *strait_emu_object_unref(struct strait_emu_object *object);

size_t strait_emu_object_used(unsigned device); /* bytes that this process has made on it */
