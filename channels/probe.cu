/* SPDX-License-Identifier: Apache-2.0 */
/* The probe kernel: one block. See channels/probe.h. */
#include "channels/probe.h"
#include "channels/device/memory_channel.cuh"

namespace strait
{

/* Differs for every pair, direction and word. */
STRAIT_DEVICE uint64_t probe_pattern(unsigned from, unsigned to, unsigned i)
{
	return ((static_cast<uint64_t>(from) << 8 | to) + 1) * 0x9e3779b97f4a7c15u + i;
}

STRAIT_DEVICE void probe_write(const strait_probe_args &a, const block_scratch &scratch, coop g)
{
	const unsigned rank = a.communicator.rank;
	for (unsigned peer = 0; peer < a.communicator.n_ranks; peer++) {
		if (peer == rank)
			continue;
		auto *to = reinterpret_cast<uint64_t *>(scratch.packets(peer, rank, 0));
		for (unsigned i = g.rank; i < a.n_words; i += g.size)
			store_relaxed(to + i, probe_pattern(rank, peer, i));
	}
}

/* Clears what it has read: the inboxes start empty. */
STRAIT_DEVICE void probe_verify(const strait_probe_args &a, const block_scratch &scratch, coop g)
{
	const unsigned rank = a.communicator.rank;
	for (unsigned peer = 0; peer < a.communicator.n_ranks; peer++) {
		if (peer == rank)
			continue;
		auto *from = reinterpret_cast<uint64_t *>(scratch.packets(rank, peer, 0));
		for (unsigned i = g.rank; i < a.n_words; i += g.size) {
			if (load_relaxed(from + i) != probe_pattern(peer, rank, i))
				store_host(a.failures + peer, 1);
			store_relaxed(from + i, 0);
		}
	}
}

STRAIT_DEVICE void probe_exchange(const strait_probe_args &a, const block_scratch &scratch, coop g)
{
	const unsigned peer = g.rank, rank = a.communicator.rank;
	if (peer >= a.communicator.n_ranks || peer == rank)
		return;
	const memory_channel channel = {nullptr, nullptr, &scratch.control(peer)->from[rank].probe,
					&scratch.control(rank)->from[peer].probe};
	patience wait(a.communicator.abort_word);
	channel.relaxed_signal(1);
	if (!channel.relaxed_wait(1, wait))
		store_host(a.failures + peer, 1);
}

} // namespace strait

STRAIT_KERNEL(strait_probe, strait_probe_args, 64)
{
	const strait::block_scratch scratch = {a.communicator, 0};
	const strait::coop g = strait::coop::block();
	if (a.phase == STRAIT_PROBE_WRITE)
		strait::probe_write(a, scratch, g);
	else if (a.phase == STRAIT_PROBE_VERIFY)
		strait::probe_verify(a, scratch, g);
	else if (a.phase == STRAIT_PROBE_EXCHANGE)
		strait::probe_exchange(a, scratch, g);
}
