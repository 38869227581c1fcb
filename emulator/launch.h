/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the arguments of a launch to a task.
 */
#pragma once
#include "emulator/task.h"

struct strait_emu_launch_shape {
	struct strait_emu_dim grid, threads;
};

/* A task with its own copy of the argument; the device is left for the caller. */
CUresult strait_emu_launch_task(CUfunction function, const struct strait_emu_launch_shape *shape,
				void **params, void **extra, struct strait_emu_task *ret_task);
