/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Aborts while a peer is late: the ranks that did not abort never get wrong data from a call that
 * succeeded, and the abort of one communicator never waits for another's kernel.
 */
#include "tests/api/child.h"

enum { COUNT = 3000, LIMIT_S = 10, SAME_STREAM = 1, GROUP = 2, A_FIRST = 4, WAYS = 8 };

/*
 * Rank 1 is late, rank 0 aborts, rank 1 comes: rank 2 may wait or fail, but if its call succeeds it
 * is right. The pause only chooses where rank 0 is when it aborts; the property holds anywhere.
 */
static void abort_beside_a_late_rank(int ms)
{
	double start;
	CUresult result;

	make_ranks(3);
	reduce_exactly(3, COUNT); /* leaves other data in the slots */
	for (int r = 0; r < 3; r++)
		fill(ranks[r].send, r, 0, COUNT);
	for (int r = 0; r < 3; r += 2)
		nccl(reduce(r, COUNT));
	pause_ms(ms);
	nccl(ncclCommAbort(ranks[0].comm));
	(void)reduce(1, COUNT); /* may be refused */
	enter(2);
	start = now_s();
	do
		result = cuStreamQuery(ranks[2].stream);
	while (result == CUDA_ERROR_NOT_READY && now_s() - start < 1);
	if (result == CUDA_SUCCESS)
		check(ranks[2].recv, 2, 0, COUNT);
	for (int r = 1; r < 3; r++) {
		nccl(ncclCommAbort(ranks[r].comm));
		enter(r);
		cuda(cuStreamSynchronize(ranks[r].stream));
	}
}

static void test_abort_beside_a_late_rank_gives_nobody_wrong_data(void **state)
{
	const int pauses_ms[] = {0, 20, 500};
	const char *const settings[] = {"STRAIT_ALGORITHM", "allreduce_simple", NULL};

	for (size_t i = 0; i < sizeof(pauses_ms) / sizeof(*pauses_ms); i++)
		run_child(settings, abort_beside_a_late_rank, pauses_ms[i]);
}

static void abort_in_time(ncclComm_t comm)
{
	const double start = now_s();

	nccl(ncclCommAbort(comm));
	must(now_s() - start < LIMIT_S);
}

/* Rank 0 calls on communicator B, then on A; rank 1 comes to neither. */
static void abort_two(int how)
{
	ncclComm_t a[2], b[2];
	double start;

	make_ranks(2);
	nccl(ncclCommInitAll(a, 2, NULL));
	nccl(ncclCommInitAll(b, 2, NULL));
	enter(0);
	nccl(ncclAllReduce((void *)ranks[0].send, (void *)ranks[0].recv, 100, ncclFloat, ncclSum,
			   b[0], (cudaStream_t)ranks[0].stream));
	nccl(ncclAllReduce((void *)ranks[0].send, (void *)ranks[0].recv, 100, ncclFloat, ncclSum,
			   a[0],
			   (cudaStream_t)(how & SAME_STREAM ? ranks[0].stream : ranks[0].second)));
	start = now_s();
	if (how & GROUP)
		nccl(ncclGroupStart());
	abort_in_time(how & A_FIRST ? a[0] : b[0]);
	abort_in_time(how & A_FIRST ? b[0] : a[0]);
	if (how & GROUP)
		nccl(ncclGroupEnd());
	must(now_s() - start < LIMIT_S);
	enter(0);
	cuda(cuStreamSynchronize(ranks[0].stream));
	cuda(cuStreamSynchronize(ranks[0].second));
	abort_in_time(a[1]);
	abort_in_time(b[1]);
	/* What the aborted ones left does no harm to others, old or new. */
	reduce_exactly(1, COUNT);
	join_ranks();
	reduce_exactly(2, COUNT);
}

static void test_abort_of_two_communicators_returns_in_either_order(void **state)
{
	for (int how = 0; how < WAYS; how++) {
		print_message("%s stream, %s, %s first\n", how & SAME_STREAM ? "one" : "another",
			      how & GROUP ? "a group" : "no group", how & A_FIRST ? "A" : "B");
		run_child(NULL, abort_two, how);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_abort_beside_a_late_rank_gives_nobody_wrong_data),
		cmocka_unit_test(test_abort_of_two_communicators_returns_in_either_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
