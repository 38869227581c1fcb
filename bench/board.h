/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory between the launcher and the processes that it started: each says what it is doing,
 * so that the launcher can tell a slow run from a hung one and name what hung. Written by one
 * thread of each process.
 */
#pragma once
#include <stdatomic.h>

#define BENCH_PHASE_BYTES 120

struct bench_board_entry {
	atomic_uint ticks; /* grows with every step */
	char phase[BENCH_PHASE_BYTES];
};

/* Maps n entries of the file behind fd; dies on failure. */
struct bench_board_entry *bench_board_map(int fd, int n);
/* A file of that size without a name, kept open across exec. */
int bench_board_create(int n);
void bench_board_say(struct bench_board_entry *entry, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
