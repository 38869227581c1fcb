/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines: which are shown, what they look like, where they go. */
#include "tests/unit/child.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "strait/log.h"

static int log_each_level(void)
{
	strait_warn(INIT, "a warning");
	strait_info(INIT, "an info");
	strait_debug(INIT, "a trace");
	return 0;
}

/* The number of lines that log_each_level() shows with these two settings ("" is unset). */
static int lines_shown(const char *strait_debug_value, const char *nccl_debug_value)
{
	const char *const settings[] = {"STRAIT_DEBUG", strait_debug_value, "NCCL_DEBUG",
					nccl_debug_value, NULL};
	char text[4096];

	assert_int_equal(child_run(log_each_level, settings, text, sizeof(text)), 0);
	return count_lines(text);
}

static void test_warnings_alone_are_shown_by_default(void **state)
{
	char text[4096];

	assert_int_equal(child_run(log_each_level, NULL, text, sizeof(text)), 0);
	assert_int_equal(count_lines(text), 1);
	assert_non_null(strstr(text, " STRAIT WARN INIT: a warning\n"));
}

static void test_louder_of_the_two_levels_counts(void **state)
{
	assert_int_equal(lines_shown("WARN", "INFO"), 2);
	assert_int_equal(lines_shown("INFO", "WARN"), 2);
	assert_int_equal(lines_shown("TRACE", "VERSION"), 3);
	assert_int_equal(lines_shown("", "trace"), 3);
	assert_int_equal(lines_shown("", "VERSION"), 1);
	assert_int_equal(lines_shown("NONE", "INFO"), 2);
}

static void test_none_silences_warnings(void **state)
{
	assert_int_equal(lines_shown("NONE", ""), 0);
}

static void test_unknown_level_of_nccl_is_ignored(void **state)
{
	assert_int_equal(lines_shown("", "LOUD"), 1);
}

static void test_unknown_level_of_ours_gives_one_warning(void **state)
{
	const char *const settings[] = {"STRAIT_DEBUG", "LOUD", NULL};
	char text[4096];

	assert_int_equal(child_run(log_each_level, settings, text, sizeof(text)), 0);
	assert_int_equal(count_lines(text), 2);
	assert_non_null(strstr(text, "STRAIT WARN ENV: STRAIT_DEBUG=LOUD is not a level"));
}

static void test_line_names_host_process_and_thread(void **state)
{
	char text[4096], host[64] = "";
	int pid, tid, n = 0;

	assert_int_equal(child_run(log_each_level, NULL, text, sizeof(text)), 0);
	gethostname(host, sizeof(host) - 1);
	host[strcspn(host, ".")] = '\0';
	assert_memory_equal(text, host, strlen(host));
	assert_int_equal(
		sscanf(text + strlen(host), ":%d:%d STRAIT WARN INIT: a warning%n", &pid, &tid, &n),
		2);
	assert_int_equal(pid, tid);
	assert_int_not_equal(pid, getpid());
	assert_string_equal(text + strlen(host) + n, "\n");
}

static int log_two_subsystems(void)
{
	strait_info(INIT, "of init");
	strait_info(COLL, "of coll");
	strait_warn(COLL, "warning of coll");
	return 0;
}

static int subsystem_lines(const char *list)
{
	const char *const settings[] = {"STRAIT_DEBUG", "INFO", "STRAIT_DEBUG_SUBSYS", list, NULL};
	char text[4096];

	assert_int_equal(child_run(log_two_subsystems, settings, text, sizeof(text)), 0);
	assert_non_null(strstr(text, "warning of coll\n"));
	return (strstr(text, "of init\n") ? 1 : 0) | (strstr(text, "INFO COLL: of coll\n") ? 2 : 0);
}

static void test_subsystems_select_info_lines_but_not_warnings(void **state)
{
	assert_int_equal(subsystem_lines(""), 3);
	assert_int_equal(subsystem_lines("INIT"), 1);
	assert_int_equal(subsystem_lines("env,coll"), 2);
	assert_int_equal(subsystem_lines("^COLL"), 1);
	assert_int_equal(subsystem_lines("^INIT,COLL"), 0);
	assert_int_equal(subsystem_lines("ALL"), 3);
	assert_int_equal(subsystem_lines("NET,INIT"), 1);
}

static int log_awkward_texts(void)
{
	static char long_text[10000];

	strait_warn(INIT, "two\nlines and a \ttab\n");
	memset(long_text, 'y', sizeof(long_text) - 1);
	strait_warn(INIT, "%s", long_text);
	return 0;
}

static void test_text_with_line_ends_or_too_long_stays_one_line(void **state)
{
	char text[20000];

	assert_int_equal(child_run(log_awkward_texts, NULL, text, sizeof(text)), 0);
	assert_int_equal(count_lines(text), 2);
	assert_non_null(strstr(text, "INIT: two lines and a  tab\n"));
	assert_non_null(strstr(text, "yyyy\n"));
	assert_true(strlen(text) < 4096);
}

static int log_with_errno(void)
{
	errno = ENOENT;
	strait_warn(INIT, "open: %m");
	return errno == ENOENT ? 0 : 1;
}

