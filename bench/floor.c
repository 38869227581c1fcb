/* SPDX-License-Identifier: Apache-2.0 */
/* Two ends in one process and one thread; whatever waits is on the device. */
#include "bench/floor.h"
#include "bench/floor_args.h"
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES ((size_t)256 << 20)
#define SLOT_BYTES ((size_t)16 << 20)
#define N_FLAGS 1024

extern const char strait_image_floor[] __attribute__((visibility("hidden")));

enum kernel { EMPTY, PINGPONG, COPY, PACKETS, DIRECT, N_KERNELS };

struct end {
	CUdevice device;
	CUcontext context;
	CUstream stream;
	CUevent before, after;
	CUdeviceptr in, out, scratch, flags, epochs;
	CUgraphExec graph;
};

struct floor {
	struct end ends[2];
	CUfunction kernels[N_KERNELS];
	struct bench_run *run;
	struct bench_output *output;
	int most_blocks; /* of one end, so that both fit at once */
};

/* What an end puts on its stream, once. */
struct work {
	enum kernel kernel;
	bool copy_engine, reads;
	unsigned n_blocks;
	size_t bytes;
};

static void enter(const struct end *end)
{
	BENCH_GPU(cuCtxSetCurrent, end->context);
}

static void launch(struct floor *floor, struct end *end, enum kernel kernel, unsigned n_blocks,
		   unsigned n_threads, void *argument)
{
	CUlaunchConfig config = {.gridDimX = n_blocks,
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = n_threads,
				 .blockDimY = 1,
				 .blockDimZ = 1,
				 .hStream = end->stream};

	BENCH_GPU(cuLaunchKernelEx, &config, floor->kernels[kernel], (void *[]){argument}, NULL);
}

static void launch_exchange(struct floor *floor, int e, const struct work *work)
{
	struct end *end = &floor->ends[e], *other = &floor->ends[!e];
	size_t words = work->bytes / 8, per_block = (words + work->n_blocks - 1) / work->n_blocks;
	unsigned n_threads = per_block >= 1024 ? 1024
			     : per_block < 32  ? 32
					       : (unsigned)(per_block + 31) / 32 * 32;
	struct floor_exchange_args args = {
		.in = (const uint64_t *)end->in,
		.their_in = (const uint64_t *)other->in,
		.out = (uint64_t *)end->out,
		.mine = (struct strait_bits128 *)end->scratch,
		.theirs = (struct strait_bits128 *)other->scratch,
		.my_flags = (uint64_t *)end->flags,
		.their_flags = (uint64_t *)other->flags,
		.epochs = (uint64_t *)end->epochs,
		.n = words,
		.slot = SLOT_BYTES / 8,
	};

	launch(floor, end, work->kernel, work->n_blocks, work->kernel == DIRECT ? 512 : n_threads,
	       &args);
}

static void enqueue(struct floor *floor, int e, const struct work *work)
{
	struct end *end = &floor->ends[e], *other = &floor->ends[!e];
	struct floor_empty_args nothing = {0};
	struct floor_copy_args copy = {
		.to = (struct strait_bits128 *)(work->reads ? end->out : other->scratch),
		.from = (const struct strait_bits128 *)(work->reads ? other->in : end->in),
		.n = work->bytes / 16,
	};

	if (work->copy_engine)
		BENCH_GPU(cuMemcpyAsync, other->scratch, end->in, work->bytes, end->stream);
	else if (work->kernel == EMPTY)
		launch(floor, end, EMPTY, 1, 32, &nothing);
	else if (work->kernel == COPY)
		launch(floor, end, COPY, work->n_blocks, 1024, &copy);
	else
		launch_exchange(floor, e, work);
}

static void wait_both(struct floor *floor)
{
	for (int e = 0; e < 2; e++) {
		enter(&floor->ends[e]);
		BENCH_GPU(cuStreamSynchronize, floor->ends[e].stream);
	}
	bench_board_say(floor->run->board, "measuring the floor");
}

