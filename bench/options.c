/* SPDX-License-Identifier: Apache-2.0 */
/* The table of options, its parser and the help text made from it. */
#include "bench/options.h"
#include "bench/operation.h"
#include "bench/reference.h"
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNSET INT64_MIN

enum kind { SIZE, INTEGER, SWITCH, FLAG, TEXT, TYPES, REDUCTIONS, OPERATION, HELP, HEADING };

struct option_row {
	char letter; /* 0: none */
	const char *name;
	const char *value; /* what it takes, for --help; NULL: nothing */
	enum kind kind;
	size_t field;
	int64_t minimum, maximum;
	const char *text;
};

#define AT(field) offsetof(struct bench_options, field)
#define LARGE (1LL << 50)

static const struct option_row rows[] = {
	{0, "What is measured", NULL, HEADING, 0, 0, 0, NULL},
	{0, "operation", "NAME", OPERATION, 0, 0, 0,
	 "operation; --op takes these names, too (all_reduce)"},
	{'b', "minbytes", "SIZE", SIZE, AT(min_bytes), 1, LARGE,
	 "smallest size; K, M, G are powers of 1024 (1K)"},
	{'e', "maxbytes", "SIZE", SIZE, AT(max_bytes), 1, LARGE, "largest size (64M)"},
	{'i', "stepbytes", "SIZE", SIZE, AT(step_bytes), 1, LARGE, "from size to size, add this"},
	{'f', "stepfactor", "N", INTEGER, AT(step_factor), 2, 1 << 20,
	 "from size to size, multiply by this (4)"},
	{'d', "datatype", "TYPE", TYPES, 0, 0, 0,
	 "type as nccl-tests names it, several with commas, or all (float)"},
	{'o', "op", "REDUCTION", REDUCTIONS, 0, 0, 0,
	 "sum, prod, min, max, avg, mulsum, several with commas, or all (sum)"},
	{'r', "root", "N", INTEGER, AT(root), -1, 1 << 20,
	 "root of rooted operations; -1: every rank in turn (0)"},
	{'u', "offset", "N", INTEGER, AT(offset), 0, 1 << 20,
	 "buffers start N elements off their alignment (0)"},
	{0, "How", NULL, HEADING, 0, 0, 0, NULL},
	{'n', "iters", "N", INTEGER, AT(iterations), 1, 1 << 20,
	 "calls that are timed together, or that one graph holds (20)"},
	{'w', "warmup_iters", "N", INTEGER, AT(warmup), 0, 1 << 20, "calls before that (5)"},
	{'G', "cudagraph", "N", INTEGER, AT(graph_launches), 0, 1 << 20,
	 "capture the calls in a graph and launch it N times; 0: eager (0)"},
	{'S', "samples", "N", INTEGER, AT(samples), 1, 1 << 20,
	 "eager: repeat the timed calls N times, take the median (5)"},
	{'m', "agg_iters", "N", INTEGER, AT(aggregate), 1, 1 << 16,
	 "put N calls in one group, each time (1)"},
	{'N', "run_cycles", "N", INTEGER, AT(cycles), 0, 1 << 20,
	 "repeat the whole table; 0: for ever (1)"},
	{'c', "check", "N", INTEGER, AT(checks), 0, 1 << 20,
	 "check results N times a line, every bit and the bytes around; 0: not (1)"},
	{'z', "blocking", "N", INTEGER, AT(blocking), 0, 3,
	 "1: wait for each call; 3: wait and meet after each sample (0)"},
	{'C', "report_cputime", "0|1", SWITCH, AT(cpu_time), 0, 1,
	 "1: the time column shows CPU time a call (0)"},
	{'a', "average", "N", INTEGER, AT(report), 0, 3,
	 "over the ranks, show 0: rank 0, 1: average, 2: minimum, 3: maximum (1)"},
	{'R', "local_register", "N", INTEGER, AT(register_buffers), 0, 2,
	 "1: register buffers, 2: as symmetric windows (0)"},
	{'p', "parallel_init", "0|1", SWITCH, AT(parallel_init), 0, 1,
	 "1: each thread makes its communicators, else one for all (0)"},
	{'y', "stream_null", "0|1", SWITCH, AT(null_stream), 0, 1,
	 "1: use the legacy default stream (0)"},
	{0, "On what", NULL, HEADING, 0, 0, 0, NULL},
	{0, "lib", "PATH", TEXT, AT(libraries[0]), 0, 0,
	 "NCCL-compatible library (libnccl.so.2 in ../lib beside this program)"},
	{0, "vs", "PATH", TEXT, AT(libraries[1]), 0, 0,
	 "a second library, measured in turn with the first at every point"},
	{0, "ranks", "N", INTEGER, AT(processes), 1, 4096,
	 "start N processes, each with -t x -g ranks (the GPUs, at least 2)"},
	{0, "threads", NULL, FLAG, AT(as_threads), 0, 0, "make the N ranks threads of one process"},
	{'t', "nthreads", "N", INTEGER, AT(threads), 1, 4096, "threads a process (1)"},
	{'g', "ngpus", "N", INTEGER, AT(gpus), 1, 4096, "GPUs a thread (1)"},
	{0, "no-mps", NULL, FLAG, AT(no_mps), 0, 0, "do not start MPS where processes share a GPU"},
	{0, "rendezvous", "HOST:PORT", TEXT, AT(rendezvous), 0, 0,
	 "where ranks of several hosts meet (torchrun: MASTER_ADDR, MASTER_PORT + 1)"},
	{'T', "limit", "SECONDS", INTEGER, AT(limit_s), 1, 1 << 20,
	 "without progress for so long, all ranks are stopped (120)"},
	{0, "Results", NULL, HEADING, 0, 0, 0, NULL},
	{0, "csv", "FILE", TEXT, AT(csv), 0, 0, "append the lines, with machine, library and date"},
	{'J', "json", "FILE", TEXT, AT(json), 0, 0, "append them as JSON, one object a line"},
	{0, "floor", NULL, FLAG, AT(floor), 0, 0,
	 "measure what the machine can do at best, and nothing else"},
	{0, "with-floor", NULL, FLAG, AT(with_floor), 0, 0,
	 "measure that, then the library, in one run"},
	{'h', "help", NULL, HELP, 0, 0, 0, "print this"},
	{0, "worker", NULL, TEXT, AT(worker), 0, 0, NULL},
};

