/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MemoryChannel, device half: GPU threads read and write a peer's memory.
 *
 * A channel joins one block of this rank with the block of the same index of one peer. Semaphores
 * are 64-bit counters that only grow; each has one writer. A wait gives up when the communicator is
 * aborted: it returns false, and the kernel leaves.
 *
 * Packets carry their own flag beside the data, so that a reader needs no other signal:
 *   LL8   4 bytes of data, 4 of flag, one 8-byte store
 *   LL16  two of those in one 16-byte store; each half is whole by itself
 * put() and get() move any number of bytes with any alignment of either side, by all threads of a
 * group.
 */
#pragma once
#include "channels/device/platform.cuh"
#include "channels/device_communicator.h"

namespace strait
{

/* Waits in turns and looks at the abort word now and then: a load from host memory costs about a
 * microsecond. */
struct patience {
	const uint32_t *abort_word;
	unsigned turns = 0;

	STRAIT_DEVICE explicit patience(const uint32_t *word) : abort_word(word) {}
	/* False: give up. */
	STRAIT_DEVICE bool turn()
	{
		spin();
		return (++turns & 255) != 0 || load_host(abort_word) == 0;
	}
};

/* Flags are never 0, so that zeroed memory holds no valid packet. They repeat after 2^31 epochs;
 * inboxes are cleared more often than that (packet_inbox::renew). */
STRAIT_DEVICE uint32_t packet_flag(uint64_t epoch)
{
	return static_cast<uint32_t>(epoch) | 0x80000000u;
}

STRAIT_DEVICE uint64_t packet8(uint32_t data, uint32_t flag)
{
	return static_cast<uint64_t>(flag) << 32 | data;
}

STRAIT_DEVICE strait_bits128 packet16(uint64_t data, uint32_t flag)
{
	return {packet8(static_cast<uint32_t>(data), flag),
		packet8(static_cast<uint32_t>(data >> 32), flag)};
}

STRAIT_DEVICE bool packet16_ready(strait_bits128 p, uint32_t flag)
{
	return static_cast<uint32_t>(p.lo >> 32) == flag &&
	       static_cast<uint32_t>(p.hi >> 32) == flag;
}

STRAIT_DEVICE uint64_t packet16_data(strait_bits128 p)
{
	return (p.hi << 32) | static_cast<uint32_t>(p.lo);
}

/* Spins until the packet at `from` carries `flag`. `seen` is what an earlier load of it gave. */
STRAIT_DEVICE bool packet16_wait(const strait_bits128 *from, uint32_t flag, patience &wait,
				 strait_bits128 &seen)
{
	while (!packet16_ready(seen, flag)) {
		if (!wait.turn())
			return false;
		seen = load_relaxed_pair(from);
	}
	return true;
}

/* The scratch memory of a rank, seen by one block. */
struct block_scratch {
	const strait_device_communicator &c;
	unsigned block;

	STRAIT_DEVICE strait_block_control *control(unsigned rank) const
	{
		return static_cast<strait_block_control *>(c.scratch[rank]) + block;
	}
	/* Place of `from` among the peers of `at`. */
	STRAIT_DEVICE static unsigned place(unsigned at, unsigned from)
	{
		return from < at ? from : from - 1;
	}
	/* Where `from` puts packets of this parity into the scratch of `at`. */
	STRAIT_DEVICE strait_bits128 *packets(unsigned at, unsigned from, unsigned parity) const
	{
		const unsigned slot =
			(parity * (c.n_ranks - 1) + place(at, from)) * c.max_blocks + block;
		return reinterpret_cast<strait_bits128 *>(
			static_cast<char *>(c.scratch[at]) + c.packet_offset +
			static_cast<uint64_t>(slot) * c.packet_slot_bytes);
	}
	STRAIT_DEVICE strait_bits128 *bulk(unsigned at, unsigned phase, unsigned from,
					   uint64_t step) const
	{
		const unsigned inbox =
			(phase * (c.n_ranks - 1) + place(at, from)) * c.max_blocks + block;
		const uint64_t slot =
			static_cast<uint64_t>(inbox) * STRAIT_BULK_SLOTS + step % STRAIT_BULK_SLOTS;
		return reinterpret_cast<strait_bits128 *>(static_cast<char *>(c.scratch[at]) +
							  c.bulk_offset + slot * c.bulk_slot_bytes);
	}
};

/* One direction pair between this block and a peer's. */
struct memory_channel {
	char *remote;            /* the peer's memory, as mapped here */
	char *local;             /* own memory */
	uint64_t *remote_signal; /* counter at the peer that this side advances */
	uint64_t *local_signal;  /* counter here that the peer advances */

	/* Publishes `value` and, with it, every store that this thread, or its block before the
	 * last barrier, made. */
	STRAIT_DEVICE void signal(uint64_t value) const
	{
		store_release(remote_signal,
			      value); /* pairs with the acquire in wait() and poll() of the peer */
	}
	STRAIT_DEVICE void relaxed_signal(uint64_t value) const
	{
		store_relaxed(remote_signal, value);
	}
	STRAIT_DEVICE bool poll(uint64_t value) const
	{
		return load_acquire(local_signal) >=
		       value; /* pairs with the release in signal() of the peer */
	}
	STRAIT_DEVICE bool relaxed_poll(uint64_t value) const
	{
		return load_relaxed(local_signal) >= value;
	}
	STRAIT_DEVICE bool wait(uint64_t value, patience &p) const
	{
		while (!poll(value))
			if (!p.turn())
				return false;
		return true;
	}
	STRAIT_DEVICE bool relaxed_wait(uint64_t value, patience &p) const
	{
		while (!relaxed_poll(value))
			if (!p.turn())
				return false;
		return true;
	}

