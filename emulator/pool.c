/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream-ordered allocation: memory comes at the call, and goes back when the stream comes to it.
 * There is one pool a device and nothing to set on it.
 */
#include "emulator/capture.h"
#include "emulator/memory.h"
#include "emulator/settings.h"
#include "emulator/stream.h"

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream handle)
{
	CUstream stream;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (error)
		return error;
	if (!address || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	strait_emu_stream_lock();
	error = strait_emu_capture_check(stream);
	int capturing = stream->capture != NULL;
	strait_emu_stream_unlock();
	if (error)
		return error;
	if (capturing) {
		strait_emu_say("allocation nodes of graphs are not there");
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	return strait_emu_memory_allocate(stream->context->device, bytes, address);
}

static void CUDA_CB give_back(void *address)
{
	strait_emu_memory_free((CUdeviceptr)(uintptr_t)address);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle)
{
	CUstream stream;
	struct strait_emu_area area;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (error)
		return error;
	if (!strait_emu_memory_area(address, &area) || area.address != address || area.host)
		return CUDA_ERROR_INVALID_VALUE;
	struct strait_emu_task task = {.kind = TASK_HOST};
	task.host.call = give_back;
	task.host.data = (void *)(uintptr_t)address;
	return strait_emu_stream_submit(stream, &task);
}
