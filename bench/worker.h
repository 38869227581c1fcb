/* SPDX-License-Identifier: Apache-2.0 */
/* A process that holds ranks: meets the others, makes its ranks, walks the table. */
#pragma once
#include "bench/options.h"

/* Returns the exit status of the process. */
int bench_work(int argc, char **argv, struct bench_options *options);
