/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least that kernels on two ends can do: nothing, a flag to and fro, a copy, and an exchange of
 * data by packets or by a barrier and direct reads. No abort word, no tail, no alignment: this is a
 * yardstick, not a library.
 */
#include "bench/floor_args.h"
#include "channels/device/platform.cuh"

using namespace strait;

STRAIT_KERNEL(floor_empty, floor_empty_args, 1024) {}

STRAIT_DEVICE void flag_store(uint64_t *flag, uint64_t value, bool ordered)
{
	if (ordered)
		store_release(flag, value);
	else
		store_relaxed(flag, value);
}

STRAIT_DEVICE void flag_wait(const uint64_t *flag, uint64_t value, bool ordered)
{
	while ((ordered ? load_acquire(flag) : load_relaxed(flag)) < value)
		spin();
}

STRAIT_KERNEL(floor_pingpong, floor_pingpong_args, 1024)
{
	for (uint64_t turn = 1; turn <= static_cast<uint64_t>(a.n_turns); turn++) {
		if (a.first)
			flag_store(a.theirs, turn, a.ordered);
		flag_wait(a.mine, turn, a.ordered);
		if (!a.first)
			flag_store(a.theirs, turn, a.ordered);
	}
}

/* Four loads in flight for each thread. */
STRAIT_KERNEL(floor_copy, floor_copy_args, 1024)
{
	size_t stride = static_cast<size_t>(n_blocks()) * n_threads();
	size_t i = static_cast<size_t>(block_index()) * n_threads() + thread_index();

	for (; i + 3 * stride < a.n; i += 4 * stride) {
		strait_bits128 v0 = load(a.from + i), v1 = load(a.from + i + stride);
		strait_bits128 v2 = load(a.from + i + 2 * stride),
			       v3 = load(a.from + i + 3 * stride);
		store(a.to + i, v0);
		store(a.to + i + stride, v1);
		store(a.to + i + 2 * stride, v2);
		store(a.to + i + 3 * stride, v3);
	}
	for (; i < a.n; i += stride)
		store(a.to + i, load(a.from + i));
}

STRAIT_DEVICE uint64_t add_words(uint64_t x, uint64_t y)
{
	uint32_t low = static_cast<uint32_t>(x) + static_cast<uint32_t>(y);
	uint32_t high = static_cast<uint32_t>(x >> 32) + static_cast<uint32_t>(y >> 32);

	return static_cast<uint64_t>(high) << 32 | low;
}

STRAIT_DEVICE uint64_t with_flag(uint32_t data, uint32_t flag)
{
	return static_cast<uint64_t>(flag) << 32 | data;
}

/* Both ends run the same calls, so neither is more than one ahead: two slots are enough. */
STRAIT_KERNEL(floor_packets, floor_exchange_args, 1024)
{
	uint64_t epoch = load(a.epochs + block_index()) + 1;
	uint32_t flag = static_cast<uint32_t>(epoch);
	strait_bits128 *to = a.theirs + (epoch & 1) * a.slot, *from = a.mine + (epoch & 1) * a.slot;
	size_t stride = static_cast<size_t>(n_blocks()) * n_threads();
	size_t first = static_cast<size_t>(block_index()) * n_threads() + thread_index();

	for (size_t i = first; i < a.n; i += stride) {
		uint64_t v = load(a.in + i);
		store_relaxed_pair(to + i, {with_flag(static_cast<uint32_t>(v), flag),
					    with_flag(static_cast<uint32_t>(v >> 32), flag)});
	}
	for (size_t i = first; i < a.n; i += stride) {
		strait_bits128 packet = load_relaxed_pair(from + i);
		while (packet.lo >> 32 != flag || packet.hi >> 32 != flag) {
			spin();
			packet = load_relaxed_pair(from + i);
		}
		store(a.out + i, add_words(load(a.in + i),
					   packet.hi << 32 | static_cast<uint32_t>(packet.lo)));
	}
	sync_block();
	if (thread_index() == 0)
		store(a.epochs + block_index(), epoch);
}

STRAIT_DEVICE void meet(const floor_exchange_args &a, uint64_t value)
{
	sync_block();
	if (thread_index() == 0) {
		store_release(a.their_flags + block_index(), value);
		while (load_acquire(a.my_flags + block_index()) < value)
			spin();
	}
	sync_block();
}

STRAIT_KERNEL(floor_direct, floor_exchange_args, 1024)
{
	uint64_t epoch = load(a.epochs + block_index()) + 1;
	size_t stride = static_cast<size_t>(n_blocks()) * n_threads();
	const strait_bits128 *in = reinterpret_cast<const strait_bits128 *>(a.in);
	const strait_bits128 *their_in = reinterpret_cast<const strait_bits128 *>(a.their_in);
	strait_bits128 *out = reinterpret_cast<strait_bits128 *>(a.out);

	if (a.n == 0)
		return;
	meet(a, 2 * epoch);
	STRAIT_UNROLL
	for (size_t i = static_cast<size_t>(block_index()) * n_threads() + thread_index();
	     i < a.n / 2; i += stride) {
		strait_bits128 x = load(in + i), y = load(their_in + i);
		store(out + i, strait_bits128{add_words(x.lo, y.lo), add_words(x.hi, y.hi)});
	}
	meet(a, 2 * epoch + 1);
	if (thread_index() == 0)
		store(a.epochs + block_index(), epoch);
}
