/* SPDX-License-Identifier: Apache-2.0 */
/* Long options only. */
#include "tests/gpu/options.h"
#include "bench/report.h"
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
	"usage: cases [OPTIONS] [CASE...]    all cases when none is named\n"
	"  --list            the cases and what they show\n"
	"  --ranks N[,N...]  ranks of a job (default 2,4)\n"
	"  --threads         ranks are threads of one process\n"
	"  --lib PATH        the library under test\n"
	"  --seed N          of all random choices\n"
	"  --patience X      factor on all time limits\n"
	"  --gpu             do nothing (exit status 77) where there is no real GPU\n"
	"  --no-mps          leave MPS alone\n";

enum option_code {
	LIST = 256,
	RANKS,
	THREADS,
	LIB,
	SEED,
	PATIENCE,
	ONLY_GPU,
	NO_MPS,
	WORKER,
	HELP
};

static const struct option long_options[] = {
	{"list", no_argument, NULL, LIST},
	{"ranks", required_argument, NULL, RANKS},
	{"threads", no_argument, NULL, THREADS},
	{"lib", required_argument, NULL, LIB},
	{"seed", required_argument, NULL, SEED},
	{"patience", required_argument, NULL, PATIENCE},
	{"gpu", no_argument, NULL, ONLY_GPU},
	{"no-mps", no_argument, NULL, NO_MPS},
	{"worker", required_argument, NULL, WORKER},
	{"help", no_argument, NULL, HELP},
	{0},
};

static void parse_ranks(const char *text, struct options *options)
{
	char *end;

	options->n_ranks = 0;
	do {
		long n = strtol(text, &end, 10);

		if (n < 1 || n > BOARD_RANKS || options->n_ranks == MOST_RANK_COUNTS)
			bench_die("--ranks: up to %d numbers from 1 to %d", MOST_RANK_COUNTS,
				  BOARD_RANKS);
		options->ranks[options->n_ranks++] = (int)n;
		text = end + 1;
	} while (*end == ',');
	if (*end)
		bench_die("--ranks: not a number: %s", end);
}

static void take(int option, struct options *options)
{
	switch (option) {
	case LIST:
		options->list = true;
		break;
	case RANKS:
		parse_ranks(optarg, options);
		break;
	case THREADS:
		options->threads = true;
		break;
	case LIB:
		options->library = optarg;
		break;
	case SEED:
		options->seed = strtoull(optarg, NULL, 0);
		break;
	case PATIENCE:
		options->patience = atof(optarg);
		break;
	case ONLY_GPU:
		options->gpu_only = true;
		break;
	case NO_MPS:
		options->no_mps = true;
		break;
	case WORKER:
		options->worker = optarg;
		break;
	case HELP:
		fputs(usage, stdout);
		exit(0);
	default:
		fputs(usage, stderr);
		exit(2);
	}
}

static void parse_cases(int argc, char **argv, struct options *options)
{
	for (int i = 0; i < argc; i++) {
		int number = test_case_find(argv[i]);

		if (number < 0)
			bench_die("no case %s (--list shows them)", argv[i]);
		if (options->n_cases == BOARD_CASES)
			bench_die("too many cases");
		options->cases[options->n_cases++] = number;
	}
	for (int i = 0; argc == 0 && i < n_test_cases; i++)
		options->cases[options->n_cases++] = i;
}

void options_parse(int argc, char **argv, struct options *ret)
{
	int option;

	*ret = (struct options){.ranks = {2, 4}, .n_ranks = 2, .seed = 1, .patience = 1};
	while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1)
		take(option, ret);
	if (ret->patience <= 0)
		bench_die("--patience: a positive number");
	parse_cases(argc - optind, argv + optind, ret);
}

void worker_place_print(const struct worker_place *place, char *ret, size_t size)
{
	snprintf(ret, size, "%d/%d,%d,%d,%d,%d,%s", place->process, place->n_processes,
		 place->n_threads, place->n_devices, place->emulator, place->board_fd,
		 place->rendezvous);
}

void worker_place_parse(const char *text, struct worker_place *ret)
{
	if (sscanf(text, "%d/%d,%d,%d,%d,%d,%63s", &ret->process, &ret->n_processes,
		   &ret->n_threads, &ret->n_devices, &ret->emulator, &ret->board_fd,
		   ret->rendezvous) != 7)
		bench_die("--worker is for the launcher only");
}

const char *options_library(const struct options *options, char *room)
{
	static const char *const places[] = {"libnccl.so.2", "../lib/libnccl.so.2",
					     "../../libnccl.so.2"};
	char program[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);

	if (options->library || length < 0)
		return options->library;
	program[length] = '\0';
	*strrchr(program, '/') = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		snprintf(room, PATH_MAX + 32, "%s/%s", program, places[i]);
		if (access(room, R_OK) == 0)
			return room;
	}
	return NULL;
}
