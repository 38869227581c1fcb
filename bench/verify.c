/* SPDX-License-Identifier: Apache-2.0 */
/* Copies go over the side's own stream: those of pageable memory on the default stream may return
 * too early. */
#include "bench/verify.h"
#include "bench/reference.h"
#include <inttypes.h>
#include <stdlib.h>

#define WINDOW_BYTES (4 << 20)

struct window {
	struct strait_reference reference;
	enum strait_type type;
	int rank;
	size_t first, count, bytes;
	CUdeviceptr send, recv;
	CUstream stream;
	uint8_t *host, *expected;
};

CUdeviceptr bench_buffer_payload(const struct bench_run *run, const struct bench_buffer *buffer,
				 const struct bench_point *point)
{
	return buffer->base + BENCH_MARGIN +
	       (size_t)run->options->offset * bench_type_bytes(point->type);
}

static void copy_in(const struct window *window, CUdeviceptr at, const void *from, size_t bytes)
{
	BENCH_GPU(cuMemcpyHtoDAsync, at, from, bytes, window->stream);
	BENCH_GPU(cuStreamSynchronize, window->stream);
}

static void copy_out(const struct window *window, void *to, CUdeviceptr from, size_t bytes)
{
	BENCH_GPU(cuMemcpyDtoHAsync, to, from, bytes, window->stream);
	BENCH_GPU(cuStreamSynchronize, window->stream);
}

static void window_open(struct bench_run *run, struct bench_rank *rank,
			const struct bench_point *point, struct window *ret)
{
	struct bench_side *side = &rank->sides[point->library];

	*ret = (struct window){
		.reference = {point->type, point->reduction, run->n_ranks, point->k},
		.type = point->type,
		.rank = rank->rank,
		.recv = bench_buffer_payload(run, &side->recv, point),
		.send = point->in_place ? 0 : bench_buffer_payload(run, &side->send, point),
		.stream = side->stream,
		.host = malloc(WINDOW_BYTES),
		.expected = malloc(WINDOW_BYTES),
	};
	if (!ret->host || !ret->expected)
		bench_die("out of memory");
}

static void window_close(struct window *window)
{
	free(window->host);
	free(window->expected);
}

/* Moves on to the next part of the payload. */
static bool window_next(struct window *window, size_t count)
{
	size_t size = bench_type_bytes(window->type), most = WINDOW_BYTES / size;

	window->first += window->count;
	if (window->first >= count)
		return false;
	window->count = count - window->first < most ? count - window->first : most;
	window->bytes = window->count * size;
	return true;
}

static void guard(const struct window *window, CUdeviceptr payload, size_t bytes)
{
	uint8_t zone[STRAIT_GUARD_BYTES];

	strait_guard_fill(zone);
	copy_in(window, payload - sizeof(zone), zone, sizeof(zone));
	copy_in(window, payload + bytes, zone, sizeof(zone));
}

static uint64_t guard_faults(const struct window *window, CUdeviceptr payload, size_t bytes,
			     const char *name)
{
	uint8_t before[STRAIT_GUARD_BYTES], after[STRAIT_GUARD_BYTES];
	size_t n_before, n_after;

	copy_out(window, before, payload - sizeof(before), sizeof(before));
	copy_out(window, after, payload + bytes, sizeof(after));
	n_before = strait_guard_check(before);
	n_after = strait_guard_check(after);
	if (n_before + n_after)
		bench_note("rank %d: bytes outside the %s buffer were changed: %zu before it, %zu "
			   "behind it",
			   window->rank, name, n_before, n_after);
	return n_before + n_after;
}

void bench_point_fill(struct bench_run *run, struct bench_rank *rank,
		      const struct bench_point *point)
{
	size_t bytes = point->count * bench_type_bytes(point->type),
	       size = bench_type_bytes(point->type);
	struct window window;

	bench_rank_enter(rank);
	window_open(run, rank, point, &window);
	while (window_next(&window, point->count)) {
		size_t at = window.first * size;

		strait_reference_input(&window.reference, rank->rank, window.first, window.count,
				       window.host);
		copy_in(&window, (point->in_place ? window.recv : window.send) + at, window.host,
			window.bytes);
		if (point->in_place)
			continue;
		strait_reference_output(&window.reference, window.first, window.count,
					window.expected);
		strait_poison_fill(window.host, window.expected, window.bytes);
		copy_in(&window, window.recv + at, window.host, window.bytes);
	}
	guard(&window, window.recv, bytes);
	if (!point->in_place)
		guard(&window, window.send, bytes);
	window_close(&window);
}

static uint64_t compare(const struct window *window, CUdeviceptr from, unsigned ulp, bool quiet,
			const char *name)
{
	struct strait_mismatch mismatch;

	copy_out(window, window->host, from + window->first * bench_type_bytes(window->type),
		 window->bytes);
	if (strait_reference_compare(window->type, window->host, window->expected, window->count,
				     ulp, &mismatch) == 0)
		return 0;
	if (!quiet)
		bench_note("rank %d: %s element %zu is %s, expected %s", window->rank, name,
			   window->first + mismatch.first, mismatch.got, mismatch.expected);
	return mismatch.n;
}

uint64_t bench_point_verify(struct bench_run *run, struct bench_rank *rank,
			    const struct bench_point *point)
{
	size_t bytes = point->count * bench_type_bytes(point->type);
	struct window window;
	uint64_t wrong = 0;

	bench_rank_enter(rank);
	window_open(run, rank, point, &window);
	while (window_next(&window, point->count)) {
		strait_reference_output(&window.reference, window.first, window.count,
					window.expected);
		wrong +=
			compare(&window, window.recv, strait_reference_tolerance(&window.reference),
				wrong > 0, "output");
		if (point->in_place)
			continue;
		strait_reference_input(&window.reference, rank->rank, window.first, window.count,
				       window.expected);
		wrong += compare(&window, window.send, 0, wrong > 0, "input");
	}
	wrong += guard_faults(&window, window.recv, bytes, "output");
	if (!point->in_place)
		wrong += guard_faults(&window, window.send, bytes, "input");
	window_close(&window);
	return wrong;
}
