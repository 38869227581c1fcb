/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads base/params.def from the environment, once.
 *
 * One row per variable, one parser per type. An empty value counts as unset. Strings are copied,
 * since an application may change its environment later. What is wrong with a value is noted while
 * parsing and told by the first strait_params() afterwards: the log needs the values before it can
 * write a line.
 */
#include "strait/params.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "strait/log.h"

enum kind { KIND_BOOL, KIND_INT, KIND_SIZE, KIND_STRING };

struct row {
	const char *variable;
	const char *text;
	enum kind kind;
	size_t offset;
	int64_t minimum, maximum;
};

static const struct row rows[] = {
#define ROW(field, variable, kind, minimum, maximum, text) \
	{variable, text, kind, offsetof(struct strait_params, field), minimum, maximum},
#define PARAM_BOOL(field, variable, fallback, text) ROW(field, variable, KIND_BOOL, 0, 1, text)
#define PARAM_INT(field, variable, fallback, minimum, maximum, text) \
	ROW(field, variable, KIND_INT, minimum, maximum, text)
#define PARAM_SIZE(field, variable, fallback, minimum, maximum, text) \
	ROW(field, variable, KIND_SIZE, minimum, maximum, text)
#define PARAM_STRING(field, variable, fallback, text) ROW(field, variable, KIND_STRING, 0, 0, text)
#include "base/params.def"
#undef PARAM_BOOL
#undef PARAM_INT
#undef PARAM_SIZE
#undef PARAM_STRING
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

/* Written under `once` only. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct strait_params values = {
#define PARAM_BOOL(field, variable, fallback, text) .field = fallback,
#define PARAM_INT(field, variable, fallback, minimum, maximum, text) .field = fallback,
#define PARAM_SIZE(field, variable, fallback, minimum, maximum, text) .field = fallback,
#define PARAM_STRING(field, variable, fallback, text) .field = fallback,
#include "base/params.def"
#undef PARAM_BOOL
#undef PARAM_INT
#undef PARAM_SIZE
#undef PARAM_STRING
};
static uint64_t agreed_hash;
static const char *bad_values[N_ROWS];
static atomic_bool bad_values_untold;

static void *field_of(const struct row *row)
{
	return (char *)&values + row->offset;
}

/* Powers of 1024 for K, M and G in either case; 0 for anything else. */
static int64_t suffix_scale(const char *suffix)
{
	static const char letters[] = "kKmMgG";
	const char *found = suffix[0] ? strchr(letters, suffix[0]) : NULL;

	if (!suffix[0])
		return 1;
	return found && !suffix[1] ? (int64_t)1 << (10 * ((found - letters) / 2 + 1)) : 0;
}

/* A number in the row's range, decimal, octal or hexadecimal as NCCL reads it. */
static bool number_parse(const struct row *row, const char *text, int64_t *ret_number)
{
	char *end;
	int64_t number, scale;

	errno = 0;
	number = strtoll(text, &end, 0);
	if (errno || end == text)
		return false;
	if (row->kind != KIND_SIZE) {
		if (*end)
			return false;
	} else {
		scale = suffix_scale(end);
		if (!scale || __builtin_mul_overflow(number, scale, &number))
			return false;
	}
	if (number < row->minimum || number > row->maximum)
		return false;
	*ret_number = number;
	return true;
}

static void value_store(const struct row *row, int64_t number)
{
	switch (row->kind) {
	case KIND_BOOL:
		*(bool *)field_of(row) = number != 0;
		break;
	case KIND_INT:
		*(int64_t *)field_of(row) = number;
		break;
	case KIND_SIZE:
		*(uint64_t *)field_of(row) = (uint64_t)number;
		break;
	case KIND_STRING:
		break;
	}
}

static void row_read(unsigned index)
{
	const struct row *row = &rows[index];
	const char *text = getenv(row->variable);
	int64_t number;

	if (!text || !text[0])
		return;
	if (row->kind == KIND_STRING) {
		char *copy = strdup(text);

		if (copy)
			*(const char **)field_of(row) = copy;
	} else if (number_parse(row, text, &number)) {
		value_store(row, number);
	} else {
		bad_values[index] = strdup(text);
		if (bad_values[index])
			atomic_store_explicit(&bad_values_untold, true, memory_order_relaxed);
	}
}

/* FNV-1a, 64 bits. */
static uint64_t hash_add(uint64_t hash, const void *data, size_t bytes)
{
	const unsigned char *byte = data;

	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
	return hash;
}

/* The name goes in with its terminator, and so does a string, behind a byte that tells it from
 * none. */
static uint64_t row_hash(uint64_t hash, const struct row *row)
{
	const void *field = field_of(row);
	const char *text;
	unsigned char present;

	hash = hash_add(hash, row->variable, strlen(row->variable) + 1);
	if (row->kind == KIND_BOOL)
		return hash_add(hash, field, sizeof(bool));
	if (row->kind != KIND_STRING)
		return hash_add(hash, field, sizeof(int64_t));
	text = *(const char *const *)field;
	present = text != NULL;
	hash = hash_add(hash, &present, 1);
	return text ? hash_add(hash, text, strlen(text) + 1) : hash;
}

static void read_all(void)
{
	agreed_hash = UINT64_C(0xcbf29ce484222325);
	for (unsigned i = 0; i < N_ROWS; i++) {
		row_read(i);
		if (strstr(rows[i].text, "[agreed]"))
			agreed_hash = row_hash(agreed_hash, &rows[i]);
	}
}

static void tell_bad_value(const struct row *row, const char *value)
{
	if (row->kind == KIND_BOOL)
		strait_warn(ENV, "%s=%s is neither 0 nor 1; using the default", row->variable,
			    value);
	else
		strait_warn(ENV, "%s=%s is not a %s from %lld to %lld; using the default",
			    row->variable, value, row->kind == KIND_SIZE ? "size" : "number",
			    (long long)row->minimum, (long long)row->maximum);
}

const struct strait_params *strait_params_values(void)
{
	pthread_once(&once, read_all);
	return &values;
}

const struct strait_params *strait_params(void)
{
	strait_params_values();
	/* The plain load first: this runs often. The values themselves are ordered by `once`. */
	if (atomic_load_explicit(&bad_values_untold, memory_order_relaxed) &&
	    atomic_exchange_explicit(&bad_values_untold, false, memory_order_relaxed)) {
		for (unsigned i = 0; i < N_ROWS; i++) {
			if (bad_values[i])
				tell_bad_value(&rows[i], bad_values[i]);
		}
	}
	return &values;
}

uint64_t strait_params_hash(void)
{
	strait_params();
	return agreed_hash;
}
