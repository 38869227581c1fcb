/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loads and stores of the test kernels for ThreadSanitizer: plain and C atomic ones of the
 * data's place, with the same orders.
 */
#pragma once
#include "emulator/device.h"

static inline uint64_t direct_load_weak(const void *address, unsigned bytes)
{
	const void *data = strait_emu_data(address);
	return bytes == 8 ? *(const uint64_t *)data : *(const uint32_t *)data;
}

static inline void direct_store_weak(void *address, uint64_t value, unsigned bytes)
{
	void *data = strait_emu_data(address);
	if (bytes == 8)
		*(uint64_t *)data = value;
	else
		*(uint32_t *)data = (uint32_t)value;
}

#define DIRECT_LOAD(name, order)                                                    \
	static inline uint64_t name(const void *address, unsigned bytes)            \
	{                                                                           \
		const void *data = strait_emu_data(address);                        \
		return bytes == 8 ? __atomic_load_n((const uint64_t *)data, order)  \
				  : __atomic_load_n((const uint32_t *)data, order); \
	}
#define DIRECT_STORE(name, order)                                                   \
	static inline void name(void *address, uint64_t value, unsigned bytes)      \
	{                                                                           \
		void *data = strait_emu_data(address);                              \
		if (bytes == 8)                                                     \
			__atomic_store_n((uint64_t *)data, value, order);           \
		else                                                                \
			__atomic_store_n((uint32_t *)data, (uint32_t)value, order); \
	}

DIRECT_LOAD(direct_load_relaxed, __ATOMIC_RELAXED)
DIRECT_LOAD(direct_load_acquire, __ATOMIC_ACQUIRE)
DIRECT_STORE(direct_store_relaxed, __ATOMIC_RELAXED)
DIRECT_STORE(direct_store_release, __ATOMIC_RELEASE)

#define strait_emu_load_weak direct_load_weak
#define strait_emu_load_relaxed direct_load_relaxed
#define strait_emu_load_acquire direct_load_acquire
#define strait_emu_store_weak direct_store_weak
#define strait_emu_store_relaxed direct_store_relaxed
#define strait_emu_store_release direct_store_release
