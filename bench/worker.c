/* SPDX-License-Identifier: Apache-2.0 */
/* All members walk the same loops in step; thread 0 of process 0 also prints. */
#include "bench/worker.h"
#include "bench/floor.h"
#include "bench/launcher.h"
#include "bench/measure.h"
#include "bench/output.h"
#include "bench/setup.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct walk {
	struct bench_member *member;
	struct bench_output *output; /* NULL on all members but the first */
	uint64_t k;
	uint64_t wrong;
};

static int n_members(const struct bench_run *run)
{
	return run->place.n_processes * run->place.n_threads;
}

/* Over the ranks, as -a asks. */
static double combine(const struct bench_run *run, const struct bench_result *results, size_t field)
{
	double first = *(const double *)((const char *)&results[0] + field), least = first,
	       most = first, sum = 0;

	for (int r = 0; r < run->n_ranks; r++) {
		double value = *(const double *)((const char *)&results[r] + field);

		sum += value;
		least = value < least ? value : least;
		most = value > most ? value : most;
	}
	switch (run->options->report) {
	case 0:
		return first;
	case 2:
		return least;
	case 3:
		return most;
	default:
		return sum / run->n_ranks;
	}
}

static void summarize(const struct bench_run *run, const struct bench_point *point,
		      const struct bench_result *results, struct bench_line *ret)
{
	double bytes = (double)point->count * (double)bench_type_bytes(point->type), time;

	*ret = (struct bench_line){
		.run = run,
		.point = *point,
		.median_us = combine(run, results, offsetof(struct bench_result, median_us)),
		.average_us = combine(run, results, offsetof(struct bench_result, average_us)),
		.least_us = combine(run, results, offsetof(struct bench_result, least_us)),
		.host_us = combine(run, results, offsetof(struct bench_result, host_us)),
		.cpu_us = combine(run, results, offsetof(struct bench_result, cpu_us)),
	};
	for (int r = 0; r < run->n_ranks; r++)
		ret->wrong += results[r].wrong;
	time = run->options->cpu_time ? ret->cpu_us : ret->median_us;
	ret->algorithm_gbs = time > 0 ? bytes / time * 1e-3 : 0;
	ret->bus_gbs = ret->algorithm_gbs * run->options->operation->bus_factor(run->n_ranks);
}

static void measure_half(struct walk *walk, struct bench_point *point, struct bench_line *ret)
{
	struct bench_member *member = walk->member;
	struct bench_run *run = member->run;
	struct bench_result *results = calloc((size_t)run->n_ranks, sizeof(*results));
	int mine = (run->place.process * run->place.n_threads + member->thread) * member->n_ranks;

	point->k = walk->k;
	bench_point_measure(member, point, results + mine);
	walk->k = point->k;
	bench_gang_allgather(&run->gang, member->thread, results,
			     (size_t)member->n_ranks * sizeof(*results));
	summarize(run, point, results, ret);
	walk->wrong += ret->wrong;
	free(results);
}

/* Both libraries out of place, then both in place: what is compared is measured within one moment.
 */
static void measure_size(struct walk *walk, struct bench_point point)
{
	struct bench_run *run = walk->member->run;
	struct bench_line lines[BENCH_MAX_LIBRARIES][2];

	for (int in_place = 0; in_place < 2; in_place++)
		for (int l = 0; l < run->n_libraries; l++) {
			point.in_place = in_place;
			point.library = l;
			if (walk->member->thread == 0)
				bench_board_say(run->board, "%s, %s %s, count %zu, %s, %s",
						run->options->operation->name,
						strait_reference_type_name(point.type),
						strait_reference_reduction_name(point.reduction),
						point.count, in_place ? "in place" : "out of place",
						l ? "--vs" : "--lib");
			measure_half(walk, &point, &lines[l][in_place]);
		}
	for (int l = 0; walk->output && l < run->n_libraries; l++)
		bench_output_line(walk->output, lines[l]);
}

static void walk_sizes(struct walk *walk, struct bench_point point)
{
	const struct bench_options *options = walk->member->run->options;
	int64_t size = (int64_t)bench_type_bytes(point.type);

	for (int64_t bytes = options->min_bytes; bytes <= options->max_bytes;
	     bytes = options->step_bytes ? bytes + options->step_bytes
					 : bytes * options->step_factor) {
		point.count = (size_t)(bytes / size);
		measure_size(walk, point);
	}
}

static bool is_fp8(enum strait_type type)
{
	return type == STRAIT_FLOAT8E4M3 || type == STRAIT_FLOAT8E5M2;
}

static void walk_table(struct walk *walk)
{
	const struct bench_run *run = walk->member->run;
	const struct bench_options *options = run->options;
	bool every_root = options->operation->rooted && options->root < 0;
	int first = every_root || options->root < 0 ? 0 : (int)options->root,
	    last = every_root ? run->n_ranks - 1 : first;

	for (int type = 0; type < STRAIT_N_TYPES; type++) {
		if (!(options->types & 1u << type))
			continue;
		/* As nccl-tests: "all" leaves out what NCCL cannot reduce on an older GPU. */
		if (options->all_types && is_fp8(type) && run->machine.capability < 90 &&
		    !run->machine.emulator)
			continue;
		for (int reduction = 0; reduction < STRAIT_N_REDUCTIONS; reduction++)
			for (int root = first; root <= last; root++)
				if (options->reductions & 1u << reduction)
					walk_sizes(walk,
						   (struct bench_point){.type = type,
									.reduction = reduction,
									.root = root});
	}
}

