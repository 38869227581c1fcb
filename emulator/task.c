/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Doing tasks. Copies and fills are strong: when they have ended, all of it is visible, and whoever
 * polls the memory is woken.
 */
#include "emulator/task.h"
#include "emulator/context.h"
#include "emulator/graph.h"
#include "emulator/grid.h"
#include "emulator/library.h"
#include "emulator/window.h"
#include <stdlib.h>
#include <string.h>

static void ring(uintptr_t address)
{
	struct strait_emu_granule *granule = strait_emu_window_granule(address);
	if (granule && atomic_load(&granule->weak))
		strait_emu_machine_ring(granule->device, -1);
}

static CUresult run_kernel(const struct strait_emu_task *task)
{
	static _Atomic uint64_t launches;
	struct strait_emu_launch launch = {.kernel = task->kernel.function->code,
					   .name = task->kernel.function->name,
					   .argument = task->kernel.argument,
					   .grid = task->kernel.grid,
					   .threads = task->kernel.threads,
					   .device = task->device,
					   .id = atomic_fetch_add(&launches, 1) + 1};
	strait_emu_grid_run(&launch);
	return (CUresult)atomic_load(&launch.failed);
}

/* Words that somebody may poll must not be torn. */
static void copy_row(char *to, const char *from, size_t bytes)
{
	if (bytes == 8 && !(((uintptr_t)to | (uintptr_t)from) & 7))
		__atomic_store_n((uint64_t *)to, *(const uint64_t *)from, __ATOMIC_RELEASE);
	else if (bytes == 4 && !(((uintptr_t)to | (uintptr_t)from) & 3))
		__atomic_store_n((uint32_t *)to, *(const uint32_t *)from, __ATOMIC_RELEASE);
	else
		memmove(to, from, bytes);
}

static CUresult run_copy(const struct strait_emu_task *task)
{
	size_t last = task->copy.rows - 1;
	size_t to_bytes = last * task->copy.to_pitch + task->copy.bytes;
	size_t from_bytes = last * task->copy.from_pitch + task->copy.bytes;
	char *to = strait_emu_window_data(task->copy.to, to_bytes);
	const char *from = task->copy.staged ? task->copy.staged
					     : strait_emu_window_data(task->copy.from, from_bytes);
	if (!to || !from)
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	for (size_t i = 0; i <= last; i++)
		copy_row(to + i * task->copy.to_pitch, from + i * task->copy.from_pitch,
			 task->copy.bytes);
	ring(task->copy.to);
	return CUDA_SUCCESS;
}

static CUresult run_fill(const struct strait_emu_task *task)
{
	size_t bytes = task->fill.count * task->fill.width;
	char *to = strait_emu_window_data(task->fill.to,
					  (task->fill.rows - 1) * task->fill.pitch + bytes);
	if (!to)
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	for (size_t row = 0; row < task->fill.rows; row++, to += task->fill.pitch) {
		if (task->fill.width == 1) {
			memset(to, (int)task->fill.value, bytes);
			continue;
		}
		for (size_t i = 0; i < task->fill.count; i++)
			if (task->fill.width == 2)
				((uint16_t *)to)[i] = (uint16_t)task->fill.value;
			else
				((uint32_t *)to)[i] = task->fill.value;
	}
	ring(task->fill.to);
	return CUDA_SUCCESS;
}

static CUresult run_write(const struct strait_emu_task *task)
{
	void *to = strait_emu_window_data(task->write.to, task->write.bytes);
	if (!to)
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	if (task->write.bytes == 8)
		__atomic_store_n((uint64_t *)to, task->write.value, __ATOMIC_RELEASE);
	else
		__atomic_store_n((uint32_t *)to, (uint32_t)task->write.value, __ATOMIC_RELEASE);
	ring(task->write.to);
	return CUDA_SUCCESS;
}

static CUresult run(const struct strait_emu_task *task)
{
	switch (task->kind) {
	case TASK_KERNEL:
		return run_kernel(task);
	case TASK_COPY:
		return task->copy.bytes && task->copy.rows ? run_copy(task) : CUDA_SUCCESS;
	case TASK_FILL:
		return task->fill.count && task->fill.rows ? run_fill(task) : CUDA_SUCCESS;
	case TASK_WRITE:
		return run_write(task);
	case TASK_HOST:
		task->host.call(task->host.data);
		return CUDA_SUCCESS;
	default:
		return CUDA_SUCCESS;
	}
}

CUresult strait_emu_task_run(const struct strait_emu_task *task)
{
	CUresult error = strait_emu_device_error(task->device);
	if (error || task->kind == TASK_NOTHING)
		return error;
	error = run(task);
	if (error)
		strait_emu_device_fault(task->device, error);
	return error;
}

static void *duplicate(const void *from, size_t bytes)
{
	void *to = aligned_alloc(64, (bytes + 63) & ~63ul);
	if (to)
		memcpy(to, from, bytes);
	return to;
}

int strait_emu_task_copy(struct strait_emu_task *to, const struct strait_emu_task *from)
{
	*to = *from;
	if (from->kind == TASK_KERNEL) {
		size_t bytes = from->kernel.function->code->argument_bytes;
		to->kernel.argument = duplicate(from->kernel.argument, bytes ? bytes : 1);
		return to->kernel.argument ? 0 : -1;
	}
	if (from->kind == TASK_CHILD) {
		to->child = strait_emu_graph_clone(from->child);
		return to->child ? 0 : -1;
	}
	return 0;
}

void strait_emu_task_deinit(struct strait_emu_task *task)
{
	if (task->kind == TASK_KERNEL)
		free(task->kernel.argument);
	else if (task->kind == TASK_COPY)
		free(task->copy.staged);
	else if (task->kind == TASK_CHILD)
		strait_emu_graph_free(task->child);
	task->kind = TASK_NOTHING;
}
