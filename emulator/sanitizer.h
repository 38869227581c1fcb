/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ThreadSanitizer has to be told when the kernels are compiled with it (the emulator itself is
 * not): which fiber runs, and what barriers, launches and signals order. The functions are there
 * only when the program is instrumented; switching to a fiber orders nothing by itself, so a
 * missing barrier shows.
 */
#pragma once
#include <stddef.h>

void *__tsan_create_fiber(unsigned flags) __attribute__((weak));
void *__tsan_get_current_fiber(void) __attribute__((weak));
void __tsan_switch_to_fiber(void *fiber, unsigned flags) __attribute__((weak));
void __tsan_acquire(void *object) __attribute__((weak));
void __tsan_release(void *object) __attribute__((weak));

#define STRAIT_EMU_TSAN_NO_ORDER 1u

static inline void *strait_emu_tsan_new(void)
{
	return __tsan_create_fiber ? __tsan_create_fiber(0) : NULL;
}

static inline void *strait_emu_tsan_self(void)
{
	return __tsan_get_current_fiber ? __tsan_get_current_fiber() : NULL;
}

static inline void strait_emu_tsan_switch(void *fiber)
{
	if (fiber)
		__tsan_switch_to_fiber(fiber, STRAIT_EMU_TSAN_NO_ORDER);
}

static inline void strait_emu_tsan_acquire(void *object)
{
	if (__tsan_acquire)
		__tsan_acquire(object);
}

static inline void strait_emu_tsan_release(void *object)
{
	if (__tsan_release)
		__tsan_release(object);
}
