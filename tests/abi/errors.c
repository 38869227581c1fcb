/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the same bad calls in two NCCL libraries and compares codes and last-error texts:
 * errors OURS REAL. Rows that a driver would change run only where there is none. Exits with 1 at
 * any difference.
 */
#include <dlfcn.h>
#include <nccl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FUNCTIONS(F)            \
	F(AllGather)            \
	F(AllReduce)            \
	F(AlltoAll)             \
	F(Bcast)                \
	F(Broadcast)            \
	F(CommAbort)            \
	F(CommCount)            \
	F(CommCuDevice)         \
	F(CommDeregister)       \
	F(CommDestroy)          \
	F(CommFinalize)         \
	F(CommGetAsyncError)    \
	F(CommInitAll)          \
	F(CommInitRank)         \
	F(CommInitRankConfig)   \
	F(CommInitRankScalable) \
	F(CommRegister)         \
	F(CommRevoke)           \
	F(CommSplit)            \
	F(CommUserRank)         \
	F(CommWindowDeregister) \
	F(Gather)               \
	F(GetErrorString)       \
	F(GetLastError)         \
	F(GetUniqueId)          \
	F(GetVersion)           \
	F(GroupEnd)             \
	F(GroupSimulateEnd)     \
	F(GroupStart)           \
	F(MemAlloc)             \
	F(MemFree)              \
	F(Recv)                 \
	F(RedOpCreatePreMulSum) \
	F(RedOpDestroy)         \
	F(Reduce)               \
	F(ReduceScatter)        \
	F(Scatter)              \
	F(Send)

struct library {
	const char *path;
#define MEMBER(name) __typeof__(&nccl##name) name;
	FUNCTIONS(MEMBER)
};

static bool open_library(struct library *library, const char *path)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!handle) {
		fprintf(stderr, "%s\n", dlerror());
		return false;
	}
	library->path = path;
#define LOOK_UP(name)                                                           \
	library->name = (__typeof__(library->name))dlsym(handle, "nccl" #name); \
	if (!library->name) {                                                   \
		fprintf(stderr, "%s lacks nccl" #name "\n", path);              \
		return false;                                                   \
	}
	FUNCTIONS(LOOK_UP)
	return true;
}

/* What the rows pass. Nothing in it survives a row. */
static int out_int;
static void *out_pointer;
static ncclComm_t out_comm;
static ncclUniqueId id;
static float scalar;
static ncclSimInfo_t good_info = NCCL_SIM_INFO_INITIALIZER, bad_info = {.magic = 1};

/* Calls of a group, their codes as digits of one number, so that a row sees all of them. */
static int digits(const int *codes, int n)
{
	int value = 0;

	for (int i = 0; i < n; i++)
		value = 10 * value + codes[i];
	return value;
}

#define CODES(...) \
	digits((const int[]){__VA_ARGS__}, (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)))
#define BAD_CALL l->AllReduce(NULL, NULL, 4, ncclFloat, ncclSum, NULL, NULL)

static int config_at_page_end(const struct library *l, size_t size, unsigned magic,
			      unsigned version)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *pages =
		mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ncclConfig_t full = NCCL_CONFIG_INITIALIZER;
	char *config = pages + page - size;
	int code;

	mprotect(pages + page, page, PROT_NONE);
	full.size = size;
	full.magic = magic;
	full.version = version;
	memcpy(config, &full, size < sizeof(full) ? size : sizeof(full));
	code = l->CommInitRankConfig(&out_comm, 1, id, 0, (ncclConfig_t *)config);
	munmap(pages, 2 * page);
	return code;
}

enum when { ALWAYS, WITHOUT_DRIVER };

