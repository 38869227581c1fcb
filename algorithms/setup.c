/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange of scratch and the probe. Every step ends with an agreement, so a failure of one
 * rank is an error on all. */
#include "algorithms/setup.h"
#include "algorithms/kernels.h"
#include "channels/host_identity.h"
#include "channels/probe.h"
#include "strait/gpu.h"
#include "strait/params.h"
#include "strait/status.h"
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct exchange {
	struct strait_memory_description descriptions[STRAIT_MAX_RANKS];
	bool wanted[STRAIT_MAX_RANKS];
	int fds[STRAIT_MAX_RANKS];
};

/* Maps the scratch of every peer; on failure the mappings made so far stay with the resources. */
static int map_peers(struct strait_resources *resources, const struct exchange *x, int rank,
		     int n_ranks)
{
	for (int peer = 0; peer < n_ranks; peer++) {
		if (peer == rank)
			continue;
		int r = strait_mapping_init(&resources->peers[peer], &x->descriptions[peer],
					    x->fds[peer], resources->device);
		if (r)
			return strait_trace(r);
	}
	return 0;
}

/* Everything before epoch 1 counts as read by everybody. */
static int write_start_values(const struct strait_resources *resources,
			      const struct strait_limits *limits, CUstream stream)
{
	const uint64_t start = strait_params()->epoch_start;
	const size_t bytes = limits->max_blocks * sizeof(struct strait_block_control);
	struct strait_block_control *controls = calloc(1, bytes);
	if (!controls)
		return strait_fail(STRAIT_ERROR_SYSTEM, "out of memory");
	for (unsigned b = 0; b < limits->max_blocks; b++) {
		controls[b].packet_epoch = controls[b].bulk_iteration = start;
		for (int p = 0; p < limits->n_ranks; p++)
			controls[b].from[p].packets_consumed = controls[b].from[p].bulk_progress =
				start;
	}
	int r = STRAIT_GPU(cuMemcpyHtoDAsync, resources->scratch.address, controls, bytes, stream);
	if (!r)
		r = STRAIT_GPU(cuStreamSynchronize, stream);
	free(controls);
	return strait_trace(r);
}

static int allocate(struct strait_resources *resources, const struct strait_layout *layout,
		    const struct strait_limits *limits, CUstream stream)
{
	int r = strait_memory_init(&resources->scratch, resources->device, layout->total_bytes);
	if (!r)
		r = STRAIT_GPU(cuMemsetD8Async, resources->scratch.address, 0, layout->total_bytes,
			       stream);
	if (!r)
		r = write_start_values(resources, limits, stream);
	return strait_trace(r);
}

static void fill_device(const struct strait_resources *resources,
			const struct strait_layout *layout, const struct strait_limits *limits,
			int rank, struct strait_device_communicator *ret)
{
	struct strait_device_communicator d = {
		.abort_word = (const uint32_t *)resources->abort_word_device,
		.rank = rank,
		.n_ranks = limits->n_ranks,
		.max_blocks = limits->max_blocks,
		.packet_slot_bytes = layout->packet_slot_bytes,
		.bulk_slot_bytes = layout->bulk_slot_bytes,
		.packet_offset = layout->packet_offset,
		.bulk_offset = layout->bulk_offset,
	};
	for (int i = 0; i < limits->n_ranks; i++)
		d.scratch[i] = (void *)(i == rank ? resources->scratch.address
						  : resources->peers[i].address);
	*ret = d;
}

static int exchange_scratch(struct strait_bootstrap *bootstrap, struct strait_resources *resources,
			    const struct strait_member *members, struct exchange *x, int local)
{
	const int rank = strait_bootstrap_rank(bootstrap),
		  n_ranks = strait_bootstrap_n_ranks(bootstrap);
	if (!local)
		local = strait_memory_describe(&resources->scratch, &x->descriptions[rank]);
	int r = strait_bootstrap_agree(bootstrap, local);
	if (!r)
		r = strait_bootstrap_allgather(bootstrap, x->descriptions,
					       sizeof x->descriptions[0]);
	if (r)
		return strait_trace(r);
	for (int i = 0; i < n_ranks; i++)
		x->wanted[i] = members[i].process != members[rank].process;
	local = strait_bootstrap_exchange_fds(bootstrap, resources->scratch.fd, x->wanted, x->fds);
	if (!local)
		local = map_peers(resources, x, rank, n_ranks);
	return strait_trace(strait_bootstrap_agree(bootstrap, local));
}

