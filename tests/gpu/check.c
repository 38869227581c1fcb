/* SPDX-License-Identifier: Apache-2.0 */
/* An all-reduce against the reference: single calls with guards, and prepared series. */
#include "tests/gpu/rank.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *room(size_t bytes)
{
	void *memory = malloc(bytes ? bytes : 1);

	MUST_SAY(memory, "out of memory");
	return memory;
}

/* A payload with a guard on both sides, in one upload. */
static void upload_guarded(const struct buffer *buffer, const void *payload)
{
	char *all = room(buffer->bytes + 2 * STRAIT_GUARD_BYTES);

	strait_guard_fill(all);
	memcpy(all + STRAIT_GUARD_BYTES, payload, buffer->bytes);
	strait_guard_fill(all + STRAIT_GUARD_BYTES + buffer->bytes);
	upload(buffer->at - STRAIT_GUARD_BYTES, all, buffer->bytes + 2 * STRAIT_GUARD_BYTES);
	free(all);
}

static void text_of(const struct call *call, char *text, size_t room_bytes)
{
	snprintf(text, room_bytes, "%s %s of %zu%s, %s+%zu to %s+%zu",
		 strait_reference_type_name(call->type),
		 strait_reference_reduction_name(call->reduction), call->count,
		 call->in_place ? " in place" : "", memory_names[call->send_memory],
		 call->send_offset, memory_names[call->recv_memory], call->recv_offset);
}

/* What a buffer holds has to be `expected`, and its guards whole. */
static void compare(const struct call *call, const struct buffer *buffer, const char *which,
		    const void *expected, unsigned ulp)
{
	char *all = room(buffer->bytes + 2 * STRAIT_GUARD_BYTES), text[200];
	struct strait_mismatch mismatch = {0};

	download(all, buffer->at - STRAIT_GUARD_BYTES, buffer->bytes + 2 * STRAIT_GUARD_BYTES);
	text_of(call, text, sizeof(text));
	if (memcmp(all + STRAIT_GUARD_BYTES, expected, buffer->bytes) != 0)
		strait_reference_compare(call->type, all + STRAIT_GUARD_BYTES, expected,
					 call->count, ulp, &mismatch);
	MUST_SAY(mismatch.n == 0, "%s, %s: %zu wrong, [%zu] is %s, not %s", text, which, mismatch.n,
		 mismatch.first, mismatch.got, mismatch.expected);
	MUST_SAY(strait_guard_check(all) == 0 &&
			 strait_guard_check(all + STRAIT_GUARD_BYTES + buffer->bytes) == 0,
		 "%s, %s: a guard was overwritten", text, which);
	free(all);
}

static ncclRedOp_t operator_new(const struct call *call, const struct strait_reference *reference,
				ncclComm_t comm)
{
	uint64_t scalar;
	ncclRedOp_t op;

	if (call->reduction != STRAIT_PREMULSUM)
		return (ncclRedOp_t)call->reduction;
	scalar = strait_reference_scalar(reference, me->number);
	NCCL(RedOpCreatePreMulSum, &op, &scalar, (ncclDataType_t)call->type,
	     ncclScalarHostImmediate, comm);
	return op;
}

static void run_call(const struct call *call, CUdeviceptr send, CUdeviceptr recv, ncclRedOp_t op,
		     ncclComm_t comm, CUstream stream)
{
	CUgraphExec graph;

	if (call->graph)
		capture_begin(stream);
	NCCL(AllReduce, (void *)send, (void *)recv, call->count, (ncclDataType_t)call->type, op,
	     comm, stream);
	if (call->graph) {
		graph = capture_end(stream);
		GPU(cuGraphLaunch, graph, stream);
		wait_stream(stream);
		GPU(cuGraphExecDestroy, graph);
	}
	wait_stream(stream);
}

void call_check(ncclComm_t comm, CUstream stream, const struct call *call)
{
	struct strait_reference reference = {call->type, call->reduction, me->n, call->k};
	size_t bytes = call->count * strait_reference_type_bytes(call->type);
	struct buffer recv = buffer_new(call->recv_memory, bytes, call->recv_offset), send = recv;
	void *input = room(bytes), *expected = room(bytes), *poison = room(bytes);
	unsigned ulp = strait_reference_tolerance(&reference);
	ncclRedOp_t op = operator_new(call, &reference, comm);

	strait_reference_input(&reference, me->number, 0, call->count, input);
	strait_reference_output(&reference, 0, call->count, expected);
	strait_poison_fill(poison, expected, bytes);
	if (!call->in_place) {
		send = buffer_new(call->send_memory, bytes, call->send_offset);
		upload_guarded(&send, input);
	}
	upload_guarded(&recv, call->in_place ? input : poison);
	run_call(call, send.at, recv.at, op, comm, stream);
	compare(call, &recv, "output", expected, ulp);
	if (!call->in_place) {
		compare(call, &send, "input", input, 0);
		buffer_free(&send);
	}
	buffer_free(&recv);
	if (call->reduction == STRAIT_PREMULSUM)
		NCCL(RedOpDestroy, op, comm);
	free(input);
	free(expected);
	free(poison);
}

struct series series_new(enum strait_type type, enum strait_reduction_kind reduction, size_t count,
			 int n)
{
	struct series series = {.reference = {type, reduction, me->n, 0}, .count = count, .n = n};
	char *inputs;

	series.bytes = count * strait_reference_type_bytes(type);
	inputs = room(series.bytes * (size_t)n);
	series.outputs = room(series.bytes * (size_t)n);
	GPU(cuMemAlloc, &series.inputs, series.bytes * (size_t)n);
	for (int k = 0; k < n; k++) {
		series.reference.k = (uint64_t)k;
		strait_reference_input(&series.reference, me->number, 0, count,
				       inputs + (size_t)k * series.bytes);
		strait_reference_output(&series.reference, 0, count,
					series.outputs + (size_t)k * series.bytes);
	}
	upload(series.inputs, inputs, series.bytes * (size_t)n);
	free(inputs);
	return series;
}

void series_free(struct series *series)
{
	GPU(cuMemFree, series->inputs);
	free(series->outputs);
	memset(series, 0, sizeof(*series));
}

CUdeviceptr series_input(const struct series *series, uint64_t k)
{
	return series->inputs + k % (uint64_t)series->n * series->bytes;
}

void series_check(const struct series *series, uint64_t k, const void *got, const char *where)
{
	const char *expected = series->outputs + k % (uint64_t)series->n * series->bytes;
	struct strait_mismatch mismatch;

	if (memcmp(got, expected, series->bytes) == 0)
		return;
	strait_reference_compare(series->reference.type, got, expected, series->count, 0,
				 &mismatch);
	MUST_SAY(mismatch.n == 0, "%s, call %llu of %zu bytes: %zu wrong, [%zu] is %s, not %s",
		 where, (unsigned long long)k, series->bytes, mismatch.n, mismatch.first,
		 mismatch.got, mismatch.expected);
}

void series_reduce(const struct series *series, CUdeviceptr from, CUdeviceptr to, ncclComm_t comm,
		   CUstream stream)
{
	NCCL(AllReduce, (void *)from, (void *)to, series->count,
	     (ncclDataType_t)series->reference.type, (ncclRedOp_t)series->reference.reduction, comm,
	     stream);
}
