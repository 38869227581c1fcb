/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's own host conversions between double and its small floats, as C functions, for
 * test_reference.c: what a kernel computes is what these give, and the reference must agree with
 * them bit for bit.
 */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <stdint.h>
#include <string.h>

extern "C" {
uint64_t cuda_from_double(int type, double value);
double cuda_to_double(int type, uint64_t bits);
}

enum { FLOAT16 = 6, BFLOAT16 = 9, FLOAT8E4M3, FLOAT8E5M2 };

uint64_t cuda_from_double(int type, double value)
{
	uint16_t bits = 0;

	if (type == FLOAT16) {
		__half half = __double2half(value);
		memcpy(&bits, &half, 2);
	} else if (type == BFLOAT16) {
		__nv_bfloat16 bfloat = __double2bfloat16(value);
		memcpy(&bits, &bfloat, 2);
	} else {
		bits = __nv_cvt_double_to_fp8(value, __NV_SATFINITE,
					      type == FLOAT8E4M3 ? __NV_E4M3 : __NV_E5M2);
	}
	return bits;
}

double cuda_to_double(int type, uint64_t bits)
{
	uint16_t small = (uint16_t)bits;

	if (type == BFLOAT16) {
		__nv_bfloat16 bfloat;
		memcpy((void *)&bfloat, &small, 2);
		return __bfloat162float(bfloat);
	}
	__half half;
	if (type == FLOAT16) {
		memcpy((void *)&half, &small, 2);
	} else {
		__half_raw raw = __nv_cvt_fp8_to_halfraw(
			(__nv_fp8_storage_t)bits, type == FLOAT8E4M3 ? __NV_E4M3 : __NV_E5M2);
		half = __half(raw);
	}
	return __half2float(half);
}
