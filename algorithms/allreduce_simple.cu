/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduce, two shots, plain data with a semaphore an iteration: the way of large messages. The
 * buffer is cut into steps; in a step each block has one chunk for every rank, who owns it. In
 * iteration i a block
 *
 *     pushes    its contributions to step i into the owners' scratch,
 *     reduces   the chunk of step i - lag that it owns, in rank order, and pushes the result to
 * everybody's scratch, collects  the others' results of step i - 2 lag,
 *
 * between one wait and one signal for all three. A block starts iteration i when its peers have
 * completed i - lag: then their contributions of i - lag and results of i - 2 lag are here, and the
 * slots that it is about to write, last read in i - lag, are free. The counters run on through all
 * calls, so this holds across calls too, whatever they are.
 *
 * Steps do not overlap and unit u of a chunk stays on one thread, so in-place calls need no further
 * barrier.
 */
#include "algorithms/allreduce.h"
#include "channels/device/bulk_round.cuh"
#include "algorithms/reduction.cuh"
#include "algorithms/share.cuh"

namespace strait
{

template <class Element, class Operation>
struct allreduce_simple {
	static constexpr unsigned in_flight = 8; /* units that a thread loads before it stores */
	enum phase { contributions, results };
	using words = user_words<Element>;

	const strait_allreduce_args &a;
	const coop g;
	const block_scratch scratch;
	const contribution<Element, Operation> own;
	const unsigned rank, n_ranks;
	const uint64_t n_units;
	bulk_round round;

	STRAIT_DEVICE allreduce_simple(const strait_allreduce_args &args, coop thread_group)
	    : a(args), g(thread_group), scratch{args.communicator, block_index()},
	      own(args.reduction), rank(args.communicator.rank), n_ranks(args.communicator.n_ranks),
	      n_units(div_up(args.count, 2 * word<Element>::n_elements)),
	      round(scratch, thread_group)
	{
	}

	STRAIT_DEVICE void run()
	{
		/* A step of all blocks and ranks covers `stride` units; the last step may end
		 * early. */
		const uint64_t block_units = n_ranks * a.chunk;
		const uint64_t first = block_index() * block_units,
			       stride = n_blocks() * block_units;
		const uint64_t lag = STRAIT_BULK_LAG * stride;
		if (first >= n_units)
			return;
		/* The steps that are pushed, reduced and collected begin at `at`, at - lag and at -
		 * 2 lag. */
		for (uint64_t at = first; at < first + 2 * lag || at - 2 * lag < n_units;
		     at += stride) {
			if (!round.begin())
				return;
			if (at < n_units)
				stage<pushing>(round.iteration, at);
			if (at >= first + lag && at - lag < n_units)
				stage<reducing>(round.iteration - STRAIT_BULK_LAG, at - lag);
			if (at >= first + 2 * lag)
				stage<collecting>(round.iteration - 2 * STRAIT_BULK_LAG,
						  at - 2 * lag);
			round.end();
		}
		round.finish();
	}

      private:
	enum which { pushing, reducing, collecting };
	template <which Stage>
	STRAIT_DEVICE void stage(uint64_t slot, uint64_t at) const
	{
		if (is_plain(at))
			stage_by<Stage, true>(slot, at);
		else
			stage_by<Stage, false>(slot, at);
	}
	template <which Stage, bool Plain>
	STRAIT_DEVICE void stage_by(uint64_t slot, uint64_t at) const
	{
		if (Stage == pushing)
			push<Plain>(slot, at);
		else if (Stage == reducing)
			reduce<Plain>(slot, at);
		else
			collect<Plain>(slot, at);
	}

	STRAIT_DEVICE unsigned chunk_units(uint64_t from_unit) const
	{
		return from_unit >= n_units            ? 0
		       : n_units - from_unit < a.chunk ? n_units - from_unit
						       : a.chunk;
	}

	/* Whether the step at unit `at` can be moved by plain 16-byte accesses: buffers aligned,
	 * nothing to scale, every chunk whole. Each rank decides for its own buffers. */
	STRAIT_DEVICE bool is_plain(uint64_t at) const
	{
		return !own.scale && words::aligned(a.send, 16) && words::aligned(a.recv, 16) &&
		       (at + n_ranks * a.chunk) * 2 * word<Element>::n_elements <= a.count;
	}

