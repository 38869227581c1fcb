/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators that come and go, and ranks that die. */
#include "tests/gpu/case.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 16 << 10 }; /* floats: 64 KiB */

/* From here on the end of this process is part of the case. */
static void expect_death(void)
{
	/* pairs with the acquire in the launcher */
	atomic_store_explicit(&me->board->ranks[me->number].dying, 1, memory_order_release);
}

/* Some right calls; then the last rank is gone, and the call of the others cannot end. */
static ncclComm_t lose_a_rank(CUdeviceptr data)
{
	ncclComm_t comm = communicator_new();
	ncclResult_t result;

	for (uint64_t k = 0; k < pick(200, 5); k++)
		call_check(comm, me->stream,
			   &(struct call){.type = STRAIT_FLOAT32, .count = COUNT, .k = k});
	if (me->number == me->n - 1) {
		expect_death();
		raise(SIGKILL);
	}
	result = me->library->AllReduce((void *)data, (void *)data, COUNT, ncclFloat, ncclSum, comm,
					me->stream);
	MUST(result == ncclSuccess ||
	     result == ncclRemoteError); /* an error if the loss is known already */
	return comm;
}

void case_killed_rank(void)
{
	struct buffer data = buffer_new(MEMORY_DEVICE, COUNT * sizeof(float), 0);
	ncclResult_t state = ncclSuccess;
	double start, told, aborted;
	ncclComm_t comm;

	if (me->n < 2) {
		skip("needs 2 ranks");
		return;
	}
	comm = lose_a_rank(data.at);
	start = now_s();
	say("waiting for the error");
	while (state == ncclSuccess && now_s() - start < 10)
		NCCL(CommGetAsyncError, comm, &state);
	told = now_s() - start;
	MUST_SAY(state == ncclRemoteError || state == ncclSystemError,
		 "the state after %.1f s is %d", told, (int)state);
	say("aborting");
	NCCL(CommAbort, comm);
	aborted = now_s() - start;
	say("waiting for the stream after the abort");
	while (strait_gpu->cuStreamQuery(me->stream) == CUDA_ERROR_NOT_READY)
		MUST_SAY(now_s() - start < 30, "the stream is not ready 30 s after the loss");
	note("told after %.2f s, abort took %.2f s", told, aborted - told);
}

void case_killed_rank_sigterm(void)
{
	struct buffer data = buffer_new(MEMORY_DEVICE, COUNT * sizeof(float), 0);

	if (me->n < 2) {
		skip("needs 2 ranks");
		return;
	}
	lose_a_rank(data.at);
	say("waiting for SIGTERM");
	expect_death();
	(void)strait_gpu->cuStreamSynchronize(me->stream);
	for (;;)
		pause_us(100000);
}
