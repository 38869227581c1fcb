/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and descriptions of the results that the emulator gives.
 */
#include <cuda.h>
#include <stddef.h>

#define RESULT(name, text)        \
	{                         \
		name, #name, text \
	}
static const struct {
	CUresult result;
	const char *name, *text;
} results[] = {
	RESULT(CUDA_SUCCESS, "no error"),
	RESULT(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
	RESULT(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
	RESULT(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
	RESULT(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
	RESULT(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
	RESULT(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
	RESULT(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
	RESULT(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
	RESULT(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed"),
	RESULT(CUDA_ERROR_NO_BINARY_FOR_GPU,
	       "no kernel image is available for execution on the device"),
	RESULT(CUDA_ERROR_NOT_MAPPED, "resource not mapped"),
	RESULT(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported"),
	RESULT(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
	RESULT(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
	RESULT(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
	RESULT(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
	RESULT(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
	RESULT(CUDA_ERROR_NOT_READY, "device not ready"),
	RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
	RESULT(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
	RESULT(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
	RESULT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
	RESULT(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
	RESULT(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE,
	       "cannot set while device is active in this process"),
	RESULT(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
	RESULT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
	       "part or all of the requested memory range is already mapped"),
	RESULT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
	       "pointer does not correspond to a registered memory region"),
	RESULT(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
	RESULT(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch"),
	RESULT(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
	RESULT(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
	RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
	       "operation not permitted when stream is capturing"),
	RESULT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
	       "operation failed due to a previous error during capture"),
	RESULT(CUDA_ERROR_STREAM_CAPTURE_MERGE,
	       "operation would result in a merge of separate capture sequences"),
	RESULT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
	       "capture was not ended in the same stream as it began"),
	RESULT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
	RESULT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
	       "dependency created on uncaptured work in another stream"),
	RESULT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
	       "operation would make the legacy stream depend on a capturing blocking stream"),
	RESULT(CUDA_ERROR_CAPTURED_EVENT,
	       "operation not permitted on an event last recorded in a capturing stream"),
	RESULT(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
	       "attempt to terminate a thread-local capture sequence from another thread"),
	RESULT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
	       "the graph update was not performed because of changes that are not permitted"),
	RESULT(CUDA_ERROR_UNKNOWN, "unknown error"),
};

static int find(CUresult result)
{
	int n = (int)(sizeof results / sizeof *results);
	for (int i = 0; i < n; i++)
		if (results[i].result == result)
			return i;
	return -1;
}

CUresult cuGetErrorName(CUresult result, const char **name)
{
	int i = find(result);
	*name = i < 0 ? NULL : results[i].name;
	return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult result, const char **text)
{
	int i = find(result);
	*text = i < 0 ? NULL : results[i].text;
	return i < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
