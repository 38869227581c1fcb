/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registered memory: device memory of one rank that its peers map. VMM memory is shared as a POSIX
 * descriptor between processes and by its handle inside one; legacy IPC serves where the driver has
 * no VMM; inside one process without VMM plain pointers do.
 *
 * The physical memory lives as long as the owner or any peer has it mapped (legacy memory: as long
 * as the process), so a rank may give its memory back without asking its peers.
 */
#pragma once
#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

enum strait_memory_kind { STRAIT_MEMORY_NONE, STRAIT_MEMORY_VMM, STRAIT_MEMORY_LEGACY };

/* The owner's side. */
struct strait_memory {
	CUdeviceptr address; /* mapped read-write for `device` */
	size_t bytes;        /* as allocated: a multiple of the granularity */
	CUdevice device;
	enum strait_memory_kind kind;
	CUmemGenericAllocationHandle handle; /* VMM */
	int fd;                              /* VMM: descriptor to hand to other processes, or -1 */
};

/* What a peer needs to map it, but for the descriptor: plain data, sent over the bootstrap. */
struct strait_memory_description {
	uint64_t kind, bytes, process;
	uint64_t handle, address; /* for peers in the same process */
	CUipcMemHandle ipc;       /* LEGACY, for other processes */
};

/* A peer's side. */
struct strait_mapping {
	CUdeviceptr address;
	size_t bytes;
	enum strait_memory_kind kind; /* NONE: nothing to unmap */
	int is_ipc;
};

/* At least `bytes` of device memory that peers can map. The current context is that of `device`. */
int strait_memory_init(struct strait_memory *memory, CUdevice device, size_t bytes);
void strait_memory_deinit(struct strait_memory *memory);

int strait_memory_describe(const struct strait_memory *memory,
			   struct strait_memory_description *ret);

/* Maps a peer's memory read-write for `device`, whose context is current. `fd`: the peer's
 * descriptor where it is in another process and the kind is VMM; stays the caller's. */
int strait_mapping_init(struct strait_mapping *mapping,
			const struct strait_memory_description *peer, int fd, CUdevice device);
void strait_mapping_deinit(struct strait_mapping *mapping);
