/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine under the kernels: one set of primitives, twice. nvcc compiles them for a GPU; g++
 * compiles the same kernels for the emulator (emulator/device.h). Everything above this file sees
 * threads through `coop` and memory through named loads and stores.
 *
 * Memory comes in two kinds. Private memory (the user's buffers, this rank's own counters) is read
 * and written by load() and store(). Memory that another rank writes or reads at the same time is
 * reached by the relaxed, acquire and release forms only, or by load() and store() between an
 * acquire and a release. All orders are system scope.
 *
 * A kernel is STRAIT_KERNEL(name, argument struct) { ... a ... }: extern "C", one struct by value.
 */
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

struct alignas(16) strait_bits128 {
	uint64_t lo, hi;
};

#ifdef __CUDACC__

#define STRAIT_DEVICE __device__ __forceinline__
#define STRAIT_BUILD_ID_LINKAGE __device__
#define STRAIT_UNROLL _Pragma("unroll")
#define STRAIT_ROLLED _Pragma("unroll 1")
/* One block of a kernel on a multiprocessor is enough: registers as many as the threads leave. */
#define STRAIT_KERNEL(name, Arguments, max_threads)                  \
	extern "C" __global__ void __launch_bounds__(max_threads, 1) \
		name(const __grid_constant__ Arguments a)
#define STRAIT_SHARED(Type, name) __shared__ Type name

namespace strait
{

STRAIT_DEVICE unsigned thread_index()
{
	return threadIdx.x;
}
STRAIT_DEVICE unsigned n_threads()
{
	return blockDim.x;
}
STRAIT_DEVICE unsigned block_index()
{
	return blockIdx.x;
}
STRAIT_DEVICE unsigned n_blocks()
{
	return gridDim.x;
}
STRAIT_DEVICE void sync_block()
{
	__syncthreads();
}
/* A barrier that tells every thread whether all of them passed true. */
STRAIT_DEVICE bool sync_block_all(bool mine)
{
	return __syncthreads_and(mine);
}

template <class T>
STRAIT_DEVICE T load(const T *p)
{
	return *p;
}
template <class T>
STRAIT_DEVICE void store(T *p, T v)
{
	*p = v;
}
template <>
STRAIT_DEVICE strait_bits128 load(const strait_bits128 *p)
{
	ulonglong2 v = *reinterpret_cast<const ulonglong2 *>(p);
	return {v.x, v.y};
}
template <>
STRAIT_DEVICE void store(strait_bits128 *p, strait_bits128 v)
{
	*reinterpret_cast<ulonglong2 *>(p) = make_ulonglong2(v.lo, v.hi);
}

/* Used once, and not to push other data out of the cache. */
STRAIT_DEVICE strait_bits128 load_streaming(const strait_bits128 *p)
{
	const ulonglong2 v = __ldcs(reinterpret_cast<const ulonglong2 *>(p));
	return {v.x, v.y};
}
STRAIT_DEVICE void store_streaming(strait_bits128 *p, strait_bits128 v)
{
	__stcs(reinterpret_cast<ulonglong2 *>(p), make_ulonglong2(v.lo, v.hi));
}

STRAIT_DEVICE uint64_t load_relaxed(const uint64_t *p)
{
	uint64_t v;
	asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
	return v;
}
STRAIT_DEVICE void store_relaxed(uint64_t *p, uint64_t v)
{
	asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
STRAIT_DEVICE uint64_t load_acquire(const uint64_t *p)
{
	uint64_t v;
	asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
	return v;
}
STRAIT_DEVICE void store_release(uint64_t *p, uint64_t v)
{
	asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

/* Two 8-byte relaxed accesses in one instruction: each half is whole, the two may be seen apart. */
STRAIT_DEVICE strait_bits128 load_relaxed_pair(const strait_bits128 *p)
{
	strait_bits128 v;
	asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
		     : "=l"(v.lo), "=l"(v.hi)
		     : "l"(p)
		     : "memory");
	return v;
}
STRAIT_DEVICE void store_relaxed_pair(strait_bits128 *p, strait_bits128 v)
{
	asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(v.lo), "l"(v.hi)
		     : "memory");
}

STRAIT_DEVICE void fence()
{
	asm volatile("fence.acq_rel.sys;" ::: "memory");
}

/* Host-mapped words (the abort word). */
STRAIT_DEVICE uint32_t load_host(const uint32_t *p)
{
	return *static_cast<const volatile uint32_t *>(p);
}
STRAIT_DEVICE void store_host(uint32_t *p, uint32_t v)
{
	*static_cast<volatile uint32_t *>(p) = v;
}

STRAIT_DEVICE void spin() {}

template <class To, class From>
STRAIT_DEVICE To bits_as(From from)
{
	static_assert(sizeof(To) == sizeof(From), "the same size");
	To to;
	memcpy(&to, &from, sizeof to);
	return to;
}

} // namespace strait

#else /* the host build, for the emulator */

#include "emulator/device.h"

#define STRAIT_DEVICE inline
#define STRAIT_BUILD_ID_LINKAGE __attribute__((weak, visibility("default")))
#define STRAIT_UNROLL
#define STRAIT_ROLLED
#define STRAIT_KERNEL(name, Arguments, max_threads)                                        \
	static void body_##name(const Arguments &a);                                       \
	static void run_##name(const void *argument)                                       \
	{                                                                                  \
		body_##name(*static_cast<const Arguments *>(argument));                    \
	}                                                                                  \
	extern "C" __attribute__((visibility("default")))                                  \
	const strait_emu_kernel strait_emu_kernel_##name = {run_##name, sizeof(Arguments), \
							    alignof(Arguments), nullptr};  \
	static void body_##name(const Arguments &a)
