/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon is driven through its control program, as its manual wants it. */
#include "bench/mps.h"
#include "bench/report.h"
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONTROL "nvidia-cuda-mps-control"

/* Runs a shell line; its output is thrown away. Returns the exit status, 0 for success. */
static int shell(const char *line)
{
	int status = system(line);

	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool one_runs(void)
{
	const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
	char control[512];

	snprintf(control, sizeof(control), "%s/control", folder ? folder : "/tmp/nvidia-mps");
	/* Asking is only safe where the pipe exists: the control program waits for it otherwise. */
	return access(control, F_OK) == 0 &&
	       shell("echo get_server_list | timeout 5 " CONTROL " >/dev/null 2>&1") == 0;
}

static int remove_entry(const char *path, const struct stat *stat, int type, struct FTW *walk)
{
	(void)stat;
	(void)type;
	(void)walk;
	return remove(path);
}

static bool make_folders(struct bench_mps *mps)
{
	char path[96];

	strcpy(mps->folder, "/tmp/strait-mps-XXXXXX");
	if (!mkdtemp(mps->folder))
		return false;
	snprintf(path, sizeof(path), "%s/pipe", mps->folder);
	mkdir(path, 0700);
	setenv("CUDA_MPS_PIPE_DIRECTORY", path, 1);
	snprintf(path, sizeof(path), "%s/log", mps->folder);
	mkdir(path, 0700);
	setenv("CUDA_MPS_LOG_DIRECTORY", path, 1);
	return true;
}

bool bench_mps_start(struct bench_mps *mps)
{
	memset(mps, 0, sizeof(*mps));
	if (shell("command -v " CONTROL " >/dev/null 2>&1") != 0) {
		bench_note(CONTROL " is not installed: processes that share a GPU will take turns "
				   "and may hang");
		return false;
	}
	if (one_runs())
		return true;
	if (!make_folders(mps)) {
		bench_note("cannot make a folder for MPS: %s", strerror(errno));
		return false;
	}
	mps->ours = true;
	if (shell(CONTROL " -d >/dev/null 2>&1") == 0)
		return true;
	bench_note("MPS did not start");
	bench_mps_stop(mps);
	return false;
}

void bench_mps_stop(struct bench_mps *mps)
{
	if (!mps->ours)
		return;
	shell("echo quit -t 5 | timeout 15 " CONTROL " >/dev/null 2>&1");
	nftw(mps->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
	unsetenv("CUDA_MPS_PIPE_DIRECTORY");
	unsetenv("CUDA_MPS_LOG_DIRECTORY");
	mps->ours = false;
}
