/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rig. Scratch is memory with a POSIX handle: threads map it with access for all devices,
 * processes send the descriptors through their parent.
 */
#include "tests/emulator/rig.h"
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int is_rank; /* a process that the rig started */

void rig_check(CUresult result, const char *call, const char *file, int line)
{
	const char *name = "?";
	if (result == CUDA_SUCCESS)
		return;
	cuGetErrorName(result, &name);
	fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, name);
	if (is_rank)
		_exit(99);
	fail_msg("%s failed", call);
}

static CUlibrary library(void)
{
	static CUlibrary loaded;
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_lock(&lock);
	if (!loaded)
		OK(cuLibraryLoadData(&loaded, "STRAIT-EMULATOR:" KERNELS_PATH, NULL, NULL, 0, NULL,
				     NULL, 0));
	pthread_mutex_unlock(&lock);
	return loaded;
}

void rig_open(unsigned device)
{
	CUcontext context;
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&context, (CUdevice)device));
	OK(cuCtxSetCurrent(context));
	library();
}

CUfunction rig_kernel(const char *name)
{
	CUkernel kernel;
	CUfunction function;
	OK(cuLibraryGetKernel(&kernel, library(), name));
	OK(cuKernelGetFunction(&function, kernel));
	return function;
}

void rig_launch(const char *name, unsigned blocks, unsigned threads,
		const struct arguments *arguments, CUstream stream)
{
	void *params[] = {(void *)arguments};
	OK(cuLaunchKernel(rig_kernel(name), blocks, 1, 1, threads, 1, 1, 0, stream, params, NULL));
}

CUdeviceptr rig_alloc(size_t bytes)
{
	CUdeviceptr address;
	OK(cuMemAlloc(&address, bytes));
	OK(cuMemsetD8(address, 0, bytes));
	return address;
}

static const CUmemAllocationProp *properties(CUdevice device)
{
	static __thread CUmemAllocationProp p;
	p = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				  .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				  .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
	return &p;
}

static CUdeviceptr map(CUmemGenericAllocationHandle handle, const unsigned *devices, size_t n)
{
	CUdeviceptr address;
	OK(cuMemAddressReserve(&address, SCRATCH_BYTES, 0, 0, 0));
	OK(cuMemMap(address, SCRATCH_BYTES, 0, handle, 0));
	for (size_t i = 0; i < n; i++) {
		CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, (int)devices[i]},
					  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
		OK(cuMemSetAccess(address, SCRATCH_BYTES, &access, 1));
	}
	return address;
}

/* ---- threads ---- */

struct rig_group {
	int n;
	unsigned devices;
	rig_body *body;
	long value;
	CUdeviceptr scratch[RANKS];
	CUmemGenericAllocationHandle handles[RANKS];
	long results[RANKS];
};

struct starter {
	struct rig_group *group;
	int rank;
};

static void *thread_main(void *data)
{
	struct starter *starter = data;
	struct rig_group *group = starter->group;
	struct rig_rank rank = {.rank = starter->rank, .n = group->n, .group = group};
	rig_open((unsigned)starter->rank % group->devices);
	OK(cuStreamCreate(&rank.stream, CU_STREAM_NON_BLOCKING));
	memcpy(rank.scratch, group->scratch, sizeof rank.scratch);
	group->results[rank.rank] = group->body(&rank, group->value);
	OK(cuStreamDestroy(rank.stream));
	return NULL;
}

long rig_run_threads(int n, rig_body *body, long value, unsigned devices)
{
	struct rig_group group = {.n = n, .devices = devices, .body = body, .value = value};
	struct starter starters[RANKS];
	pthread_t threads[RANKS];
	unsigned all[RANKS];
	long sum = 0;
	rig_open(0);
	for (unsigned i = 0; i < devices; i++)
		all[i] = i;
	for (int r = 0; r < n; r++) {
		CUdevice device = (CUdevice)((unsigned)r % devices);
		OK(cuMemCreate(&group.handles[r], SCRATCH_BYTES, properties(device), 0));
		group.scratch[r] = map(group.handles[r], all, devices);
		OK(cuMemsetD8(group.scratch[r], 0, SCRATCH_BYTES));
	}
	for (int r = 0; r < n; r++) {
		starters[r] = (struct starter){&group, r};
		assert_int_equal(pthread_create(&threads[r], NULL, thread_main, &starters[r]), 0);
	}
	for (int r = 0; r < n; r++) {
		pthread_join(threads[r], NULL);
		sum += group.results[r];
	}
	for (int r = 0; r < n; r++) {
		OK(cuMemUnmap(group.scratch[r], SCRATCH_BYTES));
		OK(cuMemAddressFree(group.scratch[r], SCRATCH_BYTES));
		OK(cuMemRelease(group.handles[r]));
	}
	return sum;
}