	template <bool Plain>
	STRAIT_DEVICE strait_bits128 read(uint64_t unit) const
	{
		if (Plain)
			return load_streaming(static_cast<const strait_bits128 *>(a.send) + unit);
		const strait_bits128 v = words::read_unit(a.send, a.count, unit);
		return {own(v.lo), own(v.hi)};
	}
	template <bool Plain>
	STRAIT_DEVICE void write(uint64_t unit, strait_bits128 v) const
	{
		if (Plain)
			store_streaming(static_cast<strait_bits128 *>(a.recv) + unit, v);
		else
			words::write_unit(a.recv, a.count, unit, v);
	}

	/* The units of a step that this thread moves from or to chunks of the others, one after the
	 * other. */
	struct walk {
		const unsigned rank, n_ranks, first, stride, chunk;
		const uint64_t at, n_units; /* first unit of the step; units of the message */
		unsigned peer; /* 1 to n_ranks - 1, counted from the own rank; n_ranks: the end */
		unsigned unit; /* of the chunk of that peer */

		STRAIT_DEVICE walk(const allreduce_simple &s, uint64_t from)
		    : rank(s.rank), n_ranks(s.n_ranks), first(s.g.rank), stride(s.g.size),
		      chunk(s.a.chunk), at(from), n_units(s.n_units),
		      peer(s.g.rank < s.a.chunk ? 1 : s.n_ranks), unit(s.g.rank)
		{
		}
		STRAIT_DEVICE unsigned owner() const { return rotated(rank, peer, n_ranks); }
		STRAIT_DEVICE uint64_t message_unit() const
		{
			return at + static_cast<uint64_t>(owner()) * chunk + unit;
		}
		STRAIT_DEVICE bool done() const { return peer >= n_ranks; }
		/* The last step's chunks may end early or be empty. */
		STRAIT_DEVICE bool is_inside() const { return !done() && message_unit() < n_units; }
		STRAIT_DEVICE void next()
		{
			unit += stride;
			if (unit >= chunk) {
				unit = first;
				peer++;
			}
		}
	};

	/* Contributions of this rank to the chunks that the others own. `at`: the first unit of the
	 * step; `slot`: the iteration in which the step was begun. */
	template <bool Plain>
	STRAIT_DEVICE void push(uint64_t slot, uint64_t at) const
	{
		constexpr unsigned n_at_once = Plain ? in_flight : 2;
		for (walk w(*this, at); !w.done();) {
			strait_bits128 v[n_at_once], *to[n_at_once];
			STRAIT_UNROLL
			for (unsigned k = 0; k < n_at_once; k++) {
				to[k] = nullptr;
				if (w.is_inside()) {
					to[k] = scratch.bulk(w.owner(), contributions, rank, slot) +
						w.unit;
					v[k] = read<Plain>(w.message_unit());
				}
				w.next();
			}
			STRAIT_UNROLL
			for (unsigned k = 0; k < n_at_once; k++)
				if (to[k])
					store(to[k], v[k]);
		}
	}

	/* Others' results into the own output. */
	template <bool Plain>
	STRAIT_DEVICE void collect(uint64_t slot, uint64_t at) const
	{
		constexpr unsigned n_at_once = Plain ? in_flight : 2;
		for (walk w(*this, at); !w.done();) {
			strait_bits128 v[n_at_once];
			uint64_t unit[n_at_once];
			STRAIT_UNROLL
			for (unsigned k = 0; k < n_at_once; k++) {
				unit[k] = UINT64_MAX;
				if (w.is_inside()) {
					v[k] = load(scratch.bulk(rank, results, w.owner(), slot) +
						    w.unit);
					unit[k] = w.message_unit();
				}
				w.next();
			}
			STRAIT_UNROLL
			for (unsigned k = 0; k < n_at_once; k++)
				if (unit[k] != UINT64_MAX)
					write<Plain>(unit[k], v[k]);
		}
	}

