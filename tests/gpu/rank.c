/* SPDX-License-Identifier: Apache-2.0 */
/* Checked calls, memory and messages of a rank. Copies go over the rank's own stream. */
#include "tests/gpu/rank.h"
#include "bench/report.h"
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MARGIN = 4096 };

_Thread_local struct rank *me;
struct extra_functions extra;

const char *const memory_names[N_MEMORIES] = {
	"device", "virtual without a handle", "pool", "managed", "pinned host", "registered host"};

static void *driver_function(const char *name)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *function = NULL;
	CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
	PFN_cuGetProcAddress_v12000 get =
		driver ? (PFN_cuGetProcAddress_v12000)dlsym(driver, "cuGetProcAddress_v2") : NULL;

	if (!get || get(name, &function, 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found) ||
	    !function)
		bench_die("the driver has no %s", name);
	return function;
}

void extra_load(void)
{
#define EXTRA(name) extra.name = (__typeof__(extra.name))driver_function(#name);
#include "tests/gpu/extra.def"
#undef EXTRA
}

void fail(const char *file, int line, const char *format, ...)
{
	struct board_entry *entry = &me->board->ranks[me->number];
	const char *slash = strrchr(file, '/');
	va_list arguments;
	int n = snprintf(entry->reason, BOARD_TEXT - 1,
			 "%s:%d, seed %llu: ", slash ? slash + 1 : file, line,
			 (unsigned long long)me->seed);

	va_start(arguments, format);
	vsnprintf(entry->reason + n, (size_t)(BOARD_TEXT - 1 - n), format, arguments);
	va_end(arguments);
	/* pairs with the acquire in the launcher */
	atomic_store_explicit(&entry->failed, 1, memory_order_release);
	_exit(1);
}

void check_gpu(CUresult result, const char *file, int line, const char *call)
{
	const char *text = "unknown error";

	if (result == CUDA_SUCCESS)
		return;
	strait_gpu->cuGetErrorString(result, &text);
	fail(file, line, "%s: %s (%d)", call, text, (int)result);
}

void check_nccl(ncclResult_t result, const char *file, int line, const char *call)
{
	const struct bench_library *library = me->library;

	if (result != ncclSuccess)
		fail(file, line, "nccl%s: %s: %s", call, library->GetErrorString(result),
		     library->GetLastError ? library->GetLastError(NULL) : "");
}

void say(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(me->board->ranks[me->number].phase, BOARD_TEXT - 1, format, arguments);
	va_end(arguments);
}

static int case_now(void)
{
	return atomic_load_explicit(&me->board->ranks[me->number].case_now, memory_order_relaxed);
}

void skip(const char *format, ...)
{
	va_list arguments;

	if (me->number != 0)
		return;
	va_start(arguments, format);
	vsnprintf(me->board->cases[case_now()].text, BOARD_TEXT - 1, format, arguments);
	va_end(arguments);
	/* pairs with the acquire in the launcher */
	atomic_store_explicit(&me->board->cases[case_now()].verdict, VERDICT_SKIP,
			      memory_order_release);
}

void note(const char *format, ...)
{
	va_list arguments;

	if (me->number != 0)
		return;
	va_start(arguments, format);
	vsnprintf(me->board->cases[case_now()].text, BOARD_TEXT - 1, format, arguments);
	va_end(arguments);
}

size_t pick(size_t gpu, size_t emulator)
{
	return me->emulator ? emulator : gpu;
}

double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void pause_us(unsigned us)
{
	struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};

	nanosleep(&t, NULL);
}

uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

void barrier(void)
{
	bench_gang_barrier(me->gang, me->thread);
}

void share(void *all, size_t bytes_each)
{
	bench_gang_allgather(me->gang, me->thread, all, bytes_each);
}

void wait_stream(CUstream stream)
{
	GPU(cuStreamSynchronize, stream);
}

ncclComm_t communicator_new(void)
{
	ncclUniqueId *ids = calloc((size_t)me->n, sizeof(*ids));
	ncclComm_t comm = NULL;

	MUST_SAY(ids, "out of memory");
	if (me->number == 0)
		NCCL(GetUniqueId, &ids[0]);
	share(ids, sizeof(*ids));
	say("creating a communicator");
	NCCL(CommInitRank, &comm, me->n, ids[0], me->number);
	say("checking");
	free(ids);
	return comm;
}

