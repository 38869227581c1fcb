/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reduction of 8-byte words, in absolute rank order, so that every rank and every algorithm
 * gets the same bits: all of them feed the contributions of ranks 0, 1, 2, ... to a
 * `word_reduction` one after the other and round once at the end. The first contribution is taken
 * as it is (a sum of negative zeros stays negative).
 */
#pragma once
#include "algorithms/elements.cuh"
#include "algorithms/reduction_args.h"

namespace strait
{

template <class Element>
struct word {
	using storage = typename Element::storage;
	static constexpr unsigned n_elements = 8 / sizeof(storage);

	/* Element k of a word. Hot loops over k unroll, so the shifts are constants there; rare
	 * ones stay rolled, so that they take little of the instruction cache. */
	STRAIT_DEVICE static storage get(uint64_t w, unsigned k)
	{
		if constexpr (sizeof(storage) == 8)
			return bits_as<storage>(w);
		else if constexpr (sizeof(storage) == 4)
			return bits_as<storage>(static_cast<uint32_t>(w >> 32 * k));
		else if constexpr (sizeof(storage) == 2)
			return static_cast<storage>(w >> 16 * k);
		else
			return static_cast<storage>(w >> 8 * k);
	}
	STRAIT_DEVICE static uint64_t put(storage v, unsigned k)
	{
		if constexpr (sizeof(storage) == 8)
			return bits_as<uint64_t>(v);
		else if constexpr (sizeof(storage) == 4)
			return static_cast<uint64_t>(bits_as<uint32_t>(v)) << 32 * k;
		else
			return static_cast<uint64_t>(v) << 8 * sizeof(storage) * k;
	}
};

/* The own contribution, as it is sent: a scaled sum rounds the product in the type. */
template <class Element, class Operation>
struct contribution {
	using arithmetic = typename Element::arithmetic;
	arithmetic factor;
	bool scale;

	STRAIT_DEVICE explicit contribution(const strait_reduction_args &r) : factor(), scale(false)
	{
		using storage = typename Element::storage;
		if (!Operation::scales || r.scaling == STRAIT_SCALING_NONE)
			return;
		scale = true;
		if (r.scaling == STRAIT_SCALING_DEVICE)
			factor =
				Element::widen(load(static_cast<const storage *>(r.factor_device)));
		else
			factor = Element::widen(word<Element>::get(r.factor, 0));
	}
	STRAIT_DEVICE uint64_t operator()(uint64_t w) const
	{
		if (!Operation::scales || !scale)
			return w;
		uint64_t scaled = 0;
		STRAIT_ROLLED
		for (unsigned k = 0; k < word<Element>::n_elements; k++)
			scaled |= word<Element>::put(
				Element::round(Element::widen(word<Element>::get(w, k)) * factor),
				k);
		return scaled;
	}
};

template <class Element, class Operation>
struct word_reduction {
	using arithmetic = typename Element::arithmetic;
	static constexpr unsigned n = word<Element>::n_elements;
	const strait_reduction_args &r;
	arithmetic value[n];

	STRAIT_DEVICE explicit word_reduction(const strait_reduction_args &args) : r(args), value{}
	{
	}

	STRAIT_DEVICE arithmetic widen(uint64_t w, unsigned k) const
	{
		arithmetic v = Element::widen(word<Element>::get(w, k));
		if constexpr (Element::is_float && Operation::scales)
			v *= static_cast<arithmetic>(r.average);
		return v;
	}
	STRAIT_DEVICE void first(uint64_t w)
	{
		w ^= r.flip;
		STRAIT_UNROLL
		for (unsigned k = 0; k < n; k++)
			value[k] = widen(w, k);
	}
	STRAIT_DEVICE void next(uint64_t w)
	{
		w ^= r.flip;
		STRAIT_UNROLL
		for (unsigned k = 0; k < n; k++)
			value[k] = Operation::apply(value[k], widen(w, k));
	}
	STRAIT_DEVICE void add(unsigned rank, uint64_t w)
	{
		if (rank == 0)
			first(w);
		else
			next(w);
	}
	STRAIT_DEVICE uint64_t result() const
	{
		uint64_t w = 0;
		STRAIT_UNROLL
		for (unsigned k = 0; k < n; k++)
			w |= word<Element>::put(Element::round(value[k]), k);
		if constexpr (!Element::is_float && Operation::scales)
			if (r.division != STRAIT_DIVISION_NONE)
				w = divided(w);
		return w ^ r.flip;
	}

