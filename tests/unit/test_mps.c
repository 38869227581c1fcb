/* SPDX-License-Identifier: Apache-2.0 */
/* Starting and stopping MPS, with a stand-in for its control program that writes down what it is
 * told. */
#include "bench/mps.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

struct rig {
	char folder[64], program[128], record[128];
	char *path;
};

static int set_up(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	char path[512];

	strcpy(rig->folder, "/tmp/strait-test-mps-XXXXXX");
	if (!mkdtemp(rig->folder))
		return -1;
	snprintf(rig->program, sizeof(rig->program), "%s/nvidia-cuda-mps-control", rig->folder);
	snprintf(rig->record, sizeof(rig->record), "%s/record", rig->folder);
	rig->path = strdup(getenv("PATH"));
	snprintf(path, sizeof(path), "%s:/usr/bin:/bin", rig->folder);
	setenv("PATH", path, 1);
	setenv("CUDA_MPS_PIPE_DIRECTORY", rig->folder,
	       1); /* not the machine's own, whatever runs there */
	*state = rig;
	return 0;
}

static int tear_down(void **state)
{
	struct rig *rig = *state;

	unlink(rig->program);
	unlink(rig->record);
	rmdir(rig->folder);
	setenv("PATH", rig->path, 1);
	unsetenv("CUDA_MPS_PIPE_DIRECTORY");
	free(rig->path);
	free(rig);
	return 0;
}

/* `last` is the last line of the script, so its exit status. */
static void install(const struct rig *rig, const char *last)
{
	FILE *file = fopen(rig->program, "w");

	assert_non_null(file);
	fprintf(file,
		"#!/bin/sh\n[ \"$1\" = -d ] && echo \"start $CUDA_MPS_PIPE_DIRECTORY\" >>%s || cat "
		">>%s\n%s\n",
		rig->record, rig->record, last);
	fclose(file);
	chmod(rig->program, 0700);
}

static void read_record(const struct rig *rig, char *ret, size_t size)
{
	FILE *file = fopen(rig->record, "r");

	memset(ret, 0, size);
	if (!file)
		return;
	ret[fread(ret, 1, size - 1, file)] = '\0';
	fclose(file);
}

static void quietly(bool begins)
{
	static int saved;

	if (begins) {
		saved = dup(2);
		assert_non_null(freopen("/dev/null", "w", stderr));
	} else {
		fflush(stderr);
		dup2(saved, 2);
		close(saved);
	}
}

static void test_a_daemon_of_our_own_is_started_and_stopped_without_a_trace(void **state)
{
	struct bench_mps mps;
	char record[512], expected[512], folder[64];

	install(*state, "exit 0");
	assert_true(bench_mps_start(&mps));
	assert_true(mps.ours);
	snprintf(folder, sizeof(folder), "%s", mps.folder);
	snprintf(expected, sizeof(expected), "start %s/pipe\n", folder);
	read_record(*state, record, sizeof(record));
	assert_string_equal(record, expected);
	assert_int_equal(strncmp(getenv("CUDA_MPS_PIPE_DIRECTORY"), folder, strlen(folder)), 0);
	assert_int_equal(strncmp(getenv("CUDA_MPS_LOG_DIRECTORY"), folder, strlen(folder)), 0);
	bench_mps_stop(&mps);
	read_record(*state, record, sizeof(record));
	assert_non_null(strstr(record, "quit"));
	assert_int_equal(access(folder, F_OK), -1);
	assert_null(getenv("CUDA_MPS_PIPE_DIRECTORY"));
}

static void test_one_that_runs_is_used_and_left_alone(void **state)
{
	struct rig *rig = *state;
	struct bench_mps mps;
	char record[512], control[128];
	FILE *pipe;

	install(rig, "exit 0");
	snprintf(control, sizeof(control), "%s/control", rig->folder);
	pipe = fopen(control, "w");
	assert_non_null(pipe);
	fclose(pipe);
	assert_true(bench_mps_start(&mps));
	assert_false(mps.ours);
	bench_mps_stop(&mps);
	unlink(control);
	read_record(rig, record, sizeof(record));
	assert_string_equal(record, "get_server_list\n");
}

static void test_a_daemon_that_does_not_start_leaves_nothing(void **state)
{
	struct bench_mps mps;
	char folder[64];

	install(*state, "exit 1");
	quietly(true);
	bool started = bench_mps_start(&mps);
	quietly(false);
	snprintf(folder, sizeof(folder), "%s", mps.folder);
	assert_false(started);
	assert_false(mps.ours);
	assert_int_equal(access(folder, F_OK), -1);
}

static void test_a_machine_without_mps_is_told_apart(void **state)
{
	struct bench_mps mps;

	quietly(true);
	bool started = bench_mps_start(&mps);
	quietly(false);
	assert_false(started);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_a_daemon_of_our_own_is_started_and_stopped_without_a_trace, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(test_one_that_runs_is_used_and_left_alone, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(test_a_daemon_that_does_not_start_leaves_nothing,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_machine_without_mps_is_told_apart, set_up,
						tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
