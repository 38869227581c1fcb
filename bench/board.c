/* SPDX-License-Identifier: Apache-2.0 */
/* A phase may be read while it changes: it is for people, and its last byte stays zero. */
#include "bench/board.h"
#include "bench/report.h"
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int bench_board_create(int n)
{
	int fd = memfd_create("strait-bench-board", 0);

	if (fd < 0 || ftruncate(fd, (off_t)n * (off_t)sizeof(struct bench_board_entry)) < 0)
		bench_die("cannot make shared memory");
	return fd;
}

struct bench_board_entry *bench_board_map(int fd, int n)
{
	void *board = mmap(NULL, (size_t)n * sizeof(struct bench_board_entry),
			   PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (board == MAP_FAILED)
		bench_die("cannot map shared memory");
	return board;
}

void bench_board_say(struct bench_board_entry *entry, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(entry->phase, BENCH_PHASE_BYTES - 1, format, arguments);
	va_end(arguments);
	atomic_fetch_add_explicit(&entry->ticks, 1, memory_order_relaxed);
}
