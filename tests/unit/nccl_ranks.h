/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators over the stand-ins of fake_native.h, all ranks held by the calling thread.
 */
#pragma once
#include "tests/unit/child.h"

#include "shim/nccl_api.h"
#include "tests/unit/fake_native.h"

static inline int reset_fakes(void **state)
{
	fake_reset();
	return 0;
}

static inline int check_nothing_is_left(void **state)
{
	return fake.n_alive || fake.n_retained || fake.n_events_alive || fake_current();
}

/* Ranks 0 to n-1 on the devices of the same number (modulo the four there are). */
static inline void make_ranks(struct ncclComm **comms, int n)
{
	struct strait_nccl_id id;

	assert_int_equal(ncclGetUniqueId(&id), 0);
	assert_int_equal(ncclGroupStart(), 0);
	for (int rank = 0; rank < n; rank++) {
		fake_set_current(fake_primary(rank % FAKE_DEVICES));
		assert_int_equal(ncclCommInitRank(&comms[rank], n, id, rank), 0);
	}
	fake_set_current(NULL);
	assert_int_equal(ncclGroupEnd(), 0);
	fake.n_events = 0;
}

static inline void destroy_ranks(struct ncclComm **comms, int n)
{
	for (int rank = 0; rank < n; rank++)
		assert_int_equal(ncclCommDestroy(comms[rank]), 0);
}

static inline int reduce(struct ncclComm *comm, size_t count, CUstream stream)
{
	return ncclAllReduce((void *)0x1000, (void *)0x2000, count, STRAIT_FLOAT32, STRAIT_SUM,
			     comm, stream);
}