/* name, when, expression over l */
#define ROWS(R)                                                                                    \
	R(version_of_null, ALWAYS, l->GetVersion(NULL))                                            \
	R(version, ALWAYS, l->GetVersion(&out_int))                                                \
	R(version_value, ALWAYS, (l->GetVersion(&out_int), out_int))                               \
	R(id_of_null, ALWAYS, l->GetUniqueId(NULL))                                                \
	R(id, ALWAYS, l->GetUniqueId(&id))                                                         \
	R(all_reduce, ALWAYS, BAD_CALL)                                                            \
	R(reduce, ALWAYS, l->Reduce(NULL, NULL, 4, ncclFloat, ncclSum, 0, NULL, NULL))             \
	R(broadcast, ALWAYS, l->Broadcast(NULL, NULL, 4, ncclFloat, 0, NULL, NULL))                \
	R(bcast, ALWAYS, l->Bcast(NULL, 4, ncclFloat, 0, NULL, NULL))                              \
	R(reduce_scatter, ALWAYS, l->ReduceScatter(NULL, NULL, 4, ncclFloat, ncclSum, NULL, NULL)) \
	R(all_gather, ALWAYS, l->AllGather(NULL, NULL, 4, ncclFloat, NULL, NULL))                  \
	R(all_to_all, ALWAYS, l->AlltoAll(NULL, NULL, 4, ncclFloat, NULL, NULL))                   \
	R(gather, ALWAYS, l->Gather(NULL, NULL, 4, ncclFloat, 0, NULL, NULL))                      \
	R(scatter, ALWAYS, l->Scatter(NULL, NULL, 4, ncclFloat, 0, NULL, NULL))                    \
	R(send, ALWAYS, l->Send(NULL, 4, ncclFloat, 0, NULL, NULL))                                \
	R(recv, ALWAYS, l->Recv(NULL, 4, ncclFloat, 0, NULL, NULL))                                \
	R(bad_type_without_comm, ALWAYS,                                                           \
	  l->AllReduce(NULL, NULL, 0, (ncclDataType_t)99, ncclSum, NULL, NULL))                    \
	R(count, ALWAYS, l->CommCount(NULL, &out_int))                                             \
	R(count_of_nothing, ALWAYS, l->CommCount(NULL, NULL))                                      \
	R(user_rank, ALWAYS, l->CommUserRank(NULL, &out_int))                                      \
	R(cu_device, ALWAYS, l->CommCuDevice(NULL, &out_int))                                      \
	R(async_error, ALWAYS, l->CommGetAsyncError(NULL, (ncclResult_t *)&out_int))               \
	R(destroy, ALWAYS, l->CommDestroy(NULL))                                                   \
	R(abort, ALWAYS, l->CommAbort(NULL))                                                       \
	R(finalize, ALWAYS, l->CommFinalize(NULL))                                                 \
	R(revoke, ALWAYS, l->CommRevoke(NULL, 0))                                                  \
	R(revoke_with_flags, ALWAYS, l->CommRevoke(NULL, 1))                                       \
	R(register_nothing, ALWAYS, l->CommRegister(NULL, NULL, 0, &out_pointer))                  \
	R(register_something, ALWAYS, l->CommRegister(NULL, &scalar, 4, &out_pointer))             \
	R(deregister, ALWAYS, l->CommDeregister(NULL, NULL))                                       \
	R(window_deregister, ALWAYS, l->CommWindowDeregister(NULL, NULL))                          \
	R(end_outside, ALWAYS, l->GroupEnd())                                                      \
	R(simulated_end_outside, ALWAYS, l->GroupSimulateEnd(&good_info))                          \
	R(bad_simulated_end_outside, ALWAYS, l->GroupSimulateEnd(&bad_info))                       \
	R(empty_group, ALWAYS, CODES(l->GroupStart(), l->GroupEnd(), l->GroupEnd()))               \
	R(nested_group, ALWAYS,                                                                    \
	  CODES(l->GroupStart(), l->GroupStart(), l->GroupEnd(), l->GroupEnd(), l->GroupEnd()))    \
	R(bad_call_in_group, ALWAYS,                                                               \
	  CODES(l->GroupStart(), BAD_CALL, l->GroupEnd(), l->GroupStart(), l->GroupEnd()))         \
	R(bad_call_in_nested_group, ALWAYS,                                                        \
	  CODES(l->GroupStart(), l->GroupStart(), BAD_CALL, l->GroupEnd(), l->GroupEnd()))         \
	R(bad_call_then_simulated_end, ALWAYS,                                                     \
	  CODES(l->GroupStart(), BAD_CALL, l->GroupSimulateEnd(NULL), l->GroupEnd()))              \
	R(bad_query_in_group, ALWAYS,                                                              \
	  CODES(l->GroupStart(), l->CommCount(NULL, &out_int), l->GroupEnd()))                     \
	R(bad_operator_in_group, ALWAYS,                                                           \
	  CODES(l->GroupStart(), l->RedOpDestroy(ncclSum, NULL), l->GroupEnd()))                   \
	R(bad_send_in_group, ALWAYS,                                                               \
	  CODES(l->GroupStart(), l->Send(NULL, 0, ncclFloat, 0, NULL, NULL), l->GroupEnd()))       \
	R(destroy_in_group, ALWAYS, CODES(l->GroupStart(), l->CommDestroy(NULL), l->GroupEnd()))   \
	R(simulated_end, ALWAYS,                                                                   \
	  CODES(l->GroupStart(), l->GroupSimulateEnd(&good_info), l->GroupEnd()))                  \
	R(simulated_end_of_null, ALWAYS,                                                           \
	  CODES(l->GroupStart(), l->GroupSimulateEnd(NULL), l->GroupEnd()))                        \
	R(bad_simulated_end, ALWAYS,                                                               \
	  CODES(l->GroupStart(), l->GroupSimulateEnd(&bad_info), l->GroupEnd()))                   \
	R(bad_simulated_inner_end, ALWAYS,                                                         \
	  CODES(l->GroupStart(), l->GroupStart(), l->GroupSimulateEnd(&bad_info), l->GroupEnd()))  \
	R(destroy_built_in_operator, ALWAYS, l->RedOpDestroy(ncclSum, NULL))                       \
	R(destroy_operator_without_comm, ALWAYS, l->RedOpDestroy((ncclRedOp_t)7, NULL))            \
	R(destroy_negative_operator, ALWAYS, l->RedOpDestroy((ncclRedOp_t)-1, NULL))               \
	R(make_operator_without_comm, ALWAYS,                                                      \
	  l->RedOpCreatePreMulSum((ncclRedOp_t *)&out_int, &scalar, ncclFloat,                     \
				  ncclScalarHostImmediate, NULL))                                  \
	R(init_rank, WITHOUT_DRIVER, l->CommInitRank(&out_comm, 1, id, 0))                         \
	R(init_rank_of_null, WITHOUT_DRIVER, l->CommInitRank(NULL, 1, id, 0))                      \
	R(init_rank_of_none, WITHOUT_DRIVER, l->CommInitRank(&out_comm, 0, id, 0))                 \
	R(init_rank_out_of_range, WITHOUT_DRIVER, l->CommInitRank(&out_comm, 1, id, 4))            \
	R(init_rank_in_group, WITHOUT_DRIVER,                                                      \
	  CODES(l->GroupStart(), l->CommInitRank(&out_comm, 1, id, 0), l->GroupEnd()))             \
	R(config_null, WITHOUT_DRIVER, l->CommInitRankConfig(&out_comm, 1, id, 0, NULL))           \
	R(config_2_14, WITHOUT_DRIVER, config_at_page_end(l, 24, 0xcafebeef, 21400))               \
	R(config_2_17, WITHOUT_DRIVER, config_at_page_end(l, 40, 0xcafebeef, 21700))               \
	R(config_2_18, WITHOUT_DRIVER, config_at_page_end(l, 48, 0xcafebeef, 21800))               \
	R(config_2_27, WITHOUT_DRIVER, config_at_page_end(l, 72, 0xcafebeef, 22700))               \
	R(config_2_28, WITHOUT_DRIVER, config_at_page_end(l, 80, 0xcafebeef, 22809))               \
	R(config_bad_magic, WITHOUT_DRIVER, config_at_page_end(l, 80, 0, 22809))                   \
	R(scalable, WITHOUT_DRIVER, l->CommInitRankScalable(&out_comm, 1, 0, 1, &id, NULL))        \
	R(scalable_without_ids, WITHOUT_DRIVER,                                                    \
	  l->CommInitRankScalable(&out_comm, 1, 0, 0, &id, NULL))                                  \
	R(init_all_of_null, WITHOUT_DRIVER, l->CommInitAll(NULL, 1, NULL))                         \
	R(init_all_of_less_than_none, WITHOUT_DRIVER, l->CommInitAll(&out_comm, -1, NULL))         \
	R(split, WITHOUT_DRIVER, l->CommSplit(NULL, 0, 0, &out_comm, NULL))                        \
	R(mem_alloc, WITHOUT_DRIVER, l->MemAlloc(&out_pointer, 100))                               \
	R(mem_alloc_of_null, WITHOUT_DRIVER, l->MemAlloc(NULL, 100))                               \
	R(mem_free_of_null, WITHOUT_DRIVER, l->MemFree(NULL))