#define N_ROWS (sizeof(rows) / sizeof(*rows))
#define FIRST_CODE 256 /* above any letter: rows without one */

static void print_help(void)
{
	puts("strait-bench: correctness and speed of any NCCL-compatible library.\n\n"
	     "  strait-bench --ranks 4 -b 1K -e 64M -f 4 -d half         four processes, eager "
	     "calls\n"
	     "  strait-bench --ranks 8 -G 20                             20 calls in a graph, "
	     "launched 20 times\n"
	     "  strait-bench --ranks 2 --vs /usr/lib/libnccl.so.2        two libraries, point by "
	     "point\n"
	     "  mpirun -np 8 strait-bench, torchrun --no-python strait-bench   ranks started by "
	     "others\n\n"
	     "Where ranks outnumber GPUs they share them (under MPS, which is started for the "
	     "run).\n"
	     "The time of a line is the median, over graph launches or samples, of device time a "
	     "call; the CSV and JSON\n"
	     "files hold average, minimum, host and CPU time, too. Exit status: 0, or 1 when a "
	     "result was wrong, a rank\n"
	     "died or hung, or 2 for a bad option. Defaults are in parentheses; on the emulator "
	     "sizes and counts are\n"
	     "smaller (64 to 16K, -n 3 -w 1 -S 3).");
	for (size_t i = 0; i < N_ROWS; i++) {
		char left[64], letter[4] = {'-', rows[i].letter, ',', '\0'};

		if (rows[i].kind == HEADING)
			printf("\n%s:\n", rows[i].name);
		if (rows[i].kind == HEADING || !rows[i].text)
			continue;
		snprintf(left, sizeof(left), "%s --%s %s", rows[i].letter ? letter : "   ",
			 rows[i].name, rows[i].value ? rows[i].value : "");
		printf("  %-29s %s\n", left, rows[i].text);
	}
}