#define STRAIT_SHARED(Type, name)             \
	static const char site_of_##name = 0; \
	Type &name = *static_cast<Type *>(strait_emu_shared(&site_of_##name, sizeof(Type)))

namespace strait
{

/* A GPU faults on a 16-byte access that is not aligned to 16. */
STRAIT_DEVICE void check_aligned(const strait_bits128 *p)
{
	if (reinterpret_cast<uint64_t>(p) % sizeof(strait_bits128))
		__builtin_trap();
}

STRAIT_DEVICE unsigned thread_index()
{
	return strait_emu_self->tid.x;
}
STRAIT_DEVICE unsigned n_threads()
{
	return strait_emu_self->bdim.x;
}
STRAIT_DEVICE unsigned block_index()
{
	return strait_emu_self->bid.x;
}
STRAIT_DEVICE unsigned n_blocks()
{
	return strait_emu_self->gdim.x;
}
STRAIT_DEVICE void sync_block()
{
	strait_emu_sync_block();
}
/* False once is false for the rest of the kernel: a vote that fails ends it. */
STRAIT_DEVICE bool sync_block_all(bool mine)
{
	constexpr uint64_t failed = 0x6661696c65642121;
	STRAIT_SHARED(uint64_t, vote); /* anything else at first */
	if (!mine)
		vote = failed;
	strait_emu_sync_block();
	return vote != failed;
}

template <class T>
inline T load(const T *p)
{
	static_assert(sizeof(T) <= 8, "wider ones are composed");
	uint64_t bits = strait_emu_load_weak(p, sizeof(T));
	T v;
	memcpy(&v, &bits, sizeof v);
	return v;
}
template <class T>
inline void store(T *p, T v)
{
	static_assert(sizeof(T) <= 8, "wider ones are composed");
	uint64_t bits = 0;
	memcpy(&bits, &v, sizeof v);
	strait_emu_store_weak(p, bits, sizeof(T));
}
template <>
inline strait_bits128 load(const strait_bits128 *p)
{
	check_aligned(p);
	return {strait_emu_load_weak(&p->lo, 8), strait_emu_load_weak(&p->hi, 8)};
}
template <>
inline void store(strait_bits128 *p, strait_bits128 v)
{
	check_aligned(p);
	strait_emu_store_weak(&p->lo, v.lo, 8);
	strait_emu_store_weak(&p->hi, v.hi, 8);
}

STRAIT_DEVICE strait_bits128 load_streaming(const strait_bits128 *p)
{
	return load(p);
}
STRAIT_DEVICE void store_streaming(strait_bits128 *p, strait_bits128 v)
{
	store(p, v);
}

STRAIT_DEVICE uint64_t load_relaxed(const uint64_t *p)
{
	return strait_emu_load_relaxed(p, 8);
}
STRAIT_DEVICE void store_relaxed(uint64_t *p, uint64_t v)
{
	strait_emu_store_relaxed(p, v, 8);
}
STRAIT_DEVICE uint64_t load_acquire(const uint64_t *p)
{
	return strait_emu_load_acquire(p, 8);
}
STRAIT_DEVICE void store_release(uint64_t *p, uint64_t v)
{
	strait_emu_store_release(p, v, 8);
}
STRAIT_DEVICE strait_bits128 load_relaxed_pair(const strait_bits128 *p)
{
	check_aligned(p);
	return {strait_emu_load_relaxed(&p->lo, 8), strait_emu_load_relaxed(&p->hi, 8)};
}
STRAIT_DEVICE void store_relaxed_pair(strait_bits128 *p, strait_bits128 v)
{
	check_aligned(p);
	strait_emu_store_relaxed(&p->lo, v.lo, 8);
	strait_emu_store_relaxed(&p->hi, v.hi, 8);
}
STRAIT_DEVICE uint32_t load_host(const uint32_t *p)
{
	return static_cast<uint32_t>(strait_emu_load_relaxed(p, 4));
}
STRAIT_DEVICE void store_host(uint32_t *p, uint32_t v)
{
	strait_emu_store_release(p, v, 4);
}
STRAIT_DEVICE void fence()
{
	strait_emu_fence();
}
STRAIT_DEVICE void spin()
{
	strait_emu_spin();
}

template <class To, class From>
inline To bits_as(From from)
{
	static_assert(sizeof(To) == sizeof(From), "the same size");
	To to;
	memcpy(&to, &from, sizeof to);
	return to;
}

} // namespace strait

#endif

namespace strait
{

/* A group of threads that work together, passed by value. Here: the block. */
struct coop {
	unsigned rank, size;
	STRAIT_DEVICE static coop block() { return {thread_index(), n_threads()}; }
	STRAIT_DEVICE void sync() const { sync_block(); }
	/* A sync that gives every member whether all passed true. */
	STRAIT_DEVICE bool sync_all(bool mine) const { return sync_block_all(mine); }
};

} // namespace strait

/* The image and the host build carry the same build id as the name of a symbol: the emulator pairs
 * them by it. */
#ifdef STRAIT_BUILD_ID
#define STRAIT_BUILD_SYMBOL_(id) strait_build_id_##id
#define STRAIT_BUILD_SYMBOL(id) STRAIT_BUILD_SYMBOL_(id)
extern "C" {
STRAIT_BUILD_ID_LINKAGE unsigned STRAIT_BUILD_SYMBOL(STRAIT_BUILD_ID) = 1;
}
#endif
