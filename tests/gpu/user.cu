/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of a user beside the library: several that are loaded as late as can be, and one that
 * holds a stream up.
 */
#include "tests/gpu/user_args.h"
#include "channels/device/platform.cuh"

using namespace strait;

STRAIT_DEVICE uint64_t clock_ns()
{
#ifdef __CUDACC__
	uint64_t ns;
	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
	return ns;
#else
	return strait_emu_clock_ns();
#endif
}

STRAIT_KERNEL(user_write_0, user_write_args, 1024)
{
	store(a.word, a.value);
}
STRAIT_KERNEL(user_write_1, user_write_args, 1024)
{
	store(a.word, a.value);
}
STRAIT_KERNEL(user_write_2, user_write_args, 1024)
{
	store(a.word, a.value);
}

STRAIT_KERNEL(user_delay, user_delay_args, 1024)
{
	uint64_t end = clock_ns() + a.ns;

	while (clock_ns() < end)
		spin();
}
