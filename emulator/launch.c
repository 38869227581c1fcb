/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel launches and host functions. A kernel takes one struct by value, whose size the host build
 * knows. Priorities, memory synchronisation domains and the like are accepted and change nothing.
 */
#include "emulator/launch.h"
#include "emulator/library.h"
#include "emulator/settings.h"
#include "emulator/stream.h"
#include <stdlib.h>
#include <string.h>

static const void *argument_of(void **params, void **extra)
{
	if (params)
		return params[0];
	for (; extra && extra[0] != CU_LAUNCH_PARAM_END; extra += 2)
		if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			return extra[1];
	return NULL;
}

static int fits(struct strait_emu_dim dim, unsigned long limit)
{
	unsigned long total = (unsigned long)dim.x * dim.y * dim.z;
	return total && total <= limit && dim.y <= 65535 && dim.z <= 65535;
}

CUresult strait_emu_launch_task(CUfunction function, const struct strait_emu_launch_shape *shape,
				void **params, void **extra, struct strait_emu_task *ret_task)
{
	struct CUkern_st *kernel = (struct CUkern_st *)function;
	if (!kernel)
		return CUDA_ERROR_INVALID_HANDLE;
	size_t bytes = kernel->code->argument_bytes, align = kernel->code->argument_align;
	const void *argument = argument_of(params, extra);
	if (!fits(shape->threads, (unsigned long)strait_emu_settings_get()->block_threads) ||
	    !fits(shape->grid, 1ul << 31) || (bytes && !argument))
		return CUDA_ERROR_INVALID_VALUE;
	size_t room = align > 64 ? align : 64;
	void *copy = aligned_alloc(room, (bytes + room) & ~(room - 1));
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (bytes)
		memcpy(copy, argument, bytes);
	*ret_task = (struct strait_emu_task){.kind = TASK_KERNEL};
	ret_task->kernel.function = kernel;
	ret_task->kernel.argument = copy;
	ret_task->kernel.grid = shape->grid;
	ret_task->kernel.threads = shape->threads;
	return CUDA_SUCCESS;
}

static CUresult launch(CUfunction function, const struct strait_emu_launch_shape *shape,
		       CUstream handle, void **params, void **extra)
{
	CUstream stream;
	struct strait_emu_task task;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (!error)
		error = strait_emu_launch_task(function, shape, params, extra, &task);
	return error ? error : strait_emu_stream_submit(stream, &task);
}

static CUresult check_attributes(const CUlaunchConfig *config)
{
	for (unsigned i = 0; i < config->numAttrs; i++) {
		const CUlaunchAttribute *attribute = &config->attrs[i];
		if (attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION &&
		    attribute->value.clusterDim.x * attribute->value.clusterDim.y *
				    attribute->value.clusterDim.z >
			    1) {
			strait_emu_say("clusters of more than one block are not there");
			return CUDA_ERROR_NOT_SUPPORTED;
		}
		if (attribute->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE &&
		    attribute->value.cooperative &&
		    (long)config->gridDimX * config->gridDimY * config->gridDimZ >
			    strait_emu_settings_get()->resident_blocks)
			return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
	}
	return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
			  void **extra)
{
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult error = check_attributes(config);
	if (error)
		return error;
	struct strait_emu_launch_shape shape = {
		{config->gridDimX, config->gridDimY, config->gridDimZ},
		{config->blockDimX, config->blockDimY, config->blockDimZ}};
	return launch(function, &shape, config->hStream, params, extra);
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
			unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
			CUstream stream, void **params, void **extra)
{
	struct strait_emu_launch_shape shape = {{grid_x, grid_y, grid_z},
						{block_x, block_y, block_z}};
	return launch(function, &shape, stream, params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
				   unsigned grid_z, unsigned block_x, unsigned block_y,
				   unsigned block_z, unsigned shared_bytes, CUstream stream,
				   void **params)
{
	return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
			      shared_bytes, stream, params, NULL);
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn call, void *data)
{
	CUstream stream;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (error)
		return error;
	if (!call)
		return CUDA_ERROR_INVALID_VALUE;
	struct strait_emu_task task = {.kind = TASK_HOST};
	task.host.call = call;
	task.host.data = data;
	return strait_emu_stream_submit(stream, &task);
}
