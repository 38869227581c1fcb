/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the generated stubs of functions that are not there share with exports.c.
 */
#pragma once

/* Says once that the function is not there. CUDA_ERROR_NOT_SUPPORTED. */
int strait_emu_exports_missing(const char *name, _Atomic int *said);

/* The stub of a function that <cuda.h> declares, or NULL; in the generated stubs.c. */
void *strait_emu_exports_stub(const char *name);
