/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compiled kernels: images embedded in the library, loaded into the driver once in a process,
 * and made ready in each context that uses them, so that nothing is loaded when a collective runs.
 */
#pragma once
#include "algorithms/algorithm.h"
#include "algorithms/reduction.h"
#include <cuda.h>

/* Loads the images, once in a process. Thread-safe. */
int strait_kernels_load(void);

/* Makes every kernel ready in the current context: launches each once with nothing to do on
 * `stream`, and waits. */
int strait_kernels_prepare(CUstream stream);

/* The kernel of an algorithm (index in the registry) for an instance; after strait_kernels_load().
 * Usable in every context. */
CUfunction strait_kernels_get(int algorithm, int instance);
CUfunction strait_kernels_probe(void);

/* One launch: a struct by value. Ordered on `stream`, captured where it captures. */
int strait_kernels_launch(CUfunction kernel, unsigned n_blocks, unsigned n_threads, CUstream stream,
			  void *argument);
