/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ranks swap data by each way that a memory channel has; both run this at the same time. What
 * arrives by plain stores is copied on from `landing` to `result`, so that data which a signal
 * overtakes is seen.
 */
#include "tests/channels/memory_channel_args.h"
#include "channels/device/memory_channel.cuh"

using namespace strait;

struct round_of_channel {
	const memory_channel_args &a;
	memory_channel channel;
	coop g = coop::block();
	patience wait;

	STRAIT_DEVICE explicit round_of_channel(const memory_channel_args &args)
	    : a(args), channel{args.remote, args.local, args.remote_signal, args.local_signal},
	      wait(args.abort_word)
	{
	}

	/* What the block stored is the peer's to see, and the reverse. */
	STRAIT_DEVICE bool meet()
	{
		bool ok = true;

		g.sync();
		if (g.rank == 0) {
			channel.signal(a.signal);
			ok = channel.wait(a.signal, wait) && channel.poll(a.signal) &&
			     !channel.poll(a.signal + 1);
		}
		return g.sync_all(ok);
	}

	STRAIT_DEVICE bool put()
	{
		channel.put(a.landing, a.source, a.bytes, g);
		if (!meet())
			return false;
		copy_bytes(a.local + a.result, a.local + a.landing, a.bytes, g);
		return true;
	}

	STRAIT_DEVICE bool get()
	{
		copy_bytes(a.local + a.landing, a.local + a.source, a.bytes, g);
		if (!meet())
			return false;
		channel.get(a.result, a.landing, a.bytes, g);
		return true;
	}

	template <class T>
	STRAIT_DEVICE const T *own(uint64_t offset) const
	{
		return reinterpret_cast<const T *>(a.local + offset);
	}

	template <class T>
	STRAIT_DEVICE bool write_elements()
	{
		for (uint64_t i = g.rank; i < a.bytes / sizeof(T); i += g.size)
			channel.write<T>(a.landing / sizeof(T) + i, load(own<T>(a.source) + i));
		if (!meet())
			return false;
		copy_bytes(a.local + a.result, a.local + a.landing, a.bytes, g);
		return true;
	}

	template <class T>
	STRAIT_DEVICE bool read_elements()
	{
		copy_bytes(a.local + a.landing, a.local + a.source, a.bytes, g);
		if (!meet())
			return false;
		for (uint64_t i = g.rank; i < a.bytes / sizeof(T); i += g.size)
			store(const_cast<T *>(own<T>(a.result)) + i,
			      channel.read<T>(a.landing / sizeof(T) + i));
		return true;
	}

	template <class T>
	STRAIT_DEVICE bool elements()
	{
		return a.kind == ROUND_WRITE ? write_elements<T>() : read_elements<T>();
	}

	/* No signal is needed; the relaxed forms are tried beside them. */
	STRAIT_DEVICE bool packets()
	{
		const uint32_t flag = packet_flag(a.signal);
		bool ok = true;

		channel.put_packets(a.landing, a.source, a.bytes, flag, g);
		ok = channel.unpack_packets(a.result, a.landing, a.bytes, flag, g, wait);
		if (!g.sync_all(ok))
			return false;
		if (g.rank == 0) {
			channel.relaxed_signal(a.signal);
			ok = channel.relaxed_wait(a.signal, wait) &&
			     channel.relaxed_poll(a.signal) && !channel.relaxed_poll(a.signal + 1);
		}
		return g.sync_all(ok);
	}

	STRAIT_DEVICE bool run()
	{
		switch (a.kind) {
		case ROUND_PUT:
			return put();
		case ROUND_GET:
			return get();
		case ROUND_PACKETS:
			return packets();
		default:
			return a.width == 1   ? elements<uint8_t>()
			       : a.width == 2 ? elements<uint16_t>()
			       : a.width == 4 ? elements<uint32_t>()
					      : elements<uint64_t>();
		}
	}
};

STRAIT_KERNEL(memory_channel_round, memory_channel_args, 1024)
{
	round_of_channel round(a);
	const bool ok = round.run();

	if (round.g.rank == 0)
		store(a.verdict, ok ? 1u : 2u);
}
