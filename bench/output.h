/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What rank 0 writes: nccl-tests' table on stdout, and records for machines: CSV (a header when the
 * file is new) and JSON, one object a line, both appended, so that several runs share a file. Every
 * record carries the machine, library, date and command line.
 */
#pragma once
#include "bench/run.h"
#include <stdio.h>

struct bench_output {
	FILE *csv, *json;
	const struct bench_machine *machine;
	const char *command, *date;
	double bus_sum; /* of all lines, for the last line of the table */
	long n_lines;
	uint64_t wrong;
};

/* One half of a line: a point with the figures over all ranks. */
struct bench_line {
	const struct bench_run *run;
	struct bench_point point;
	double median_us, average_us, least_us, host_us, cpu_us;
	double algorithm_gbs, bus_gbs;
	uint64_t wrong;
};

void bench_output_open(struct bench_output *output, const struct bench_options *options,
		       const struct bench_machine *machine, int argc, char **argv);
void bench_output_close(struct bench_output *output);

/* `devices`: a line of text for each rank. */
void bench_output_header(const struct bench_run *run, const char *const *devices);
/* Out of place and in place of one size and library. */
void bench_output_line(struct bench_output *output, const struct bench_line halves[2]);
void bench_output_footer(const struct bench_output *output, const struct bench_run *run);
/* A figure of the floor: what, the variant (blocks, or empty), size or 0, value and unit. */
void bench_output_floor(struct bench_output *output, const char *what, const char *variant,
			size_t bytes, double value, const char *unit);
