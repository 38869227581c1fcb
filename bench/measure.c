/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every measured stretch follows at once on an unmeasured call of the same kind, which makes the
 * ranks meet on the device: the skew of their hosts is not in the figure. Stretches lie between
 * events of the stream and follow each other without a gap; the figure is their median.
 */
#include "bench/measure.h"
#include "bench/verify.h"
#include <stdlib.h>
#include <string.h>

struct timing {
	struct bench_member *member;
	const struct bench_point *point;
	struct bench_call *calls; /* one for each rank of the member */
	CUgraphExec *graphs;      /* likewise; with -G */
	CUevent *events;          /* n_stretches + 1 for each rank */
	int n_stretches;
	double cpu_us, host_us;
};

static const struct bench_library *library_of(const struct timing *timing)
{
	return &timing->member->run->libraries[timing->point->library];
}

static CUstream stream_of(const struct timing *timing, int g)
{
	return timing->member->ranks[g].sides[timing->point->library].stream;
}

static void make_operator(struct timing *timing, struct bench_rank *rank, struct bench_call *call)
{
	const struct bench_library *library = library_of(timing);
	const struct bench_point *point = timing->point;
	struct strait_reference reference = {point->type, point->reduction,
					     timing->member->run->n_ranks, 0};
	uint64_t scalar = strait_reference_scalar(&reference, rank->rank);

	call->reduction = (ncclRedOp_t)point->reduction;
	if (point->reduction != STRAIT_PREMULSUM)
		return;
	if (!library->RedOpCreatePreMulSum)
		bench_die("%s has no PreMulSum", library->path);
	bench_library_check(library,
			    library->RedOpCreatePreMulSum(&call->reduction, &scalar, call->type,
							  ncclScalarHostImmediate,
							  call->communicator),
			    "ncclRedOpCreatePreMulSum");
}

static void timing_open(struct timing *timing)
{
	struct bench_member *member = timing->member;
	struct bench_run *run = member->run;
	const struct bench_point *point = timing->point;

	timing->n_stretches = (int)(run->options->graph_launches ? run->options->graph_launches
								 : run->options->samples);
	timing->calls = calloc((size_t)member->n_ranks, sizeof(*timing->calls));
	timing->graphs = calloc((size_t)member->n_ranks, sizeof(*timing->graphs));
	timing->events = calloc((size_t)(member->n_ranks * (timing->n_stretches + 1)),
				sizeof(*timing->events));
	for (int g = 0; g < member->n_ranks; g++) {
		struct bench_side *side = &member->ranks[g].sides[point->library];
		struct bench_call *call = &timing->calls[g];

		bench_rank_enter(&member->ranks[g]);
		call->recv = (void *)bench_buffer_payload(run, &side->recv, point);
		call->send = point->in_place
				     ? call->recv
				     : (void *)bench_buffer_payload(run, &side->send, point);
		call->count = point->count;
		call->type = (ncclDataType_t)point->type;
		call->root = point->root;
		call->communicator = side->communicator;
		call->stream = side->stream;
		make_operator(timing, &member->ranks[g], call);
		for (int e = 0; e <= timing->n_stretches; e++)
			BENCH_GPU(cuEventCreate, &timing->events[g * (timing->n_stretches + 1) + e],
				  CU_EVENT_DEFAULT);
	}
}

static void timing_close(struct timing *timing)
{
	struct bench_member *member = timing->member;
	const struct bench_library *library = library_of(timing);

	for (int g = 0; g < member->n_ranks; g++) {
		bench_rank_enter(&member->ranks[g]);
		for (int e = 0; e <= timing->n_stretches; e++)
			BENCH_GPU(cuEventDestroy,
				  timing->events[g * (timing->n_stretches + 1) + e]);
		if (timing->graphs[g])
			BENCH_GPU(cuGraphExecDestroy, timing->graphs[g]);
		if (timing->point->reduction == STRAIT_PREMULSUM)
			bench_library_check(library,
					    library->RedOpDestroy(timing->calls[g].reduction,
								  timing->calls[g].communicator),
					    "ncclRedOpDestroy");
	}
	free(timing->calls);
	free(timing->graphs);
	free(timing->events);
}