/* ---- processes ---- */

static void send_fd(int socket, int fd)
{
	char byte = 'f', control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof control};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	*header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(header), &fd, sizeof fd);
	if (sendmsg(socket, &message, 0) != 1)
		abort();
}

static int receive_fd(int socket)
{
	char byte, control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof control};
	int fd;
	if (recvmsg(socket, &message, 0) != 1 || !CMSG_FIRSTHDR(&message))
		abort();
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

static int run_rank(struct rig_rank *rank, rig_body *body, long value)
{
	CUmemGenericAllocationHandle handle;
	CUdevice device;
	int fd, count;
	OK(cuInit(0));
	OK(cuDeviceGetCount(&count));
	device = rank->rank % count;
	rig_open((unsigned)device);
	unsigned own = (unsigned)device;
	OK(cuMemCreate(&handle, SCRATCH_BYTES, properties(device), 0));
	OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CUdeviceptr mine = map(handle, &own, 1);
	OK(cuMemsetD8(mine, 0, SCRATCH_BYTES));
	send_fd(rank->socket, fd);
	close(fd);
	for (int r = 0; r < rank->n; r++) {
		CUmemGenericAllocationHandle peer;
		fd = receive_fd(rank->socket);
		if (r == rank->rank) {
			rank->scratch[r] = mine;
		} else {
			OK(cuMemImportFromShareableHandle(
				&peer, (void *)(intptr_t)fd,
				CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
			rank->scratch[r] = map(peer, &own, 1);
			OK(cuMemRelease(peer));
		}
		close(fd);
	}
	OK(cuStreamCreate(&rank->stream, CU_STREAM_NON_BLOCKING));
	return body(rank, value);
}

void rig_main(int argc, char **argv, const struct rig_role *roles, size_t n_roles)
{
	if (argc != 7 || strcmp(argv[1], "--rank") != 0)
		return;
	struct rig_rank rank = {.rank = atoi(argv[2]), .n = atoi(argv[3]), .socket = atoi(argv[4])};
	is_rank = 1;
	for (size_t i = 0; i < n_roles; i++)
		if (strcmp(roles[i].name, argv[5]) == 0) {
			long result = run_rank(&rank, roles[i].body, atol(argv[6]));
			if (write(rank.socket, &result, sizeof result) != sizeof result)
				_exit(98);
			/* Memory that others map stays as long as they do: wait for the parent. */
			char byte;
			while (read(rank.socket, &byte, 1) < 0 && errno == EINTR)
				;
			_exit(0);
		}
	_exit(97);
}

static pid_t start(int rank, int n, int socket, const char *role, long value,
		   const char *const *environment)
{
	extern char **environ;
	char texts[4][24], *variables[256];
	size_t k = 0;
	snprintf(texts[0], sizeof texts[0], "%d", rank);
	snprintf(texts[1], sizeof texts[1], "%d", n);
	snprintf(texts[2], sizeof texts[2], "%d", socket);
	snprintf(texts[3], sizeof texts[3], "%ld", value);
	char *arguments[] = {"rank",   "--rank",     texts[0], texts[1],
			     texts[2], (char *)role, texts[3], NULL};
	for (; environment && *environment; environment++)
		variables[k++] = (char *)*environment; /* the first of a name counts */
	for (char **at = environ; *at && k < 255; at++)
		variables[k++] = *at;
	variables[k] = NULL;
	pid_t pid;
	assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, variables), 0);
	return pid;
}

long rig_run_processes(int n, const char *role, long value, const char *const *environment)
{
	int sockets[RANKS], fds[RANKS];
	pid_t pids[RANKS];
	long sum = 0;
	for (int r = 0; r < n; r++) {
		int pair[2];
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
		fcntl(pair[0], F_SETFD, FD_CLOEXEC); /* so that a child sees the parent go */
		sockets[r] = pair[0];
		pids[r] = start(r, n, pair[1], role, value, environment);
		close(pair[1]);
	}
	for (int r = 0; r < n; r++)
		fds[r] = receive_fd(sockets[r]);
	for (int r = 0; r < n; r++)
		for (int k = 0; k < n; k++)
			send_fd(sockets[r], fds[k]);
	for (int r = 0; r < n; r++)
		close(fds[r]);
	for (int r = 0; r < n; r++) {
		long result;
		if (read(sockets[r], &result, sizeof result) == sizeof result)
			sum += result;
		else
			sum += 1000000;
	}
	for (int r = 0; r < n; r++)
		shutdown(sockets[r], SHUT_RDWR), close(sockets[r]);
	for (int r = 0; r < n; r++) {
		int status;
		waitpid(pids[r], &status, 0);
		if (status != 0)
			sum += 1000000;
	}
	return sum;
}
