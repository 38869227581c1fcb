/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks the registry of algorithms over type x reduction x count x ranks x placement x way of issue
 * on the emulator, each algorithm forced and in processes of its own. The report of the library
 * must say that the forced algorithm ran.
 *
 *   matrix [--seed S] [--samples N] [--full] [--algorithm NAME] [--ranks N] [--scratch BYTES]
 *          [--blocks N] [--threads N]
 *   matrix --weak FIRST:N      seeds of the emulator's order of memory, a few cases each on 2 and 4
 * ranks matrix --algorithm NAME --case 'TEXT'     one case, as a failure prints it
 */
#include "tests/collectives/deck.h"
#include <inttypes.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct options {
	uint64_t seed, scratch_bytes;
	int samples, ranks;
	unsigned blocks, threads;
	bool full;
	const char *algorithm, *text;
	int first_weak, n_weak;
};

struct job {
	const struct options *options;
	const struct strait_algorithm *algorithm;
	int n_ranks;
	uint64_t weak_seed;
	FILE *report;
};

static void set_number(const char *name, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	setenv(name, text, 1);
}

/* Before anything of the library or the emulator has read them. */
static void set_environment(const struct job *job)
{
	char path[64];

	setenv("STRAIT_ALGORITHM", job->algorithm->name, 1);
	set_number("STRAIT_SCRATCH_SIZE", job->options->scratch_bytes);
	set_number("STRAIT_EMULATOR_SMS", job->options->blocks);
	set_number("STRAIT_EMULATOR_BLOCK_THREADS", job->options->threads);
	set_number("STRAIT_EMULATOR_SEED", job->weak_seed ? job->weak_seed : job->options->seed);
	if (job->report) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fileno(job->report));
		setenv("STRAIT_REPORT", path, 1);
	}
}

static void note_case(const struct job *job, const struct collective_case *c)
{
	char text[512];

	case_text(c, text, sizeof(text));
	rig_note("--seed %" PRIu64 " --scratch %" PRIu64
		 " --blocks %u --threads %u --algorithm %s --case '%s'",
		 job->weak_seed ? job->weak_seed : job->options->seed, job->options->scratch_bytes,
		 job->options->blocks, job->options->threads, job->algorithm->name, text);
}

/* Calls of the forced algorithm that the library counted. */
static unsigned long long reported_calls(const struct job *job)
{
	unsigned long long total = 0, calls, most_bytes;
	char line[512], path[64];

	rewind(job->report);
	while (fgets(line, sizeof(line), job->report))
		if (sscanf(line, "strait report\tAllReduce\t%*u\t%llu\t%63[^\t]\t%llu", &most_bytes,
			   path, &calls) == 3 &&
		    most_bytes && strcmp(path, job->algorithm->name) == 0)
			total += calls;
	return total;
}

static unsigned long long run_cases(const struct job *job, struct rig *rig)
{
	const struct options *options = job->options;
	unsigned long long n_native = 0;
	const struct deck_limits limits = {job->n_ranks, options->blocks, options->threads,
					   options->scratch_bytes};
	struct collective_case c;
	struct deck deck;
	uint64_t position = 0;

	deck_init(&deck, job->algorithm, &limits, options->full ? 2e7 : 2e6, options->seed);
	for (int i = 0; options->full || i < options->samples; i++) {
		if (!options->full)
			deck_deal(&deck, &c);
		else if (!deck_walk(&deck, &position, &c))
			break;
		note_case(job, &c);
		case_run(rig, &c);
		if (deck_is_native(&deck, &c))
			n_native +=
				c.graph ? (unsigned)c.n_ranks : (unsigned)(c.n_ranks * c.n_calls);
	}
	return n_native;
}

static void run_sampled(void *argument)
{
	const struct job *job = argument;
	unsigned long long n_native;
	struct rig rig;

	set_environment(job);
	rig_note("%s, %d ranks: set-up", job->algorithm->name, job->n_ranks);
	rig_init(&rig, job->n_ranks);
	n_native = run_cases(job, &rig);
	rig_note("%s, %d ranks: end", job->algorithm->name, job->n_ranks);
	rig_deinit(&rig);
	/* Compared with the library's report, which is written when this process has ended. */
	fprintf(job->report, "expected\t%llu\n", n_native);
	fflush(job->report);
}

static unsigned long long expected_calls(const struct job *job)
{
	unsigned long long calls;
	char line[512];

	rewind(job->report);
	while (fgets(line, sizeof(line), job->report))
		if (sscanf(line, "expected\t%llu", &calls) == 1)
			return calls;
	return 0;
}

