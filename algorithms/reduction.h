/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps NCCL's types and operators to kernel instances and to the reduction that the kernel gets as
 * data.
 */
#pragma once
#include "algorithms/reduction_args.h"
#include "algorithms/request.h"

enum {
#define INSTANCE(element, operation) STRAIT_INSTANCE_##element##_##operation,
#include "algorithms/instances.def"
#undef INSTANCE
	STRAIT_N_INSTANCES
};

/* "<element>_<operation>", the end of the kernels' names. */
const char *strait_instance_name(int instance);

/* The instance, and what it needs, for a valid type and reduction over n_ranks ranks. */
int strait_reduction_map(enum strait_type type, const struct strait_reduction *reduction,
			 int n_ranks, struct strait_reduction_args *ret_args);
