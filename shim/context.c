/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding, entering and leaving CUDA contexts for the exported functions.
 */
#include "shim/context.h"

#include "strait/gpu.h"
#include "strait/log.h"
#include "strait/status.h"

int strait_context_load(void)
{
	int r = strait_gpu_load();

	if (r == 0)
		return 0;
	strait_info(INIT, "no usable CUDA driver: %s", strait_status_message());
	return strait_fail(
		r, "Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'");
}

int strait_context_enter(CUcontext context, struct strait_context *ret_saved)
{
	struct strait_context saved = {.mode = CU_STREAM_CAPTURE_MODE_RELAXED};
	int r;

	r = STRAIT_GPU(cuCtxGetCurrent, &saved.previous);
	if (r < 0)
		return r;
	if (saved.previous != context) {
		r = STRAIT_GPU(cuCtxSetCurrent, context);
		if (r < 0)
			return r;
	}
	strait_gpu->cuThreadExchangeStreamCaptureMode(&saved.mode);
	*ret_saved = saved;
	return 0;
}

void strait_context_leave(const struct strait_context *saved)
{
	CUstreamCaptureMode mode = saved->mode;

	strait_gpu->cuThreadExchangeStreamCaptureMode(&mode);
	/* Set, not popped: what ran in between may have changed the stack. A failure leaves nothing
	 * to do. */
	strait_gpu->cuCtxSetCurrent(saved->previous);
}

static int find_ordinal(CUdevice device, int *ret_ordinal)
{
	int n = 0;
	int r = STRAIT_GPU(cuDeviceGetCount, &n);

	for (int i = 0; r == 0 && i < n; i++) {
		CUdevice other;

		r = STRAIT_GPU(cuDeviceGet, &other, i);
		if (r == 0 && other == device) {
			*ret_ordinal = i;
			return 0;
		}
	}
	return r < 0 ? r
		     : strait_fail(STRAIT_ERROR_INTERNAL, "device %d is not in the driver's list",
				   device);
}

int strait_context_primary(int ordinal, CUcontext *ret_context, CUdevice *ret_device)
{
	CUdevice device;
	int r = STRAIT_GPU(cuDeviceGet, &device, ordinal);

	if (r == 0)
		r = STRAIT_GPU(cuDevicePrimaryCtxRetain, ret_context, device);
	if (r == 0)
		*ret_device = device;
	return r;
}

int strait_context_current(CUcontext *ret_context, CUdevice *ret_device, int *ret_ordinal,
			   bool *ret_retained)
{
	CUcontext context = NULL;
	CUdevice device;
	int r = STRAIT_GPU(cuCtxGetCurrent, &context);

	if (r < 0)
		return r;
	if (!context) {
		r = strait_context_primary(0, ret_context, ret_device);
		if (r == 0) {
			*ret_ordinal = 0;
			*ret_retained = true;
		}
		return strait_trace(r);
	}
	r = STRAIT_GPU(cuCtxGetDevice, &device);
	if (r == 0)
		r = find_ordinal(device, ret_ordinal);
	if (r < 0)
		return r;
	*ret_context = context;
	*ret_device = device;
	*ret_retained = false;
	return 0;
}
