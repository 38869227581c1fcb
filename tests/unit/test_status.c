/* SPDX-License-Identifier: Apache-2.0 */
/* Failures keep their message for the process and their trail for the thread. */
#include "tests/unit/child.h"

#include <errno.h>
#include <pthread.h>

#include "strait/status.h"

static int inner(void)
{
	return strait_fail(STRAIT_ERROR_SYSTEM, "no %s on %d", "luck", 13);
}

static int outer(void)
{
	return strait_trace(inner());
}

static void test_message_is_empty_before_the_first_failure(void **state)
{
	assert_string_equal(strait_status_message(), "");
}

static void test_failure_returns_its_status_and_keeps_the_message(void **state)
{
	assert_int_equal(inner(), STRAIT_ERROR_SYSTEM);
	assert_string_equal(strait_status_message(), "no luck on 13");
}

static void test_success_and_conditions_pass_without_a_trail(void **state)
{
	char trail[256];

	(void)inner();
	assert_int_equal(strait_trace(0), 0);
	assert_int_equal(strait_trace(7), 7);
	assert_string_equal(strait_status_trail(trail, sizeof(trail)), "");
}

static void test_trail_lists_places_innermost_first(void **state)
{
	char trail[256], expected[256];
	int r, line;

	line = __LINE__ + 1;
	r = strait_trace(outer());
	assert_int_equal(r, STRAIT_ERROR_SYSTEM);
	snprintf(expected, sizeof(expected), "%s:17 < %s:%d", __FILE__, __FILE__, line);
	assert_string_equal(strait_status_trail(trail, sizeof(trail)), expected);
}

static void test_new_failure_starts_a_new_trail(void **state)
{
	char trail[256];

	(void)outer();
	(void)inner();
	assert_string_equal(strait_status_trail(trail, sizeof(trail)), "");
}

static void test_trail_is_cut_to_the_buffer(void **state)
{
	char trail[8] = "#######";

	(void)outer();
	strait_status_trail(trail, 5);
	assert_int_equal(strlen(trail), 4);
	assert_int_equal(trail[5], '#');
}

static void test_deep_trail_keeps_the_inner_places(void **state)
{
	char trail[4096], first[256];

	(void)outer();
	snprintf(first, sizeof(first), "%s:17 < ", __FILE__);
	for (int i = 0; i < 100; i++)
		(void)strait_trace(STRAIT_ERROR_SYSTEM);
	strait_status_trail(trail, sizeof(trail));
	assert_memory_equal(trail, first, strlen(first));
}

static void test_message_is_cut_at_1023_bytes(void **state)
{
	char text[3000];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	(void)strait_fail(STRAIT_ERROR_INTERNAL, "%s", text);
	assert_int_equal(strlen(strait_status_message()), 1023);
}

static void test_errno_reaches_the_format_and_survives(void **state)
{
	char expected[256];

	errno = ENOSPC;
	(void)strait_fail(STRAIT_ERROR_SYSTEM, "open: %m");
	assert_int_equal(errno, ENOSPC);
	snprintf(expected, sizeof(expected), "open: %s", strerror(ENOSPC));
	assert_string_equal(strait_status_message(), expected);
}

static void test_text_being_read_survives_a_newer_failure(void **state)
{
	const char *held;

	(void)strait_fail(STRAIT_ERROR_SYSTEM, "first");
	held = strait_status_message();
	(void)strait_fail(STRAIT_ERROR_SYSTEM, "second");
	assert_string_equal(held, "first");
	assert_string_equal(strait_status_message(), "second");
}

static void *fail_elsewhere(void *argument)
{
	(void)strait_trace(strait_fail(STRAIT_ERROR_REMOTE, "elsewhere"));
	return NULL;
}

static void test_message_is_shared_and_trail_is_not(void **state)
{
	char before[256], after[256];
	pthread_t thread;

	(void)outer();
	strait_status_trail(before, sizeof(before));
	assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
	pthread_join(thread, NULL);
	assert_string_equal(strait_status_message(), "elsewhere");
	assert_string_equal(strait_status_trail(after, sizeof(after)), before);
}

static int fail_and_trace(void)
{
	return outer() == STRAIT_ERROR_SYSTEM ? 0 : 1;
}

static void test_failure_is_logged_once_at_info(void **state)
{
	const char *const settings[] = {"STRAIT_DEBUG", "INFO", NULL};
	char text[4096];

	assert_int_equal(child_run(fail_and_trace, settings, text, sizeof(text)), 0);
	assert_int_equal(count_lines(text), 1);
	assert_non_null(strstr(text, "STRAIT INFO INIT: no luck on 13\n"));
}

static void test_trace_level_shows_each_place(void **state)
{
	const char *const settings[] = {"STRAIT_DEBUG", "TRACE", NULL};
	char text[4096];

	assert_int_equal(child_run(fail_and_trace, settings, text, sizeof(text)), 0);
	assert_int_equal(count_lines(text), 2);
	assert_non_null(strstr(text, "STRAIT TRACE INIT: status -2 passes "));
	assert_non_null(strstr(text, "test_status.c:17\n"));
}

static void test_message_is_kept_with_logging_off(void **state)
{
	const char *const settings[] = {"STRAIT_DEBUG", "NONE", NULL};
	char text[4096];

	assert_int_equal(child_run(fail_and_trace, settings, text, sizeof(text)), 0);
	assert_string_equal(text, "");
	(void)inner();
	assert_string_equal(strait_status_message(), "no luck on 13");
}

int main(void)
{
	/* Those with a child come first: a child must not inherit a log that is set up already. */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failure_is_logged_once_at_info),
		cmocka_unit_test(test_trace_level_shows_each_place),
		cmocka_unit_test(test_message_is_empty_before_the_first_failure),
		cmocka_unit_test(test_message_is_kept_with_logging_off),
		cmocka_unit_test(test_failure_returns_its_status_and_keeps_the_message),
		cmocka_unit_test(test_success_and_conditions_pass_without_a_trail),
		cmocka_unit_test(test_trail_lists_places_innermost_first),
		cmocka_unit_test(test_new_failure_starts_a_new_trail),
		cmocka_unit_test(test_trail_is_cut_to_the_buffer),
		cmocka_unit_test(test_deep_trail_keeps_the_inner_places),
		cmocka_unit_test(test_message_is_cut_at_1023_bytes),
		cmocka_unit_test(test_errno_reaches_the_format_and_survives),
		cmocka_unit_test(test_text_being_read_survives_a_newer_failure),
		cmocka_unit_test(test_message_is_shared_and_trail_is_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
