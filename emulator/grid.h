/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the blocks of a launch: the calling thread and threads of a pool that grows, so that a block
 * never waits for a thread that another grid holds.
 */
#pragma once
#include "emulator/block.h"

/* Returns when every block has ended. The result is in launch->failed: a CUresult, 0 for success.
 */
void strait_emu_grid_run(struct strait_emu_launch *launch);
