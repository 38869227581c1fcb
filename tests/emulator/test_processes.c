/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several processes on one emulated machine: memory by IPC handle and by descriptor, several ranks
 * on one device, killed peers, and that nothing is left behind.
 */
#include "tests/emulator/rig.h"
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child made by fork, which has not used the driver, and a pipe each way. */
struct child {
	pid_t pid;
	int to, from;
};

static struct child start(int (*run)(int in, int out))
{
	int down[2], up[2];
	assert_int_equal(pipe(down), 0);
	assert_int_equal(pipe(up), 0);
	pid_t pid = fork();
	if (!pid) {
		close(down[1]);
		close(up[0]);
		_exit(run(down[0], up[1]));
	}
	close(down[0]);
	close(up[1]);
	return (struct child){pid, down[1], up[0]};
}

static void put(int fd, const void *data, size_t bytes)
{
	if (write(fd, data, bytes) != (ssize_t)bytes)
		abort();
}

static void get(int fd, void *data, size_t bytes)
{
	for (size_t n = 0; n < bytes;) {
		ssize_t r = read(fd, (char *)data + n, bytes - n);
		if (r <= 0)
			abort();
		n += (size_t)r;
	}
}

static int join(struct child child)
{
	int status;
	close(child.to);
	close(child.from);
	waitpid(child.pid, &status, 0);
	return status;
}

#define WORDS 16

/* Makes memory, sends a handle of its middle, waits, and reports what is there then. */
static int own(int in, int out)
{
	CUipcMemHandle handle;
	uint32_t words[WORDS];
	char byte;
	rig_open(1);
	CUdeviceptr before = rig_alloc(100), address = rig_alloc(4 * WORDS);
	OK(cuMemsetD32(address, 41, WORDS));
	OK(cuMemsetD32(before, 13, 25));
	OK(cuIpcGetMemHandle(&handle, address));
	put(out, &handle, sizeof handle);
	get(in, &byte, 1);
	OK(cuMemcpyDtoH(words, address, sizeof words));
	put(out, words, sizeof words);
	return 0;
}

