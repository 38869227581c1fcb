/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups.
 */
#include "shim/group.h"
#include "shim/nccl_api.h"
#include "shim/result.h"

int pncclGroupStart(void)
{
	strait_group_start();
	return STRAIT_NCCL_SUCCESS;
}
NCCL_ALIAS(GroupStart);

int pncclGroupEnd(void)
{
	int r = strait_group_end();

	return r > 0 ? STRAIT_NCCL_IN_PROGRESS : strait_result(r);
}
NCCL_ALIAS(GroupEnd);

/* No estimate: the caller's value stays, as where NCCL has nothing to estimate. */
int pncclGroupSimulateEnd(struct strait_nccl_sim_info *info)
{
	return strait_result(strait_group_simulate_end(info));
}
NCCL_ALIAS(GroupSimulateEnd);