/* One line about each rank, on all members. */
static char (*describe_ranks(struct bench_member *member))[128]
{
	struct bench_run *run = member->run;
	char(*lines)[128] = calloc((size_t)run->n_ranks, sizeof(*lines));
	char name[64] = "", bus[24] = "";

	for (int g = 0; g < member->n_ranks; g++) {
		struct bench_rank *rank = &member->ranks[g];

		strait_gpu->cuDeviceGetName(name, sizeof(name), rank->device);
		strait_gpu->cuDeviceGetPCIBusId(bus, sizeof(bus), rank->device);
		snprintf(lines[rank->rank], sizeof(*lines),
			 "Pid %6d on %.32s device %2d [%.20s] %.32s", (int)getpid(),
			 run->machine.host, rank->device_index, bus, name);
	}
	bench_gang_allgather(&run->gang, member->thread, lines,
			     (size_t)member->n_ranks * sizeof(*lines));
	return lines;
}

static void print_header(const struct bench_run *run, char (*lines)[128])
{
	const char **pointers = calloc((size_t)run->n_ranks, sizeof(*pointers));

	for (int r = 0; r < run->n_ranks; r++)
		pointers[r] = lines[r];
	bench_output_header(run, pointers);
	free(pointers);
}

static void run_member(struct bench_member *member, struct bench_output *output,
		       uint64_t *ret_wrong)
{
	struct bench_run *run = member->run;
	struct walk walk = {.member = member, .output = output};
	char(*lines)[128];

	bench_member_setup(member);
	lines = describe_ranks(member);
	if (output)
		print_header(run, lines);
	free(lines);
	for (int64_t cycle = 0; run->options->cycles == 0 || cycle < run->options->cycles; cycle++)
		walk_table(&walk);
	if (member->thread == 0)
		bench_board_say(run->board, "ending");
	bench_member_teardown(member);
	if (ret_wrong)
		*ret_wrong = walk.wrong;
}

static void *member_thread(void *argument)
{
	run_member(argument, NULL, NULL);
	return NULL;
}

static void make_members(struct bench_run *run)
{
	run->members = calloc((size_t)run->place.n_threads, sizeof(*run->members));
	for (int t = 0; t < run->place.n_threads; t++) {
		struct bench_member *member = &run->members[t];
		int first = (run->place.process * run->place.n_threads + t) * run->place.n_gpus;

		member->run = run;
		member->thread = t;
		member->n_ranks = run->place.n_gpus;
		member->ranks = calloc((size_t)member->n_ranks, sizeof(*member->ranks));
		for (int g = 0; g < member->n_ranks; g++)
			member->ranks[g].rank = first + g;
	}
}

static uint64_t run_members(struct bench_run *run, struct bench_output *output)
{
	pthread_t *threads = calloc((size_t)run->place.n_threads, sizeof(*threads));
	uint64_t wrong = 0;

	make_members(run);
	for (int t = 1; t < run->place.n_threads; t++)
		if (pthread_create(&threads[t], NULL, member_thread, &run->members[t]) != 0)
			bench_die("cannot start a thread");
	run_member(&run->members[0], output, &wrong);
	for (int t = 1; t < run->place.n_threads; t++)
		pthread_join(threads[t], NULL);
	for (int t = 0; t < run->place.n_threads; t++)
		free(run->members[t].ranks);
	free(run->members);
	free(threads);
	return wrong;
}

static void open_libraries(struct bench_run *run)
{
	run->n_libraries = run->options->libraries[1] ? 2 : 1;
	for (int l = 0; l < run->n_libraries; l++)
		bench_library_open(run->options->libraries[l], &run->libraries[l]);
}

int bench_work(int argc, char **argv, struct bench_options *options)
{
	struct bench_run run = {.options = options};
	struct bench_output output;
	uint64_t wrong;

	bench_place_parse(options->worker, &run.place);
	bench_report_as(run.place.process);
	run.board = &bench_board_map(run.place.board_fd, run.place.n_local)[run.place.local];
	bench_machine_read(&run.machine);
	if (!run.machine.driver)
		bench_die("%s", run.machine.problem);
	bench_options_resolve(options, run.machine.emulator);
	if (options->null_stream && options->graph_launches)
		bench_die("the default stream cannot be captured: -y and -G exclude each other");
	if (run.place.process == 0)
		bench_output_open(&output, options, &run.machine, argc, argv);
	if (options->floor) {
		bench_floor(&run, &output);
		return 0;
	}
	run.n_ranks = n_members(&run) * run.place.n_gpus;
	open_libraries(&run);
	bench_board_say(run.board, "meeting the other processes");
	bench_gang_init(&run.gang, run.place.rendezvous, run.place.process, run.place.n_processes,
			run.place.n_threads, (int)options->limit_s);
	wrong = run_members(&run, run.place.process == 0 ? &output : NULL);
	if (run.place.process == 0) {
		bench_output_footer(&output, &run);
		bench_output_close(&output);
	}
	bench_gang_deinit(&run.gang);
	for (int l = 0; l < run.n_libraries; l++)
		free(run.libraries[l].path);
	return wrong ? BENCH_EXIT_WRONG : 0;
}
