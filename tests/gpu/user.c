/* SPDX-License-Identifier: Apache-2.0 */
/* On the emulator, the same kernels come from a file beside the program, named by a text that
 * stands for the image. */
#include "tests/gpu/user.h"
#include "tests/gpu/rank.h"
#include "tests/gpu/user_args.h"
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern const char strait_image_user[] __attribute__((visibility("hidden")));

static CUlibrary library;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
	static char image[PATH_MAX + 64] = "STRAIT-EMULATOR:";
	size_t prefix = strlen(image);
	ssize_t length = readlink("/proc/self/exe", image + prefix, PATH_MAX - 1);

	MUST(length > 0);
	image[prefix + (size_t)length] = '\0';
	strcpy(strrchr(image, '/'), "/libcases-kernels-host.so");
	GPU(cuLibraryLoadData, &library, me->emulator ? image : strait_image_user, NULL, NULL, 0,
	    NULL, NULL, 0);
}

static void launch(const char *name, void *argument, CUstream stream)
{
	CUlaunchConfig config = {.gridDimX = 1,
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = 1,
				 .blockDimY = 1,
				 .blockDimZ = 1,
				 .hStream = stream};
	CUkernel kernel;

	pthread_once(&once, load);
	GPU(cuLibraryGetKernel, &kernel, library, name);
	/* A kernel's handle serves as a function's, in every context. */
	GPU(cuLaunchKernelEx, &config, (CUfunction)kernel, (void *[]){argument}, NULL);
}

void user_write(int which, CUstream stream)
{
	struct buffer word = buffer_new(MEMORY_DEVICE, sizeof(uint64_t), 0);
	struct user_write_args args = {(uint64_t *)word.at, 41 + (uint64_t)which};
	char name[32];
	uint64_t got = 0;

	snprintf(name, sizeof(name), "user_write_%d", which);
	launch(name, &args, stream);
	wait_stream(stream);
	download(&got, word.at, sizeof(got));
	MUST(got == 41 + (uint64_t)which);
	buffer_free(&word);
}

void user_delay(uint64_t ns, CUstream stream)
{
	struct user_delay_args args = {ns};

	launch("user_delay", &args, stream);
}
