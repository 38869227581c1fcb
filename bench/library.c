/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a library and finding its functions. It is never closed: NCCLs do not survive that. */
#include "bench/library.h"
#include "bench/report.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where this program is installed as bin/strait-bench the library is lib/libnccl.so.2; in a build
 * folder it is one up, in the root. */
static char *default_path(void)
{
	static const char *const places[] = {"../lib/libnccl.so.2", "libnccl.so.2",
					     "../libnccl.so.2", "../lib/libstrait.so"};
	char program[PATH_MAX], candidate[PATH_MAX + 32];
	ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);

	if (length < 0)
		bench_die("cannot read /proc/self/exe");
	program[length] = '\0';
	*strrchr(program, '/') = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		snprintf(candidate, sizeof(candidate), "%s/%s", program, places[i]);
		if (access(candidate, R_OK) == 0)
			return realpath(candidate, NULL);
	}
	bench_die("no libnccl.so.2 in ../lib beside %s; name one with --lib PATH", program);
}

static void *function(const struct bench_library *library, const char *name, bool optional)
{
	void *address = dlsym(library->handle, name);

	if (!address && !optional)
		bench_die("%s has no %s: not an NCCL library", library->path, name);
	return address;
}

void bench_library_open(const char *path, struct bench_library *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->path = path ? realpath(path, NULL) : default_path();
	if (!ret->path)
		bench_die("no library at %s", path);
	ret->handle = dlopen(ret->path, RTLD_NOW | RTLD_LOCAL);
	if (!ret->handle)
		bench_die("cannot open %s: %s", ret->path, dlerror());
#define NCCL(name) ret->name = (__typeof__(ret->name))function(ret, "nccl" #name, false);
#define NCCL_OPTIONAL(name) ret->name = (__typeof__(ret->name))function(ret, "nccl" #name, true);
#include "bench/nccl_functions.def"
#undef NCCL
#undef NCCL_OPTIONAL
	bench_library_check(ret, ret->GetVersion(&ret->version), "ncclGetVersion");
}

void bench_library_check(const struct bench_library *library, ncclResult_t result, const char *what)
{
	if (result == ncclSuccess)
		return;
	bench_die("%s of %s: %s (%d)%s%s", what, library->path, library->GetErrorString(result),
		  (int)result, library->GetLastError ? ": " : "",
		  library->GetLastError ? library->GetLastError(NULL) : "");
}
