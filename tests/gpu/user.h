/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of user.cu. The first call in a process loads their image. */
#pragma once
#include <cuda.h>
#include <stdint.h>

enum { USER_WRITES = 3 };

/* Kernel `which` of the equal ones; loaded when it is first launched. Waits for it. */
void user_write(int which, CUstream stream);
/* Holds the stream up. */
void user_delay(uint64_t ns, CUstream stream);
