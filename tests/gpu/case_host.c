/* SPDX-License-Identifier: Apache-2.0 */
/* What concerns whole processes, seen from the launcher: their environment, and programs that have
 * the library preloaded. */
#include "tests/gpu/session.h"
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct outcome *host_case;
const struct options *host_options;
bool host_emulator;

void test_case_environment(const struct test_case *test, int rank, int n_ranks)
{
	bool other = rank == 1 || n_ranks == 1;

	if (test->run == case_settings_differ && other)
		setenv("STRAIT_SCRATCH_SIZE", "8M", 1);
	if (test->run == case_forced_path_differs && other)
		setenv("STRAIT_ALGORITHM", "allreduce_simple", 1);
	/* Ranks of one process wait for each other: no two of their streams may share a queue, of
	 * which a client of MPS has few. Rank 0 holds them all; a GPU has not that many queues for
	 * every process. */
	if (test->run == case_one_thread && rank == 0)
		setenv("CUDA_DEVICE_MAX_CONNECTIONS", "16", 1);
}

static void blame(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void blame(const char *format, ...)
{
	size_t length = strlen(host_case->text);
	va_list arguments;

	host_case->kind = OUTCOME_FAIL;
	va_start(arguments, format);
	vsnprintf(host_case->text + length, sizeof(host_case->text) - length, format, arguments);
	va_end(arguments);
}

struct result {
	int status;
	char output[32 << 10]; /* of both streams, its beginning */
};

/* Runs a shell line with LD_PRELOAD in the environment of its commands only. */
static void run(const char *line, const char *preload, struct result *ret)
{
	char command[2 * PATH_MAX];
	FILE *pipe;
	size_t n = 0, got;

	if (preload)
		snprintf(command, sizeof(command), "LD_PRELOAD='%s' %s 2>&1", preload, line);
	else
		snprintf(command, sizeof(command), "%s 2>&1", line);
	memset(ret, 0, sizeof(*ret));
	pipe = popen(command, "re");
	if (!pipe) {
		ret->status = -1;
		return;
	}
	while (n + 1 < sizeof(ret->output) &&
	       (got = fread(ret->output + n, 1, sizeof(ret->output) - 1 - n, pipe)) > 0)
		n += got;
	ret->status = pclose(pipe);
}

static bool is_there(const char *program)
{
	char line[128];
	static struct result found;

	snprintf(line, sizeof(line), "command -v %s", program);
	run(line, NULL, &found);
	return found.status == 0;
}

static int compare_programs(const char *library)
{
	static const char *const programs[][2] = {
		{"bash", "bash -c 'echo $((6 * 7)); exit 3'"},
		{"ls", "ls -l /usr"},
		{"python3", "python3 -c 'import sys; print(sys.version); sys.exit(4)'"},
		{"gcc", "gcc --version"},
		{"nvidia-smi", "nvidia-smi -L"},
		{"nvidia-smi", "nvidia-smi --query-gpu=name,uuid,driver_version --format=csv"},
	};
	static struct result plain, preloaded;
	int n = 0;

	for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++) {
		if (!is_there(programs[i][0]))
			continue;
		run(programs[i][1], NULL, &plain);
		run(programs[i][1], library, &preloaded);
		if (plain.status != preloaded.status || strcmp(plain.output, preloaded.output) != 0)
			blame("%s differs: status %d, then %d, output %.60s. ", programs[i][1],
			      plain.status, preloaded.status, preloaded.output);
		n++;
	}
	return n;
}

/* A program that does nothing must have the library, and neither driver nor GPU nor NCCL. */
static void look_inside(const char *library)
{
	static struct result maps, files;
	const char *name = strrchr(library, '/') + 1;

	run("cat /proc/self/maps", library, &maps);
	if (!strstr(maps.output, name))
		blame("%s was not preloaded. ", name);
	if (strstr(maps.output, "libcuda"))
		blame("the driver was mapped. ");
	run("ls -l /proc/self/fd", library, &files);
	if (strstr(files.output, "/dev/nvidia"))
		blame("a GPU was opened. ");
}

static void look_for_contexts(const char *library)
{
	static struct result list;

	if (host_emulator || !is_there("nvidia-smi"))
		return;
	run("bash -c 'nvidia-smi --query-compute-apps=pid --format=csv,noheader | grep -qx $$ && "
	    "echo found'",
	    library, &list);
	if (strstr(list.output, "found"))
		blame("a shell has a context on a GPU. ");
}

void case_preload(void)
{
	char room[PATH_MAX + 32], *library;
	const char *path = options_library(host_options, room);
	int n;

	library = path ? realpath(path, NULL) : NULL;
	if (!library) {
		host_case->kind = OUTCOME_SKIP;
		snprintf(host_case->text, sizeof(host_case->text),
			 "say where the library is: --lib");
		return;
	}
	n = compare_programs(library);
	look_inside(library);
	look_for_contexts(library);
	if (host_case->kind == OUTCOME_PASS)
		snprintf(host_case->text, sizeof(host_case->text), "%d programs", n);
	free(library);
}
