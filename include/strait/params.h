/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Environment variables, all from one table (base/params.def). The only reader of the environment
 * in the library. Read once, at the first call of strait_params(); the values never change
 * afterwards. A value that does not parse or is out of range gives one warning and keeps the
 * default.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct strait_params {
#define PARAM_BOOL(field, variable, fallback, text) bool field;
#define PARAM_INT(field, variable, fallback, minimum, maximum, text) int64_t field;
#define PARAM_SIZE(field, variable, fallback, minimum, maximum, text) uint64_t field;
#define PARAM_STRING(field, variable, fallback, text) \
	const char *field; /* NULL when unset and no default */
#include "base/params.def"
#undef PARAM_BOOL
#undef PARAM_INT
#undef PARAM_SIZE
#undef PARAM_STRING
};

const struct strait_params *strait_params(void);

/* The same without the warnings about bad values, which the next strait_params() gives: for the log
 * itself. */
const struct strait_params *strait_params_values(void);

/* A hash over the variables that all ranks of a communicator must agree on (those whose text in the
 * table carries the mark [agreed]): equal on two ranks if and only if their values are equal. */
uint64_t strait_params_hash(void);
