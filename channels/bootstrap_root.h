/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root: a thread of the process that made the id. It gathers the ranks, gives each the
 * addresses of its neighbours, hears from all that their connections stand, says go, and ends. It
 * waits without a limit for ranks that have not come; once all have, for STRAIT_BOOTSTRAP_TIMEOUT.
 * Whatever is wrong with one rank is told to all with the reason; after that the root stays for a
 * while to tell it to late ranks too. A stranger's connection is only closed.
 */
#pragma once
#include "channels/unique_id.h"

/* Starts the thread over a listening socket, which it owns from now on (also on failure).
 * `lingers`: after a failure, keep the address to tell late ranks. */
int strait_bootstrap_root_start(int listen_fd, const uint8_t nonce[STRAIT_NONCE_BYTES],
				bool lingers);

/* Neighbours of a rank lie 2^k ranks away, for all k < this. 0 for one rank. */
int strait_bootstrap_n_links(int n_ranks);
