/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVIDIA MPS for the time of a run: without it, kernels of two processes never run at once on one
 * GPU, and ranks that wait for each other in kernels would hang. An own daemon with its own
 * folders: it disturbs nobody, and a server that a killed rank has spoiled goes away with it.
 */
#pragma once
#include <stdbool.h>

struct bench_mps {
	bool ours;
	char folder[64];
};

/* Starts a daemon and points this process's environment (so its children's) at it. Returns false
 * when that is not possible, with a note; true also when one runs already. */
bool bench_mps_start(struct bench_mps *mps);
/* Stops it if it is ours and removes its folders. */
void bench_mps_stop(struct bench_mps *mps);
