/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduce, one shot, LL packets: every rank sends its whole input to every peer as packets, and
 * reduces what it gets in rank order. One exchange, so the lowest latency; each rank sends (n - 1)
 * times twice its bytes.
 */
#include "algorithms/allreduce.h"
#include "algorithms/reduction.cuh"
#include "algorithms/share.cuh"
#include "channels/device/packet_round.cuh"

namespace strait
{

template <class Element, class Operation>
struct allreduce_ll {
	static constexpr unsigned batch = 4; /* packets in flight for a thread */
	using words = user_words<Element>;

	const strait_allreduce_args &a;
	const coop g;
	const block_scratch scratch;
	packet_round round;
	const contribution<Element, Operation> own;
	const share mine; /* words of this block */
	patience wait;

	STRAIT_DEVICE allreduce_ll(const strait_allreduce_args &args, coop group)
	    : a(args), g(group), scratch{args.communicator, block_index()}, round(scratch, group),
	      own(args.reduction),
	      mine(div_up(args.count, word<Element>::n_elements), block_index(), args.chunk),
	      wait(args.communicator.abort_word)
	{
	}

	STRAIT_DEVICE void run()
	{
		if (mine.n <= g.size)
			run_one_word();
		else
			run_many_words();
	}

      private:
	/* At most one word a thread: what counts is a short way through the code. */
	STRAIT_DEVICE void run_one_word()
	{
		const bool has_word = g.rank < mine.n;
		const uint64_t index = mine.first + g.rank;
		const uint64_t w = has_word ? own(words::read(a.send, a.count, index)) : 0;
		if (!round.begin(scratch, g, wait) || !has_word)
			return;
		word_reduction<Element, Operation> sum(a.reduction);
		if (a.communicator.n_ranks == 2) {
			const unsigned rank = a.communicator.rank, peer = rank ^ 1;
			const strait_bits128 *from =
				scratch.packets(rank, peer, round.parity) + g.rank;
			store_relaxed_pair(scratch.packets(peer, rank, round.parity) + g.rank,
					   packet16(w, round.flag));
			strait_bits128 seen = load_relaxed_pair(from);
			if (!packet16_wait(from, round.flag, wait, seen))
				return;
			sum.first(peer == 0 ? packet16_data(seen) : w);
			sum.next(peer == 0 ? w : packet16_data(seen));
			words::write(a.recv, a.count, index, sum.result());
			return;
		}
		STRAIT_ROLLED
		for (unsigned j = 1; j < a.communicator.n_ranks; j++) {
			const unsigned peer =
				rotated(a.communicator.rank, j, a.communicator.n_ranks);
			store_relaxed_pair(
				scratch.packets(peer, a.communicator.rank, round.parity) + g.rank,
				packet16(w, round.flag));
		}
		if (reduce_packets(sum, scratch, round, g.rank, w, wait))
			words::write(a.recv, a.count, index, sum.result());
	}

	STRAIT_DEVICE void run_many_words()
	{
		uint64_t w[batch];
		read_own(w, g.rank);
		if (!round.begin(scratch, g, wait))
			return;
		send(w);
		if (a.communicator.n_ranks == 2)
			receive_from_one(w);
		else
			receive_from_all();
	}

	/* The own contribution to words i, i + size, ... of the block. */
	STRAIT_DEVICE void read_own(uint64_t (&w)[batch], unsigned i) const
	{
		STRAIT_UNROLL
		for (unsigned k = 0; k < batch; k++)
			w[k] = i + k * g.size < mine.n
				       ? words::read(a.send, a.count, mine.first + i + k * g.size)
				       : 0;
		STRAIT_UNROLL
		for (unsigned k = 0; k < batch; k++)
			w[k] = own(w[k]);
	}

	STRAIT_DEVICE bool one_batch() const { return mine.n <= batch * g.size; }

	STRAIT_DEVICE void send(uint64_t (&w)[batch]) const
	{
		for (unsigned i = g.rank; i < mine.n;) {
			STRAIT_ROLLED
			for (unsigned j = 1; j < a.communicator.n_ranks; j++) {
				const unsigned peer =
					rotated(a.communicator.rank, j, a.communicator.n_ranks);
				strait_bits128 *to =
					scratch.packets(peer, a.communicator.rank, round.parity);
				STRAIT_UNROLL
				for (unsigned k = 0; k < batch; k++)
					if (i + k * g.size < mine.n)
						store_relaxed_pair(to + i + k * g.size,
								   packet16(w[k], round.flag));
			}
			i += batch * g.size;
			if (i < mine.n)
				read_own(w, i);
		}
	}

	/* Two ranks: several packets of the one peer in flight. */
	STRAIT_DEVICE void receive_from_one(uint64_t (&w)[batch])
	{
		const unsigned peer = a.communicator.rank ^ 1;
		const strait_bits128 *from =
			scratch.packets(a.communicator.rank, peer, round.parity);
		for (unsigned i = g.rank; i < mine.n; i += batch * g.size) {
			strait_bits128 seen[batch];
			STRAIT_UNROLL
			for (unsigned k = 0; k < batch; k++)
				if (i + k * g.size < mine.n)
					seen[k] = load_relaxed_pair(from + i + k * g.size);
			if (!one_batch())
				read_own(w, i);
			STRAIT_UNROLL
			for (unsigned k = 0; k < batch; k++) {
				if (i + k * g.size >= mine.n)
					break;
				if (!packet16_wait(from + i + k * g.size, round.flag, wait,
						   seen[k]))
					return;
				const uint64_t theirs = packet16_data(seen[k]);
				word_reduction<Element, Operation> sum(a.reduction);
				sum.first(peer == 0 ? theirs : w[k]);
				sum.next(peer == 0 ? w[k] : theirs);
				words::write(a.recv, a.count, mine.first + i + k * g.size,
					     sum.result());
			}
		}
	}

	/* More: one word at a time, packets of several peers in flight. */
	STRAIT_DEVICE void receive_from_all()
	{
		for (unsigned i = g.rank; i < mine.n; i += g.size) {
			const uint64_t mine_own = own(words::read(a.send, a.count, mine.first + i));
			word_reduction<Element, Operation> sum(a.reduction);
			if (!reduce_packets(sum, scratch, round, i, mine_own, wait))
				return;
			words::write(a.recv, a.count, mine.first + i, sum.result());
		}
	}
};

} // namespace strait

#define INSTANCE(element, operation)                                                               \
	STRAIT_KERNEL(strait_allreduce_ll_##element##_##operation, strait_allreduce_args, 512)     \
	{                                                                                          \
		if (a.count)                                                                       \
			strait::allreduce_ll<strait::element_##element,                            \
					     strait::operation_##operation>(a,                     \
									    strait::coop::block()) \
				.run();                                                            \
	}
#include "algorithms/instances.def"
