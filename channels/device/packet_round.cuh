/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One use of a block's packet inboxes. Each use is an epoch; the inboxes of two successive epochs
 * are distinct (parity), and a third would overwrite the first. So a rank that starts epoch e first
 * tells every peer that it has read epoch e - 1 (its kernel has ended), and puts nothing before
 * every peer has told it so of e - 2. No kernel relies on what another call sends. Telling at the
 * next start, not at the end, keeps a remote store out of the end of the kernel.
 */
#pragma once
#include "channels/device/memory_channel.cuh"

namespace strait
{

struct packet_round {
	/* Inboxes are cleared this often, long before flags repeat (2^31 epochs). */
	static constexpr uint64_t renewal_period = 1 << 20;
	uint64_t epoch;
	uint32_t flag;
	unsigned parity;

	/* Asks for the two counters together, before anything else: their latency is the first
	 * thing that a small call waits for. Thread p speaks with rank p; the block has at least
	 * n_ranks threads. */
	STRAIT_DEVICE packet_round(const block_scratch &s, coop g)
	{
		const strait_block_control *own = s.control(s.c.rank);
		peer = g.rank;
		has_peer = peer < s.c.n_ranks && peer != s.c.rank;
		consumed = has_peer ? load_relaxed(&own->from[peer].packets_consumed) : 0;
		epoch = load_relaxed(&own->packet_epoch) + 1;
		flag = packet_flag(epoch);
		parity = epoch & 1;
	}

	/* All threads of the block, once. False, for all of them alike: aborted. */
	STRAIT_DEVICE bool begin(const block_scratch &s, coop g, patience &wait)
	{
		strait_block_control *own = s.control(s.c.rank);
		bool ok = true;
		/* The previous epoch's inboxes have the other parity; nobody writes them before our
		 * word. Never in a communicator's first two epochs, for which nobody waits for a
		 * word. */
		if (epoch >= renewal_period && epoch % renewal_period - 2 < 2)
			renew(s, g, parity ^ 1);
		if (has_peer) {
			/* Relaxed: what the previous kernel read, it had read when it ended. */
			store_relaxed(&s.control(peer)->from[s.c.rank].packets_consumed, epoch - 1);
			while (ok && consumed + 2 < epoch) {
				ok = wait.turn();
				consumed = load_relaxed(&own->from[peer].packets_consumed);
			}
		}
		ok = g.sync_all(ok);
		/* Every thread has read the old value: the barrier. */
		if (g.rank == 0)
			store(&own->packet_epoch, epoch);
		return ok;
	}

      private:
	uint64_t consumed;
	unsigned peer;
	bool has_peer;

	STRAIT_DEVICE void renew(const block_scratch &s, coop g, unsigned stale_parity)
	{
		const uint64_t n = s.c.packet_slot_bytes / sizeof(strait_bits128);
		for (unsigned from = 0; from < s.c.n_ranks; from++) {
			if (from == s.c.rank)
				continue;
			strait_bits128 *inbox = s.packets(s.c.rank, from, stale_parity);
			for (uint64_t i = g.rank; i < n; i += g.size)
				store(inbox + i, strait_bits128{0, 0});
		}
		g.sync();
		/* Before our word that lets the peer write there: pairs with its reading of
		 * packets_consumed. */
		fence();
	}
};

} // namespace strait
