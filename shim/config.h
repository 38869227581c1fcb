/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a caller's ncclConfig_t: by its size, whatever release he was compiled against, with NCCL's
 * checks in NCCL's order and words, and with the environment winning over the struct.
 */
#pragma once
#include "shim/nccl_abi.h"
#include <stdbool.h>

struct strait_config { /* what of it concerns us */
	bool blocking;
	int max_blocks; /* 0: no limit of the user's */
	char *name;     /* or NULL */
};

/* `config` NULL: the defaults. Reads no byte beyond config->size (at least the 16 of the header).
 */
int strait_config_parse(const struct strait_nccl_config *config, struct strait_config *ret_config);
void strait_config_deinit(struct strait_config *config);
