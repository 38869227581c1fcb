/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MemoryChannel between two emulated devices of this process: any number of bytes, any alignment
 * of both sides, any number of threads. The whole memory of both ranks is compared with what it
 * must be, so a byte beside the target counts. The file with the kernels is the program's argument.
 */
#include "tests/channels/memory_channel_args.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	AREA = 16 << 10,
	SOURCE = 0,
	LANDING = AREA,
	RESULT = 2 * AREA,
	IMAGE = 3 * AREA, /* what is compared */
	SIGNAL = IMAGE,
	VERDICT = IMAGE + 256,
	BYTES = IMAGE + 512,
	MOST_BYTES = 5000,
	ROUNDS = 400,
};

#define cuda(call) assert_int_equal(call, CUDA_SUCCESS)

static struct {
	CUcontext context;
	CUstream stream;
	CUdeviceptr memory;
	unsigned char before[IMAGE], right[IMAGE], after[IMAGE];
} ranks[2];

static const char *kernels_path;
static CUfunction kernel;
static uint32_t *abort_word;
static uint64_t random_state, n_signals;

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state >> 11;
}

static void enter(int rank)
{
	cuda(cuCtxSetCurrent(ranks[rank].context));
}

static void make_rank(int rank)
{
	cuda(cuDevicePrimaryCtxRetain(&ranks[rank].context, rank));
	enter(rank);
	cuda(cuStreamCreate(&ranks[rank].stream, CU_STREAM_NON_BLOCKING));
	cuda(cuMemAlloc(&ranks[rank].memory, BYTES));
	cuda(cuMemsetD8(ranks[rank].memory, 0, BYTES));
}