      private:
	/* The average of integers: the wrapped sum, truncated toward zero. */
	STRAIT_DEVICE uint64_t divided(uint64_t w) const
	{
		using storage = typename Element::storage;
		uint64_t quotients = 0;
		STRAIT_ROLLED
		for (unsigned k = 0; k < n; k++) {
			const storage v = word<Element>::get(w, k);
			/* The minimum is its own magnitude, so the sign is kept apart. */
			const bool negative =
				r.division == STRAIT_DIVISION_SIGNED && v >> (8 * sizeof v - 1);
			const storage magnitude = negative ? static_cast<storage>(0 - v) : v;
			const storage quotient = static_cast<storage>(magnitude / r.divisor);
			quotients |= word<Element>::put(
				negative ? static_cast<storage>(0 - quotient) : quotient, k);
		}
		return quotients;
	}
};

/* The user's buffer as 8-byte words from its start: any element alignment, the last word may be
 * part of one. */
template <class Element>
struct user_words {
	using storage = typename Element::storage;
	static constexpr unsigned n = word<Element>::n_elements;

	STRAIT_DEVICE static bool aligned(const void *p, unsigned bytes)
	{
		return (reinterpret_cast<uint64_t>(p) & (bytes - 1)) == 0;
	}
	STRAIT_DEVICE static uint64_t load_elements(const storage *p, uint64_t n_left)
	{
		uint64_t w = 0;
		STRAIT_ROLLED
		for (unsigned k = 0; k < n && k < n_left; k++)
			w |= word<Element>::put(load(p + k), k);
		return w;
	}
	STRAIT_DEVICE static void store_elements(storage *p, uint64_t n_left, uint64_t w)
	{
		STRAIT_ROLLED
		for (unsigned k = 0; k < n && k < n_left; k++)
			store(p + k, word<Element>::get(w, k));
	}
	/* Two aligned loads and a shift. The second stays inside the buffer; the first may see
	 * bytes before it, in the same aligned 8 bytes as its first element, and drops them. */
	STRAIT_DEVICE static uint64_t load_shifted(const storage *p)
	{
		const uint64_t address = reinterpret_cast<uint64_t>(p);
		const auto *from =
			reinterpret_cast<const uint64_t *>(address & ~static_cast<uint64_t>(7));
		const unsigned shift = 8 * (address & 7);
		return load(from) >> shift | load(from + 1) << (64 - shift);
	}
	STRAIT_DEVICE static uint64_t load_word(const storage *p, uint64_t n_left)
	{
		if (aligned(p, 8) && n_left >= n)
			return load(reinterpret_cast<const uint64_t *>(p));
		if (!aligned(p, 8) && n_left >= 2 * n)
			return load_shifted(p);
		return load_elements(p, n_left);
	}
	STRAIT_DEVICE static void store_word(storage *p, uint64_t n_left, uint64_t w)
	{
		if (aligned(p, 8) && n_left >= n)
			store(reinterpret_cast<uint64_t *>(p), w);
		else
			store_elements(p, n_left, w);
	}
	STRAIT_DEVICE static uint64_t read(const void *base, uint64_t count, uint64_t index)
	{
		return load_word(static_cast<const storage *>(base) + index * n, count - index * n);
	}
	STRAIT_DEVICE static void write(void *base, uint64_t count, uint64_t index, uint64_t w)
	{
		store_word(static_cast<storage *>(base) + index * n, count - index * n, w);
	}
	/* Units of 16 bytes: two words. What lies behind the end reads as zero and is not written.
	 */
	STRAIT_DEVICE static strait_bits128 read_unit(const void *base, uint64_t count,
						      uint64_t unit)
	{
		const storage *p = static_cast<const storage *>(base) + unit * 2 * n;
		const uint64_t n_left = count - unit * 2 * n;
		if (aligned(base, 16) && n_left >= 2 * n)
			return load(reinterpret_cast<const strait_bits128 *>(p));
		return {load_word(p, n_left), n_left > n ? load_word(p + n, n_left - n) : 0};
	}
	STRAIT_DEVICE static void write_unit(void *base, uint64_t count, uint64_t unit,
					     strait_bits128 v)
	{
		storage *p = static_cast<storage *>(base) + unit * 2 * n;
		const uint64_t n_left = count - unit * 2 * n;
		if (aligned(base, 16) && n_left >= 2 * n) {
			store(reinterpret_cast<strait_bits128 *>(p), v);
			return;
		}
		store_word(p, n_left, v.lo);
		if (n_left > n)
			store_word(p + n, n_left - n, v.hi);
	}
};

} // namespace strait
