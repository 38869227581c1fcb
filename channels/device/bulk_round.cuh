/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Iterations of a block over its bulk inboxes. A block tells every peer when it has completed an
 * iteration, and starts iteration i when every peer has completed i - lag. So in iteration i, with
 * the slots of iteration j being j modulo STRAIT_BULK_SLOTS = 2 lag:
 *   - what peers wrote in iteration i - lag or before can be read;
 *   - what this block wrote for peers to read in i' + lag, into the slot of i' = i - 2 lag, was
 * read: it can be written again. Any kernel that keeps to that may follow any other. Counters are
 * 64 bits and never reset.
 */
#pragma once
#include "channels/device/memory_channel.cuh"

namespace strait
{

struct bulk_round {
	const block_scratch s;
	const coop g;
	uint64_t iteration; /* the current one, or the one completed last */
	patience wait;

	/* The block has at least n_ranks threads: thread p speaks with rank p. */
	STRAIT_DEVICE bulk_round(const block_scratch &scratch, coop group)
	    : s(scratch), g(group),
	      iteration(load(&scratch.control(scratch.c.rank)->bulk_iteration)),
	      wait(scratch.c.abort_word)
	{
	}

	/* All threads. False, for all of them alike: aborted. A block of which one thread gave up
	 * must not signal: its data would be wrong and its peers would not know. */
	STRAIT_DEVICE bool begin()
	{
		iteration++;
		/* Iterations before the first count as completed. */
		const bool ok = !has_peer() || iteration <= STRAIT_BULK_LAG ||
				channel().wait(iteration - STRAIT_BULK_LAG, wait);
		/* Hands what thread p acquired to the block, too. */
		return g.sync_all(ok);
	}

	/* All threads: everything that the block stored in this iteration is for the peers to see.
	 */
	STRAIT_DEVICE void end()
	{
		g.sync();
		if (has_peer())
			channel().signal(iteration);
	}

	/* After the last iteration of a kernel. */
	STRAIT_DEVICE void finish()
	{
		if (g.rank == 0)
			store(&s.control(s.c.rank)->bulk_iteration, iteration);
	}

      private:
	STRAIT_DEVICE bool has_peer() const { return g.rank < s.c.n_ranks && g.rank != s.c.rank; }
	STRAIT_DEVICE memory_channel channel() const
	{
		return {nullptr, nullptr, &s.control(g.rank)->from[s.c.rank].bulk_progress,
			&s.control(s.c.rank)->from[g.rank].bulk_progress};
	}
};

} // namespace strait
