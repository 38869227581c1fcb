/* SPDX-License-Identifier: Apache-2.0 */
/*
 * User objects: something of the application that a graph keeps alive. Its destructor runs, with no
 * lock of the emulator held, when the last reference goes; that may be on a stream's thread.
 */
#pragma once
#include <cuda.h>

void strait_emu_user_object_ref(CUuserObject object, unsigned count);
void strait_emu_user_object_unref(CUuserObject object, unsigned count);