static void test_errno_reaches_the_format_and_survives(void **state)
{
	char text[4096];

	assert_int_equal(child_run(log_with_errno, NULL, text, sizeof(text)), 0);
	assert_non_null(strstr(text, strerror(ENOENT)));
}

static void test_closed_stderr_disturbs_nobody(void **state)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		child_environment(NULL);
		close(STDERR_FILENO);
		strait_warn(INIT, "nobody reads this");
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_file_name_is_expanded_and_cut(void **state)
{
	char path[256], host[64] = "", expected[256];

	gethostname(host, sizeof(host) - 1);
	host[strcspn(host, ".")] = '\0';
	snprintf(expected, sizeof(expected), "a-%s.%d.100%%.%%x%%", host, (int)getpid());
	strait_log_path_expand("a-%h.%p.100%%.%x%", path, sizeof(path));
	assert_string_equal(path, expected);
	strait_log_path_expand("abcdef", path, 4);
	assert_string_equal(path, "abc");
}

/* A fresh folder for the log file; the caller removes it. */
static void folder_make(char *ret_folder)
{
	strcpy(ret_folder, "/tmp/strait-test-log-XXXXXX");
	assert_non_null(mkdtemp(ret_folder));
}

static void test_file_is_appended_to_and_stderr_left_alone(void **state)
{
	char folder[64], pattern[96], path[96], text[4096] = "";
	const char *const settings[] = {"STRAIT_DEBUG_FILE", pattern, NULL};
	FILE *file;

	folder_make(folder);
	snprintf(pattern, sizeof(pattern), "%s/%%h.log", folder);
	strait_log_path_expand(pattern, path, sizeof(path));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(child_run(log_each_level, settings, text, sizeof(text)), 0);
		assert_string_equal(text, "");
	}
	file = fopen(path, "r");
	assert_non_null(file);
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	assert_int_equal(count_lines(text), 2);
	unlink(path);
	rmdir(folder);
}

static void test_file_that_cannot_be_opened_warns_and_leaves_stderr(void **state)
{
	const char *const settings[] = {"STRAIT_DEBUG_FILE", "/proc/no/such/folder", NULL};
	char text[4096];

	assert_int_equal(child_run(log_each_level, settings, text, sizeof(text)), 0);
	assert_int_equal(count_lines(text), 2);
	assert_non_null(strstr(text, "STRAIT_DEBUG_FILE: cannot open /proc/no/such/folder"));
}

enum { N_WRITERS = 4, N_LINES = 50 };

static void *write_lines(void *argument)
{
	for (int i = 0; i < N_LINES; i++)
		strait_warn(INIT, "writer %d says %0*d", (int)(intptr_t)argument, 200, i);
	return NULL;
}

static int log_from_threads(void)
{
	pthread_t threads[N_WRITERS];

	for (int i = 0; i < N_WRITERS; i++) {
		if (pthread_create(&threads[i], NULL, write_lines, (void *)(intptr_t)i))
			return 1;
	}
	for (int i = 0; i < N_WRITERS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}

static void test_lines_of_threads_never_mix(void **state)
{
	static char text[N_WRITERS * N_LINES * 400];
	char *rest = text, *line;

	/* Only a descriptor opened for appending keeps writers apart, as the log file is. */
	char folder[64], path[96];
	const char *const settings[] = {"STRAIT_DEBUG_FILE", path, NULL};
	FILE *file;
	int n = 0;

	folder_make(folder);
	snprintf(path, sizeof(path), "%s/log", folder);
	assert_int_equal(child_run(log_from_threads, settings, text, sizeof(text)), 0);
	file = fopen(path, "r");
	assert_non_null(file);
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	while ((line = strsep(&rest, "\n")) && *line) {
		int writer, value, end = 0;
		const char *said = strstr(line, "STRAIT WARN INIT: writer ");

		assert_non_null(said);
		assert_int_equal(sscanf(said, "STRAIT WARN INIT: writer %d says %d%n", &writer,
					&value, &end),
				 2);
		assert_int_equal(said[end], '\0');
		n++;
	}
	assert_int_equal(n, N_WRITERS * N_LINES);
	unlink(path);
	rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_warnings_alone_are_shown_by_default),
		cmocka_unit_test(test_louder_of_the_two_levels_counts),
		cmocka_unit_test(test_none_silences_warnings),
		cmocka_unit_test(test_unknown_level_of_nccl_is_ignored),
		cmocka_unit_test(test_unknown_level_of_ours_gives_one_warning),
		cmocka_unit_test(test_line_names_host_process_and_thread),
		cmocka_unit_test(test_subsystems_select_info_lines_but_not_warnings),
		cmocka_unit_test(test_text_with_line_ends_or_too_long_stays_one_line),
		cmocka_unit_test(test_errno_reaches_the_format_and_survives),
		cmocka_unit_test(test_closed_stderr_disturbs_nobody),
		cmocka_unit_test(test_file_name_is_expanded_and_cut),
		cmocka_unit_test(test_file_is_appended_to_and_stderr_left_alone),
		cmocka_unit_test(test_file_that_cannot_be_opened_warns_and_leaves_stderr),
		cmocka_unit_test(test_lines_of_threads_never_mix),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
