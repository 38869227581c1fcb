/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a kernel compiled for the host calls: the emulator's side of channels/device/platform.cuh. C
 * and C++.
 *
 * A CUDA thread is a fiber, a block is one OS thread; these functions may be called only from
 * inside a kernel. Every access to device memory goes through them: the addresses that the emulated
 * driver hands out lie in a window that cannot be dereferenced. Addresses outside the window
 * (host-mapped memory of the own process, shared memory, the stack) are accepted too and reach
 * memory directly.
 *
 * Memory order is deliberately weak. Weak and relaxed stores may become visible to other blocks
 * late and in any order, until the thread releases or fences; a block barrier hands a thread's
 * pending stores to its block, and a release by any thread of the block then covers them. A weak
 * load of memory that another block wrote may give the older value until the thread acquires,
 * fences or passes a block barrier behind one that did. Relaxed loads are coherent (never older
 * than what the same thread saw) but order nothing.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct strait_emu_dim {
	unsigned x, y, z;
};

struct strait_emu_thread { /* the running fiber; constant while it runs */
	struct strait_emu_dim tid, bid, bdim, gdim;
};
extern __thread struct strait_emu_thread *strait_emu_self
	__attribute__((tls_model("initial-exec")));

/* bytes: 1, 2, 4 or 8; the address is a multiple of it. Values are zero-extended in a uint64_t. */
void strait_emu_store_weak(void *address, uint64_t value, unsigned bytes);
void strait_emu_store_relaxed(void *address, uint64_t value, unsigned bytes);
void strait_emu_store_release(void *address, uint64_t value, unsigned bytes); /* system scope */
uint64_t strait_emu_load_weak(const void *address, unsigned bytes);
uint64_t strait_emu_load_relaxed(const void *address, unsigned bytes);
uint64_t strait_emu_load_acquire(const void *address, unsigned bytes); /* system scope */
/* Adds and returns what was there. 4 or 8 bytes. */
uint64_t strait_emu_add_relaxed(void *address, uint64_t value, unsigned bytes);
uint64_t strait_emu_add_release(void *address, uint64_t value, unsigned bytes);
void strait_emu_fence(void); /* acquire and release, system scope */

void strait_emu_sync_block(void); /* counts the threads of the block that have not returned */
void strait_emu_sync_warp(void);  /* likewise for the 32 threads of the warp */
/* `value` of lane `lane` of the same warp; all live lanes of the warp call it together. */
uint64_t strait_emu_shuffle(uint64_t value, unsigned lane);
/* Bit i: lane i passed a non-zero value. All live lanes of the warp call it together. */
unsigned strait_emu_ballot(unsigned value);

/* Called in every turn of a loop that waits for another thread's store. Runs the other fibers. */
void strait_emu_spin(void);

/* Shared memory of the block, one piece for each distinct `site` (any address): `bytes` long,
 * aligned to 16, the same pointer for all threads of the block, filled with a poison pattern when
 * the block starts. */
void *strait_emu_shared(const void *site, size_t bytes);

uint64_t strait_emu_clock_ns(void);

/* Where the host finds the data of an address. For kernels compiled with ThreadSanitizer, whose
 * loads and stores are then plain and C11 atomic ones of this place: nothing is delayed, and it
 * judges the order. */
void *strait_emu_data(const void *address);

/* A kernel of the host build is a constant of this type, named strait_emu_kernel_<name>. */
struct strait_emu_kernel {
	void (*run)(const void *argument); /* body for one thread */
	size_t argument_bytes, argument_align;
	void (*touch)(void); /* touches the module's thread-local storage; called on the block's OS
				thread, may be NULL */
};

#ifdef __cplusplus
}
#endif
