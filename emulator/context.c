/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stack of current contexts of each thread, primary contexts, peer access.
 */
#include "emulator/context.h"
#include "emulator/capture.h"
#include "emulator/memory.h"
#include "emulator/stream.h"
#include <pthread.h>
#include "emulator/versions.h"
#include <stdlib.h>

#define DEPTH 64

struct stack {
	unsigned n; /* contexts[n - 1] is current; n is 1 at least */
	CUcontext contexts[DEPTH];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUctx_st primaries[STRAIT_EMU_DEVICES];
static struct CUctx_st *created;

static struct stack *own_stack(void)
{
	static __thread struct stack *mine; /* leaked at the end of the thread: half a kilobyte */
	if (!mine) {
		mine = calloc(1, sizeof *mine);
		if (!mine)
			abort();
		mine->n = 1;
	}
	return mine;
}

CUcontext strait_emu_context_primary(unsigned device)
{
	primaries[device].device = device;
	primaries[device].primary = 1;
	return &primaries[device];
}

CUcontext strait_emu_context_current(void)
{
	struct stack *stack = own_stack();
	return stack->contexts[stack->n - 1];
}

CUresult strait_emu_context_enter(CUcontext *ret_context)
{
	if (!strait_emu_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	CUcontext context = strait_emu_context_current();
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!context->active)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*ret_context = context;
	return strait_emu_device_error(context->device);
}

void strait_emu_context_each(void (*visit)(CUcontext context, void *data), void *data)
{
	for (unsigned i = 0; i < strait_emu_device_count(); i++)
		visit(strait_emu_context_primary(i), data);
	pthread_mutex_lock(&lock);
	struct CUctx_st *first = created;
	pthread_mutex_unlock(&lock);
	for (struct CUctx_st *context = first; context; context = context->next)
		visit(context, data);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	if (!strait_emu_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	if (!strait_emu_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	CUcontext primary = strait_emu_context_primary((unsigned)device);
	primary->retained++;
	primary->active = 1;
	*context = primary;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

/* The last release leaves the context usable: what a program did wrong by using it would show on a
 * GPU, but streams and memory would have to be torn down under running blocks. */
CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
	if (!strait_emu_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	CUcontext primary = strait_emu_context_primary((unsigned)device);
	CUresult error = CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	if (primary->retained)
		primary->retained--;
	else
		error = CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_unlock(&lock);
	return error;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
	if (!strait_emu_device_known(device) || !flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	CUcontext primary = strait_emu_context_primary((unsigned)device);
	*flags = primary->flags;
	*active = primary->active;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags)
{
	if (!strait_emu_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	strait_emu_context_primary((unsigned)device)->flags = flags;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
	if (!strait_emu_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	*context = strait_emu_context_current();
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
	if (!strait_emu_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	struct stack *stack = own_stack();
	stack->contexts[stack->n - 1] = context;
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context)
{
	struct stack *stack = own_stack();
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (stack->n == DEPTH)
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* An empty stack is one empty place. */
	if (stack->n > 1 || stack->contexts[0])
		stack->n++;
	stack->contexts[stack->n - 1] = context;
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
	struct stack *stack = own_stack();
	CUcontext top = stack->contexts[stack->n - 1];
	if (!top)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (stack->n > 1)
		stack->n--;
	else
		stack->contexts[0] = NULL;
	if (context)
		*context = top;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
	CUcontext context = strait_emu_context_current();
	if (!strait_emu_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = (CUdevice)context->device;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned *flags)
{
	CUcontext context;
	CUresult error = strait_emu_context_enter(&context);
	if (!error)
		*flags = context->flags;
	return error;
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version)
{
	*version = CUDA_VERSION;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
	if (!strait_emu_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	if (!strait_emu_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	struct CUctx_st *one = calloc(1, sizeof *one);
	if (!one)
		return CUDA_ERROR_OUT_OF_MEMORY;
	one->device = (unsigned)device;
	one->flags = flags;
	one->active = 1;
	pthread_mutex_lock(&lock);
	one->next = created;
	created = one;
	pthread_mutex_unlock(&lock);
	*context = one;
	return cuCtxPushCurrent(one);
}

#if CUDA_VERSION >= 12050
CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *parameters, unsigned flags,
			CUdevice device)
{
	return cuCtxCreate_v2(context, flags, device);
}
#endif

/* Its memory is the device's and stays. */
CUresult cuCtxDestroy(CUcontext context)
{
	if (!context || context->primary || !context->active)
		return CUDA_ERROR_INVALID_CONTEXT;
	strait_emu_stream_drain(context);
	context->active = 0;
	if (strait_emu_context_current() == context)
		return cuCtxPopCurrent(NULL);
	return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
	CUcontext context;
	CUresult error = strait_emu_context_enter(&context);
	if (!error)
		error = strait_emu_capture_forbid_in(context);
	if (error)
		return error;
	strait_emu_stream_drain(context);
	return strait_emu_device_error(context->device);
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
	CUcontext context;
	CUresult error = strait_emu_context_enter(&context);
	if (error)
		return error;
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (!peer || !peer->active)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (peer->device == context->device)
		return CUDA_ERROR_INVALID_DEVICE;
	return strait_emu_memory_enable_peer(context->device, peer->device);
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
	CUcontext context;
	CUresult error = strait_emu_context_enter(&context);
	if (error)
		return error;
	return strait_emu_memory_disable_peer(context->device, peer->device);
}
