/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions that shim/ has no code for: each answers that it is not supported, under both
 * names. Those that return no result code give a value that is harmless: an empty team, rank -1.
 */
#include "shim/dispatch.h"
#include "shim/nccl_api.h"
#include "shim/result.h"

#define ANSWER_RESULT(name) return strait_result(strait_dispatch_unsupported(name));
#define ANSWER_INT(name)                   \
	strait_dispatch_unsupported(name); \
	return -1;
#define ANSWER_TEAM(name)                  \
	strait_dispatch_unsupported(name); \
	return (struct strait_nccl_team){0, 0, 1};
#define ANSWER_VOID(name) strait_dispatch_unsupported(name);

#define NCCL_SHIM(release, kind, name, parameters, arguments)
#define NCCL_PASS(release, kind, name, parameters, arguments) \
	NCCL_RETURN_##kind pnccl##name parameters{ANSWER_##kind("nccl" #name)} NCCL_ALIAS(name);
#define NCCL_LONE(release, kind, name, parameters, arguments) \
	NCCL_RETURN_##kind nccl##name parameters {}
#include "fallback/nccl_api.def"
