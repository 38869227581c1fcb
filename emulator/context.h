/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices and contexts of this process. A device has one primary context; cuCtxCreate makes further
 * ones, which share the device's memory and its sticky error, since a real fault takes the whole
 * process down to the same answer.
 */
#pragma once
#include "emulator/machine.h"
#include <cuda.h>

struct CUctx_st {
	unsigned device;
	int primary, active; /* active: retained, or created and not destroyed */
	unsigned retained, flags;
	struct CUstream_st *streams; /* under the stream lock */
	struct CUstream_st *legacy;
	struct CUctx_st *next;
};

/* The current context when cuInit was called and the device has no sticky error. */
CUresult strait_emu_context_enter(CUcontext *ret_context);

CUcontext strait_emu_context_current(void); /* or NULL */
CUcontext strait_emu_context_primary(unsigned device);
void strait_emu_context_each(void (*visit)(CUcontext context, void *data), void *data);

unsigned strait_emu_device_count(void);
int strait_emu_device_known(CUdevice device);
/* The first fault of a device stays its answer for ever. */
void strait_emu_device_fault(unsigned device, CUresult error);
CUresult strait_emu_device_error(unsigned device);

int strait_emu_initialized(void);
