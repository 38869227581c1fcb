/* SPDX-License-Identifier: Apache-2.0 */
/* What differs from process to process, prepared outside of it. */
#include "tests/gpu/session.h"
#include <stdlib.h>

struct outcome *host_case;
const struct options *host_options;
bool host_emulator;

void test_case_environment(const struct test_case *test, int rank, int n_ranks)
{
	(void)test;
	(void)rank;
	(void)n_ranks;
}
