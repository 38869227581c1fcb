/* SPDX-License-Identifier: Apache-2.0 */
/* Texts may be read while they change: they are for people, and their last byte stays zero. */
#include "tests/gpu/board.h"
#include "bench/report.h"
#include <sys/mman.h>
#include <unistd.h>

int board_create(void)
{
	int fd = memfd_create("strait-cases", 0);

	if (fd < 0 || ftruncate(fd, sizeof(struct board)) < 0)
		bench_die("cannot make shared memory");
	return fd;
}

struct board *board_map(int fd)
{
	void *board = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (board == MAP_FAILED)
		bench_die("cannot map shared memory");
	return board;
}
