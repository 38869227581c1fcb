/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The types of elements, once: how a value is stored, in what it is computed, and how it is rounded
 * back. Signed and unsigned integers of a width share an instance. Floats of 16 and 8 bits compute
 * in float and are rounded once, to nearest even; 8-bit floats saturate to their largest finite
 * value.
 */
#pragma once
#include "channels/device/platform.cuh"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <math.h>

namespace strait
{

template <class Word, class Wide>
struct integer_element {
	using storage = Word;
	using arithmetic = Wide;
	static constexpr bool is_float = false;
	STRAIT_DEVICE static Wide widen(Word v) { return v; }
	STRAIT_DEVICE static Word round(Wide v) { return static_cast<Word>(v); }
};

using element_i8 = integer_element<uint8_t, uint32_t>;
using element_i32 = integer_element<uint32_t, uint32_t>;
using element_i64 = integer_element<uint64_t, uint64_t>;

struct element_f32 {
	using storage = float;
	using arithmetic = float;
	static constexpr bool is_float = true;
	STRAIT_DEVICE static float widen(float v) { return v; }
	STRAIT_DEVICE static float round(float v) { return v; }
};

struct element_f64 {
	using storage = double;
	using arithmetic = double;
	static constexpr bool is_float = true;
	STRAIT_DEVICE static double widen(double v) { return v; }
	STRAIT_DEVICE static double round(double v) { return v; }
};

struct element_f16 {
	using storage = uint16_t;
	using arithmetic = float;
	static constexpr bool is_float = true;
	STRAIT_DEVICE static float widen(uint16_t v) { return __half2float(__half(__half_raw{v})); }
	STRAIT_DEVICE static uint16_t round(float v)
	{
		return static_cast<__half_raw>(__float2half_rn(v)).x;
	}
};

struct element_bf16 {
	using storage = uint16_t;
	using arithmetic = float;
	static constexpr bool is_float = true;
	STRAIT_DEVICE static float widen(uint16_t v)
	{
		return bits_as<float>(static_cast<uint32_t>(v) << 16);
	}
	STRAIT_DEVICE static uint16_t round(float v)
	{
		return static_cast<__nv_bfloat16_raw>(__float2bfloat16_rn(v)).x;
	}
};

template <__nv_fp8_interpretation_t Format>
struct fp8_element {
	using storage = uint8_t;
	using arithmetic = float;
	static constexpr bool is_float = true;
	STRAIT_DEVICE static float widen(uint8_t v)
	{
		return __half2float(__half(__nv_cvt_fp8_to_halfraw(v, Format)));
	}
	STRAIT_DEVICE static uint8_t round(float v)
	{
		return __nv_cvt_float_to_fp8(v, __NV_SATFINITE, Format);
	}
};

using element_e4m3 = fp8_element<__NV_E4M3>;
using element_e5m2 = fp8_element<__NV_E5M2>;

/* The three operations. A minimum prefers a number to a NaN, as NCCL's does. */
struct operation_sum {
	static constexpr bool scales = true;
	template <class A>
	STRAIT_DEVICE static A apply(A a, A b)
	{
		return a + b;
	}
};

struct operation_prod {
	static constexpr bool scales = false;
	template <class A>
	STRAIT_DEVICE static A apply(A a, A b)
	{
		return a * b;
	}
};

struct operation_min {
	static constexpr bool scales = false;
	template <class A>
	STRAIT_DEVICE static A apply(A a, A b)
	{
		return a < b ? a : b;
	}
};
template <>
STRAIT_DEVICE float operation_min::apply(float a, float b)
{
	return fminf(a, b);
}
template <>
STRAIT_DEVICE double operation_min::apply(double a, double b)
{
	return fmin(a, b);
}

} // namespace strait
