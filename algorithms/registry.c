/* SPDX-License-Identifier: Apache-2.0 */
/* Every algorithm once. */
#include "algorithms/algorithm.h"

const struct strait_algorithm strait_algorithms[STRAIT_N_ALGORITHMS + 1] = {
	{"allreduce_ll", STRAIT_ALLREDUCE, strait_allreduce_ll_shape},
	{"allreduce_ll_twoshot", STRAIT_ALLREDUCE, strait_allreduce_ll_twoshot_shape},
	{"allreduce_simple", STRAIT_ALLREDUCE, strait_allreduce_simple_shape},
	{0},
};