	template <class T>
	STRAIT_DEVICE T read(uint64_t index) const
	{
		return load(reinterpret_cast<const T *>(remote) + index);
	}
	template <class T>
	STRAIT_DEVICE void write(uint64_t index, T value) const
	{
		store(reinterpret_cast<T *>(remote) + index, value);
	}
	STRAIT_DEVICE void put(uint64_t remote_offset, uint64_t local_offset, uint64_t bytes,
			       coop g) const;
	STRAIT_DEVICE void get(uint64_t local_offset, uint64_t remote_offset, uint64_t bytes,
			       coop g) const;
	/* Bytes as LL16 packets into the peer's memory at remote_offset (a multiple of 16), 8 bytes
	 * a packet. */
	STRAIT_DEVICE void put_packets(uint64_t remote_offset, uint64_t local_offset,
				       uint64_t bytes, uint32_t flag, coop g) const;
	/* The reverse: waits for each packet at local packet_offset and stores its data. */
	STRAIT_DEVICE bool unpack_packets(uint64_t local_offset, uint64_t packet_offset,
					  uint64_t bytes, uint32_t flag, coop g, patience &p) const;
};

/* Copies by the widest unit that both sides' alignment allows; the odd bytes at the ends one by
 * one. */
template <class T>
STRAIT_DEVICE void copy_units(char *to, const char *from, uint64_t units, coop g)
{
	constexpr int batch = 4;
	uint64_t i = g.rank;
	for (; i + static_cast<uint64_t>(batch - 1) * g.size < units;
	     i += static_cast<uint64_t>(batch) * g.size) {
		T v[batch];
		STRAIT_UNROLL
		for (int k = 0; k < batch; k++)
			v[k] = load(reinterpret_cast<const T *>(from) + i +
				    static_cast<uint64_t>(k) * g.size);
		STRAIT_UNROLL
		for (int k = 0; k < batch; k++)
			store(reinterpret_cast<T *>(to) + i + static_cast<uint64_t>(k) * g.size,
			      v[k]);
	}
	for (; i < units; i += g.size)
		store(reinterpret_cast<T *>(to) + i, load(reinterpret_cast<const T *>(from) + i));
}

STRAIT_DEVICE void copy_bytes(char *to, const char *from, uint64_t bytes, coop g)
{
	const uint64_t skew = reinterpret_cast<uint64_t>(to) ^ reinterpret_cast<uint64_t>(from);
	const unsigned unit = skew & 1 ? 1 : skew & 2 ? 2 : skew & 4 ? 4 : skew & 8 ? 8 : 16;
	uint64_t head = -reinterpret_cast<uint64_t>(to) & (unit - 1);
	if (head > bytes)
		head = bytes;
	const uint64_t units = (bytes - head) / unit, tail = head + units * unit;
	copy_units<uint8_t>(to, from, head, g);
	switch (unit) {
	case 16:
		copy_units<strait_bits128>(to + head, from + head, units, g);
		break;
	case 8:
		copy_units<uint64_t>(to + head, from + head, units, g);
		break;
	case 4:
		copy_units<uint32_t>(to + head, from + head, units, g);
		break;
	case 2:
		copy_units<uint16_t>(to + head, from + head, units, g);
		break;
	default:
		copy_units<uint8_t>(to + head, from + head, units, g);
	}
	copy_units<uint8_t>(to + tail, from + tail, bytes - tail, g);
}

STRAIT_DEVICE void memory_channel::put(uint64_t remote_offset, uint64_t local_offset,
				       uint64_t bytes, coop g) const
{
	copy_bytes(remote + remote_offset, local + local_offset, bytes, g);
}

STRAIT_DEVICE void memory_channel::get(uint64_t local_offset, uint64_t remote_offset,
				       uint64_t bytes, coop g) const
{
	copy_bytes(local + local_offset, remote + remote_offset, bytes, g);
}

STRAIT_DEVICE void memory_channel::put_packets(uint64_t remote_offset, uint64_t local_offset,
					       uint64_t bytes, uint32_t flag, coop g) const
{
	auto *to = reinterpret_cast<strait_bits128 *>(remote + remote_offset);
	for (uint64_t i = g.rank; i * 8 < bytes; i += g.size) {
		uint64_t word = 0;
		for (unsigned k = 0; k < 8 && i * 8 + k < bytes; k++)
			word |= static_cast<uint64_t>(
					load(reinterpret_cast<const uint8_t *>(local) +
					     local_offset + i * 8 + k))
				<< 8 * k;
		store_relaxed_pair(to + i, packet16(word, flag));
	}
}

STRAIT_DEVICE bool memory_channel::unpack_packets(uint64_t local_offset, uint64_t packet_offset,
						  uint64_t bytes, uint32_t flag, coop g,
						  patience &p) const
{
	const auto *from = reinterpret_cast<const strait_bits128 *>(local + packet_offset);
	for (uint64_t i = g.rank; i * 8 < bytes; i += g.size) {
		strait_bits128 seen = load_relaxed_pair(from + i);
		if (!packet16_wait(from + i, flag, p, seen))
			return false;
		const uint64_t word = packet16_data(seen);
		for (unsigned k = 0; k < 8 && i * 8 + k < bytes; k++)
			store(reinterpret_cast<uint8_t *>(local) + local_offset + i * 8 + k,
			      static_cast<uint8_t>(word >> 8 * k));
	}
	return true;
}

} // namespace strait