	/* Several units of few ranks, or one unit of many ranks, in flight. */
	template <bool Plain>
	STRAIT_DEVICE void reduce(uint64_t slot, uint64_t at) const
	{
		if (Plain && n_ranks == 2)
			reduce_few<4, 2>(slot, at);
		else if (Plain && n_ranks <= 4)
			reduce_few<2, 4>(slot, at);
		else
			reduce_many<Plain>(slot, at);
	}

	/* At most Group ranks: N units at a time. */
	template <unsigned N, unsigned Group>
	STRAIT_DEVICE void reduce_few(uint64_t slot, uint64_t at) const
	{
		const uint64_t from_unit = at + rank * a.chunk;
		const unsigned n = chunk_units(from_unit);
		STRAIT_ROLLED
		for (unsigned i = g.rank; i < n; i += N * g.size) {
			strait_bits128 v[N][Group];
			STRAIT_UNROLL
			for (unsigned k = 0; k < N; k++) {
				STRAIT_UNROLL
				for (unsigned r = 0; r < Group; r++)
					v[k][r] = i + k * g.size < n
							  ? read_from<true>(r, slot, from_unit,
									    i + k * g.size)
							  : strait_bits128{0, 0};
			}
			STRAIT_UNROLL
			for (unsigned k = 0; k < N; k++) {
				if (i + k * g.size >= n)
					continue;
				word_reduction<Element, Operation> lo(a.reduction), hi(a.reduction);
				add(lo, hi, v[k], 0);
				put<true>({lo.result(), hi.result()}, slot, from_unit,
					  i + k * g.size);
			}
		}
	}

	/* Any number of ranks: a group of them at a time. */
	template <bool Plain>
	STRAIT_DEVICE void reduce_many(uint64_t slot, uint64_t at) const
	{
		constexpr unsigned group = 4;
		const uint64_t from_unit = at + rank * a.chunk;
		const unsigned n = chunk_units(from_unit);
		STRAIT_ROLLED
		for (unsigned i = g.rank; i < n; i += g.size) {
			word_reduction<Element, Operation> lo(a.reduction), hi(a.reduction);
			STRAIT_ROLLED
			for (unsigned first = 0; first < n_ranks; first += group) {
				strait_bits128 v[group];
				STRAIT_UNROLL
				for (unsigned r = 0; r < group; r++)
					v[r] = read_from<Plain>(first + r, slot, from_unit, i);
				add(lo, hi, v, first);
			}
			put<Plain>({lo.result(), hi.result()}, slot, from_unit, i);
		}
	}

	/* What a rank contributes to unit i of the own chunk; nothing from ranks that do not exist.
	 */
	template <bool Plain>
	STRAIT_DEVICE strait_bits128 read_from(unsigned from, uint64_t slot, uint64_t from_unit,
					       unsigned i) const
	{
		if (from == rank)
			return read<Plain>(from_unit + i);
		if (from < n_ranks)
			return load(scratch.bulk(rank, contributions, from, slot) + i);
		return {0, 0};
	}

	template <unsigned Group>
	STRAIT_DEVICE void add(word_reduction<Element, Operation> &lo,
			       word_reduction<Element, Operation> &hi,
			       const strait_bits128 (&v)[Group], unsigned first) const
	{
		STRAIT_UNROLL
		for (unsigned k = 0; k < Group; k++) {
			if (first + k >= n_ranks)
				continue;
			lo.add(first + k, v[k].lo);
			hi.add(first + k, v[k].hi);
		}
	}

	template <bool Plain>
	STRAIT_DEVICE void put(strait_bits128 result, uint64_t slot, uint64_t from_unit,
			       unsigned i) const
	{
		STRAIT_ROLLED
		for (unsigned j = 1; j < n_ranks; j++)
			store(scratch.bulk(rotated(rank, j, n_ranks), results, rank, slot) + i,
			      result);
		write<Plain>(from_unit + i, result);
	}
};

} // namespace strait

#define INSTANCE(element, operation)                                                               \
	STRAIT_KERNEL(strait_allreduce_simple_##element##_##operation, strait_allreduce_args, 512) \
	{                                                                                          \
		if (a.count)                                                                       \
			strait::allreduce_simple<strait::element_##element,                        \
						 strait::operation_##operation>(                   \
				a, strait::coop::block())                                          \
				.run();                                                            \
	}
#include "algorithms/instances.def"
