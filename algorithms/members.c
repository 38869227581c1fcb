/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks know of each other, and the verdict that follows. Pure functions of the exchanged
 * table. */
#include "algorithms/setup.h"
#include "channels/host_identity.h"
#include "strait/gpu.h"
#include "strait/params.h"
#include "strait/status.h"
#include <string.h>

static int attribute(CUdevice device, CUdevice_attribute which, int32_t *ret)
{
	int value = 0;
	int r = STRAIT_GPU(cuDeviceGetAttribute, &value, which, device);
	if (!r)
		*ret = value;
	return strait_trace(r);
}

int strait_member_init(struct strait_member *member, CUdevice device, int max_blocks)
{
	int32_t major = 0, minor = 0;
	int driver = 0;
	CUuuid uuid;
	struct strait_member m = {
		.host = strait_host_hash(),
		.process = strait_process_hash(),
		.parameters = strait_params_hash(),
		.max_blocks = max_blocks,
	};
	int r = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &m.n_multiprocessors);
	if (!r)
		r = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &m.max_threads);
	if (!r)
		r = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major);
	if (!r)
		r = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor);
	if (!r)
		r = STRAIT_GPU(cuDeviceGetUuid, &uuid, device);
	if (!r)
		r = STRAIT_GPU(cuDeviceGetPCIBusId, m.bus_id, sizeof m.bus_id, device);
	if (!r)
		r = STRAIT_GPU(cuDriverGetVersion, &driver);
	if (r)
		return strait_trace(r);
	memcpy(m.uuid, uuid.bytes, sizeof m.uuid);
	m.compute_capability = 10 * major + minor;
	m.driver_version = driver;
	*member = m;
	return 0;
}

static bool same_gpu(const struct strait_member *a, const struct strait_member *b)
{
	return a->host == b->host && memcmp(a->uuid, b->uuid, sizeof a->uuid) == 0;
}

static int n_on_same_gpu(const struct strait_member *members, int n_ranks, int rank)
{
	int n = 0;
	for (int i = 0; i < n_ranks; i++)
		n += same_gpu(&members[i], &members[rank]);
	return n;
}

static int check_pair(const struct strait_member *members, int a, int b)
{
	if (members[a].host != members[b].host)
		return strait_fail(STRAIT_ERROR_USAGE,
				   "ranks %d and %d are on different hosts; Strait runs on one "
				   "node so far (if they are on one, set "
				   "STRAIT_HOSTID to the same value on both)",
				   a, b);
	if (members[a].parameters != members[b].parameters)
		return strait_fail(STRAIT_ERROR_USAGE,
				   "ranks %d and %d have different settings; STRAIT_* and NCCL_* "
				   "variables that choose a path must be "
				   "equal on all ranks",
				   a, b);
	if (same_gpu(&members[a], &members[b]) && !strait_params()->multi_rank_gpu)
		return strait_fail(
			STRAIT_ERROR_USAGE,
			"Duplicate GPU detected : rank %d and rank %d both on CUDA device %s; set "
			"NCCL_MULTI_RANK_GPU_ENABLE=1 to allow it",
			a, b, members[a].bus_id);
	return 0;
}

int strait_members_check(const struct strait_member *members, int n_ranks,
			 struct strait_limits *ret_limits)
{
	struct strait_limits limits = {
		.n_ranks = n_ranks, .max_blocks = STRAIT_MAX_BLOCKS, .max_threads = 1024};
	if (strait_params()->max_ctas && strait_params()->max_ctas < limits.max_blocks)
		limits.max_blocks = strait_params()->max_ctas;
	for (int i = 0; i < n_ranks; i++) {
		for (int j = 0; j < i; j++) {
			int r = check_pair(members, j, i);
			if (r)
				return strait_trace(r);
		}
		/* Kernels wait for each other, so the grids of all ranks of a shared GPU must fit
		 * it at the same time, a block taking a multiprocessor, and those of a second
		 * communicator too. */
		const int n_sharing = n_on_same_gpu(members, n_ranks, i);
		unsigned fit =
			members[i].n_multiprocessors /
			(n_sharing > 1 ? strait_params()->shared_communicators * n_sharing : 1);
		if (fit < 1)
			fit = 1;
		if (fit < limits.max_blocks)
			limits.max_blocks = fit;
		if (members[i].max_blocks && (unsigned)members[i].max_blocks < limits.max_blocks)
			limits.max_blocks = members[i].max_blocks;
		if ((unsigned)members[i].max_threads < limits.max_threads)
			limits.max_threads = members[i].max_threads;
	}
	*ret_limits = limits;
	return 0;
}