static int set_up(void **state)
{
	char image[4096];
	CUlibrary library;
	CUkernel found;

	cuda(cuInit(0));
	for (int r = 0; r < 2; r++)
		make_rank(r);
	for (int r = 0; r < 2; r++) {
		enter(r);
		cuda(cuCtxEnablePeerAccess(ranks[!r].context, 0));
	}
	snprintf(image, sizeof(image), "STRAIT-EMULATOR:%s", kernels_path);
	cuda(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
	cuda(cuLibraryGetKernel(&found, library, "memory_channel_round"));
	kernel = (CUfunction)found;
	cuda(cuMemHostAlloc((void **)&abort_word, sizeof(*abort_word),
			    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
	*abort_word = 0;
	return 0;
}

static void launch(int rank, struct memory_channel_args args, unsigned n_threads)
{
	const CUdeviceptr own = ranks[rank].memory, peer = ranks[!rank].memory;

	args.local = (char *)own;
	args.remote = (char *)peer;
	args.local_signal = (uint64_t *)(own + SIGNAL);
	args.remote_signal = (uint64_t *)(peer + SIGNAL);
	args.verdict = (uint32_t *)(own + VERDICT);
	args.abort_word = abort_word;
	enter(rank);
	cuda(cuLaunchKernel(kernel, 1, 1, 1, n_threads, 1, 1, 0, ranks[rank].stream,
			    (void *[]){&args}, NULL));
}

static uint32_t verdict(int rank)
{
	uint32_t value;

	enter(rank);
	cuda(cuStreamSynchronize(ranks[rank].stream));
	cuda(cuMemcpyDtoH(&value, ranks[rank].memory + VERDICT, sizeof(value)));
	return value;
}

static struct memory_channel_args random_round(enum round_kind kind)
{
	struct memory_channel_args args = {.kind = kind, .signal = ++n_signals};
	const int is_few = next_random() % 4 == 0;

	args.width = 1u << next_random() % 4;
	args.bytes = next_random() % (is_few ? 40 : MOST_BYTES + 1);
	args.source = SOURCE + 64 + next_random() % 64;
	args.landing = LANDING + 64 + next_random() % 64;
	args.result = RESULT + 64 + next_random() % 64;
	if (kind == ROUND_PACKETS)
		args.landing &= ~15ull;
	if (kind == ROUND_WRITE || kind == ROUND_READ) {
		const uint64_t mask = ~(uint64_t)(args.width - 1);

		args.source &= mask;
		args.landing &= mask;
		args.result &= mask;
		args.bytes &= mask;
	}
	return args;
}

static void fill(int rank)
{
	for (int i = 0; i < IMAGE; i++)
		ranks[rank].before[i] = (unsigned char)next_random();
	memcpy(ranks[rank].right, ranks[rank].before, IMAGE);
	enter(rank);
	cuda(cuMemcpyHtoD(ranks[rank].memory, ranks[rank].before, IMAGE));
}

/* What the round must leave at this rank. */
static void predict(int rank, const struct memory_channel_args *args)
{
	const unsigned char *own = ranks[rank].before, *peer = ranks[!rank].before;
	unsigned char *right = ranks[rank].right;
	const int is_pull = args->kind == ROUND_GET || args->kind == ROUND_READ;

	memcpy(right + args->result, peer + args->source, args->bytes);
	if (args->kind != ROUND_PACKETS) {
		memcpy(right + args->landing, (is_pull ? own : peer) + args->source, args->bytes);
		return;
	}
	for (uint64_t i = 0; i * 8 < args->bytes; i++) {
		const uint64_t n = args->bytes - i * 8 < 8 ? args->bytes - i * 8 : 8;
		const uint32_t flag = (uint32_t)args->signal | 0x80000000u;
		unsigned char *packet = right + args->landing + i * 16, word[8] = {0};

		memcpy(word, peer + args->source + i * 8, n);
		memcpy(packet, word, 4);
		memcpy(packet + 4, &flag, 4);
		memcpy(packet + 8, word + 4, 4);
		memcpy(packet + 12, &flag, 4);
	}
}

static void check(int rank, const struct memory_channel_args *args, unsigned n_threads)
{
	const unsigned char *right = ranks[rank].right, *after = ranks[rank].after;

	assert_int_equal(verdict(rank), 1);
	cuda(cuMemcpyDtoH(ranks[rank].after, ranks[rank].memory, IMAGE));
	for (uint64_t i = 0; i < IMAGE; i++)
		if (after[i] != right[i])
			fail_msg("rank %d, byte %d: %02x, not %02x (kind %u, width %u, %d bytes "
				 "from %d by %d to %d, %u threads)",
				 rank, (int)i, after[i], right[i], args->kind, args->width,
				 (int)args->bytes, (int)args->source, (int)args->landing,
				 (int)args->result, n_threads);
}

static void swap_randomly(enum round_kind kind)
{
	const unsigned threads[] = {1, 7, 32, 64};

	for (int round = 0; round < ROUNDS; round++) {
		const struct memory_channel_args args = random_round(kind);
		const unsigned n_threads = threads[next_random() % 4];

		for (int r = 0; r < 2; r++)
			fill(r);
		for (int r = 0; r < 2; r++) {
			predict(r, &args);
			launch(r, args, n_threads);
		}
		for (int r = 0; r < 2; r++)
			check(r, &args, n_threads);
	}
}

static void test_put_moves_exactly_its_bytes(void **state)
{
	swap_randomly(ROUND_PUT);
}

static void test_get_moves_exactly_its_bytes(void **state)
{
	swap_randomly(ROUND_GET);
}

static void test_write_reaches_exactly_its_element(void **state)
{
	swap_randomly(ROUND_WRITE);
}

static void test_read_gives_exactly_its_element(void **state)
{
	swap_randomly(ROUND_READ);
}

static void test_packets_carry_any_bytes_to_any_place(void **state)
{
	swap_randomly(ROUND_PACKETS);
}

/* The peer never comes. */
static void test_every_wait_gives_up_on_an_abort(void **state)
{
	for (int kind = 0; kind < N_ROUND_KINDS; kind++) {
		struct memory_channel_args args = random_round((enum round_kind)kind);

		args.bytes = 64;
		fill(0);
		launch(0, args, 32);
		assert_int_equal(cuStreamQuery(ranks[0].stream), CUDA_ERROR_NOT_READY);
		__atomic_store_n(abort_word, 1, __ATOMIC_RELAXED);
		assert_int_equal(verdict(0), 2);
		__atomic_store_n(abort_word, 0, __ATOMIC_RELAXED);
		n_signals++; /* rank 1 has heard of this round */
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_put_moves_exactly_its_bytes),
		cmocka_unit_test(test_get_moves_exactly_its_bytes),
		cmocka_unit_test(test_write_reaches_exactly_its_element),
		cmocka_unit_test(test_read_gives_exactly_its_element),
		cmocka_unit_test(test_packets_carry_any_bytes_to_any_place),
		cmocka_unit_test(test_every_wait_gives_up_on_an_abort),
	};

	if (argc < 2)
		return 2;
	kernels_path = argv[1];
	random_state = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);
	printf("seed %llu\n", (unsigned long long)random_state);
	random_state = random_state * 0x9e3779b97f4a7c15ull | 1;
	alarm(240); /* a hang is a failure */
	return cmocka_run_group_tests(tests, set_up, NULL);
}
