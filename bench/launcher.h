/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parent of a run. It starts the processes of the ranks (this program again, with a hidden
 * option), watches them, and stops all when one dies or none makes progress. It never opens the
 * driver or a library itself, so it can always act.
 */
#pragma once
#include "bench/options.h"

#define BENCH_EXIT_WRONG 3 /* of a worker: it ran to the end, results were wrong */

/* Runs the whole benchmark. Returns the exit status of the program. */
int bench_launch(int argc, char **argv, struct bench_options *options);
