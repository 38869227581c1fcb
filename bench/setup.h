/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks come and go: devices, contexts, communicators of each library, streams and buffers.
 * Collective over all members of the run.
 */
#pragma once
#include "bench/run.h"

void bench_member_setup(struct bench_member *member);
void bench_member_teardown(struct bench_member *member);
