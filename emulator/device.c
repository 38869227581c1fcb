/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an emulated GPU says of itself. All processes give the GPU of one index the same UUID and
 * bus id.
 */
#include "emulator/context.h"
#include "emulator/settings.h"
#include "emulator/window.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define DRIVER_VERSION 13000

static int initialized;
static _Atomic int errors[STRAIT_EMU_DEVICES];

int strait_emu_initialized(void)
{
	return initialized;
}

unsigned strait_emu_device_count(void)
{
	return (unsigned)strait_emu_settings_get()->gpus;
}

int strait_emu_device_known(CUdevice device)
{
	return device >= 0 && (unsigned)device < strait_emu_device_count();
}

void strait_emu_device_fault(unsigned device, CUresult error)
{
	int none = CUDA_SUCCESS;
	atomic_compare_exchange_strong(&errors[device], &none, (int)error);
}

CUresult strait_emu_device_error(unsigned device)
{
	return (CUresult)atomic_load(&errors[device]);
}

CUresult cuInit(unsigned flags)
{
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (strait_emu_machine_join() != 0 || strait_emu_window_open() != 0) {
		strait_emu_say("no shared memory or no address space for the emulated machine");
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	initialized = 1;
	return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = DRIVER_VERSION;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
	if (!initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = (int)strait_emu_device_count();
	return CUDA_SUCCESS;
}

static CUresult check(const void *out, CUdevice device)
{
	if (!initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	return strait_emu_device_known(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	CUresult error = check(device, ordinal);
	if (!error)
		*device = ordinal;
	return error;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
	CUresult error = check(name, device);
	if (!error)
		snprintf(name, (size_t)length, "Strait Emulated GPU");
	return error;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	CUresult error = check(uuid, device);
	if (error)
		return error;
	memcpy(uuid->bytes, "strait-emulated\0", 16);
	uuid->bytes[15] = (char)device;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
	CUresult error = check(id, device);
	if (!error)
		snprintf(id, (size_t)length, "0000:%02X:00.0", device + 1);
	return error;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id)
{
	unsigned domain, bus;
	if (!device || !id || sscanf(id, "%x:%x:", &domain, &bus) != 2)
		return CUDA_ERROR_INVALID_VALUE;
	if (domain || !bus || !strait_emu_device_known((CUdevice)bus - 1))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = (CUdevice)bus - 1;
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
	CUresult error = check(bytes, device);
	if (!error)
		*bytes = (size_t)strait_emu_settings_get()->memory_mib << 20;
	return error;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
	CUresult error = check(major, device);
	if (!error)
		*major = 9, *minor = 0;
	return error;
}

static int fixed_attribute(CUdevice_attribute attribute)
{
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		return 9;
	case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
		return 32;
	case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
		return INT_MAX;
	case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
	case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
	case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
	case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
	case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
		return 65535;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
		return 48 << 10;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
		return 227 << 10;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
		return 228 << 10;
	case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
	case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
		return 1000000;
	case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
		return 32 << 20;
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
		return 32;
	case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
		return 1024;
	case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
	case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
	case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
	case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS:
		return 1;
	default: /* what is not listed is not there: no multicast, no RDMA, no fabric */
		return 0;
	}
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	const struct strait_emu_settings *settings = strait_emu_settings_get();
	CUresult error = check(value, device);
	if (error)
		return error;
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		*value = (int)settings->multiprocessors;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
		*value = (int)settings->block_threads;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
		*value = (int)(settings->block_threads * settings->resident_blocks /
			       settings->multiprocessors);
		break;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		*value = device + 1;
		break;
	default:
		*value = fixed_attribute(attribute);
	}
	return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	CUresult error = check(can, device);
	if (error)
		return error;
	if (!strait_emu_device_known(peer))
		return CUDA_ERROR_INVALID_DEVICE;
	*can = device != peer;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice device,
				 CUdevice peer)
{
	CUresult error = check(value, device);
	if (error)
		return error;
	if (!strait_emu_device_known(peer) || device == peer)
		return CUDA_ERROR_INVALID_DEVICE;
	*value = attribute != CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
	return CUDA_SUCCESS;
}