static double elapsed_us(struct end *end)
{
	float ms;

	enter(end);
	BENCH_GPU(cuEventElapsedTime_, &ms, end->before, end->after);
	return (double)ms * 1e3;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void reset_flags(struct floor *floor)
{
	wait_both(floor);
	for (int e = 0; e < 2; e++) {
		struct end *end = &floor->ends[e];

		enter(end);
		BENCH_GPU(cuMemsetD8Async, end->flags, 0, N_FLAGS * 8, end->stream);
		BENCH_GPU(cuMemsetD8Async, end->epochs, 0, N_FLAGS * 8, end->stream);
		BENCH_GPU(cuMemsetD8Async, end->scratch, 0, 4 * SLOT_BYTES, end->stream);
	}
	wait_both(floor);
}

/* Both ends at once, n times each in a row: us for one, of the slower end. */
static double time_in_row(struct floor *floor, const struct work *work, int n)
{
	double slower;

	for (int e = 0; e < 2; e++) {
		enter(&floor->ends[e]);
		enqueue(floor, e, work);
	}
	wait_both(floor);
	for (int e = 0; e < 2; e++) {
		struct end *end = &floor->ends[e];

		enter(end);
		BENCH_GPU(cuEventRecord, end->before, end->stream);
		for (int i = 0; i < n; i++)
			enqueue(floor, e, work);
		BENCH_GPU(cuEventRecord, end->after, end->stream);
	}
	wait_both(floor);
	slower = elapsed_us(&floor->ends[0]);
	if (elapsed_us(&floor->ends[1]) > slower)
		slower = elapsed_us(&floor->ends[1]);
	return slower / n;
}

static void make_graphs(struct floor *floor, const struct work *work, int n)
{
	for (int e = 0; e < 2; e++) {
		struct end *end = &floor->ends[e];
		CUgraph graph;

		enter(end);
		BENCH_GPU(cuStreamBeginCapture, end->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
		for (int i = 0; i < n; i++)
			enqueue(floor, e, work);
		BENCH_GPU(cuStreamEndCapture, end->stream, &graph);
		BENCH_GPU(cuGraphInstantiateWithFlags, &end->graph, graph, 0);
		BENCH_GPU(cuGraphDestroy, graph);
		BENCH_GPU(cuGraphUpload, end->graph, end->stream);
	}
	wait_both(floor);
}

/* Graphs of n on both ends, launched again and again: the median us for one, of the end that
 * started later (the other one's time holds its waiting). */
static double time_graph(struct floor *floor, const struct work *work, int n)
{
	enum { N_LAUNCHES = 31 };
	double us[N_LAUNCHES];

	make_graphs(floor, work, n);
	for (int l = -1; l < N_LAUNCHES; l++) {
		for (int e = 0; e < 2; e++) {
			struct end *end = &floor->ends[e];

			enter(end);
			BENCH_GPU(cuEventRecord, end->before, end->stream);
			BENCH_GPU(cuGraphLaunch, end->graph, end->stream);
			BENCH_GPU(cuEventRecord, end->after, end->stream);
		}
		wait_both(floor);
		double first = elapsed_us(&floor->ends[0]), second = elapsed_us(&floor->ends[1]);
		if (l >= 0)
			us[l] = (first < second ? first : second) / n;
	}
	for (int e = 0; e < 2; e++) {
		enter(&floor->ends[e]);
		BENCH_GPU(cuGraphExecDestroy, floor->ends[e].graph);
	}
	qsort(us, N_LAUNCHES, sizeof(*us), by_size);
	return us[N_LAUNCHES / 2];
}

static double time_flag(struct floor *floor, bool ordered)
{
	enum { N_TURNS = 10000 };

	reset_flags(floor);
	for (int e = 0; e < 2; e++) {
		struct end *end = &floor->ends[e];
		struct floor_pingpong_args args = {
			.mine = (uint64_t *)end->flags,
			.theirs = (uint64_t *)floor->ends[!e].flags,
			.first = e == 0,
			.ordered = ordered,
			.n_turns = N_TURNS,
		};

		enter(end);
		BENCH_GPU(cuEventRecord, end->before, end->stream);
		launch(floor, end, PINGPONG, 1, 1, &args);
		BENCH_GPU(cuEventRecord, end->after, end->stream);
	}
	wait_both(floor);
	reset_flags(floor);
	return elapsed_us(&floor->ends[0]) / N_TURNS / 2;
}

static void tell(struct floor *floor, const char *what, const char *variant, size_t bytes,
		 double value, const char *unit)
{
	bench_output_floor(floor->output, what, variant, bytes, value, unit);
}

static void measure_latencies(struct floor *floor)
{
	struct work empty = {.kernel = EMPTY};
	double node = time_graph(floor, &empty, 100), row = time_in_row(floor, &empty, 200);
	double relaxed = time_flag(floor, false), ordered = time_flag(floor, true);

	printf("# empty kernel: %.2f us a graph node, %.2f us launched in a row\n", node, row);
	printf("# one-way flag: %.3f us relaxed, %.3f us release and acquire\n", relaxed, ordered);
	tell(floor, "graph node", "", 0, node, "us");
	tell(floor, "launch", "", 0, row, "us");
	tell(floor, "flag relaxed", "", 0, relaxed, "us");
	tell(floor, "flag ordered", "", 0, ordered, "us");
}

static double bandwidth(struct floor *floor, struct work work, size_t bytes)
{
	work.bytes = bytes;
	return (double)bytes / time_in_row(floor, &work, bytes > ((size_t)64 << 20) ? 10 : 40) *
	       1e-3;
}

static void measure_bandwidths(struct floor *floor)
{
	static const unsigned grids[] = {4, 8, 16, 32, 64};
	unsigned most = (unsigned)floor->most_blocks;
	char variant[16];

	printf("#\n# GB/s a direction, both at once\n# %10s %8s %8s %8s | write by blocks: 4, 8, "
	       "16, 32, 64\n",
	       "bytes", "engine", "write", "read");
	snprintf(variant, sizeof(variant), "%u blocks", most);
	for (size_t bytes = 64 << 10; bytes <= MOST_BYTES; bytes *= 4) {
		double engine = bandwidth(floor, (struct work){.copy_engine = true}, bytes);
		double writes =
			bandwidth(floor, (struct work){.kernel = COPY, .n_blocks = most}, bytes);
		double reads = bandwidth(
			floor, (struct work){.kernel = COPY, .reads = true, .n_blocks = most},
			bytes);

		printf("  %10zu %8.1f %8.1f %8.1f |", bytes, engine, writes, reads);
		tell(floor, "copy engine", "", bytes, engine, "GB/s");
		tell(floor, "write", variant, bytes, writes, "GB/s");
		tell(floor, "read", variant, bytes, reads, "GB/s");
		for (size_t g = 0; g < sizeof(grids) / sizeof(*grids); g++) {
			char blocks[16];
			double by_grid = bandwidth(
				floor, (struct work){.kernel = COPY, .n_blocks = grids[g]}, bytes);

			snprintf(blocks, sizeof(blocks), "%u blocks", grids[g]);
			tell(floor, "write", blocks, bytes, by_grid, "GB/s");
			printf(" %7.1f", by_grid);
		}
		puts("");
		fflush(stdout);
	}
}

/* Inputs are bytes of 1: sums of two words are words of 2. A yardstick that does not do the work
 * measures nothing. */
static void check_exchange(struct floor *floor, size_t bytes)
{
	for (int e = 0; e < 2; e++) {
		struct end *end = &floor->ends[e];
		uint64_t words[2] = {0};

		enter(end);
		BENCH_GPU(cuMemcpyDtoHAsync, &words[0], end->out, 8, end->stream);
		BENCH_GPU(cuMemcpyDtoHAsync, &words[1], end->out + bytes - 8, 8, end->stream);
		BENCH_GPU(cuStreamSynchronize, end->stream);
		if (words[0] != 0x0202020202020202 || words[1] != words[0])
			bench_die("the floor's exchange of %zu bytes gives 0x%llx and 0x%llx",
				  bytes, (unsigned long long)words[0],
				  (unsigned long long)words[1]);
	}
}

static void clear_outputs(struct floor *floor, size_t bytes)
{
	for (int e = 0; e < 2; e++) {
		enter(&floor->ends[e]);
		BENCH_GPU(cuMemsetD8Async, floor->ends[e].out, 0, bytes, floor->ends[e].stream);
	}
}

/* The best grid of one exchange at one size. */
static double best_exchange(struct floor *floor, enum kernel kernel, size_t bytes,
			    unsigned *ret_blocks)
{
	static const unsigned grids[] = {1, 2, 4, 8, 16, 32, 64};
	double best = 0;

	for (size_t g = 0; g < sizeof(grids) / sizeof(*grids); g++) {
		struct work work = {.kernel = kernel, .n_blocks = grids[g], .bytes = bytes};
		double us;

		if ((int)grids[g] > floor->most_blocks)
			break;
		clear_outputs(floor, bytes);
		reset_flags(floor);
		us = time_graph(floor, &work, bytes > (8 << 20) ? 10 : 50);
		check_exchange(floor, bytes);
		if (best == 0 || us < best) {
			best = us;
			*ret_blocks = grids[g];
		}
	}
	return best;
}

static void measure_exchanges(struct floor *floor)
{
	puts("#\n# exchange and sum of two ends, us in a graph, with the best number of blocks");
	printf("# %10s %10s %7s %10s %7s\n", "bytes", "packets", "blocks", "direct", "blocks");
	for (size_t bytes = 256; bytes <= MOST_BYTES; bytes *= 4) {
		unsigned packet_blocks = 0, direct_blocks = 0;
		double packets = bytes <= SLOT_BYTES
					 ? best_exchange(floor, PACKETS, bytes, &packet_blocks)
					 : 0;
		double direct = best_exchange(floor, DIRECT, bytes, &direct_blocks);
		char variant[16];

		printf("  %10zu %10.2f %7u %10.2f %7u\n", bytes, packets, packet_blocks, direct,
		       direct_blocks);
		fflush(stdout);
		snprintf(variant, sizeof(variant), "%u blocks", packet_blocks);
		if (packets > 0)
			tell(floor, "packets", variant, bytes, packets, "us");
		snprintf(variant, sizeof(variant), "%u blocks", direct_blocks);
		tell(floor, "direct", variant, bytes, direct, "us");
	}
}

static void load_kernels(struct floor *floor)
{
	static const char *const names[N_KERNELS] = {"floor_empty", "floor_pingpong", "floor_copy",
						     "floor_packets", "floor_direct"};
	CUlibrary library;

	enter(&floor->ends[0]);
	BENCH_GPU(cuLibraryLoadData, &library, strait_image_floor, NULL, NULL, 0, NULL, NULL, 0);
	for (int k = 0; k < N_KERNELS; k++) {
		CUkernel kernel;

		BENCH_GPU(cuLibraryGetKernel, &kernel, library, names[k]);
		floor->kernels[k] = (CUfunction)kernel; /* one handle for every context */
	}
}

/* Lazy loading would load a kernel at its first launch, which may wait for a kernel that waits for
 * that very launch. */
static void warm_kernels(struct floor *floor)
{
	struct floor_pingpong_args no_turns = {.n_turns = 0};

	for (int e = 0; e < 2; e++) {
		enter(&floor->ends[e]);
		launch(floor, &floor->ends[e], PINGPONG, 1, 1, &no_turns);
		enqueue(floor, e, &(struct work){.kernel = EMPTY});
		enqueue(floor, e, &(struct work){.kernel = COPY, .n_blocks = 1, .bytes = 16});
		wait_both(floor);
		for (enum kernel kernel = PACKETS; kernel <= DIRECT; kernel++)
			enqueue(floor, e,
				&(struct work){.kernel = kernel, .n_blocks = 1, .bytes = 0});
	}
	wait_both(floor);
}

static void open_end(struct end *end, int device)
{
	BENCH_GPU(cuDeviceGet, &end->device, device);
	BENCH_GPU(cuDevicePrimaryCtxRetain, &end->context, end->device);
	enter(end);
	BENCH_GPU(cuStreamCreate, &end->stream, CU_STREAM_NON_BLOCKING);
	BENCH_GPU(cuEventCreate, &end->before, CU_EVENT_DEFAULT);
	BENCH_GPU(cuEventCreate, &end->after, CU_EVENT_DEFAULT);
	BENCH_GPU(cuMemAlloc, &end->in, MOST_BYTES);
	BENCH_GPU(cuMemAlloc, &end->out, MOST_BYTES);
	BENCH_GPU(cuMemAlloc, &end->scratch, MOST_BYTES);
	BENCH_GPU(cuMemAlloc, &end->flags, N_FLAGS * 8);
	BENCH_GPU(cuMemAlloc, &end->epochs, N_FLAGS * 8);
	BENCH_GPU(cuMemsetD8Async, end->in, 1, MOST_BYTES, end->stream);
}

static void close_end(struct end *end)
{
	enter(end);
	BENCH_GPU(cuMemFree, end->in);
	BENCH_GPU(cuMemFree, end->out);
	BENCH_GPU(cuMemFree, end->scratch);
	BENCH_GPU(cuMemFree, end->flags);
	BENCH_GPU(cuMemFree, end->epochs);
	BENCH_GPU(cuEventDestroy, end->before);
	BENCH_GPU(cuEventDestroy, end->after);
	BENCH_GPU(cuStreamDestroy, end->stream);
	BENCH_GPU(cuDevicePrimaryCtxRelease, end->device);
}

/* Two GPUs where they reach each other, else one GPU twice. */
static bool open_ends(struct floor *floor)
{
	int to = 0, back = 0, n_processors = 0;
	bool two;

	if (floor->run->machine.n_devices > 1) {
		BENCH_GPU(cuDeviceCanAccessPeer, &to, 0, 1);
		BENCH_GPU(cuDeviceCanAccessPeer, &back, 1, 0);
	}
	two = to && back;
	open_end(&floor->ends[0], 0);
	open_end(&floor->ends[1], two ? 1 : 0);
	for (int e = 0; e < 2 && two; e++) {
		enter(&floor->ends[e]);
		BENCH_GPU(cuCtxEnablePeerAccess, floor->ends[!e].context, 0);
	}
	BENCH_GPU(cuDeviceGetAttribute, &n_processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
		  floor->ends[0].device);
	floor->most_blocks = two ? n_processors : n_processors / 2;
	return two;
}

void bench_floor(struct bench_run *run, struct bench_output *output)
{
	struct floor floor = {.run = run, .output = output};
	bool two;

	bench_board_say(run->board, "measuring the floor");
	two = open_ends(&floor);
	printf("# The floor of %s, driver %d.%d: two ends on %s, no library\n#\n", run->machine.gpu,
	       run->machine.driver_version / 1000, run->machine.driver_version % 1000 / 10,
	       two ? "two GPUs" : "two streams of one GPU");
	load_kernels(&floor);
	warm_kernels(&floor);
	reset_flags(&floor);
	measure_latencies(&floor);
	measure_bandwidths(&floor);
	measure_exchanges(&floor);
	close_end(&floor.ends[0]);
	close_end(&floor.ends[1]);
	puts("#");
}
