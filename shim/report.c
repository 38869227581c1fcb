/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fixed hash table of counters. A key is the pair of literals' addresses and the size class;
 * equal texts under different addresses are added up when the table is printed. A process that
 * fills the table (1024 different keys) counts the rest in one last line.
 */
#include "shim/report.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "strait/params.h"

enum { N_COUNTERS = 1024, SIZE_CLASSES = 65 };

struct counter {
	_Atomic(const char *) operation; /* NULL: free. Set last, so that a reader sees the rest */
	const char *path;
	int size_class; /* 0: 0 bytes; k: 2^(k-1) to 2^k - 1 */
	atomic_ullong calls;
};

static struct counter counters[N_COUNTERS];
static atomic_ullong uncounted;
static pthread_mutex_t insert_lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t owner; /* forked children inherit the counters but did not make the calls */

static int class_of(uint64_t bytes)
{
	return bytes ? 64 - __builtin_clzll(bytes) : 0;
}

static unsigned hash(const char *operation, int size_class, const char *path)
{
	uint64_t key = (uintptr_t)operation ^ (uintptr_t)path << 16 ^ (uint64_t)size_class << 48;

	return (unsigned)(key * 0x9e3779b97f4a7c15u >> 32);
}

static bool matches(const struct counter *counter, const char *operation, int size_class,
		    const char *path)
{
	/* pairs with the release in insert() */
	return atomic_load_explicit(&counter->operation, memory_order_acquire) == operation &&
	       counter->path == path && counter->size_class == size_class;
}

static struct counter *find(const char *operation, int size_class, const char *path, bool *ret_free)
{
	unsigned start = hash(operation, size_class, path);

	*ret_free = false;
	for (unsigned i = 0; i < N_COUNTERS; i++) {
		struct counter *counter = &counters[(start + i) % N_COUNTERS];

		if (matches(counter, operation, size_class, path))
			return counter;
		if (!atomic_load_explicit(&counter->operation, memory_order_relaxed)) {
			*ret_free = true;
			return counter;
		}
	}
	return NULL;
}

static struct counter *insert(const char *operation, int size_class, const char *path)
{
	struct counter *counter;
	bool is_free;

	pthread_mutex_lock(&insert_lock);
	counter = find(operation, size_class, path, &is_free);
	if (counter && is_free) {
		counter->path = path;
		counter->size_class = size_class;
		/* pairs with the acquire in matches() */
		atomic_store_explicit(&counter->operation, operation, memory_order_release);
	}
	pthread_mutex_unlock(&insert_lock);
	return counter;
}

void strait_report_count(const char *operation, uint64_t bytes, const char *path)
{
	int size_class = class_of(bytes);
	bool is_free;
	struct counter *counter = find(operation, size_class, path, &is_free);

	if (counter && is_free)
		counter = insert(operation, size_class, path);
	atomic_fetch_add_explicit(counter ? &counter->calls : &uncounted, 1, memory_order_relaxed);
}

struct line {
	const char *operation, *path;
	int size_class;
	unsigned long long calls;
};

static int compare_lines(const void *left, const void *right)
{
	const struct line *a = left, *b = right;
	int order = strcmp(a->operation, b->operation);

	if (order == 0)
		order = a->size_class - b->size_class;
	return order ? order : strcmp(a->path, b->path);
}

static int collect(struct line *lines)
{
	int n = 0;

	for (int i = 0; i < N_COUNTERS; i++) {
		/* pairs with the release in insert() */
		const char *operation =
			atomic_load_explicit(&counters[i].operation, memory_order_acquire);

		if (operation)
			lines[n++] = (struct line){
				operation, counters[i].path, counters[i].size_class,
				atomic_load_explicit(&counters[i].calls, memory_order_relaxed)};
	}
	qsort(lines, (size_t)n, sizeof(*lines), compare_lines);
	return n;
}

void strait_report_print(FILE *file)
{
	struct line *lines = malloc(N_COUNTERS * sizeof(*lines));
	unsigned long long rest = atomic_load_explicit(&uncounted, memory_order_relaxed);
	int n = lines ? collect(lines) : 0;

	fprintf(file, "strait report of process %d: operation, bytes from, bytes to, path, calls\n",
		(int)getpid());
	for (int i = 0; i < n; i++) {
		int k = lines[i].size_class;
		unsigned long long calls = lines[i].calls;

		while (i + 1 < n && compare_lines(&lines[i], &lines[i + 1]) == 0)
			calls += lines[++i].calls;
		fprintf(file, "strait report\t%s\t%llu\t%llu\t%s\t%llu\n", lines[i].operation,
			k ? 1ull << (k - 1) : 0, k ? (1ull << (k - 1)) * 2 - 1 : 0, lines[i].path,
			calls);
	}
	if (rest)
		fprintf(file, "strait report\tothers\t0\t0\tnot counted apart\t%llu\n", rest);
	free(lines);
}

/* %h: host name, %p: process, %%: a percent sign. */
static void expand(const char *pattern, char *ret_path, size_t path_bytes)
{
	size_t used = 0;

	for (; *pattern && used + 1 < path_bytes; pattern++) {
		char *end = ret_path + used;
		size_t left = path_bytes - used;

		if (pattern[0] == '%' && pattern[1] == 'p') {
			snprintf(end, left, "%d", (int)getpid());
			pattern++;
		} else if (pattern[0] == '%' && pattern[1] == 'h') {
			if (gethostname(end, left))
				*end = '\0';
			ret_path[path_bytes - 1] = '\0';
			pattern++;
		} else {
			snprintf(end, left, "%c", *pattern);
			if (pattern[0] == '%' && pattern[1] == '%')
				pattern++;
		}
		used += strlen(end);
	}
	ret_path[used] = '\0';
}

static void print_at_exit(void)
{
	const char *target = strait_params()->report;
	char path[4096];
	FILE *file;

	if (getpid() != owner)
		return;
	if (strcmp(target, "1") == 0) {
		strait_report_print(stderr);
		return;
	}
	expand(target, path, sizeof(path));
	file = fopen(path, "ae");
	if (!file)
		return; /* the process is leaving: nobody could act on an error */
	/* One write, so that the reports of several processes in one file do not mix. */
	setvbuf(file, NULL, _IOFBF, 1 << 18);
	strait_report_print(file);
	fclose(file);
}

static void start_once(void)
{
	const char *target = strait_params()->report;

	owner = getpid();
	if (target && *target && strcmp(target, "0") != 0)
		atexit(print_at_exit);
}

void strait_report_start(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, start_once);
}