#define FUNCTION(name, when, expression)               \
	static int row_##name(const struct library *l) \
	{                                              \
		return expression;                     \
	}
ROWS(FUNCTION)

static const struct row {
	const char *name;
	enum when when;
	int (*call)(const struct library *);
} rows[] = {
#define ROW(name, when, expression) {#name, when, row_##name},
	ROWS(ROW)};

struct outcome {
	int code;
	bool comm_written;
	char text[1024];
};

static struct outcome call(const struct library *l, const struct row *row)
{
	struct outcome outcome;

	/* A known text before, so that an unchanged one shows. */
	BAD_CALL;
	out_comm = (ncclComm_t)0x55;
	outcome.code = row->call(l);
	outcome.comm_written = out_comm != (ncclComm_t)0x55;
	snprintf(outcome.text, sizeof(outcome.text), "%s", l->GetLastError(NULL));
	return outcome;
}

static int compare_texts(const struct library *ours, const struct library *real)
{
	int faults = 0;

	for (int code = -2; code < 12; code++) {
		const char *a = ours->GetErrorString((ncclResult_t)code);
		const char *b = real->GetErrorString((ncclResult_t)code);

		if (strcmp(a, b) == 0)
			continue;
		printf("GetErrorString(%d): ours '%s', real '%s'\n", code, a, b);
		faults++;
	}
	return faults;
}

int main(int n_arguments, char **arguments)
{
	struct library ours, real;
	bool driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != NULL;
	int faults, n_called = 0;

	if (n_arguments != 3 || !open_library(&ours, arguments[1]) ||
	    !open_library(&real, arguments[2]))
		return 2;
	if (*ours.GetLastError(NULL) || *real.GetLastError(NULL)) {
		printf("the last error is not empty at first\n");
		return 1;
	}
	faults = compare_texts(&ours, &real);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct outcome a, b;

		if (rows[i].when == WITHOUT_DRIVER && driver)
			continue;
		a = call(&ours, &rows[i]);
		b = call(&real, &rows[i]);
		n_called++;
		if (a.code == b.code && a.comm_written == b.comm_written &&
		    strcmp(a.text, b.text) == 0)
			continue;
		printf("%s: ours %d '%s'%s, real %d '%s'%s\n", rows[i].name, a.code, a.text,
		       a.comm_written ? " comm written" : "", b.code, b.text,
		       b.comm_written ? " comm written" : "");
		faults++;
	}
	printf("%d of %zu rows called%s, %d differences\n", n_called,
	       sizeof(rows) / sizeof(rows[0]), driver ? " (there is a driver)" : "", faults);
	return faults != 0;
}
