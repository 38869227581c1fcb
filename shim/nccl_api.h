/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exported functions, declared from fallback/nccl_api.def: ncclName and pncclName for every
 * row.
 *
 * shim/api_*.c define pncclName and then write NCCL_ALIAS(Name), which makes ncclName the same code
 * under a weak name, as NCCL does, so that tools that wrap one of the two find both.
 */
#pragma once
#include "shim/nccl_abi.h"
#include <cuda.h>

#define NCCL_RETURN_RESULT int
#define NCCL_RETURN_INT int
#define NCCL_RETURN_TEAM struct strait_nccl_team
#define NCCL_RETURN_TEXT const char *
#define NCCL_RETURN_VOID void

#define NCCL_EXPORTED __attribute__((visibility("default")))
#define NCCL_ALIAS(name) \
	extern __typeof__(pnccl##name) nccl##name __attribute__((weak, alias("pnccl" #name)))

#define NCCL_SHIM(release, kind, name, parameters, arguments)    \
	NCCL_EXPORTED NCCL_RETURN_##kind pnccl##name parameters; \
	NCCL_EXPORTED NCCL_RETURN_##kind nccl##name parameters;
#define NCCL_PASS(release, kind, name, parameters, arguments) \
	NCCL_SHIM(release, kind, name, parameters, arguments)
#define NCCL_LONE(release, kind, name, parameters, arguments) \
	NCCL_EXPORTED NCCL_RETURN_##kind nccl##name parameters;
#include "fallback/nccl_api.def"
#undef NCCL_SHIM
#undef NCCL_PASS
#undef NCCL_LONE
