/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ranks share a host, and which share a process. STRAIT_HOSTID, else NCCL_HOSTID, else the
 * boot id with the device number of /dev/shm; never the host name, never a bare pid (containers
 * share and hide both).
 */
#pragma once
#include <stdint.h>

/* Equal on two ranks if and only if they are on one host, as far as memory can be shared. Never 0.
 */
uint64_t strait_host_hash(void);
/* Equal on two ranks if and only if they are in one process: random, made once in a process, made
 * anew in a forked child. Never 0. */
uint64_t strait_process_hash(void);
