/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers get their pattern, poison and guards, and are compared afterwards, in windows, so that
 * the host needs a few MiB for any size. The payload of a buffer is where the point's offset puts
 * it.
 */
#pragma once
#include "bench/run.h"

CUdeviceptr bench_buffer_payload(const struct bench_run *run, const struct bench_buffer *buffer,
				 const struct bench_point *point);
/* Writes the input of pattern point->k, poison into a separate output, and guards around both. On
 * the side's stream, waited for. */
void bench_point_fill(struct bench_run *run, struct bench_rank *rank,
		      const struct bench_point *point);
/* Elements of the output that are wrong, of a separate input that were changed, and changed guard
 * bytes. The first fault is told to stderr. */
uint64_t bench_point_verify(struct bench_run *run, struct bench_rank *rank,
			    const struct bench_point *point);