static void wait_streams(struct timing *timing)
{
	const struct bench_library *library = library_of(timing);

	for (int g = 0; g < timing->member->n_ranks; g++) {
		ncclResult_t error = ncclSuccess;

		bench_rank_enter(&timing->member->ranks[g]);
		BENCH_GPU(cuStreamSynchronize, stream_of(timing, g));
		bench_library_check(
			library, library->CommGetAsyncError(timing->calls[g].communicator, &error),
			"ncclCommGetAsyncError");
		bench_library_check(library, error, "asynchronous error");
	}
}

/* One call on each rank of the member, aggregated as the user asked; the CPU time that it took. */
static double issue(struct timing *timing)
{
	const struct bench_library *library = library_of(timing);
	const struct bench_options *options = timing->member->run->options;
	bool group = timing->member->n_ranks > 1 || options->aggregate > 1;
	double start = bench_now_us();

	if (group)
		bench_library_check(library, library->GroupStart(), "ncclGroupStart");
	for (int64_t a = 0; a < options->aggregate; a++)
		for (int g = 0; g < timing->member->n_ranks; g++) {
			if (timing->member->n_ranks > 1)
				bench_rank_enter(&timing->member->ranks[g]);
			bench_library_check(library,
					    options->operation->run(library, &timing->calls[g]),
					    options->operation->name);
		}
	if (group)
		bench_library_check(library, library->GroupEnd(), "ncclGroupEnd");
	return bench_now_us() - start;
}

static void record(struct timing *timing, int event)
{
	for (int g = 0; g < timing->member->n_ranks; g++) {
		bench_rank_enter(&timing->member->ranks[g]);
		BENCH_GPU(cuEventRecord, timing->events[g * (timing->n_stretches + 1) + event],
			  stream_of(timing, g));
	}
}

