/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Libraries and kernels. A kernel serves as a function too: CUfunction and CUkernel are the same
 * pointer.
 */
#pragma once
#include "emulator/device.h"
#include <cuda.h>

struct CUkern_st {
	const struct strait_emu_kernel *code;
	char *name;
	struct CUlib_st *library;
	struct CUkern_st *next;
};
