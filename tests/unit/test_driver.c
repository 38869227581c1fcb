/* SPDX-License-Identifier: Apache-2.0 */
/* The driver table, filled from a fake libcuda.so.1 that the build puts on LD_LIBRARY_PATH. */
#include "tests/unit/child.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "strait/gpu.h"
#include "strait/status.h"

static int load_well(void)
{
	if (strait_gpu_load() || strait_gpu_load())
		return 1;
#define DRIVER(name, version)  \
	if (!strait_gpu->name) \
		return 2;
#define DRIVER_OPTIONAL(name, version)                         \
	if ((strait_gpu->name == NULL) != ((version) > 12000)) \
		return 3;
#define DRIVER_AS(name, type, version) \
	if (!strait_gpu->name##_)      \
		return 4;
#include "base/driver.def"
#undef DRIVER
#undef DRIVER_OPTIONAL
#undef DRIVER_AS
	return 0;
}

static void test_table_is_full_but_for_what_an_old_driver_lacks(void **state)
{
	char text[4096];

	assert_int_equal(child_run(load_well, NULL, text, sizeof(text)), 0);
	assert_string_equal(text, "");
}

/* Prints the message of the second failure: it must be as clear as the first. */
static int load_badly(void)
{
	if (strait_gpu_load() != STRAIT_ERROR_CUDA)
		return 1;
	(void)strait_fail(STRAIT_ERROR_USAGE, "something else meanwhile");
	if (strait_gpu_load() != STRAIT_ERROR_CUDA)
		return 2;
	fputs(strait_status_message(), stderr);
	return 0;
}

static void load_fails_with(const char *variable, const char *value, const char *message)
{
	const char *const settings[] = {variable, value, NULL};
	char text[4096];

	assert_int_equal(child_run(load_badly, settings, text, sizeof(text)), 0);
	assert_string_equal(text, message);
}

static void test_missing_function_is_named_with_the_drivers_version(void **state)
{
	load_fails_with(
		"FAKE_MISSING", "cuMemCreate",
		"The GPU driver (CUDA 12.0) lacks cuMemCreate of CUDA 12.0; a newer driver is "
		"needed");
}

static void test_old_driver_is_refused_with_both_versions(void **state)
{
	load_fails_with(
		"FAKE_VERSION", "11080",
		"The GPU driver supports CUDA 11.8; Strait needs a driver of CUDA 12.0 or newer");
}

static void test_failing_init_gives_the_drivers_own_words(void **state)
{
	load_fails_with("FAKE_INIT", "100",
			"cuInit: CUDA_ERROR_NO_DEVICE (100, no device, says the fake)");
}

static void test_unknown_error_gives_its_number(void **state)
{
	load_fails_with("FAKE_INIT", "777", "cuInit: unknown CUDA error (777, no text)");
}

static int load_without_an_optional(void)
{
	if (strait_gpu_load() || !strait_gpu->cuFuncLoad)
		return 1;
	return strait_gpu->cuMemRetainAllocationHandle ? 2 : 0;
}

static void test_missing_optional_function_is_no_failure(void **state)
{
	const char *const settings[] = {"FAKE_VERSION", "13000", "FAKE_MISSING",
					"cuMemRetainAllocationHandle", NULL};
	char text[4096];

	assert_int_equal(child_run(load_without_an_optional, settings, text, sizeof(text)), 0);
}

static int check_results(void)
{
	if (strait_gpu_load() || strait_gpu_check(CUDA_SUCCESS, "cuCtxSynchronize"))
		return 1;
	if (STRAIT_GPU(cuCtxSynchronize) != STRAIT_ERROR_CUDA)
		return 2;
	fputs(strait_status_message(), stderr);
	return 0;
}

static void test_failed_call_is_named(void **state)
{
	char text[4096];

	assert_int_equal(child_run(check_results, NULL, text, sizeof(text)), 0);
	assert_string_equal(text, "cuCtxSynchronize: unknown CUDA error (801, no text)");
}

static void *load_in_thread(void *argument)
{
	return (void *)(intptr_t)strait_gpu_load();
}

static int load_from_threads(void)
{
	pthread_t threads[8];
	void *result;
	int failures = 0;

	for (int i = 0; i < 8; i++) {
		if (pthread_create(&threads[i], NULL, load_in_thread, NULL))
			return 1;
	}
	for (int i = 0; i < 8; i++) {
		pthread_join(threads[i], &result);
		failures += result != NULL || !strait_gpu->cuMemCreate;
	}
	return failures;
}

static void test_threads_that_load_at_once_all_succeed(void **state)
{
	char text[4096];

	assert_int_equal(child_run(load_from_threads, NULL, text, sizeof(text)), 0);
}

static char folder[64];

/* The loader reads LD_LIBRARY_PATH when a program starts, so this child starts anew. */
static int start_anew(void)
{
	setenv("LD_LIBRARY_PATH", folder, 1);
	execl("/proc/self/exe", "test_driver", "--load-badly", NULL);
	return 99;
}

static void test_unloadable_driver_gives_the_loaders_reason(void **state)
{
	char text[4096], path[96];
	int fd;

	strcpy(folder, "/tmp/strait-test-driver-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/libcuda.so.1", folder);
	fd = open(path, O_WRONLY | O_CREAT, 0644);
	assert_true(fd >= 0);
	assert_int_equal(
		write(fd, "this is no library at all, and long enough to be looked at", 58), 58);
	close(fd);
	assert_int_equal(child_run(start_anew, NULL, text, sizeof(text)), 0);
	unlink(path);
	rmdir(folder);
	assert_memory_equal(text, "No GPU driver: ", 15);
	assert_non_null(strstr(text, "libcuda.so.1"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table_is_full_but_for_what_an_old_driver_lacks),
		cmocka_unit_test(test_missing_function_is_named_with_the_drivers_version),
		cmocka_unit_test(test_old_driver_is_refused_with_both_versions),
		cmocka_unit_test(test_failing_init_gives_the_drivers_own_words),
		cmocka_unit_test(test_unknown_error_gives_its_number),
		cmocka_unit_test(test_missing_optional_function_is_no_failure),
		cmocka_unit_test(test_failed_call_is_named),
		cmocka_unit_test(test_threads_that_load_at_once_all_succeed),
		cmocka_unit_test(test_unloadable_driver_gives_the_loaders_reason),
	};

	if (argc > 1 && strcmp(argv[1], "--load-badly") == 0)
		return load_badly();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
