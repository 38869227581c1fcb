/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding the machine: its memory is a memfd with a known name, and whoever joins looks through
 * /proc for a process of this user that has it open; when there is none, it makes one. Two that
 * join at once are kept apart by an abstract socket name, which the kernel takes back when its
 * holder dies.
 */
#include "emulator/machine.h"
#include "emulator/settings.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

struct strait_emu_machine *strait_emu_machine;

/* Holds the name until the descriptor is closed. */
static int lock_name(const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%s", name);
	socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	while (bind(fd, (struct sockaddr *)&address, bytes) != 0) {
		if (errno != EADDRINUSE) {
			close(fd);
			return -1;
		}
		nanosleep(&(struct timespec){0, 200000}, NULL);
	}
	return fd;
}

/* The memfd of that name among the descriptors of one process, opened, or -1. */
static int find_in_process(pid_t pid, const char *link)
{
	char path[PATH_MAX], target[PATH_MAX];
	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	DIR *folder = opendir(path);
	if (!folder)
		return -1;
	int found = -1;
	for (struct dirent *entry; found < 0 && (entry = readdir(folder));) {
		ssize_t n = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
		if (n <= 0)
			continue;
		target[n] = 0;
		if (strcmp(target, link) == 0)
			found = openat(dirfd(folder), entry->d_name, O_RDWR | O_CLOEXEC);
	}
	closedir(folder);
	return found;
}

/* Processes of this user, at most `room`; how many. */
static size_t list_processes(pid_t *pids, size_t room)
{
	DIR *folder = opendir("/proc");
	size_t n = 0;
	for (struct dirent *entry; folder && n < room && (entry = readdir(folder));) {
		struct stat status;
		if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
			continue;
		if (fstatat(dirfd(folder), entry->d_name, &status, 0) == 0 &&
		    status.st_uid == geteuid())
			pids[n++] = atoi(entry->d_name);
	}
	if (folder)
		closedir(folder);
	return n;
}

/* From the last process to the first: the ranks of a job start one after the other. */
static int find(const char *name)
{
	enum { ROOM = 65536 };
	char link[PATH_MAX];
	snprintf(link, sizeof link, "/memfd:%s (deleted)", name);
	pid_t *pids = malloc(ROOM * sizeof *pids);
	size_t n = pids ? list_processes(pids, ROOM) : 0;
	int found = -1;
	while (n && found < 0)
		found = find_in_process(pids[--n], link);
	free(pids);
	return found;
}

static int create(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC);
	if (fd >= 0 && ftruncate(fd, sizeof(struct strait_emu_machine)) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static void join_once(void)
{
	char name[90];
	snprintf(name, sizeof name, "strait-emulator-%u-%s", (unsigned)geteuid(),
		 strait_emu_settings_get()->machine);
	int lock = lock_name(name);
	if (lock < 0)
		return;
	int fd = find(name);
	if (fd < 0)
		fd = create(name);
	void *memory = fd < 0 ? MAP_FAILED
			      : mmap(NULL, sizeof(struct strait_emu_machine),
				     PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(lock); /* the machine's own descriptor stays open: it is how others find it */
	if (memory == MAP_FAILED)
		return;
	strait_emu_machine = memory;
}

int strait_emu_machine_join(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, join_once);
	return strait_emu_machine ? 0 : -1;
}

uint64_t strait_emu_machine_id(void)
{
	return atomic_fetch_add(&strait_emu_machine->ids, 1) + 1;
}

static void ring(struct strait_emu_bell *bell)
{
	atomic_fetch_add(&bell->rung, 1);
	if (atomic_load(&bell->waiters))
		syscall(SYS_futex, &bell->rung, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void strait_emu_machine_ring(unsigned device, int index)
{
	struct strait_emu_bell *bells = strait_emu_machine->bells[device];
	if (index >= 0) {
		ring(&bells[index % STRAIT_EMU_BELLS]);
		return;
	}
	for (unsigned i = 0; i < STRAIT_EMU_BELLS; i++)
		ring(&bells[i]);
}

void strait_emu_machine_wait(struct strait_emu_bell *bell, uint32_t seen)
{
	struct timespec limit = {0, 1000000};
	atomic_fetch_add(&bell->waiters, 1);
	syscall(SYS_futex, &bell->rung, FUTEX_WAIT, seen, &limit, NULL, 0);
	atomic_fetch_sub(&bell->waiters, 1);
}
