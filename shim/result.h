/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one place where a status of ours becomes an ncclResult_t.
 */
#pragma once

/* Zero and positive statuses are success; the negative ones are the negated numbers of NCCL's. */
static inline int strait_result(int status)
{
	return status < 0 ? -status : 0;
}
