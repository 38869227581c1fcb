/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cases of this program: each is a property of the library that a user relies on, checked by
 * ranks that are processes (or threads) on GPUs or on the emulator.
 *
 * A case runs on every rank at once; what it decides (to skip, how often, which sizes) has to be
 * the same on all. A rank that finds a fault says so and ends its process; the launcher stops the
 * others and goes on with the next case. Values are exact in every order of summation unless a case
 * says otherwise.
 */
#pragma once
#include "tests/gpu/rank.h"

enum {
	CASE_ALONE = 1 << 0,      /* its processes run no other case */
	CASE_PROCESSES = 1 << 1,  /* not for ranks that are threads */
	CASE_KILLS = 1 << 2,      /* the last rank dies; MPS is started anew after it */
	CASE_TERMINATES = 1 << 3, /* the others end by SIGTERM, which the launcher sends */
	CASE_LAUNCHER = 1 << 4,   /* runs in the launcher, without ranks */
	CASE_NO_MPS = 1 << 5,     /* ranks that share a GPU take turns */
	CASE_FRESH = 1 << 6,      /* after it, new processes have to reduce exactly */
	CASE_OUTSIDE = 1 << 7,    /* prepares its processes' environment by case_environment() */
};

struct test_case {
	const char *name, *text;
	void (*run)(void);
	unsigned flags;
	int limit_s;
};

extern const struct test_case test_cases[];
extern const int n_test_cases;

/* Both return -1 or a number of the table. */
int test_case_find(const char *name);
/* For the launcher: environment of one rank of one case, before its process starts. */
void test_case_environment(const struct test_case *test, int rank, int n_ranks);

#define CASE(name, flags, limit_s, text) void case_##name(void);
#include "tests/gpu/cases.def"
#undef CASE
