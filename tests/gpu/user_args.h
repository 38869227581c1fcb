/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of a "user" take: one struct each, by value. */
#pragma once
#include <stdint.h>

struct user_write_args {
	uint64_t *word;
	uint64_t value;
};

struct user_delay_args {
	uint64_t ns;
};
