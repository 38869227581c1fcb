/* SPDX-License-Identifier: Apache-2.0 */
/* The table of operations. A row is added when the library supports the operation natively. */
#include "bench/operation.h"
#include <string.h>

static double allreduce_bus_factor(int n_ranks)
{
	return 2.0 * (n_ranks - 1) / n_ranks;
}

static ncclResult_t allreduce_run(const struct bench_library *library,
				  const struct bench_call *call)
{
	return library->AllReduce(call->send, call->recv, call->count, call->type, call->reduction,
				  call->communicator, call->stream);
}

static const struct bench_operation operations[] = {
	{"all_reduce", true, false, allreduce_bus_factor, allreduce_run},
};

#define N_OPERATIONS ((int)(sizeof(operations) / sizeof(*operations)))

const struct bench_operation *bench_operation_at(int n)
{
	return n < N_OPERATIONS ? &operations[n] : NULL;
}

const struct bench_operation *bench_operation_find(const char *name)
{
	for (int i = 0; i < N_OPERATIONS; i++)
		if (strcmp(operations[i].name, name) == 0)
			return &operations[i];
	return NULL;
}