int bench_size_parse(const char *text, int64_t *ret)
{
	static const char units[] = "KMGT";
	char *end;
	double value = strtod(text, &end);
	const char *unit = *end ? strchr(units, *end & ~0x20) : NULL;

	if (end == text || !isfinite(value) || value < 0)
		return -1;
	if (unit) {
		value = ldexp(value, 10 * (int)(unit - units + 1));
		end++;
		if (*end == 'i')
			end++;
	}
	if (*end == 'B' || *end == 'b')
		end++;
	if (*end || value > 0x1p62)
		return -1;
	*ret = (int64_t)value;
	return 0;
}

static int parse_number(const struct option_row *row, const char *text, int64_t *ret)
{
	char *end;
	int64_t value;

	if (row->kind == SIZE) {
		if (bench_size_parse(text, &value) < 0)
			return -1;
	} else {
		value = strtoll(text, &end, 10);
		if (end == text || *end)
			return -1;
	}
	if (value < row->minimum || value > row->maximum)
		return -1;
	*ret = value;
	return 0;
}

static const char *type_name(int i)
{
	return strait_reference_type_name(i);
}

static const char *reduction_name(int i)
{
	return strait_reference_reduction_name(i);
}

/* nccl-tests and others spell some types in several ways. */
static const char *type_alias(const char *text)
{
	static const char *const aliases[][2] = {
		{"char", "int8"},      {"int", "int32"},       {"uint", "uint32"},
		{"float16", "half"},   {"fp16", "half"},       {"float32", "float"},
		{"float64", "double"}, {"bf16", "bfloat16"},   {"e4m3", "f8e4m3"},
		{"e5m2", "f8e5m2"},    {"fp8_e4m3", "f8e4m3"}, {"fp8_e5m2", "f8e5m2"}};

	for (size_t i = 0; i < sizeof(aliases) / sizeof(*aliases); i++)
		if (strcmp(text, aliases[i][0]) == 0)
			return aliases[i][1];
	return text;
}

static int name_index(const char *text, size_t length, const char *(*name_of)(int), int n)
{
	char token[32];

	snprintf(token, sizeof(token), "%.*s", (int)length, text);
	for (int i = 0; i < n; i++)
		if (strcmp(name_of(i), type_alias(token)) == 0)
			return i;
	return -1;
}

/* "half,float" or "all" as a bit for each. */
static int parse_set(const char *text, const char *(*name_of)(int), int n, unsigned *ret)
{
	unsigned set = 0;

	if (strcmp(text, "all") == 0) {
		*ret = (1u << n) - 1;
		return 0;
	}
	while (*text) {
		size_t length = strcspn(text, ",");
		int i = name_index(text, length, name_of, n);

		if (i < 0)
			return -1;
		set |= 1u << i;
		text += length + (text[length] == ',');
	}
	if (!set)
		return -1;
	*ret = set;
	return 0;
}

static int set_option(struct bench_options *options, const struct option_row *row, const char *text)
{
	void *field = (char *)options + row->field;
	const struct bench_operation *operation = NULL;
	int64_t number;

	switch (row->kind) {
	case SIZE:
	case INTEGER:
		return parse_number(row, text, field);
	case SWITCH:
		if (parse_number(row, text, &number) < 0)
			return -1;
		*(bool *)field = number != 0;
		return 0;
	case FLAG:
		*(bool *)field = true;
		return 0;
	case TEXT:
		*(const char **)field = text;
		return 0;
	case TYPES:
		options->all_types = strcmp(text, "all") == 0;
		return parse_set(text, type_name, STRAIT_N_TYPES, &options->types);
	case REDUCTIONS:
		operation = bench_operation_find(text); /* --op all_reduce */
		if (operation)
			break;
		return parse_set(text, reduction_name, STRAIT_N_REDUCTIONS, &options->reductions);
	default:
		operation = bench_operation_find(text);
		break;
	}
	if (operation)
		options->operation = operation;
	return operation ? 0 : -1;
}

static void set_defaults(struct bench_options *options)
{
	memset(options, 0, sizeof(*options));
	options->operation = bench_operation_at(0);
	options->types = 1u << STRAIT_FLOAT32;
	options->reductions = 1u << STRAIT_SUM;
	for (size_t i = 0; i < N_ROWS; i++)
		if (rows[i].kind == SIZE || rows[i].kind == INTEGER)
			*(int64_t *)((char *)options + rows[i].field) = UNSET;
}