static int use(int in, int out)
{
	CUipcMemHandle handle;
	CUdeviceptr address, again;
	uint32_t words[WORDS];
	char byte;
	rig_open(0);
	get(in, &handle, sizeof handle);
	OK(cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	OK(cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	struct arguments arguments = {.in = address, .out = address, .count = WORDS, .rank = 1};
	rig_launch("add_rank", 1, 16, &arguments, NULL);
	OK(cuCtxSynchronize());
	put(out, "r", 1);
	get(in, &byte, 1); /* the owner may be gone by now */
	OK(cuMemcpyDtoH(words, again, sizeof words));
	OK(cuIpcCloseMemHandle(address));
	OK(cuMemcpyDtoH(words, again, sizeof words)); /* opened twice */
	OK(cuIpcCloseMemHandle(again));
	int closed = cuIpcCloseMemHandle(again) == CUDA_ERROR_INVALID_VALUE;
	put(out, words, sizeof words);
	return !(address == again && closed);
}

static void test_memory_opened_by_handle_is_the_same_memory(void **state)
{
	CUipcMemHandle handle;
	uint32_t words[WORDS];
	char byte;
	struct child owner = start(own), user = start(use);
	get(owner.from, &handle, sizeof handle);
	put(user.to, &handle, sizeof handle);
	get(user.from, &byte, 1);
	put(owner.to, "g", 1);
	get(owner.from, words, sizeof words);
	for (int i = 0; i < WORDS; i++)
		assert_int_equal(words[i], 42);
	assert_int_equal(join(owner), 0);
	put(user.to, "g", 1);
	get(user.from, words, sizeof words);
	for (int i = 0; i < WORDS; i++)
		assert_int_equal(words[i], 42);
	assert_int_equal(join(user), 0);
}

static void test_opened_memory_outlives_a_killed_owner(void **state)
{
	CUipcMemHandle handle;
	uint32_t words[WORDS];
	char byte;
	struct child owner = start(own), user = start(use);
	get(owner.from, &handle, sizeof handle);
	put(user.to, &handle, sizeof handle);
	get(user.from, &byte, 1);
	kill(owner.pid, SIGKILL);
	assert_int_equal(join(owner), SIGKILL);
	put(user.to, "g", 1);
	get(user.from, words, sizeof words);
	assert_int_equal(words[WORDS - 1], 42);
	assert_int_equal(join(user), 0);
}

static int open_stale(int in, int out)
{
	CUipcMemHandle handle;
	CUdeviceptr address;
	rig_open(0);
	get(in, &handle, sizeof handle);
	return cuIpcOpenMemHandle(&address, handle, 0) != CUDA_ERROR_MAP_FAILED;
}

static void test_a_handle_of_a_dead_process_is_an_error(void **state)
{
	CUipcMemHandle handle;
	struct child owner = start(own), user = start(open_stale);
	get(owner.from, &handle, sizeof handle);
	kill(owner.pid, SIGKILL);
	join(owner);
	put(user.to, &handle, sizeof handle);
	assert_int_equal(join(user), 0);
}

/* value all-reduces, each compared. */
static int reduce(struct rig_rank *rank, long calls)
{
	enum { COUNT = 64 };
	uint32_t host[COUNT];
	int wrong = 0;
	struct arguments arguments = {.in = rig_alloc(4 * COUNT),
				      .out = rig_alloc(4 * COUNT),
				      .count = COUNT,
				      .rank = rank->rank,
				      .n_ranks = rank->n};
	for (int r = 0; r < rank->n; r++)
		arguments.scratch[r] = rank->scratch[r];
	for (long k = 0; k < calls; k++) {
		for (int i = 0; i < COUNT; i++)
			host[i] = (uint32_t)(k * 100 + i + rank->rank);
		OK(cuMemcpyHtoDAsync(arguments.in, host, sizeof host, rank->stream));
		rig_launch(k % 2 ? "allreduce_flags" : "allreduce_packets", 1, 64, &arguments,
			   rank->stream);
		OK(cuMemcpyDtoHAsync(host, arguments.out, sizeof host, rank->stream));
		OK(cuStreamSynchronize(rank->stream));
		for (int i = 0; i < COUNT; i++)
			wrong += host[i] !=
				 (uint32_t)(rank->n * (k * 100 + i) + rank->n * (rank->n - 1) / 2);
	}
	return wrong;
}

static void test_several_ranks_can_share_one_device(void **state)
{
	const char *environment[] = {"STRAIT_EMULATOR_GPUS=1", NULL};
	assert_int_equal(rig_run_processes(4, "reduce", 100, environment), 0);
}

/* Rank 1 dies in mid-kernel; the others' kernels see their abort word, and the device still works.
 */
static int die(struct rig_rank *rank, long value)
{
	uint32_t *word;
	int wrong;
	OK(cuMemHostAlloc((void **)&word, 64, 0));
	*word = 0;
	struct arguments arguments = {.in = (uint64_t)(uintptr_t)word, .count = 1};
	rig_launch("wait_for_host", 2, 64, &arguments, rank->stream);
	if (rank->rank == 1)
		raise(SIGKILL);
	/* The dead rank's end of its socket is closed now or soon: the parent's business. Work goes
	 * on. */
	__atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
	wrong = cuStreamSynchronize(rank->stream) != CUDA_SUCCESS;
	CUdeviceptr mine = rank->scratch[rank->rank], dead = rank->scratch[1];
	uint32_t got = 0;
	OK(cuMemsetD32(dead, 99, 1)); /* its memory is still there */
	OK(cuMemcpyDtoD(mine, dead, 4));
	OK(cuMemcpyDtoH(&got, mine, 4));
	return wrong + (got != 99);
}

static void test_a_killed_peer_leaves_the_others_working(void **state)
{
	/* The dead rank counts as one lost result and one bad status. */
	assert_int_equal(rig_run_processes(3, "die", 0, NULL), 2000000);
	assert_int_equal(rig_run_processes(3, "reduce", 20, NULL), 0);
}

static int count_files(const char *folder)
{
	int n = 0;
	DIR *at = opendir(folder);
	for (struct dirent *entry; at && (entry = readdir(at));)
		n += strstr(entry->d_name, "strait-emulator") != NULL;
	if (at)
		closedir(at);
	return n;
}

static void test_no_files_are_left_behind(void **state)
{
	rig_run_processes(2, "die", 0, NULL);
	assert_int_equal(count_files("/dev/shm"), 0);
	assert_int_equal(count_files("/tmp"), 0);
}

static int tell_id(int in, int out)
{
	CUstream stream;
	unsigned long long id;
	char byte;
	rig_open(0);
	OK(cuStreamCreate(&stream, 0));
	OK(cuStreamGetId(stream, &id));
	put(out, &id, sizeof id);
	get(in, &byte, 1);
	return 0;
}

/* The ids come from the machine's memory: an id that goes on counting shows the same machine. */
static void test_the_machine_outlives_the_process_that_made_it(void **state)
{
	unsigned long long first, second, third, fourth;
	setenv("STRAIT_EMULATOR_MACHINE", "outlives", 1);
	struct child a = start(tell_id);
	get(a.from, &first, sizeof first);
	struct child b = start(tell_id);
	get(b.from, &second, sizeof second);
	kill(a.pid, SIGKILL);
	join(a);
	struct child c = start(tell_id);
	get(c.from, &third, sizeof third);
	assert_true(second > first);
	assert_true(third > second);
	kill(b.pid, SIGKILL);
	kill(c.pid, SIGKILL);
	join(b);
	join(c);
	struct child d = start(tell_id); /* nobody is left: a new machine */
	get(d.from, &fourth, sizeof fourth);
	assert_int_equal(fourth, first);
	put(d.to, "g", 1);
	join(d);
	unsetenv("STRAIT_EMULATOR_MACHINE");
}

int main(int argc, char **argv)
{
	static const struct rig_role roles[] = {{"reduce", reduce}, {"die", die}};
	rig_main(argc, argv, roles, 2);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory_opened_by_handle_is_the_same_memory),
		cmocka_unit_test(test_opened_memory_outlives_a_killed_owner),
		cmocka_unit_test(test_a_handle_of_a_dead_process_is_an_error),
		cmocka_unit_test(test_several_ranks_can_share_one_device),
		cmocka_unit_test(test_a_killed_peer_leaves_the_others_working),
		cmocka_unit_test(test_no_files_are_left_behind),
		cmocka_unit_test(test_the_machine_outlives_the_process_that_made_it),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