int strait_setup_scratch(struct strait_bootstrap *bootstrap, struct strait_resources *resources,
			 const struct strait_member *members, const struct strait_layout *layout,
			 const struct strait_limits *limits, CUstream stream,
			 struct strait_device_communicator *ret)
{
	int rank = 0;
	int r = allocate(resources, layout, limits, stream);
	if (bootstrap) {
		struct exchange x = {0};
		for (int i = 0; i < STRAIT_MAX_RANKS; i++)
			x.fds[i] = -1;
		rank = strait_bootstrap_rank(bootstrap);
		/* The agreement also means that all scratch is zeroed before anybody writes to it.
		 */
		r = exchange_scratch(bootstrap, resources, members, &x, r);
		for (int i = 0; i < STRAIT_MAX_RANKS; i++)
			if (x.fds[i] >= 0)
				close(x.fds[i]);
	}
	if (!r)
		fill_device(resources, layout, limits, rank, ret);
	return strait_trace(r);
}

static uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ull + t.tv_nsec / 1000000;
}

/* Runs one phase and waits for it. A kernel that waits for a peer in vain is freed by the abort
 * word. */
static int run_phase(struct strait_resources *resources, struct strait_probe_args *args,
		     enum strait_probe_phase phase, CUstream stream)
{
	enum { LIMIT_MS = 20000, PAUSE_NS = 20000 };
	const uint64_t deadline = now_ms() + LIMIT_MS;
	CUresult status;
	args->phase = phase;
	int r = strait_kernels_launch(strait_kernels_probe(), 1, 32, stream, args);
	if (r)
		return strait_trace(r);
	bool late = false;
	while ((status = strait_gpu->cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY) {
		nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
		late = late || now_ms() > deadline;
		if (late)
			atomic_store_explicit(resources->abort_word, 1, memory_order_relaxed);
	}
	if (late && status == CUDA_SUCCESS)
		return strait_fail(STRAIT_ERROR_SYSTEM,
				   "the probe of peer memory did not end within %d s: the GPU is "
				   "busy, or peers "
				   "do not run at the same time",
				   LIMIT_MS / 1000);
	return strait_trace(strait_gpu_check(status, "the probe of peer memory"));
}

static int find_failure(const struct strait_resources *resources,
			const struct strait_device_communicator *device, const char *what)
{
	for (unsigned peer = 0; peer < device->n_ranks; peer++)
		if (((volatile uint32_t *)resources->failures)[peer])
			return strait_fail(STRAIT_ERROR_SYSTEM,
					   "rank %u cannot %s rank %u: peer access between their "
					   "GPUs does not work although the "
					   "driver allows it (often an IOMMU or PCIe ACS setting)",
					   device->rank, what, peer);
	return 0;
}

int strait_setup_probe(struct strait_bootstrap *bootstrap, struct strait_resources *resources,
		       const struct strait_device_communicator *device, CUstream stream)
{
	struct strait_probe_args args = {
		.communicator = *device,
		.failures = (uint32_t *)resources->failures_device,
		.n_words =
			device->packet_slot_bytes / 8 < 512 ? device->packet_slot_bytes / 8 : 512,
	};
	if (strait_params()->skip_probe)
		return strait_trace(strait_bootstrap_barrier(bootstrap));
	int r = run_phase(resources, &args, STRAIT_PROBE_WRITE, stream);
	r = strait_bootstrap_agree(bootstrap, r);
	if (r)
		return strait_trace(r);
	r = run_phase(resources, &args, STRAIT_PROBE_VERIFY, stream);
	if (!r)
		r = find_failure(resources, device, "receive data from");
	r = strait_bootstrap_agree(bootstrap, r);
	if (r)
		return strait_trace(r);
	r = run_phase(resources, &args, STRAIT_PROBE_EXCHANGE, stream);
	if (!r)
		r = find_failure(resources, device, "exchange signals with");
	return strait_trace(strait_bootstrap_agree(bootstrap, r));
}
