/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduce, two shots, plain data with a semaphore a chunk: the way of large messages. The buffer
 * is cut into steps; in a step each block has one chunk for every rank, who owns it. A block pushes
 * its contributions to the owners' scratch, reduces the chunk it owns in rank order, pushes the
 * result to everybody's scratch, and collects the others' results. The three stages run on
 * successive steps, so that data of one travels while another is reduced.
 *
 * A chunk's slot is written again three steps later, and only after the reader said that it has
 * read it. All copies keep unit i of a chunk on one thread, so that in-place calls need no further
 * barrier.
 */
#include "algorithms/allreduce.h"
#include "algorithms/reduction.cuh"
#include "algorithms/share.cuh"
#include "channels/device/memory_channel.cuh"

namespace strait
{

template <class Element, class Operation>
struct allreduce_simple {
	static constexpr unsigned group = 4, batch = 4;
	enum phase { contributions, results };
	using words = user_words<Element>;

	const strait_allreduce_args &a;
	const coop g;
	const block_scratch scratch;
	const contribution<Element, Operation> own;
	const unsigned rank, n_ranks;
	const uint64_t n_units;
	strait_block_control *const control;
	const uint64_t base; /* steps that earlier calls used */
	patience wait;

	STRAIT_DEVICE allreduce_simple(const strait_allreduce_args &args, coop thread_group)
	    : a(args), g(thread_group), scratch{args.communicator, block_index()},
	      own(args.reduction), rank(args.communicator.rank), n_ranks(args.communicator.n_ranks),
	      n_units(div_up(args.count, 2 * word<Element>::n_elements)),
	      control(scratch.control(rank)), base(load(&control->bulk_step)),
	      wait(args.communicator.abort_word)
	{
	}

	STRAIT_DEVICE void run()
	{
		/* A step of all blocks and ranks covers this many units; the last step may end
		 * early. */
		const uint64_t block_units = n_ranks * a.chunk_units;
		const uint64_t first = block_index() * block_units,
			       stride = n_blocks() * block_units;
		const uint64_t n_steps = first < n_units ? div_up(n_units - first, stride) : 0;
		for (uint64_t k = 0; k < n_steps + 2; k++) {
			if (k < n_steps && !push(base + 1 + k, first + k * stride))
				return;
			if (k >= 1 && k - 1 < n_steps &&
			    !reduce(base + k, first + (k - 1) * stride))
				return;
			if (k >= 2 && !collect(base + k - 1, first + (k - 2) * stride))
				return;
		}
		g.sync();
		if (g.rank == 0)
			store(&control->bulk_step, base + n_steps);
	}

      private:
	STRAIT_DEVICE uint64_t chunk_units(uint64_t from_unit) const
	{
		return from_unit >= n_units                  ? 0
		       : n_units - from_unit < a.chunk_units ? n_units - from_unit
							     : a.chunk_units;
	}
	STRAIT_DEVICE bool has_peer() const { return g.rank < n_ranks && g.rank != rank; }
	/* Thread p speaks with rank p. */
	STRAIT_DEVICE strait_inbound &from_peer() const { return control->from[g.rank]; }
	STRAIT_DEVICE strait_inbound &at_peer() const
	{
		return scratch.control(g.rank)->from[rank];
	}
	STRAIT_DEVICE memory_channel channel(phase p) const
	{
		return {nullptr, nullptr, &at_peer().bulk_sent[p], &from_peer().bulk_sent[p]};
	}
	/* Until the peer has read what was put into the slot of `step` three steps ago. Relaxed: it
	 * said so after its reads had given their values, and our stores depend on the answer. */
	STRAIT_DEVICE bool wait_for_slot(phase p, uint64_t step)
	{
		while (load_relaxed(&from_peer().bulk_consumed[p]) + STRAIT_BULK_SLOTS < step)
			if (!wait.turn())
				return false;
		return true;
	}

