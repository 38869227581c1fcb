/* SPDX-License-Identifier: Apache-2.0 */
/* Records go through one list of fields, so that CSV and JSON have the same. */
#include "bench/output.h"
#include "bench/reference.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct field {
	const char *name;
	char text[600];
	bool number;
};

struct record {
	struct field fields[32];
	int n;
};

static void add(struct record *record, bool number, const char *name, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static void add(struct record *record, bool number, const char *name, const char *format, ...)
{
	struct field *field = &record->fields[record->n++];
	va_list arguments;

	field->name = name;
	field->number = number;
	va_start(arguments, format);
	vsnprintf(field->text, sizeof(field->text), format, arguments);
	va_end(arguments);
}

static void write_quoted(FILE *file, const char *text, bool json)
{
	fputc('"', file);
	for (; *text; text++) {
		if (json && (*text == '"' || *text == '\\'))
			fputc('\\', file);
		else if (*text == '"')
			fputc('"', file);
		if ((unsigned char)*text >= ' ')
			fputc(*text, file);
	}
	fputc('"', file);
}

static void write_csv(FILE *file, const struct record *record)
{
	if (ftell(file) == 0) {
		for (int i = 0; i < record->n; i++)
			fprintf(file, "%s%s", i ? "," : "", record->fields[i].name);
		fputc('\n', file);
	}
	for (int i = 0; i < record->n; i++) {
		if (i)
			fputc(',', file);
		if (record->fields[i].number)
			fputs(record->fields[i].text, file);
		else
			write_quoted(file, record->fields[i].text, false);
	}
	fputc('\n', file);
	fflush(file);
}

static void write_json(FILE *file, const struct record *record)
{
	fputc('{', file);
	for (int i = 0; i < record->n; i++) {
		fprintf(file, "%s\"%s\": ", i ? ", " : "", record->fields[i].name);
		if (record->fields[i].number)
			fputs(record->fields[i].text, file);
		else
			write_quoted(file, record->fields[i].text, true);
	}
	fputs("}\n", file);
	fflush(file);
}

static FILE *open_for_append(const char *path)
{
	FILE *file = path ? fopen(path, "a") : NULL;

	if (path && !file)
		bench_die("cannot write %s: %s", path, strerror(errno));
	if (file)
		fseek(file, 0, SEEK_END);
	return file;
}

static const char *command_text(int argc, char **argv)
{
	static char text[500];
	size_t n = 0;

	for (int i = 0; i < argc && n < sizeof(text); i++) {
		if (strncmp(argv[i], "--worker=", 9) == 0)
			continue;
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", i ? " " : "", argv[i]);
	}
	return text;
}

void bench_output_open(struct bench_output *output, const struct bench_options *options,
		       const struct bench_machine *machine, int argc, char **argv)
{
	static char date[32];
	time_t now = time(NULL);
	struct tm utc;

	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
	*output = (struct bench_output){
		.csv = open_for_append(options->csv),
		.json = open_for_append(options->json),
		.machine = machine,
		.command = command_text(argc, argv),
		.date = date,
	};
}

void bench_output_close(struct bench_output *output)
{
	if (output->csv)
		fclose(output->csv);
	if (output->json)
		fclose(output->json);
}

static void write_record(struct bench_output *output, struct record *record)
{
	const struct bench_machine *machine = output->machine;

	add(record, false, "machine", "%s", machine->host);
	add(record, false, "gpu", "%s", machine->gpu);
	add(record, true, "n_gpus", "%d", machine->n_devices);
	add(record, true, "driver", "%d", machine->driver_version);
	add(record, false, "date", "%s", output->date);
	add(record, false, "command", "%s", output->command);
	if (output->csv)
		write_csv(output->csv, record);
	if (output->json)
		write_json(output->json, record);
}

/* The fields of a measured line; a record of the floor has the same, most of them empty or 0. */
static void start_record(struct record *record, const char *operation, const char *mode,
			 size_t bytes)
{
	record->n = 0;
	add(record, false, "operation", "%s", operation);
	add(record, false, "mode", "%s", mode);
	add(record, true, "bytes", "%zu", bytes);
}

static const char *mode_text(const struct bench_options *options)
{
	return options->graph_launches ? "graph" : "eager";
}

static void write_line_record(struct bench_output *output, const struct bench_line *line)
{
	const struct bench_run *run = line->run;
	const struct bench_options *options = run->options;
	const struct bench_point *point = &line->point;
	struct record record;

	start_record(&record, options->operation->name, mode_text(options),
		     point->count * bench_type_bytes(point->type));
	add(&record, true, "count", "%zu", point->count);
	add(&record, false, "type", "%s", strait_reference_type_name(point->type));
	add(&record, false, "reduction", "%s", strait_reference_reduction_name(point->reduction));
	add(&record, true, "root", "%d", point->root);
	add(&record, true, "in_place", "%d", point->in_place);
	add(&record, true, "time_us", "%.3f", line->median_us);
	add(&record, true, "average_us", "%.3f", line->average_us);
	add(&record, true, "least_us", "%.3f", line->least_us);
	add(&record, true, "host_us", "%.3f", line->host_us);
	add(&record, true, "cpu_us", "%.3f", line->cpu_us);
	add(&record, true, "algbw_gbs", "%.3f", line->algorithm_gbs);
	add(&record, true, "busbw_gbs", "%.3f", line->bus_gbs);
	add(&record, true, "wrong", "%" PRId64, options->checks ? (int64_t)line->wrong : -1);
	add(&record, true, "ranks", "%d", run->n_ranks);
	add(&record, true, "processes", "%d", run->place.n_processes);
	add(&record, true, "calls", "%" PRId64, options->iterations);
	add(&record, true, "samples", "%" PRId64,
	    options->graph_launches ? options->graph_launches : options->samples);
	add(&record, false, "library", "%s", run->libraries[point->library].path);
	add(&record, true, "library_version", "%d", run->libraries[point->library].version);
	write_record(output, &record);
}

void bench_output_floor(struct bench_output *output, const char *what, const char *variant,
			size_t bytes, double value, const char *unit)
{
	bool time = strcmp(unit, "us") == 0;
	struct record record;

	start_record(&record, "floor", what, bytes);
	add(&record, true, "count", "0");
	add(&record, false, "type", "%s", "");
	add(&record, false, "reduction", "%s", variant);
	for (const char *const *name = (const char *const[]){"root", "in_place", NULL}; *name;
	     name++)
		add(&record, true, *name, "0");
	for (const char *const *name =
		     (const char *const[]){"time_us", "average_us", "least_us", "host_us", NULL};
	     *name; name++)
		add(&record, true, *name, "%.3f", time ? value : 0);
	add(&record, true, "cpu_us", "0");
	add(&record, true, "algbw_gbs", "%.3f", time ? 0 : value);
	add(&record, true, "busbw_gbs", "%.3f", time ? 0 : value);
	for (const char *const *name =
		     (const char *const[]){"wrong", "ranks", "processes", "calls", "samples", NULL};
	     *name; name++)
		add(&record, true, *name, "0");
	add(&record, false, "library", "%s", "");
	add(&record, true, "library_version", "0");
	write_record(output, &record);
}

/* The table. */

static void print_library(const struct bench_run *run, int l)
{
	int version = run->libraries[l].version;

	printf("#   %s: %s, version %d.%d.%d\n", l == 0 ? "lib" : "vs ", run->libraries[l].path,
	       version / 10000, version / 100 % 100, version % 100);
}

static void print_meaning_of_time(const struct bench_options *options)
{
	static const char *const over[] = {"of rank 0", "average over ranks", "minimum over ranks",
					   "maximum over ranks"};

	if (options->cpu_time)
		printf("# time: CPU time in a call, %s\n", over[options->report]);
	else if (options->graph_launches)
		printf("# time: median of %" PRId64 " launches of a graph of %" PRId64
		       " calls, device time a call, %s\n",
		       options->graph_launches, options->iterations, over[options->report]);
	else
		printf("# time: median of %" PRId64 " samples of %" PRId64
		       " eager calls, device time a call, %s\n",
		       options->samples, options->iterations, over[options->report]);
}

void bench_output_header(const struct bench_run *run, const char *const *devices)
{
	const struct bench_options *options = run->options;

	printf("# %s, nThread %d nGpus %d minBytes %" PRId64 " maxBytes %" PRId64 " step: %" PRId64
	       "(%s) warmup iters: %" PRId64 " iters: %" PRId64 " agg iters: %" PRId64
	       " validation: %" PRId64 " graph: %" PRId64 "\n#\n",
	       options->operation->name, run->place.n_threads, run->place.n_gpus,
	       options->min_bytes, options->max_bytes,
	       options->step_bytes ? options->step_bytes : options->step_factor,
	       options->step_bytes ? "bytes" : "factor", options->warmup, options->iterations,
	       options->aggregate, options->checks, options->graph_launches);
	puts("# Libraries");
	for (int l = 0; l < run->n_libraries; l++)
		print_library(run, l);
	puts("# Using devices");
	for (int r = 0; r < run->n_ranks; r++)
		printf("#  Rank %2d %s\n", r, devices[r]);
	puts("#");
	print_meaning_of_time(options);
	printf("#\n#                                                              out-of-place     "
	       "                  "
	       "in-place\n");
	printf("# %10s  %12s  %8s  %6s  %6s  %7s %7s %7s %7s  %7s %7s %7s %7s\n", "size", "count",
	       "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw",
	       "busbw", "#wrong");
	printf("# %10s  %12s  %8s  %6s  %6s  %7s %7s %7s %7s  %7s %7s %7s %7s\n", "(B)",
	       "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)",
	       "");
	fflush(stdout);
}

static void print_half(const struct bench_line *line)
{
	const struct bench_options *options = line->run->options;
	double time = options->cpu_time ? line->cpu_us : line->median_us;
	char wrong[24] = "N/A";

	if (options->checks)
		snprintf(wrong, sizeof(wrong), "%" PRIu64, line->wrong);
	printf("  %7.*f %7.2f %7.2f %7s",
	       time < 1000     ? 2
	       : time < 100000 ? 1
			       : 0,
	       time, line->algorithm_gbs, line->bus_gbs, wrong);
}

void bench_output_line(struct bench_output *output, const struct bench_line halves[2])
{
	const struct bench_point *point = &halves[0].point;
	const struct bench_run *run = halves[0].run;
	const struct bench_operation *operation = run->options->operation;

	printf("%12zu  %12zu  %8s  %6s  %6d", point->count * bench_type_bytes(point->type),
	       point->count, strait_reference_type_name(point->type),
	       operation->reduces ? strait_reference_reduction_name(point->reduction) : "none",
	       operation->rooted ? point->root : -1);
	print_half(&halves[0]);
	print_half(&halves[1]);
	puts(run->n_libraries < 2 ? "" : point->library == 0 ? "  lib" : "  vs");
	fflush(stdout);
	for (int h = 0; h < 2; h++) {
		output->wrong += halves[h].wrong;
		output->bus_sum += halves[h].bus_gbs;
		output->n_lines++;
		write_line_record(output, &halves[h]);
	}
}

void bench_output_footer(const struct bench_output *output, const struct bench_run *run)
{
	if (run->options->checks)
		printf("# Out of bounds values : %" PRIu64 " %s\n", output->wrong,
		       output->wrong ? "FAILED" : "OK");
	else
		puts("# Results were not checked (-c 0)");
	if (run->n_libraries == 1)
		printf("# Avg bus bandwidth    : %g\n",
		       output->n_lines ? output->bus_sum / (double)output->n_lines : 0);
	puts("#");
	fflush(stdout);
}
