/* SPDX-License-Identifier: Apache-2.0 */
/* The path report: what is counted, how it is printed, where it goes. */
#include "tests/unit/child.h"

#include <pthread.h>
#include <time.h>

#include "shim/report.h"

static char *print(void)
{
	char *text = NULL;
	size_t bytes;
	FILE *file = open_memstream(&text, &bytes);

	strait_report_print(file);
	fclose(file);
	return text;
}

static void test_calls_are_counted_by_operation_size_class_and_path(void **state)
{
	char *text;

	for (int i = 0; i < 10; i++)
		strait_report_count("AllReduce", 4096 + (uint64_t)i, "one-shot LL");
	strait_report_count("AllReduce", 4095, "one-shot LL");
	strait_report_count("AllReduce", 0, "nothing to do");
	for (int i = 0; i < 5; i++)
		strait_report_count("Broadcast", 4096, "refused: no path");
	text = print();
	assert_non_null(strstr(text, "strait report\tAllReduce\t4096\t8191\tone-shot LL\t10\n"));
	assert_non_null(strstr(text, "strait report\tAllReduce\t2048\t4095\tone-shot LL\t1\n"));
	assert_non_null(strstr(text, "strait report\tAllReduce\t0\t0\tnothing to do\t1\n"));
	assert_non_null(
		strstr(text, "strait report\tBroadcast\t4096\t8191\trefused: no path\t5\n"));
	free(text);
}

static void test_equal_texts_at_different_addresses_are_one_line(void **state)
{
	static char one[] = "the same path", other[] = "the same path";
	char *text;

	strait_report_count("Gather", 16, one);
	strait_report_count("Gather", 16, other);
	text = print();
	assert_non_null(strstr(text, "strait report\tGather\t16\t31\tthe same path\t2\n"));
	free(text);
}

static void test_largest_size_has_a_class(void **state)
{
	char *text;

	strait_report_count("Send", UINT64_MAX, "huge");
	text = print();
	assert_non_null(strstr(text, "Send\t9223372036854775808\t18446744073709551615\thuge\t1\n"));
	free(text);
}

enum { THREADS = 4, CALLS = 100000 };

static void *count_many(void *argument)
{
	for (int i = 0; i < CALLS; i++)
		strait_report_count("Scatter", 1u << i % 20, "threads");
	return NULL;
}

static void test_no_call_of_many_threads_is_lost(void **state)
{
	pthread_t threads[THREADS];
	unsigned long long sum = 0;
	char *text;

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, count_many, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	text = print();
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		if (strstr(line, "\tthreads\t"))
			sum += strtoull(strrchr(line, '\t') + 1, NULL, 10);
	assert_int_equal(sum, THREADS * CALLS);
	free(text);
}

static int leave_with_report(void)
{
	strait_report_start();
	strait_report_start();
	strait_report_count("AllReduce", 64, "path at exit");
	if (fork() == 0)
		exit(0); /* a child did not make these calls */
	wait(NULL);
	exit(0);
}

static void test_report_goes_to_stderr_once(void **state)
{
	const char *const settings[] = {"STRAIT_REPORT", "1", NULL};
	char text[8192], *first;

	assert_int_equal(child_run(leave_with_report, settings, text, sizeof(text)), 0);
	first = strstr(text, "path at exit\t1\n");
	assert_non_null(first);
	assert_null(strstr(first + 1, "path at exit"));
}

static void test_report_goes_to_the_file_that_is_named(void **state)
{
	char pattern[] = "/tmp/strait-report-XXXXXX", path[64], text[8192], name[96];
	const char *const settings[] = {"STRAIT_REPORT", name, NULL};
	FILE *file;
	int fd = mkstemp(pattern);

	assert_true(fd >= 0);
	close(fd);
	/* The child's number is not known before: a pattern that comes to nothing else than the
	 * percent sign. */
	snprintf(name, sizeof(name), "%s.%%%%", pattern);
	snprintf(path, sizeof(path), "%s.%%", pattern);
	assert_int_equal(child_run(leave_with_report, settings, text, sizeof(text)), 0);
	assert_string_equal(text, "");
	file = fopen(path, "r");
	assert_non_null(file);
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	assert_non_null(strstr(text, "path at exit\t1\n"));
	unlink(path);
	unlink(pattern);
}

static void test_nothing_is_printed_unless_asked(void **state)
{
	char text[256];

	assert_int_equal(child_run(leave_with_report, NULL, text, sizeof(text)), 0);
	assert_string_equal(text, "");
}

static void test_counting_is_cheap(void **state)
{
	enum {
		N = 1000000,
		LIMIT_NS = 200
	}; /* some 10 ns; the limit is for loaded machines and sanitizers */
	struct timespec start, end;
	double ns;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
	for (int i = 0; i < N; i++)
		strait_report_count("AllReduce", 8, "timed");
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
	ns = ((double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec)) /
	     N;
	print_message("%.1f ns a call\n", ns);
	assert_true(ns < LIMIT_NS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_report_goes_to_stderr_once),
		cmocka_unit_test(test_report_goes_to_the_file_that_is_named),
		cmocka_unit_test(test_nothing_is_printed_unless_asked),
		cmocka_unit_test(test_calls_are_counted_by_operation_size_class_and_path),
		cmocka_unit_test(test_equal_texts_at_different_addresses_are_one_line),
		cmocka_unit_test(test_largest_size_has_a_class),
		cmocka_unit_test(test_no_call_of_many_threads_is_lost),
		cmocka_unit_test(test_counting_is_cheap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
