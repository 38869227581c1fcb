/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's way from a unique id to standing connections: join at the root, learn the neighbours'
 * addresses, connect to those below (rank - 2^k), accept those above (rank + 2^k), and leave the
 * root when all ranks have done so. The struct is what the files of the bootstrap share; others use
 * bootstrap.h.
 */
#pragma once
#include "channels/bootstrap.h"
#include "channels/frame.h"

enum { STRAIT_MAX_LINKS = 20 };

struct strait_bootstrap {
	int rank, n_ranks, n_links;
	const atomic_uint *abort_word;
	unsigned generation; /* of the process that made it: a forked child must not touch the
				descriptors */
	/* Connections to rank - 2^k (collectives send there) and from rank + 2^k (they receive
	 * there). */
	int down[STRAIT_MAX_LINKS], up[STRAIT_MAX_LINKS];
	uint32_t n_collectives;
	int broken;                         /* the failure that ended the collectives, or 0 */
	struct strait_monitored *monitored; /* non-NULL: strait_bootstrap_watch() was called */
	atomic_int lost_rank;
};

int strait_rendezvous(struct strait_bootstrap *bootstrap, const uint8_t id[STRAIT_ID_BYTES]);

/* The rank at the other end of a connection. */
int strait_bootstrap_down(const struct strait_bootstrap *bootstrap, int k);
int strait_bootstrap_up(const struct strait_bootstrap *bootstrap, int k);

/* A wait of this bootstrap that ends by itself after STRAIT_BOOTSTRAP_TIMEOUT. */
struct strait_wait strait_bootstrap_limit(const struct strait_bootstrap *bootstrap);
