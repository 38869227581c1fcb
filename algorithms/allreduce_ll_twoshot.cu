/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduce, two shots, LL packets: every rank owns a slice. Each sends to every peer its
 * contribution to that peer's slice; the owner reduces in rank order and sends the result to all.
 * Two exchanges of 1/n of the bytes to each peer. The first half of a packet inbox takes
 * contributions, the second half results; both belong to one epoch.
 */
#include "algorithms/allreduce.h"
#include "algorithms/reduction.cuh"
#include "algorithms/share.cuh"
#include "channels/device/packet_round.cuh"

namespace strait
{

template <class Element, class Operation>
struct allreduce_ll_twoshot {
	static constexpr unsigned group = 4;
	using words = user_words<Element>;

	const strait_allreduce_args &a;
	const coop g;
	const block_scratch scratch;
	packet_round round;
	const contribution<Element, Operation> own;
	const unsigned rank, n_ranks;
	const uint64_t n_words, slice_words;
	const share mine; /* words of every slice that this block works on */
	patience wait;

	STRAIT_DEVICE allreduce_ll_twoshot(const strait_allreduce_args &args, coop thread_group)
	    : a(args), g(thread_group), scratch{args.communicator, block_index()},
	      round(scratch, thread_group), own(args.reduction), rank(args.communicator.rank),
	      n_ranks(args.communicator.n_ranks),
	      n_words(div_up(args.count, word<Element>::n_elements)), slice_words(args.slice),
	      mine(slice_words, block_index(), args.chunk), wait(args.communicator.abort_word)
	{
	}

	STRAIT_DEVICE void run()
	{
		if (!round.begin(scratch, g, wait))
			return;
		for (unsigned i = g.rank; i < mine.n; i += g.size)
			send_contributions(i);
		for (unsigned i = g.rank; i < mine.n; i += g.size)
			if (!reduce_own(i))
				return;
		for (unsigned i = g.rank; i < mine.n; i += g.size)
			if (!receive_results(i))
				return;
	}

      private:
	/* Word i of this block's share of the slice of `owner`; may lie behind the end of the
	 * buffer. */
	STRAIT_DEVICE uint64_t word_of(unsigned owner, unsigned i) const
	{
		return owner * slice_words + mine.first + i;
	}
	STRAIT_DEVICE strait_bits128 *contributions(unsigned at, unsigned from) const
	{
		return scratch.packets(at, from, round.parity);
	}
	STRAIT_DEVICE strait_bits128 *results(unsigned at, unsigned from) const
	{
		return contributions(at, from) +
		       a.communicator.packet_slot_bytes / (2 * sizeof(strait_bits128));
	}

	STRAIT_DEVICE void send_contributions(unsigned i) const
	{
		STRAIT_ROLLED
		for (unsigned base = 1; base < n_ranks; base += group) {
			uint64_t w[group];
			STRAIT_UNROLL
			for (unsigned k = 0; k < group; k++) {
				if (base + k >= n_ranks)
					break;
				const uint64_t index = word_of(rotated(rank, base + k, n_ranks), i);
				w[k] = index < n_words ? words::read(a.send, a.count, index) : 0;
			}
			STRAIT_UNROLL
			for (unsigned k = 0; k < group; k++) {
				if (base + k >= n_ranks)
					break;
				const unsigned owner = rotated(rank, base + k, n_ranks);
				if (word_of(owner, i) < n_words)
					store_relaxed_pair(contributions(owner, rank) + i,
							   packet16(own(w[k]), round.flag));
			}
		}
	}

	STRAIT_DEVICE bool reduce_own(unsigned i)
	{
		const uint64_t index = word_of(rank, i);
		if (index >= n_words)
			return true;
		word_reduction<Element, Operation> sum(a.reduction);
		if (!reduce_packets(sum, scratch, round, i,
				    own(words::read(a.send, a.count, index)), wait))
			return false;
		const uint64_t result = sum.result();
		STRAIT_ROLLED
		for (unsigned j = 1; j < n_ranks; j++)
			store_relaxed_pair(results(rotated(rank, j, n_ranks), rank) + i,
					   packet16(result, round.flag));
		words::write(a.recv, a.count, index, result);
		return true;
	}

	STRAIT_DEVICE bool receive_results(unsigned i)
	{
		STRAIT_ROLLED
		for (unsigned base = 1; base < n_ranks; base += group) {
			strait_bits128 seen[group];
			STRAIT_UNROLL
			for (unsigned k = 0; k < group; k++) {
				if (base + k >= n_ranks)
					break;
				const unsigned owner = rotated(rank, base + k, n_ranks);
				if (word_of(owner, i) < n_words)
					seen[k] = load_relaxed_pair(results(rank, owner) + i);
			}
			STRAIT_UNROLL
			for (unsigned k = 0; k < group; k++) {
				if (base + k >= n_ranks)
					break;
				const unsigned owner = rotated(rank, base + k, n_ranks);
				const uint64_t index = word_of(owner, i);
				if (index >= n_words)
					continue;
				if (!packet16_wait(results(rank, owner) + i, round.flag, wait,
						   seen[k]))
					return false;
				words::write(a.recv, a.count, index, packet16_data(seen[k]));
			}
		}
		return true;
	}
};

} // namespace strait

#define INSTANCE(element, operation)                                                              \
	STRAIT_KERNEL(strait_allreduce_ll_twoshot_##element##_##operation, strait_allreduce_args, \
		      512)                                                                        \
	{                                                                                         \
		if (a.count)                                                                      \
			strait::allreduce_ll_twoshot<strait::element_##element,                   \
						     strait::operation_##operation>(              \
				a, strait::coop::block())                                         \
				.run();                                                           \
	}
#include "algorithms/instances.def"
