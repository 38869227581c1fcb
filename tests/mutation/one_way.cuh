/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two kernels that only one rank sends in: nothing of what the others do tells it that its data was
 * read, but the words of the channels themselves. They stand in the mutants' module in the place of
 * two instances of the all-reduce that the mutation cases do not call. Rank 0 sends its input,
 * everybody's output becomes that.
 */
#pragma once
#include "algorithms/allreduce.h"
#include "channels/device/bulk_round.cuh"
#include "channels/device/packet_round.cuh"

namespace strait
{

/* 8-byte words, dealt to the blocks in turn; `count` is their number. */
inline void one_way_packets(const strait_allreduce_args &a, coop g)
{
	const strait_device_communicator &c = a.communicator;
	const block_scratch scratch{c, block_index()};
	const auto *from = static_cast<const uint64_t *>(a.send);
	auto *to = static_cast<uint64_t *>(a.recv);
	/* At the end of the inboxes, which is cleared last. */
	const uint64_t place = c.packet_slot_bytes / sizeof(strait_bits128) -
			       (a.count + n_blocks() - 1) / n_blocks();
	patience wait(c.abort_word);
	packet_round round(scratch, g);
	if (!round.begin(scratch, g, wait))
		return;
	for (uint64_t i = g.rank, word; (word = i * n_blocks() + block_index()) < a.count;
	     i += g.size) {
		if (c.rank == 0) {
			for (unsigned peer = 1; peer < c.n_ranks; peer++)
				store_relaxed_pair(scratch.packets(peer, 0, round.parity) + place +
							   i,
						   packet16(load(from + word), round.flag));
			store(to + word, load(from + word));
			continue;
		}
		const strait_bits128 *inbox = scratch.packets(c.rank, 0, round.parity) + place + i;
		strait_bits128 seen = load_relaxed_pair(inbox);
		if (!packet16_wait(inbox, round.flag, wait, seen))
			return;
		store(to + word, packet16_data(seen));
	}
}

/* The same by the bulk inboxes: a slot full an iteration, read one lag later. */
inline void one_way_bulk(const strait_allreduce_args &a, coop g)
{
	const strait_device_communicator &c = a.communicator;
	const block_scratch scratch{c, block_index()};
	const auto *from = static_cast<const uint64_t *>(a.send);
	auto *to = static_cast<uint64_t *>(a.recv);
	const uint64_t chunk = c.bulk_slot_bytes / 32, stride = chunk * n_blocks();
	const uint64_t n_steps = (a.count + stride - 1) / stride;
	bulk_round round(scratch, g);
	for (uint64_t k = 0; k < n_steps + STRAIT_BULK_LAG; k++) {
		if (!round.begin())
			return;
		for (uint64_t i = g.rank; i < chunk; i += g.size) {
			const uint64_t out = k * stride + block_index() * chunk + i;
			if (c.rank == 0 && k < n_steps && out < a.count) {
				for (unsigned peer = 1; peer < c.n_ranks; peer++)
					store(reinterpret_cast<uint64_t *>(
						      scratch.bulk(peer, 0, 0, round.iteration)) +
						      i,
					      load(from + out));
				store(to + out, load(from + out));
			}
			const uint64_t in = out - STRAIT_BULK_LAG * stride;
			if (c.rank != 0 && k >= STRAIT_BULK_LAG && in < a.count)
				store(to + in, load(reinterpret_cast<uint64_t *>(scratch.bulk(
							    c.rank, 0, 0,
							    round.iteration - STRAIT_BULK_LAG)) +
						    i));
		}
		round.end();
	}
	round.finish();
}

} // namespace strait
