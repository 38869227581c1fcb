/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How work is cut up, and the loop that two algorithms share: the reduction of one word from the
 * packets of all ranks.
 */
#pragma once
#include "algorithms/reduction.cuh"
#include "channels/device/packet_round.cuh"

namespace strait
{

STRAIT_DEVICE uint64_t div_up(uint64_t a, uint64_t b)
{
	return (a + b - 1) / b;
}

/* Part `index` of `total`, cut into parts of `per_part`; the last ones may be short or empty. */
struct share {
	uint64_t first;
	unsigned n;
	STRAIT_DEVICE share(uint64_t total, unsigned index, unsigned per_part)
	    : first(static_cast<uint64_t>(index) * per_part),
	      n(first >= total             ? 0
		: total - first < per_part ? total - first
					   : per_part)
	{
	}
};

/* Peer j of a rank, 0 < j < n: every rank starts with another one, so that they do not all write to
 * the same. */
STRAIT_DEVICE unsigned rotated(unsigned rank, unsigned j, unsigned n)
{
	return rank + j < n ? rank + j : rank + j - n;
}

/* Feeds packet `index` of every rank's inbox, in rank order, to the reduction; the own contribution
 * comes as a word. Loads of a few peers are in flight together. False: aborted. */
template <class Element, class Operation>
STRAIT_DEVICE bool reduce_packets(word_reduction<Element, Operation> &sum,
				  const block_scratch &scratch, const packet_round &round,
				  uint64_t index, uint64_t own, patience &wait)
{
	constexpr unsigned group = 4;
	const unsigned rank = scratch.c.rank, n_ranks = scratch.c.n_ranks;
	STRAIT_ROLLED
	for (unsigned base = 0; base < n_ranks; base += group) {
		strait_bits128 seen[group];
		STRAIT_UNROLL
		for (unsigned k = 0; k < group; k++)
			if (base + k < n_ranks && base + k != rank)
				seen[k] = load_relaxed_pair(
					scratch.packets(rank, base + k, round.parity) + index);
		STRAIT_UNROLL
		for (unsigned k = 0; k < group; k++) {
			const unsigned from = base + k;
			if (from >= n_ranks)
				break;
			if (from == rank) {
				sum.add(from, own);
				continue;
			}
			if (!packet16_wait(scratch.packets(rank, from, round.parity) + index,
					   round.flag, wait, seen[k]))
				return false;
			sum.add(from, packet16_data(seen[k]));
		}
	}
	return true;
}

} // namespace strait