/* Captures n rounds of calls and makes the graphs ready. The CPU time of the calls. */
static double capture(struct timing *timing, int64_t n)
{
	double cpu_us = 0;

	for (int g = 0; g < timing->member->n_ranks; g++) {
		bench_rank_enter(&timing->member->ranks[g]);
		BENCH_GPU(cuStreamBeginCapture, stream_of(timing, g),
			  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	}
	for (int64_t i = 0; i < n; i++)
		cpu_us += issue(timing);
	for (int g = 0; g < timing->member->n_ranks; g++) {
		CUgraph graph;

		bench_rank_enter(&timing->member->ranks[g]);
		BENCH_GPU(cuStreamEndCapture, stream_of(timing, g), &graph);
		BENCH_GPU(cuGraphInstantiateWithFlags, &timing->graphs[g], graph, 0);
		BENCH_GPU(cuGraphDestroy, graph);
		BENCH_GPU(cuGraphUpload, timing->graphs[g], stream_of(timing, g));
		BENCH_GPU(cuStreamSynchronize, stream_of(timing, g));
	}
	return cpu_us;
}

static void launch(struct timing *timing)
{
	for (int g = 0; g < timing->member->n_ranks; g++) {
		bench_rank_enter(&timing->member->ranks[g]);
		BENCH_GPU(cuGraphLaunch, timing->graphs[g], stream_of(timing, g));
	}
}

static void drop_graphs(struct timing *timing)
{
	for (int g = 0; g < timing->member->n_ranks; g++) {
		if (timing->graphs[g])
			BENCH_GPU(cuGraphExecDestroy, timing->graphs[g]);
		timing->graphs[g] = NULL;
	}
}

static void time_graph(struct timing *timing)
{
	struct bench_run *run = timing->member->run;
	int64_t n = run->options->iterations;
	double start;

	timing->cpu_us = capture(timing, n) / (double)n;
	bench_gang_barrier(&run->gang, timing->member->thread);
	launch(timing);
	start = bench_now_us();
	for (int s = 0; s < timing->n_stretches; s++) {
		record(timing, s);
		launch(timing);
		if (run->options->blocking == 1)
			wait_streams(timing);
	}
	record(timing, timing->n_stretches);
	wait_streams(timing);
	timing->host_us = (bench_now_us() - start) / (double)(n * timing->n_stretches);
	drop_graphs(timing);
}

static void time_eager(struct timing *timing)
{
	struct bench_run *run = timing->member->run;
	int64_t n = run->options->iterations;
	double start;

	bench_gang_barrier(&run->gang, timing->member->thread);
	issue(timing);
	start = bench_now_us();
	for (int s = 0; s < timing->n_stretches; s++) {
		record(timing, s);
		for (int64_t i = 0; i < n; i++) {
			timing->cpu_us += issue(timing);
			if (run->options->blocking == 1)
				wait_streams(timing);
		}
		if (run->options->blocking == 3) {
			wait_streams(timing);
			bench_gang_barrier(&run->gang, timing->member->thread);
		}
	}
	record(timing, timing->n_stretches);
	wait_streams(timing);
	timing->host_us = (bench_now_us() - start) / (double)(n * timing->n_stretches);
	timing->cpu_us /= (double)(n * timing->n_stretches);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void evaluate(struct timing *timing, int g, struct bench_result *ret)
{
	const struct bench_options *options = timing->member->run->options;
	CUevent *events = &timing->events[g * (timing->n_stretches + 1)];
	double *us = calloc((size_t)timing->n_stretches, sizeof(*us)), sum = 0;
	int n = timing->n_stretches;

	bench_rank_enter(&timing->member->ranks[g]);
	for (int s = 0; s < n; s++) {
		float ms;

		BENCH_GPU(cuEventElapsedTime_, &ms, events[s], events[s + 1]);
		us[s] = (double)ms * 1e3 / (double)(options->iterations * options->aggregate);
		sum += us[s];
	}
	qsort(us, (size_t)n, sizeof(*us), by_size);
	ret->median_us = n % 2 ? us[n / 2] : (us[n / 2 - 1] + us[n / 2]) / 2;
	ret->average_us = sum / n;
	ret->least_us = us[0];
	ret->host_us = timing->host_us / (double)options->aggregate;
	ret->cpu_us = timing->cpu_us / (double)(options->aggregate * timing->member->n_ranks);
	free(us);
}

static void fill(struct timing *timing)
{
	for (int g = 0; g < timing->member->n_ranks; g++)
		bench_point_fill(timing->member->run, &timing->member->ranks[g], timing->point);
}

static void verify(struct timing *timing, struct bench_result *results)
{
	for (int g = 0; g < timing->member->n_ranks; g++)
		results[g].wrong += bench_point_verify(timing->member->run,
						       &timing->member->ranks[g], timing->point);
}

/* One call on a fresh pattern, poisoned and guarded; as a graph of one call where graphs are
 * measured. */
static void check_once(struct timing *timing, struct bench_result *results)
{
	struct bench_run *run = timing->member->run;

	fill(timing);
	bench_gang_barrier(&run->gang, timing->member->thread);
	if (run->options->graph_launches) {
		capture(timing, 1);
		launch(timing);
		wait_streams(timing);
		drop_graphs(timing);
	} else {
		issue(timing);
		wait_streams(timing);
	}
	/* In a group with -m, an operation in place has been done several times: its result is not
	 * the pattern's. */
	if (run->options->aggregate == 1 || !timing->point->in_place)
		verify(timing, results);
}

void bench_point_measure(struct bench_member *member, struct bench_point *point,
			 struct bench_result *results)
{
	const struct bench_options *options = member->run->options;
	struct timing timing = {.member = member, .point = point};

	memset(results, 0, (size_t)member->n_ranks * sizeof(*results));
	timing_open(&timing);
	if (options->checks)
		fill(&timing);
	bench_gang_barrier(&member->run->gang, member->thread);
	for (int64_t i = 0; i < options->warmup; i++)
		issue(&timing);
	wait_streams(&timing);
	if (options->graph_launches)
		time_graph(&timing);
	else
		time_eager(&timing);
	for (int g = 0; g < member->n_ranks; g++)
		evaluate(&timing, g, &results[g]);
	/* The last of many calls or replays must be as right as the first; in place the input is
	 * gone by then. */
	if (options->checks && !point->in_place)
		verify(&timing, results);
	point->k++;
	for (int64_t c = 0; c < options->checks; c++, point->k++)
		check_once(&timing, results);
	timing_close(&timing);
}