/* A minimum, and several blocks and steps, with new data at every call. */
static void run_weak_ranks(const struct job *job, int n_ranks)
{
	static const size_t counts[] = {65, 3001};
	struct rig rig;

	rig_note("%s, seed %" PRIu64 ", %d ranks: set-up", job->algorithm->name, job->weak_seed,
		 n_ranks);
	rig_init(&rig, n_ranks);
	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		struct collective_case c = {.n_ranks = n_ranks,
					    .type = i ? STRAIT_BFLOAT16 : STRAIT_FLOAT32,
					    .count = counts[i],
					    .k = job->weak_seed,
					    .placement = job->weak_seed % 3 ? job->weak_seed : 0,
					    .graph = i,
					    .group = job->weak_seed & 1,
					    .n_calls = 3};

		note_case(job, &c);
		case_run(&rig, &c);
	}
	rig_deinit(&rig);
}

static void run_weak(void *argument)
{
	const struct job *job = argument;

	set_environment(job);
	run_weak_ranks(job, 2);
	run_weak_ranks(job, 4);
}

static void run_one(void *argument)
{
	const struct job *job = argument;
	struct collective_case c;
	struct rig rig;

	if (!case_parse(job->options->text, &c))
		rig_die("this is no case: %s", job->options->text);
	set_environment(job);
	note_case(job, &c);
	rig_init(&rig, c.n_ranks);
	case_run(&rig, &c);
	rig_deinit(&rig);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int sample(const struct options *options, const struct strait_algorithm *algorithm)
{
	static const int numbers[] = {1, 2, 3, 4, 5, 7, 8};
	int n_failed = 0;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		struct job job = {options, algorithm, numbers[i], 0, tmpfile()};
		double begin = now();
		bool ok;

		if (options->ranks && options->ranks != numbers[i])
			continue;
		ok = job.report && rig_fork(run_sampled, &job);
		if (ok && reported_calls(&job) != expected_calls(&job)) {
			printf("FAILED %s ran %llu calls instead of %llu\n", algorithm->name,
			       reported_calls(&job), expected_calls(&job));
			ok = false;
		}
		n_failed += !ok;
		printf("%-22s %d ranks: %s, %llu calls of it, %.1f s\n", algorithm->name,
		       numbers[i], ok ? "ok" : "FAILED", expected_calls(&job), now() - begin);
		fclose(job.report);
	}
	return n_failed;
}

static int weaken(const struct options *options, const struct strait_algorithm *algorithm)
{
	double begin = now();
	int n_failed = 0;

	for (int i = 0; i < options->n_weak; i++) {
		struct job job = {.options = options,
				  .algorithm = algorithm,
				  .weak_seed = (uint64_t)(options->first_weak + i)};

		n_failed += !rig_fork(run_weak, &job);
	}
	printf("%-22s %d seeds: %d failed, %.1f s\n", algorithm->name, options->n_weak, n_failed,
	       now() - begin);
	return n_failed;
}

static bool parse(int argc, char **argv, struct options *o)
{
	static const struct option names[] = {{"seed", 1, NULL, 's'},
					      {"samples", 1, NULL, 'n'},
					      {"full", 0, NULL, 'f'},
					      {"algorithm", 1, NULL, 'a'},
					      {"ranks", 1, NULL, 'r'},
					      {"scratch", 1, NULL, 'm'},
					      {"blocks", 1, NULL, 'b'},
					      {"threads", 1, NULL, 't'},
					      {"case", 1, NULL, 'c'},
					      {"weak", 1, NULL, 'w'},
					      {0}};
	int option;

	while ((option = getopt_long(argc, argv, "", names, NULL)) != -1)
		switch (option) {
		case 's':
			o->seed = strtoull(optarg, NULL, 0);
			break;
		case 'n':
			o->samples = atoi(optarg);
			break;
		case 'f':
			o->full = true;
			break;
		case 'a':
			o->algorithm = optarg;
			break;
		case 'r':
			o->ranks = atoi(optarg);
			break;
		case 'm':
			o->scratch_bytes = strtoull(optarg, NULL, 0);
			break;
		case 'b':
			o->blocks = (unsigned)atoi(optarg);
			break;
		case 't':
			o->threads = (unsigned)atoi(optarg);
			break;
		case 'c':
			o->text = optarg;
			break;
		case 'w':
			if (sscanf(optarg, "%d:%d", &o->first_weak, &o->n_weak) != 2)
				return false;
			break;
		default:
			return false;
		}
	return optind == argc;
}

int main(int argc, char **argv)
{
	struct options options = {.seed = 1,
				  .scratch_bytes = 1 << 20,
				  .samples = 4 * DECK_PAIRS,
				  .blocks = 4,
				  .threads = 64};
	int n_failed = 0, n_done = 0;

	if (!parse(argc, argv, &options)) {
		fprintf(stderr, "see the head of tests/collectives/matrix.c\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("seed %" PRIu64 "\n", options.seed);
	for (const struct strait_algorithm *a = strait_algorithms; a->name; a++) {
		struct job one = {.options = &options, .algorithm = a};

		if (options.algorithm && strcmp(options.algorithm, a->name) != 0)
			continue;
		n_done++;
		n_failed += options.text     ? !rig_fork(run_one, &one)
			    : options.n_weak ? weaken(&options, a)
					     : sample(&options, a);
	}
	printf("%d algorithms, %d failures\n", n_done, n_failed);
	return n_failed || !n_done;
}