	/* Contributions of this rank to the chunks that the others own. `at`: the first unit of the
	 * step. */
	STRAIT_DEVICE bool push(uint64_t step, uint64_t at)
	{
		if (has_peer() && !wait_for_slot(contributions, step))
			return false;
		g.sync();
		for (unsigned j = 1; j < n_ranks; j++) {
			const unsigned owner = rotated(rank, j, n_ranks);
			const uint64_t from_unit = at + owner * a.chunk_units,
				       n = chunk_units(from_unit);
			strait_bits128 *to = scratch.bulk(owner, contributions, rank, step);
			for (uint64_t i = g.rank; i < n; i += batch * g.size) {
				strait_bits128 v[batch];
				STRAIT_UNROLL
				for (unsigned k = 0; k < batch; k++)
					if (i + k * g.size < n)
						v[k] = words::read_unit(a.send, a.count,
									from_unit + i + k * g.size);
				STRAIT_UNROLL
				for (unsigned k = 0; k < batch; k++)
					if (i + k * g.size < n)
						store(to + i + k * g.size,
						      strait_bits128{own(v[k].lo), own(v[k].hi)});
			}
		}
		g.sync();
		if (has_peer()) {
			channel(contributions).signal(step);
			/* The barrier was behind collect() of step - 3, and of every step of
			 * earlier calls. */
			store_relaxed(&at_peer().bulk_consumed[results],
				      step - base > STRAIT_BULK_SLOTS ? step - STRAIT_BULK_SLOTS
								      : base);
		}
		return true;
	}

	STRAIT_DEVICE bool reduce(uint64_t step, uint64_t at)
	{
		if (has_peer() &&
		    (!channel(contributions).wait(step, wait) || !wait_for_slot(results, step)))
			return false;
		g.sync();
		const uint64_t from_unit = at + rank * a.chunk_units, n = chunk_units(from_unit);
		for (uint64_t i = g.rank; i < n; i += g.size) {
			const strait_bits128 result = reduce_unit(step, from_unit, i);
			for (unsigned j = 1; j < n_ranks; j++)
				store(scratch.bulk(rotated(rank, j, n_ranks), results, rank, step) +
					      i,
				      result);
			words::write_unit(a.recv, a.count, from_unit + i, result);
		}
		g.sync();
		if (has_peer()) {
			channel(results).signal(step);
			store_relaxed(&at_peer().bulk_consumed[contributions], step);
		}
		return true;
	}

	STRAIT_DEVICE strait_bits128 reduce_unit(uint64_t step, uint64_t from_unit,
						 uint64_t i) const
	{
		word_reduction<Element, Operation> lo(a.reduction), hi(a.reduction);
		for (unsigned first = 0; first < n_ranks; first += group) {
			strait_bits128 v[group];
			STRAIT_UNROLL
			for (unsigned k = 0; k < group; k++) {
				if (first + k >= n_ranks)
					break;
				if (first + k == rank)
					v[k] = words::read_unit(a.send, a.count, from_unit + i);
				else
					v[k] = load(
						scratch.bulk(rank, contributions, first + k, step) +
						i);
			}
			STRAIT_UNROLL
			for (unsigned k = 0; k < group; k++) {
				if (first + k >= n_ranks)
					break;
				const bool is_own = first + k == rank;
				lo.add(first + k, is_own ? own(v[k].lo) : v[k].lo);
				hi.add(first + k, is_own ? own(v[k].hi) : v[k].hi);
			}
		}
		return {lo.result(), hi.result()};
	}

	STRAIT_DEVICE bool collect(uint64_t step, uint64_t at)
	{
		if (has_peer() && !channel(results).wait(step, wait))
			return false;
		g.sync();
		for (unsigned j = 1; j < n_ranks; j++) {
			const unsigned owner = rotated(rank, j, n_ranks);
			const uint64_t from_unit = at + owner * a.chunk_units,
				       n = chunk_units(from_unit);
			const strait_bits128 *from = scratch.bulk(rank, results, owner, step);
			for (uint64_t i = g.rank; i < n; i += batch * g.size) {
				strait_bits128 v[batch];
				STRAIT_UNROLL
				for (unsigned k = 0; k < batch; k++)
					if (i + k * g.size < n)
						v[k] = load(from + i + k * g.size);
				STRAIT_UNROLL
				for (unsigned k = 0; k < batch; k++)
					if (i + k * g.size < n)
						words::write_unit(a.recv, a.count,
								  from_unit + i + k * g.size, v[k]);
			}
		}
		return true;
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
