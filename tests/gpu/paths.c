/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's own report says how each call ran. A case that passed on another path than a native
 * one has shown nothing, so such a call is a failure. Processes that are killed leave no report.
 */
#include "bench/report.h"
#include "tests/gpu/session.h"
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_PATHS = 32 };

static char folder[64];

struct tally {
	struct {
		char path[64];
		unsigned long long calls;
	} rows[MOST_PATHS];
	int n, n_reports;
	bool foreign;
};

void paths_open(void)
{
	strcpy(folder, "/tmp/strait-cases-XXXXXX");
	if (!mkdtemp(folder))
		bench_die("cannot make a folder in /tmp");
}

void paths_set_environment(void)
{
	char file[128];

	snprintf(file, sizeof(file), "%s/%%p", folder);
	setenv("STRAIT_REPORT", file, 1);
}

static void count(struct tally *tally, const char *path, unsigned long long calls)
{
	int i = 0;

	while (i < tally->n && strcmp(tally->rows[i].path, path) != 0)
		i++;
	if (i == MOST_PATHS)
		return;
	if (i == tally->n)
		snprintf(tally->rows[tally->n++].path, sizeof(tally->rows[i].path), "%s", path);
	tally->rows[i].calls += calls;
	if (strncmp(path, "allreduce_", 10) != 0 && strcmp(path, "copy") != 0)
		tally->foreign = true;
}

static void read_report(struct tally *tally, const char *name)
{
	char file[PATH_MAX], line[512], path[64];
	unsigned long long calls;
	FILE *stream;

	snprintf(file, sizeof(file), "%s/%s", folder, name);
	stream = fopen(file, "r");
	if (!stream)
		return;
	tally->n_reports++;
	while (fgets(line, sizeof(line), stream))
		if (sscanf(line, "strait report\t%*[^\t]\t%*[^\t]\t%*[^\t]\t%63[^\t]\t%llu", path,
			   &calls) == 2)
			count(tally, path, calls);
	fclose(stream);
	unlink(file);
}

bool paths_close(void)
{
	struct tally tally = {.n = 0};
	DIR *entries = opendir(folder);
	struct dirent *entry;

	while (entries && (entry = readdir(entries)))
		if (*entry->d_name != '.')
			read_report(&tally, entry->d_name);
	if (entries)
		closedir(entries);
	rmdir(folder);
	printf("# paths of %d processes:", tally.n_reports);
	for (int i = 0; i < tally.n; i++)
		printf("%s %llu %s", i ? "," : "", tally.rows[i].calls, tally.rows[i].path);
	puts("");
	if (tally.foreign)
		puts("FAIL native paths: a call took another one");
	return !tally.foreign;
}
