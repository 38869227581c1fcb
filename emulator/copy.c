/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies, fills and stream writes. Memory of the host that the driver does not know is pageable:
 * its bytes are taken at the call when it is the source of an asynchronous copy, and the call waits
 * when it is the target, as on the real driver.
 */
#include "emulator/capture.h"
#include "emulator/memory.h"
#include "emulator/stream.h"
#include <stdlib.h>
#include <string.h>

static int pageable(uintptr_t address)
{
	struct strait_emu_area area;
	return !strait_emu_window_granule(address) && !strait_emu_memory_area(address, &area);
}

static struct strait_emu_task copy_task(uintptr_t to, uintptr_t from, size_t bytes)
{
	struct strait_emu_task task = {.kind = TASK_COPY};
	task.copy.to = to;
	task.copy.from = from;
	task.copy.bytes = bytes;
	task.copy.rows = 1;
	return task;
}

static int valid(uintptr_t to, uintptr_t from, size_t bytes)
{
	return !bytes || (to && from && strait_emu_window_data(to, bytes) &&
			  strait_emu_window_data(from, bytes));
}

static CUresult copy(uintptr_t to, uintptr_t from, size_t bytes)
{
	struct strait_emu_task task = copy_task(to, from, bytes);
	if (!strait_emu_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!valid(to, from, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	return strait_emu_stream_submit_and_wait(&task);
}

static CUresult copy_async(uintptr_t to, uintptr_t from, size_t bytes, CUstream handle)
{
	CUstream stream;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (error)
		return error;
	if (!valid(to, from, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	struct strait_emu_task task = copy_task(to, from, bytes);
	int capturing = stream->capture != NULL;
	if (bytes && !capturing && pageable(from)) {
		task.copy.staged = malloc(bytes);
		if (!task.copy.staged)
			return CUDA_ERROR_OUT_OF_MEMORY;
		memcpy(task.copy.staged, (const void *)from, bytes);
	}
	error = strait_emu_stream_submit(stream, &task);
	if (!error && bytes && !capturing && pageable(to))
		error = cuStreamSynchronize(handle);
	return error;
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	return copy(to, from, bytes);
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes)
{
	return copy(to, (uintptr_t)from, bytes);
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes)
{
	return copy((uintptr_t)to, from, bytes);
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	return copy(to, from, bytes);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return copy_async(to, from, bytes, stream);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	return copy_async(to, (uintptr_t)from, bytes, stream);
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return copy_async((uintptr_t)to, from, bytes, stream);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return copy_async(to, from, bytes, stream);
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
		      CUcontext from_context, size_t bytes)
{
	return copy(to, from, bytes);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
			   CUcontext from_context, size_t bytes, CUstream stream)
{
	return copy_async(to, from, bytes, stream);
}

static uintptr_t corner(CUmemorytype type, const void *host, CUdeviceptr device, size_t x, size_t y,
			size_t pitch)
{
	uintptr_t base = type == CU_MEMORYTYPE_HOST ? (uintptr_t)host : device;
	return base + y * pitch + x;
}

static struct strait_emu_task copy_2d_task(const CUDA_MEMCPY2D *copy)
{
	uintptr_t to = corner(copy->dstMemoryType, copy->dstHost, copy->dstDevice,
			      copy->dstXInBytes, copy->dstY, copy->dstPitch);
	uintptr_t from = corner(copy->srcMemoryType, copy->srcHost, copy->srcDevice,
				copy->srcXInBytes, copy->srcY, copy->srcPitch);
	struct strait_emu_task task = copy_task(to, from, copy->WidthInBytes);
	task.copy.rows = copy->Height;
	task.copy.to_pitch = copy->dstPitch ? copy->dstPitch : copy->WidthInBytes;
	task.copy.from_pitch = copy->srcPitch ? copy->srcPitch : copy->WidthInBytes;
	return task;
}

CUresult cuMemcpy2D(const CUDA_MEMCPY2D *copy)
{
	if (!copy)
		return CUDA_ERROR_INVALID_VALUE;
	struct strait_emu_task task = copy_2d_task(copy);
	return strait_emu_stream_submit_and_wait(&task);
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D *copy, CUstream handle)
{
	CUstream stream;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (error)
		return error;
	if (!copy)
		return CUDA_ERROR_INVALID_VALUE;
	struct strait_emu_task task = copy_2d_task(copy);
	return strait_emu_stream_submit(stream, &task);
}

static CUresult fill_task(uintptr_t to, uint32_t value, unsigned width, size_t count,
			  struct strait_emu_task *ret_task)
{
	if (!strait_emu_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (to % width || (count && (!to || !strait_emu_window_data(to, count * width))))
		return CUDA_ERROR_INVALID_VALUE;
	*ret_task = (struct strait_emu_task){.kind = TASK_FILL};
	ret_task->fill.to = to;
	ret_task->fill.count = count;
	ret_task->fill.rows = 1;
	ret_task->fill.value = value;
	ret_task->fill.width = width;
	return CUDA_SUCCESS;
}

static CUresult fill(uintptr_t to, uint32_t value, unsigned width, size_t count)
{
	struct strait_emu_task task;
	CUresult error = fill_task(to, value, width, count, &task);
	return error ? error : strait_emu_stream_submit_and_wait(&task);
}

static CUresult fill_async(uintptr_t to, uint32_t value, unsigned width, size_t count,
			   CUstream handle)
{
	CUstream stream;
	struct strait_emu_task task;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (!error)
		error = fill_task(to, value, width, count, &task);
	return error ? error : strait_emu_stream_submit(stream, &task);
}

CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count)
{
	return fill(to, value, 1, count);
}

CUresult cuMemsetD16(CUdeviceptr to, unsigned short value, size_t count)
{
	return fill(to, value, 2, count);
}

CUresult cuMemsetD32(CUdeviceptr to, unsigned value, size_t count)
{
	return fill(to, value, 4, count);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
	return fill_async(to, value, 1, count, stream);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream)
{
	return fill_async(to, value, 2, count, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
	return fill_async(to, value, 4, count, stream);
}

static CUresult write_async(CUstream handle, uintptr_t to, uint64_t value, unsigned bytes)
{
	CUstream stream;
	CUresult error = strait_emu_stream_enter(handle, &stream);
	if (error)
		return error;
	if (!to || to % bytes || !strait_emu_window_data(to, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	struct strait_emu_task task = {.kind = TASK_WRITE};
	task.write.to = to;
	task.write.value = value;
	task.write.bytes = bytes;
	return strait_emu_stream_submit(stream, &task);
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr to, cuuint32_t value, unsigned flags)
{
	return write_async(stream, to, value, 4);
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr to, cuuint64_t value, unsigned flags)
{
	return write_async(stream, to, value, 8);
}
