/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends of a process: whatever it leaves undone, it ends with its own exit code and without a word.
 * Each case is a child of its own, made before anything has touched the driver.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cuda.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 2, COUNT = 1000, EXIT_CODE = 41 };

static ncclComm_t comms[N];

#define must(condition)                                                                 \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			_exit(99);                                                      \
		}                                                                       \
	} while (0)

static void make(void)
{
	must(cuInit(0) == CUDA_SUCCESS);
	must(ncclCommInitAll(comms, N, NULL) == ncclSuccess);
}

static void use(void)
{
	must(ncclGroupStart() == ncclSuccess);
	for (int r = 0; r < N; r++) {
		CUcontext context;
		CUdeviceptr buffer;

		must(cuDevicePrimaryCtxRetain(&context, r) == CUDA_SUCCESS);
		must(cuCtxSetCurrent(context) == CUDA_SUCCESS);
		must(cuMemAlloc(&buffer, COUNT * sizeof(float)) == CUDA_SUCCESS);
		must(ncclAllReduce((void *)buffer, (void *)buffer, COUNT, ncclFloat, ncclSum,
				   comms[r], NULL) == ncclSuccess);
	}
	must(ncclGroupEnd() == ncclSuccess);
}

static void destroy(void)
{
	for (int r = N - 1; r >= 0; r--)
		must(ncclCommDestroy(comms[r]) == ncclSuccess);
}

static void destroy_unused(void)
{
	make();
	destroy();
}

static void destroy_after_use(void)
{
	make();
	use();
	for (int r = 0; r < N; r++)
		must(ncclCommFinalize(comms[r]) == ncclSuccess);
	destroy();
}

static void destroy_twice(void)
{
	make();
	destroy();
	for (int r = 0; r < N; r++)
		must(ncclCommDestroy(comms[r]) == ncclInvalidArgument);
}

static void leave_without_destroy(void)
{
	make();
	use();
}

static void destroy_in_a_late_handler(void)
{
	atexit(destroy); /* registered first: runs after those of the library and the driver */
	make();
	use();
}

static void destroy_in_an_early_handler(void)
{
	make();
	use();
	atexit(destroy);
}

static void run_child(void (*function)(void))
{
	int output = memfd_create("output", 0), status;
	char text[4096];
	ssize_t n;
	pid_t pid;

	assert_true(output >= 0);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		dup2(output, STDOUT_FILENO);
		dup2(output, STDERR_FILENO);
		setenv("NCCL_DEBUG", "WARN", 1);
		alarm(60); /* a hang is a failure */
		function();
		exit(EXIT_CODE);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	n = pread(output, text, sizeof(text) - 1, 0);
	assert_true(n >= 0);
	text[n] = '\0';
	close(output);
	assert_string_equal(text, "");
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), EXIT_CODE);
}

#define CASE(function)                            \
	static void test_##function(void **state) \
	{                                         \
		run_child(function);              \
	}
CASE(destroy_unused)
CASE(destroy_after_use)
CASE(destroy_twice)
CASE(leave_without_destroy)
CASE(destroy_in_a_late_handler)
CASE(destroy_in_an_early_handler)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_destroy_unused),
		cmocka_unit_test(test_destroy_after_use),
		cmocka_unit_test(test_destroy_twice),
		cmocka_unit_test(test_leave_without_destroy),
		cmocka_unit_test(test_destroy_in_a_late_handler),
		cmocka_unit_test(test_destroy_in_an_early_handler),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
