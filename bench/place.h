/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a process stands in the run: from mpirun, torchrun or srun by their environment variables,
 * or from our own launcher by its hidden option.
 */
#pragma once
#include <stdbool.h>

struct bench_place {
	int process, n_processes;
	int local, n_local;    /* among the processes of this host */
	int n_threads, n_gpus; /* threads a process, GPUs a thread */
	int board_fd;          /* -1: none */
	char rendezvous[160];
};

/* True: ranks were started by somebody else, *ret says which one this process is. Dies on a
 * half-set environment. */
bool bench_place_external(struct bench_place *ret, const char *rendezvous);
/* To and from the text of the hidden option. */
void bench_place_print(const struct bench_place *place, char *ret, int size);
void bench_place_parse(const char *text, struct bench_place *ret);
