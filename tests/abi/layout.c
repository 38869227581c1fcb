/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds our declaration of NCCL's binary interface against the real header, at compile time. The
 * header may be of any release from 2.28 on: structs grow at their end.
 */
#include "algorithms/request.h"
#include "shim/nccl_abi.h"
#include <nccl.h>

#define SAME_VALUE(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #theirs)
#define SAME_FIELD(our_struct, ours, their_struct, theirs)                                    \
	_Static_assert(offsetof(struct our_struct, ours) == offsetof(their_struct, theirs) && \
			       sizeof(((struct our_struct *)0)->ours) ==                      \
				       sizeof(((their_struct *)0)->theirs),                   \
		       #their_struct "." #theirs)

SAME_VALUE(STRAIT_NCCL_SUCCESS, ncclSuccess);
SAME_VALUE(STRAIT_NCCL_UNHANDLED_CUDA_ERROR, ncclUnhandledCudaError);
SAME_VALUE(STRAIT_NCCL_SYSTEM_ERROR, ncclSystemError);
SAME_VALUE(STRAIT_NCCL_INTERNAL_ERROR, ncclInternalError);
SAME_VALUE(STRAIT_NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME_VALUE(STRAIT_NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME_VALUE(STRAIT_NCCL_REMOTE_ERROR, ncclRemoteError);
SAME_VALUE(STRAIT_NCCL_IN_PROGRESS, ncclInProgress);

SAME_VALUE(STRAIT_INT8, ncclInt8);
SAME_VALUE(STRAIT_UINT8, ncclUint8);
SAME_VALUE(STRAIT_INT32, ncclInt32);
SAME_VALUE(STRAIT_UINT32, ncclUint32);
SAME_VALUE(STRAIT_INT64, ncclInt64);
SAME_VALUE(STRAIT_UINT64, ncclUint64);
SAME_VALUE(STRAIT_FLOAT16, ncclFloat16);
SAME_VALUE(STRAIT_FLOAT32, ncclFloat32);
SAME_VALUE(STRAIT_FLOAT64, ncclFloat64);
SAME_VALUE(STRAIT_BFLOAT16, ncclBfloat16);
SAME_VALUE(STRAIT_FLOAT8E4M3, ncclFloat8e4m3);
SAME_VALUE(STRAIT_FLOAT8E5M2, ncclFloat8e5m2);
_Static_assert((int)STRAIT_N_TYPES <= (int)ncclNumTypes, "ncclNumTypes");

SAME_VALUE(STRAIT_SUM, ncclSum);
SAME_VALUE(STRAIT_PROD, ncclProd);
SAME_VALUE(STRAIT_MAX, ncclMax);
SAME_VALUE(STRAIT_MIN, ncclMin);
SAME_VALUE(STRAIT_AVG, ncclAvg);
SAME_VALUE(STRAIT_NCCL_N_OPS, ncclNumOps);
SAME_VALUE(STRAIT_NCCL_SCALAR_DEVICE, ncclScalarDevice);
SAME_VALUE(STRAIT_NCCL_SCALAR_HOST, ncclScalarHostImmediate);
SAME_VALUE(INT_MAX, ncclMaxRedOp);

SAME_VALUE(STRAIT_NCCL_ID_BYTES, NCCL_UNIQUE_ID_BYTES);
SAME_VALUE(sizeof(struct strait_nccl_id), sizeof(ncclUniqueId));
SAME_VALUE(_Alignof(struct strait_nccl_id), _Alignof(ncclUniqueId));
SAME_VALUE(STRAIT_NCCL_WINDOW_ALIGNMENT, NCCL_WIN_REQUIRED_ALIGNMENT);
SAME_VALUE(STRAIT_NCCL_UNDEFINED, NCCL_CONFIG_UNDEF_INT);

#define CONFIG(ours, theirs) SAME_FIELD(strait_nccl_config, ours, ncclConfig_t, theirs)
CONFIG(size, size);
CONFIG(magic, magic);
CONFIG(version, version);
CONFIG(blocking, blocking);
CONFIG(cga_cluster_size, cgaClusterSize);
CONFIG(min_ctas, minCTAs);
CONFIG(max_ctas, maxCTAs);
CONFIG(net_name, netName);
CONFIG(split_share, splitShare);
CONFIG(traffic_class, trafficClass);
CONFIG(comm_name, commName);
CONFIG(collnet_enable, collnetEnable);
CONFIG(cta_policy, CTAPolicy);
CONFIG(shrink_share, shrinkShare);
CONFIG(nvls_ctas, nvlsCTAs);
CONFIG(n_channels_per_net_peer, nChannelsPerNetPeer);
CONFIG(nvlink_centric_sched, nvlinkCentricSched);
_Static_assert(sizeof(struct strait_nccl_config) <= sizeof(ncclConfig_t), "ncclConfig_t");
#if NCCL_VERSION_CODE >= 22800 && NCCL_VERSION_CODE < 22900
SAME_VALUE(sizeof(struct strait_nccl_config), sizeof(ncclConfig_t));
#endif

#define SIM_INFO(ours, theirs) SAME_FIELD(strait_nccl_sim_info, ours, ncclSimInfo_t, theirs)
SIM_INFO(size, size);
SIM_INFO(magic, magic);
SIM_INFO(version, version);
SIM_INFO(estimated_time, estimatedTime);
SAME_VALUE(sizeof(struct strait_nccl_sim_info), sizeof(ncclSimInfo_t));

/* What the initialisers write is what we look for. */
int main(void)
{
	const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	const ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;

	return config.magic != STRAIT_NCCL_CONFIG_MAGIC ||
	       config.blocking != STRAIT_NCCL_UNDEFINED || info.magic != STRAIT_NCCL_SIM_INFO_MAGIC;
}
