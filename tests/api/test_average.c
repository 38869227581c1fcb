/* SPDX-License-Identifier: Apache-2.0 */
/* Averages of integers: a sum that wraps, then a division that truncates and keeps the sign of the
 * wrapped sum, its minimum included. */
#include "tests/api/child.h"
#include <string.h>

#define N(array) (sizeof(array) / sizeof(*(array)))

/* Wrapped sums, as 64 bits whose upper half narrower types drop. */
static int64_t wrapped_sum(unsigned bits, size_t i)
{
	const int64_t least = -(int64_t)(1ull << (bits - 2)) * 2;
	const int64_t sums[] = {least, least + 1, -1,         -2,        -3,    0,
				1,     2,         -least - 1, least / 2, least, 7};

	return sums[i % N(sums)];
}

/* Rank 0 gives what the others leave. */
static uint64_t contribution(int rank, unsigned bits, size_t i)
{
	const uint64_t step = 0x0123456789abcdefull;
	uint64_t others = 0;

	if (rank)
		return step * (uint64_t)rank;
	for (int r = 1; r < n_ranks; r++)
		others += step * (uint64_t)r;
	return (uint64_t)wrapped_sum(bits, i) - others;
}

static void average(ncclDataType_t type, unsigned bits, size_t count)
{
	const unsigned bytes = bits / 8;
	unsigned char values[1024];

	must(count * bytes <= sizeof(values));
	for (int r = 0; r < n_ranks; r++) {
		for (size_t i = 0; i < count; i++) {
			uint64_t v = contribution(r, bits, i);

			memcpy(values + i * bytes, &v, bytes); /* little endian */
		}
		enter(r);
		cuda(cuMemcpyHtoD(ranks[r].send, values, count * bytes));
	}
	nccl(ncclGroupStart());
	for (int r = 0; r < n_ranks; r++)
		nccl(ncclAllReduce((void *)ranks[r].send, (void *)ranks[r].recv, count, type,
				   ncclAvg, ranks[r].comm, (cudaStream_t)ranks[r].stream));
	nccl(ncclGroupEnd());
	for (int r = 0; r < n_ranks; r++) {
		enter(r);
		cuda(cuStreamSynchronize(ranks[r].stream));
		cuda(cuMemcpyDtoH(values, ranks[r].recv, count * bytes));
		for (size_t i = 0; i < count; i++) {
			const int64_t right = wrapped_sum(bits, i) / n_ranks;

			if (memcmp(values + i * bytes, &right, bytes)) {
				fprintf(stderr, "rank %d of %d, %u bits: the average of sum %lld\n",
					r, n_ranks, bits, (long long)wrapped_sum(bits, i));
				_exit(98);
			}
		}
	}
}

static void average_all(int n)
{
	make_ranks(n);
	average(ncclInt8, 8, 100);
	average(ncclInt32, 32, 100);
	average(ncclInt64, 64, 100);
}

static void test_average_of_the_least_sum_keeps_its_sign(void **state)
{
	for (int n = 2; n <= 3; n++)
		run_child(NULL, average_all, n);
}

static void test_average_by_every_algorithm_keeps_the_sign(void **state)
{
	const char *const algorithms[] = {"allreduce_ll_twoshot", "allreduce_simple"};

	for (size_t i = 0; i < N(algorithms); i++)
		run_child((const char *const[]){"STRAIT_ALGORITHM", algorithms[i], NULL},
			  average_all, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_average_of_the_least_sum_keeps_its_sign),
		cmocka_unit_test(test_average_by_every_algorithm_keeps_the_sign),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
