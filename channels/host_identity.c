/* SPDX-License-Identifier: Apache-2.0 */
/* Host and process as hashes that ranks compare: see the header for what they are made of. */
#include "channels/host_identity.h"
#include "channels/unique_id.h"
#include "strait/log.h"
#include "strait/params.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t process_hash;
static bool has_fork_handler;

static uint64_t never_zero(uint64_t hash)
{
	return hash ? hash : 1;
}

/* No process survives the boot that this names. */
static bool read_boot_id(char ret[64])
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, ret, 63);

	if (fd >= 0)
		close(fd);
	if (n < 32)
		return false;
	ret[n] = 0;
	return true;
}

uint64_t strait_host_hash(void)
{
	const struct strait_params *params = strait_params();
	const char *id =
		params->host_id && *params->host_id ? params->host_id : params->nccl_host_id;
	struct {
		char boot_id[64];
		uint64_t shared_memory;
	} here = {0};
	struct statx shm;

	if (id && *id)
		return never_zero(strait_hash_bytes(id, strlen(id)));
	if (!read_boot_id(here.boot_id)) {
		strait_info(BOOTSTRAP,
			    "the boot id cannot be read: other processes count as other hosts "
			    "(STRAIT_HOSTID overrides)");
		return strait_process_hash();
	}
	/* Two containers of one host share memory only through one mount. (stat itself got a new
	 * symbol version in glibc 2.33.) */
	if (!statx(AT_FDCWD, "/dev/shm", 0, STATX_BASIC_STATS, &shm))
		here.shared_memory = (uint64_t)shm.stx_dev_major << 32 | shm.stx_dev_minor;
	return never_zero(strait_hash_bytes(&here, sizeof(here)));
}

/* The child has one thread, so the lock that another one may have held is made new. */
static void forget_in_child(void)
{
	process_hash = 0;
	process_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

uint64_t strait_process_hash(void)
{
	uint64_t hash;

	pthread_mutex_lock(&process_lock);
	if (!has_fork_handler)
		has_fork_handler = !pthread_atfork(NULL, NULL, forget_in_child);
	if (!process_hash) {
		uint64_t fresh[4] = {0, (uint64_t)getpid(), (uint64_t)strait_now_ns(),
				     (uintptr_t)&hash};

		/* Without random bytes, time, place and pid must do. */
		strait_random_bytes(fresh, sizeof(fresh[0]));
		process_hash = never_zero(strait_hash_bytes(fresh, sizeof(fresh)));
	}
	hash = process_hash;
	pthread_mutex_unlock(&process_lock);
	return hash;
}
