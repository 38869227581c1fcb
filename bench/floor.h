/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the machine can do at best, measured with kernels of our own and no library: two ranks in
 * one process, on two GPUs, or on two streams of one. Times of a library are given as multiples of
 * these.
 */
#pragma once
#include "bench/output.h"

void bench_floor(struct bench_run *run, struct bench_output *output);
