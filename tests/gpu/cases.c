/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What users of collectives rely on, as cases on real GPUs or, with smaller sizes, on the emulator.
 * Prints a line for each case and 'N passed, N failed, N skipped'; exit status 0 if none failed, 77
 * if there was nothing to run on.
 */
#include "tests/gpu/case.h"
#include "tests/gpu/options.h"
#include <stdio.h>
#include <string.h>

const struct test_case test_cases[] = {
#define CASE(name, flags, limit_s, text) {#name, text, case_##name, flags, limit_s},
#include "tests/gpu/cases.def"
#undef CASE
};
const int n_test_cases = sizeof(test_cases) / sizeof(*test_cases);
_Static_assert(sizeof(test_cases) / sizeof(*test_cases) <= BOARD_CASES,
	       "the board has room for all");

int test_case_find(const char *name)
{
	for (int i = 0; i < n_test_cases; i++)
		if (strcmp(test_cases[i].name, name) == 0)
			return i;
	return -1;
}

int main(int argc, char **argv)
{
	struct options options;

	options_parse(argc, argv, &options);
	if (options.list) {
		for (int i = 0; i < n_test_cases; i++)
			printf("%-24s %s\n", test_cases[i].name, test_cases[i].text);
		return 0;
	}
	return options.worker ? worker_main(&options) : launcher_main(&options);
}
