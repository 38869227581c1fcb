/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The caller's CUDA state around our entries: every function that makes another context current
 * gives the caller's back, and set-up and teardown run in relaxed capture mode, so that a capture
 * elsewhere in the process is not spoiled by them. The context that a communicator works in is
 * found here.
 */
#pragma once
#include <cuda.h>
#include <stdbool.h>

struct strait_context {
	CUcontext previous;
	CUstreamCaptureMode mode;
};

/* Makes `context` current and the capture mode of this thread relaxed. */
int strait_context_enter(CUcontext context, struct strait_context *ret_saved);
void strait_context_leave(const struct strait_context *saved);

/* Opens the driver. The message of a failure is the one that users of NCCL know; the log has the
 * true reason. */
int strait_context_load(void);

/* The context that is current on this thread; none: the primary one of device 0, retained
 * (*ret_retained). ret_ordinal is the CUDA runtime's number of the device. */
int strait_context_current(CUcontext *ret_context, CUdevice *ret_device, int *ret_ordinal,
			   bool *ret_retained);

/* The primary context of the device with that number, retained. */
int strait_context_primary(int ordinal, CUcontext *ret_context, CUdevice *ret_device);
