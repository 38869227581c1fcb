/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's binary interface as far as shim/ must know it: our own declaration of it, so that no
 * nccl.h of whatever release is needed to build. tests/abi holds every number, offset and size
 * against the real header. Values never change between releases; structs only grow at their end.
 */
#pragma once
#include <limits.h>
#include <stddef.h>
#include <stdint.h>

struct ncclComm; /* the user's handle, opaque to him; ours is in shim/handle.h */

enum strait_nccl_result {
	STRAIT_NCCL_SUCCESS,
	STRAIT_NCCL_UNHANDLED_CUDA_ERROR,
	STRAIT_NCCL_SYSTEM_ERROR,
	STRAIT_NCCL_INTERNAL_ERROR,
	STRAIT_NCCL_INVALID_ARGUMENT,
	STRAIT_NCCL_INVALID_USAGE,
	STRAIT_NCCL_REMOTE_ERROR,
	STRAIT_NCCL_IN_PROGRESS,
};

/* Data types and the built-in operators are enum strait_type and the first five of enum
 * strait_reduction_kind (algorithms/request.h), under the same numbers. */
enum { STRAIT_NCCL_N_OPS = 5 };

enum { STRAIT_NCCL_SCALAR_DEVICE = 0, STRAIT_NCCL_SCALAR_HOST = 1 };

enum { STRAIT_NCCL_ID_BYTES = 128, STRAIT_NCCL_WINDOW_ALIGNMENT = 4096 };

#define STRAIT_NCCL_UNDEFINED INT_MIN
#define STRAIT_NCCL_CONFIG_MAGIC 0xcafebeefu
#define STRAIT_NCCL_SIM_INFO_MAGIC 0x74685283u

struct strait_nccl_id { /* by value: 128 bytes on the stack */
	uint8_t bytes[STRAIT_NCCL_ID_BYTES];
};

struct strait_nccl_team { /* by value, in registers */
	int n_ranks, rank, stride;
};

struct strait_nccl_multimem { /* by value, in a register */
	void *base;
};

struct strait_nccl_sim_info {
	size_t size;
	unsigned magic, version;
	float estimated_time;
};

/* The struct of the newest release that we know. A caller's is as long as its `size` says and may
 * end at the end of mapped memory: it is read through strait_config_parse() only. */
struct strait_nccl_config {
	size_t size;
	unsigned magic, version; /* of the caller's header */
	int blocking;
	int cga_cluster_size, min_ctas, max_ctas;
	const char *net_name;
	int split_share, traffic_class;
	const char *comm_name;
	int collnet_enable, cta_policy, shrink_share, nvls_ctas;
	int n_channels_per_net_peer, nvlink_centric_sched;
};
