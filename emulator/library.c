/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds, for an image that was compiled for GPUs, the same kernels compiled for the host.
 *
 * The image is a fatbin whose bytes hold the text strait_build_id_<16 hex digits>; the file of host
 * kernels has to export a symbol of that name. A kernel has to be in both: as .text.<name> in the
 * image, as strait_emu_kernel_<name> in the file. In a compressed image there is nothing to be
 * found; a note behind it ("STRAIT-NOTE " and the build id, at the next multiple of 8) stands for
 * it. For tests of the emulator alone, an image that is the text "STRAIT-EMULATOR:" and a path
 * names the file directly.
 */
#include "emulator/library.h"
#include "emulator/capture.h"
#include "emulator/settings.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FATBIN_MAGIC 0xBA55ED50u
#define DIRECT "STRAIT-EMULATOR:"
#define NOTE "STRAIT-NOTE "
#define BUILD_ID "strait_build_id_"
#define BUILD_ID_DIGITS 16

struct CUlib_st {
	char *image; /* a copy, or the note; NULL for a direct one */
	size_t bytes;
	int is_note;
	void *host;
	struct CUkern_st *kernels; /* under the lock */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void host_path(char *path, size_t room)
{
	const char *chosen = strait_emu_settings_get()->kernels;
	Dl_info self;
	if (*chosen || !dladdr((void *)host_path, &self)) {
		snprintf(path, room, "%s", chosen);
		return;
	}
	const char *slash = strrchr(self.dli_fname, '/');
	snprintf(path, room, "%.*slibstrait-kernels-host.so",
		 slash ? (int)(slash + 1 - self.dli_fname) : 0, self.dli_fname);
}

static CUresult open_host(struct CUlib_st *library, const char *path)
{
	library->host = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library->host)
		return CUDA_SUCCESS;
	strait_emu_say("no kernels for the host: %s", dlerror());
	return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

/* The build id as a symbol's name, or an empty string. */
static void build_id(const struct CUlib_st *library, char name[64])
{
	const char *at = library->image, *end = at + library->bytes;
	size_t prefix = strlen(BUILD_ID), length = prefix + BUILD_ID_DIGITS;
	*name = 0;
	while ((at = memmem(at, (size_t)(end - at), BUILD_ID, prefix))) {
		if ((size_t)(end - at) >= length &&
		    strspn(at + prefix, "0123456789abcdef") >= BUILD_ID_DIGITS) {
			memcpy(name, at, length);
			name[length] = 0;
			return;
		}
		at += prefix;
	}
}

static CUresult open_matching(struct CUlib_st *library)
{
	char path[PATH_MAX], name[64];
	build_id(library, name);
	if (!*name) {
		strait_emu_say("the image has no text %s<16 digits>: not one of Strait's, or a "
			       "compressed one",
			       BUILD_ID);
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	}
	host_path(path, sizeof path);
	CUresult error = open_host(library, path);
	if (error)
		return error;
	if (dlsym(library->host, name))
		return CUDA_SUCCESS;
	strait_emu_say("%s is of another build than the image: it has no symbol %s", path, name);
	return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

static CUresult load(struct CUlib_st *library, const void *code)
{
	struct {
		uint32_t magic;
		uint16_t version, header_bytes;
		uint64_t bytes;
	} head;
	if (strncmp(code, DIRECT, strlen(DIRECT)) == 0)
		return open_host(library, (const char *)code + strlen(DIRECT));
	memcpy(&head, code, sizeof head);
	if (head.magic != FATBIN_MAGIC)
		return CUDA_ERROR_INVALID_IMAGE;
	library->bytes = head.header_bytes + head.bytes;
	const char *behind = (const char *)code + (library->bytes + 7) / 8 * 8;
	if (strncmp(behind, NOTE, strlen(NOTE)) == 0) {
		library->is_note = 1;
		library->bytes = strlen(behind);
		code = behind;
	}
	library->image =
		calloc(1, library->bytes + 1); /* ends with a zero, for the string functions */
	if (!library->image)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(library->image, code, library->bytes);
	return open_matching(library);
}

static void free_library(struct CUlib_st *library)
{
	for (struct CUkern_st *kernel = library->kernels, *next; kernel; kernel = next) {
		next = kernel->next;
		free(kernel->name);
		free(kernel);
	}
	if (library->host)
		dlclose(library->host);
	free(library->image);
	free(library);
}

CUresult cuLibraryLoadData(CUlibrary *ret_library, const void *code, CUjit_option *jit_options,
			   void **jit_values, unsigned n_jit, CUlibraryOption *options,
			   void **values, unsigned n)
{
	CUcontext context;
	CUresult error = strait_emu_context_enter(&context);
	if (!error)
		error = strait_emu_capture_forbid();
	if (error)
		return error;
	if (!ret_library || !code)
		return CUDA_ERROR_INVALID_VALUE;
	struct CUlib_st *library = calloc(1, sizeof *library);
	if (!library)
		return CUDA_ERROR_OUT_OF_MEMORY;
	error = load(library, code);
	if (error)
		free_library(library);
	else
		*ret_library = library;
	return error;
}

CUresult cuLibraryUnload(CUlibrary library)
{
	CUresult error = strait_emu_capture_forbid();
	if (error)
		return error;
	if (!library)
		return CUDA_ERROR_INVALID_HANDLE;
	free_library(library);
	return CUDA_SUCCESS;
}

static int image_has(const struct CUlib_st *library, const char *name)
{
	char text[512];
	if (!library->image || library->is_note)
		return 1;
	int n = snprintf(text, sizeof text, ".text.%s", name);
	return n > 0 && (size_t)n < sizeof text &&
	       memmem(library->image, library->bytes, text, (size_t)n + 1);
}

static struct CUkern_st *new_kernel(struct CUlib_st *library, const char *name)
{
	char symbol[512];
	snprintf(symbol, sizeof symbol, "strait_emu_kernel_%s", name);
	const struct strait_emu_kernel *code =
		image_has(library, name) ? dlsym(library->host, symbol) : NULL;
	struct CUkern_st *kernel = code ? calloc(1, sizeof *kernel) : NULL;
	if (!kernel)
		return NULL;
	kernel->code = code;
	kernel->name = strdup(name);
	kernel->library = library;
	kernel->next = library->kernels;
	library->kernels = kernel;
	return kernel;
}

CUresult cuLibraryGetKernel(CUkernel *ret_kernel, CUlibrary library, const char *name)
{
	if (!ret_kernel || !library || !name)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	struct CUkern_st *kernel = library->kernels;
	while (kernel && strcmp(kernel->name, name) != 0)
		kernel = kernel->next;
	if (!kernel)
		kernel = new_kernel(library, name);
	pthread_mutex_unlock(&lock);
	if (!kernel)
		return CUDA_ERROR_NOT_FOUND;
	*ret_kernel = kernel;
	return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
	if (!function || !kernel)
		return CUDA_ERROR_INVALID_VALUE;
	*function = (CUfunction)kernel;
	return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
	if (!name || !kernel)
		return CUDA_ERROR_INVALID_VALUE;
	*name = kernel->name;
	return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function)
{
	return function ? strait_emu_capture_forbid() : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel,
			      CUdevice device)
{
	if (!value || !kernel)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = (int)strait_emu_settings_get()->block_threads;
		break;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*value = 32;
		break;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*value = 90;
		break;
	default:
		*value = 0;
	}
	return CUDA_SUCCESS;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
			      CUdevice device)
{
	return kernel ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
	return cuKernelGetAttribute(value, attribute, (CUkernel)function, 0);
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
	return function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
						     size_t shared_bytes)
{
	const struct strait_emu_settings *settings = strait_emu_settings_get();
	if (!blocks || !function)
		return CUDA_ERROR_INVALID_VALUE;
	*blocks = (int)(settings->resident_blocks / settings->multiprocessors);
	return CUDA_SUCCESS;
}
