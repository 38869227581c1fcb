/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Version and error texts.
 */
#include "shim/nccl_api.h"
#include "shim/result.h"
#include "strait/status.h"

/* What standalone mode says it is. PyTorch and vLLM compare it to decide what they may call
 * (windows from 22703, vLLM's communicator properties from 22902); this release has all that
 * standalone mode answers. */
enum { REPORTED_VERSION = 22809 };

int pncclGetVersion(int *version)
{
	if (!version)
		return STRAIT_NCCL_INVALID_ARGUMENT; /* NCCL leaves no message here */
	*version = REPORTED_VERSION;
	return STRAIT_NCCL_SUCCESS;
}
NCCL_ALIAS(GetVersion);

const char *pncclGetErrorString(int result)
{
	static const char *const texts[] = {
		[STRAIT_NCCL_SUCCESS] = "no error",
		[STRAIT_NCCL_UNHANDLED_CUDA_ERROR] =
			"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
		[STRAIT_NCCL_SYSTEM_ERROR] =
			"unhandled system error (run with NCCL_DEBUG=INFO for details)",
		[STRAIT_NCCL_INTERNAL_ERROR] =
			"internal error - please report this issue to the NCCL developers",
		[STRAIT_NCCL_INVALID_ARGUMENT] =
			"invalid argument (run with NCCL_DEBUG=WARN for details)",
		[STRAIT_NCCL_INVALID_USAGE] =
			"invalid usage (run with NCCL_DEBUG=WARN for details)",
		[STRAIT_NCCL_REMOTE_ERROR] = "remote process exited or there was a network error",
		[STRAIT_NCCL_IN_PROGRESS] = "NCCL operation in progress",
	};

	if (result < 0 || result >= (int)(sizeof(texts) / sizeof(texts[0])))
		return "unknown result code";
	return texts[result];
}
NCCL_ALIAS(GetErrorString);

/* One text for the process; the communicator does not matter. */
const char *pncclGetLastError(struct ncclComm *comm)
{
	return strait_status_message();
}
NCCL_ALIAS(GetLastError);

/* Re-reads NCCL's debug settings; ours are read once. */
void pncclResetDebugInit(void) {}
NCCL_ALIAS(ResetDebugInit);