static void make_tables(struct option *ret_long, char *ret_short)
{
	size_t n = 0;

	for (size_t i = 0; i < N_ROWS; i++) {
		bool takes = rows[i].value || rows[i].kind == TEXT;

		if (rows[i].kind == HEADING)
			continue;
		ret_long[n++] =
			(struct option){rows[i].name, takes ? required_argument : no_argument, NULL,
					FIRST_CODE + (int)i};
		if (!rows[i].letter)
			continue;
		*ret_short++ = rows[i].letter;
		if (takes)
			*ret_short++ = ':';
	}
	ret_long[n] = (struct option){0};
	*ret_short = '\0';
}

static const struct option_row *row_of(int code)
{
	if (code >= FIRST_CODE)
		return &rows[code - FIRST_CODE];
	for (size_t i = 0; i < N_ROWS; i++)
		if (rows[i].letter == code)
			return &rows[i];
	return NULL;
}

static int complain(const struct option_row *row, const char *text)
{
	fprintf(stderr, "strait-bench: --%s %s: ", row->name, text);
	if (row->kind == SIZE || row->kind == INTEGER || row->kind == SWITCH)
		fprintf(stderr, "%s from %" PRId64 " to %" PRId64 " is wanted\n",
			row->kind == SIZE ? "a size" : "a number", row->minimum, row->maximum);
	else
		fprintf(stderr, "not known; see --help\n");
	return 2;
}

int bench_options_parse(int argc, char **argv, struct bench_options *ret, bool *ret_done)
{
	struct option long_options[N_ROWS + 1];
	char short_options[2 * N_ROWS + 1];
	int code;

	*ret_done = true;
	set_defaults(ret);
	make_tables(long_options, short_options);
	optind = 0; /* parse anew, also for a second call in one process */
	while ((code = getopt_long(argc, argv, short_options, long_options, NULL)) != -1) {
		const struct option_row *row = code == '?' ? NULL : row_of(code);

		if (!row)
			return 2; /* getopt has said what is wrong */
		if (row->kind == HELP) {
			print_help();
			return 0;
		}
		if (set_option(ret, row, optarg) < 0)
			return complain(row, optarg);
	}
	if (optind < argc) {
		fprintf(stderr, "strait-bench: what is %s? See --help\n", argv[optind]);
		return 2;
	}
	if (ret->min_bytes != UNSET && ret->max_bytes != UNSET && ret->min_bytes > ret->max_bytes) {
		fprintf(stderr, "strait-bench: -b is larger than -e\n");
		return 2;
	}
	*ret_done = false;
	return 0;
}

static void fall_back(int64_t *value, int64_t fallback)
{
	if (*value == UNSET)
		*value = fallback;
}

void bench_options_resolve(struct bench_options *options, bool emulator)
{
	bool only_max = options->min_bytes == UNSET && options->max_bytes != UNSET;

	fall_back(&options->min_bytes, emulator ? 64 : 1024);
	if (only_max && options->min_bytes > options->max_bytes)
		options->min_bytes = options->max_bytes;
	fall_back(&options->max_bytes, emulator ? 16 << 10 : 64 << 20);
	if (options->max_bytes < options->min_bytes)
		options->max_bytes = options->min_bytes;
	fall_back(&options->step_bytes, 0);
	fall_back(&options->step_factor, options->step_bytes ? 1 : 4);
	fall_back(&options->root, 0);
	fall_back(&options->offset, 0);
	fall_back(&options->iterations, emulator ? 3 : 20);
	fall_back(&options->warmup, emulator ? 1 : 5);
	fall_back(&options->samples, emulator ? 3 : 5);
	fall_back(&options->graph_launches, 0);
	fall_back(&options->aggregate, 1);
	fall_back(&options->cycles, 1);
	fall_back(&options->checks, 1);
	fall_back(&options->blocking, 0);
	fall_back(&options->report, 1);
	fall_back(&options->register_buffers, 0);
	fall_back(&options->threads, 1);
	fall_back(&options->gpus, 1);
	fall_back(&options->limit_s, 120);
}