void communicator_free(ncclComm_t comm)
{
	say("destroying a communicator");
	NCCL(CommDestroy, comm);
	say("checking");
}

/* While a thread captures in global mode, no other may call what a capture forbids: the barriers
 * keep ranks that are threads apart. */
void capture_begin(CUstream stream)
{
	barrier();
	GPU(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUgraphExec capture_end(CUstream stream)
{
	CUgraphExec exec;
	CUgraph graph;

	GPU(cuStreamEndCapture, stream, &graph);
	barrier();
	GPU(cuGraphInstantiateWithFlags, &exec, graph, 0);
	GPU(cuGraphDestroy, graph);
	return exec;
}

/* Mapped memory whose handle was made without a kind of export. */
static CUdeviceptr virtual_new(size_t *bytes)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = me->device}};
	CUmemAccessDesc access = {.location = prop.location,
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	size_t granularity;
	CUdeviceptr base;

	GPU(cuMemGetAllocationGranularity, &granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	*bytes = (*bytes + granularity - 1) / granularity * granularity;
	GPU(cuMemCreate, &handle, *bytes, &prop, 0);
	GPU(cuMemAddressReserve, &base, *bytes, 0, 0, 0);
	GPU(cuMemMap, base, *bytes, 0, handle, 0);
	GPU(cuMemRelease, handle); /* the mapping keeps it */
	GPU(cuMemSetAccess, base, *bytes, &access, 1);
	return base;
}

static void base_new(struct buffer *buffer)
{
	switch (buffer->memory) {
	case MEMORY_VIRTUAL:
		buffer->base = virtual_new(&buffer->total);
		break;
	case MEMORY_POOL:
		EXTRA_GPU(cuMemAllocAsync, &buffer->base, buffer->total, me->stream);
		wait_stream(me->stream);
		break;
	case MEMORY_MANAGED:
		EXTRA_GPU(cuMemAllocManaged, &buffer->base, buffer->total, CU_MEM_ATTACH_GLOBAL);
		break;
	case MEMORY_PINNED:
		GPU(cuMemHostAlloc, &buffer->host, buffer->total, CU_MEMHOSTALLOC_DEVICEMAP);
		GPU(cuMemHostGetDevicePointer, &buffer->base, buffer->host, 0);
		break;
	case MEMORY_REGISTERED:
		buffer->host = aligned_alloc(MARGIN, buffer->total);
		MUST_SAY(buffer->host, "out of memory");
		EXTRA_GPU(cuMemHostRegister, buffer->host, buffer->total,
			  CU_MEMHOSTREGISTER_DEVICEMAP);
		GPU(cuMemHostGetDevicePointer, &buffer->base, buffer->host, 0);
		break;
	default:
		GPU(cuMemAlloc, &buffer->base, buffer->total);
	}
}

struct buffer buffer_new(enum memory memory, size_t bytes, size_t offset)
{
	struct buffer buffer = {.memory = memory, .bytes = bytes};

	buffer.total = (bytes + offset + 3 * MARGIN - 1) / MARGIN * MARGIN;
	base_new(&buffer);
	buffer.at = buffer.base + MARGIN + offset;
	return buffer;
}

void buffer_free(struct buffer *buffer)
{
	switch (buffer->memory) {
	case MEMORY_VIRTUAL:
		GPU(cuMemUnmap, buffer->base, buffer->total);
		GPU(cuMemAddressFree, buffer->base, buffer->total);
		break;
	case MEMORY_POOL:
		EXTRA_GPU(cuMemFreeAsync, buffer->base, me->stream);
		wait_stream(me->stream);
		break;
	case MEMORY_PINNED:
		GPU(cuMemFreeHost, buffer->host);
		break;
	case MEMORY_REGISTERED:
		EXTRA_GPU(cuMemHostUnregister, buffer->host);
		free(buffer->host);
		break;
	default:
		GPU(cuMemFree, buffer->base);
	}
	memset(buffer, 0, sizeof(*buffer));
}

void upload(CUdeviceptr to, const void *from, size_t bytes)
{
	if (bytes == 0)
		return;
	GPU(cuMemcpyAsync, to, (CUdeviceptr)from, bytes, me->stream);
	wait_stream(me->stream);
}

void download(void *to, CUdeviceptr from, size_t bytes)
{
	if (bytes == 0)
		return;
	GPU(cuMemcpyAsync, (CUdeviceptr)to, from, bytes, me->stream);
	wait_stream(me->stream);
}
