/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of strait-bench: nccl-tests' options under their names, and our own. One table
 * in options.c makes the parser, --help and its text. Numbers that the user did not give depend on
 * the machine (the emulator is thousands of times slower) and are set by bench_options_resolve().
 */
#pragma once
#include "algorithms/request.h"
#include <stdbool.h>
#include <stdint.h>

#define BENCH_MAX_LIBRARIES 2

struct bench_options {
	/* What is measured. */
	const struct bench_operation *operation;
	unsigned types;      /* bit for each enum strait_type */
	unsigned reductions; /* bit for each enum strait_reduction_kind */
	bool all_types;      /* "all" was said: types that the machine cannot do are left out */
	int64_t min_bytes, max_bytes, step_bytes, step_factor;
	int64_t root; /* -1: every rank in turn */

	/* How. */
	int64_t iterations, warmup, cycles, aggregate, graph_launches, samples, checks;
	int64_t blocking, report, register_buffers, offset;
	bool parallel_init, cpu_time, null_stream;

	/* On what. */
	const char *libraries[BENCH_MAX_LIBRARIES]; /* --lib, --vs; NULL: the default, none */
	int64_t processes, threads,
		gpus; /* ranks = processes x threads a process x GPUs a thread */
	bool as_threads, no_mps;
	int64_t limit_s;
	const char *rendezvous;

	/* The floor of the machine. */
	bool floor, with_floor;

	const char *csv, *json;
	const char *worker; /* set by the launcher for the processes that it starts */
};

/* Parses. Returns 0, or the exit status to end with when there is nothing to run: help was printed
 * to stdout (*ret_done with status 0), or a message about a bad option to stderr (status 2). */
int bench_options_parse(int argc, char **argv, struct bench_options *ret, bool *ret_done);

/* Sets what the user left open. */
void bench_options_resolve(struct bench_options *options, bool emulator);

/* "4K", "1.5M", "2G", "17": bytes. Returns 0, or -1 when the text is not a size. */
int bench_size_parse(const char *text, int64_t *ret);
