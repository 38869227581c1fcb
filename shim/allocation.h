/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for ncclMemAlloc: its own physical allocation, exportable by descriptor, mapped for every
 * device of the process that can reach it.
 */
#pragma once
#include <stddef.h>

/* On the current device. `bytes` is rounded up to the granularity. 0 bytes: NULL and success. */
int strait_allocation_new(size_t bytes, void **ret_pointer);

/* NULL is fine. What did not come from here is given to the driver's own free. */
int strait_allocation_free(void *pointer);
