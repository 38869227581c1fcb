/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings of the environment as a user meets them: the smallest grids and blocks work, a setting
 * that one rank has alone is an error on all ranks, and inboxes are renewed in passing.
 */
#include "tests/api/child.h"

#define N(array) (sizeof(array) / sizeof(*(array)))

static void reduce_many_sizes(int n)
{
	/* Few words, all slots of a block, several blocks, several bulk iterations. */
	const size_t counts[] = {1, 2, 31, 64, 1000, 5000, 30000, BUFFER_BYTES / sizeof(float), 3};

	make_ranks(n);
	for (size_t k = 0; k < N(counts); k++)
		reduce_exactly((int)k, counts[k]);
	for (int r = 0; r < n; r++)
		nccl(ncclCommDestroy(ranks[r].comm));
}

static void test_blocks_of_one_warp_set_up_and_reduce(void **state)
{
	const char *const settings[] = {"STRAIT_EMULATOR_BLOCK_THREADS", "32", NULL};

	for (int n = 1; n <= MOST_RANKS; n++)
		run_child(settings, reduce_many_sizes, n);
}

static void test_grids_of_one_block_set_up_and_reduce(void **state)
{
	const char *const settings[] = {"NCCL_MAX_CTAS", "1", NULL};

	for (int n = 1; n <= MOST_RANKS; n++)
		run_child(settings, reduce_many_sizes, n);
}

static int id_pipe[2];

/* One of three ranks, each a process. */
static void expect_a_refusal(int rank)
{
	const double start = now_s();
	ncclUniqueId id;
	ncclComm_t comm = NULL;

	make_rank(rank);
	if (rank == 0) {
		nccl(ncclGetUniqueId(&id));
		for (int r = 0; r < 3; r++)
			must(write(id_pipe[1], &id, sizeof(id)) == sizeof(id));
	}
	must(read(id_pipe[0], &id, sizeof(id)) == sizeof(id));
	must(ncclCommInitRank(&comm, 3, id, rank) != ncclSuccess);
	must(comm == NULL);
	must(now_s() - start < 30);
}

static void test_setting_of_one_rank_alone_is_an_error_on_all(void **state)
{
	const char *const settings[] = {"NCCL_P2P_DISABLE", "1", NULL};
	pid_t pids[3];

	for (int odd = 0; odd < 3; odd++) {
		assert_int_equal(pipe(id_pipe), 0);
		for (int r = 0; r < 3; r++)
			pids[r] = start_child(r == odd ? settings : NULL, expect_a_refusal, r);
		for (int r = 0; r < 3; r++)
			wait_for_child(pids[r]);
		close(id_pipe[0]);
		close(id_pipe[1]);
	}
}

static void reduce_past_a_renewal(int unused)
{
	const size_t counts[] = {3000, 1, 40, 9000, 2, 3000, 500, 1};

	make_ranks(3);
	for (int k = 0; k < 16; k++)
		reduce_exactly(k, counts[(size_t)k % N(counts)]);
}

/* Every start near a multiple of the period, so that a renewal falls on each of the first calls. */
static void test_results_are_right_past_a_renewal_of_inboxes(void **state)
{
	enum { PERIOD = 1 << 20 };
	const char *const algorithms[] = {"allreduce_ll", "allreduce_ll_twoshot"};
	const int distances[] = {1, 2, 3, 5, 9};

	for (size_t i = 0; i < N(algorithms); i++)
		for (size_t d = 0; d < N(distances); d++) {
			char start[32];

			snprintf(start, sizeof(start), "%d", 2 * PERIOD - distances[d]);
			run_child((const char *const[]){"STRAIT_ALGORITHM", algorithms[i],
							"STRAIT_EPOCH_START", start, NULL},
				  reduce_past_a_renewal, 0);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocks_of_one_warp_set_up_and_reduce),
		cmocka_unit_test(test_grids_of_one_block_set_up_and_reduce),
		cmocka_unit_test(test_setting_of_one_rank_alone_is_an_error_on_all),
		cmocka_unit_test(test_results_are_right_past_a_renewal_of_inboxes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
