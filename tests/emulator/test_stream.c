/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events: order within a stream, independence between streams, edges by events, the
 * legacy stream. A kernel that waits for a word of the host holds a stream for as long as a test
 * wants.
 */
#include "tests/emulator/rig.h"
#include <dirent.h>
#include <sched.h>
#include <stdatomic.h>

static uint32_t *gate; /* host words that kernels wait for */
static CUdeviceptr memory;

static int set_up(void **state)
{
	rig_open(0);
	OK(cuMemHostAlloc((void **)&gate, 4096, 0));
	memory = rig_alloc(4096);
	return 0;
}

static void close_gate(void)
{
	__atomic_store_n(gate, 0, __ATOMIC_SEQ_CST);
}
static void open_gate(void)
{
	__atomic_store_n(gate, 1, __ATOMIC_SEQ_CST);
}

static void wait_at_gate(CUstream stream)
{
	struct arguments arguments = {.in = (uint64_t)(uintptr_t)gate, .count = 1};
	rig_launch("wait_for_host", 1, 1, &arguments, stream);
}

static void increment(CUstream stream, int word)
{
	struct arguments arguments = {.out = memory + 4u * (unsigned)word};
	rig_launch("increment", 1, 1, &arguments, stream);
}

static uint32_t read_word(int word)
{
	uint32_t value;
	OK(cuMemcpyDtoH(&value, memory + 4u * (unsigned)word, 4));
	return value;
}

static CUstream new_stream(unsigned flags)
{
	CUstream stream;
	OK(cuStreamCreate(&stream, flags));
	return stream;
}

static CUevent new_event(void)
{
	CUevent event;
	OK(cuEventCreate(&event, 0));
	return event;
}

static void test_a_stream_runs_in_order(void **state)
{
	CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
	OK(cuMemsetD8(memory, 0, 64));
	for (int i = 0; i < 200; i++)
		increment(stream, 0);
	OK(cuStreamSynchronize(stream));
	assert_int_equal(read_word(0), 200);
	OK(cuStreamDestroy(stream));
}

static void test_streams_do_not_wait_for_each_other(void **state)
{
	CUstream held = new_stream(CU_STREAM_NON_BLOCKING);
	CUstream other = new_stream(CU_STREAM_NON_BLOCKING);
	close_gate();
	wait_at_gate(held);
	OK(cuMemsetD8Async(memory, 0, 64, other));
	increment(other, 0);
	OK(cuStreamSynchronize(other));
	assert_int_equal(cuStreamQuery(held), CUDA_ERROR_NOT_READY);
	open_gate();
	OK(cuStreamSynchronize(held));
	assert_int_equal(cuStreamQuery(held), CUDA_SUCCESS);
	OK(cuStreamDestroy(held));
	OK(cuStreamDestroy(other));
}

static void test_an_event_orders_two_streams(void **state)
{
	CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
	CUevent event = new_event();
	close_gate();
	OK(cuMemsetD8(memory, 0, 64));
	wait_at_gate(a);
	OK(cuEventRecord(event, a));
	OK(cuStreamWaitEvent(b, event, 0));
	increment(b, 0);
	assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	assert_int_equal(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
	open_gate();
	OK(cuStreamSynchronize(b));
	assert_int_equal(cuEventQuery(event), CUDA_SUCCESS);
	assert_int_equal(read_word(0), 1);
	OK(cuEventDestroy(event));
	OK(cuStreamDestroy(a));
	OK(cuStreamDestroy(b));
}

static void test_a_wait_means_the_record_before_it(void **state)
{
	CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
	CUevent event = new_event();
	OK(cuStreamWaitEvent(b, event, 0)); /* never recorded: nothing to wait for */
	OK(cuStreamSynchronize(b));
	OK(cuEventRecord(event, a));
	OK(cuStreamWaitEvent(b, event, 0));
	close_gate();
	wait_at_gate(a);
	OK(cuEventRecord(event, a)); /* later than the wait */
	OK(cuStreamSynchronize(b));
	assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	open_gate();
	OK(cuEventSynchronize(event));
	OK(cuEventDestroy(event));
	OK(cuStreamDestroy(a));
	OK(cuStreamDestroy(b));
}

static void test_a_destroyed_stream_ends_its_work(void **state)
{
	CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
	close_gate();
	OK(cuMemsetD8(memory, 0, 64));
	wait_at_gate(stream);
	increment(stream, 0);
	OK(cuStreamDestroy(stream));
	assert_int_equal(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
	open_gate();
	OK(cuCtxSynchronize());
	assert_int_equal(read_word(0), 1);
}

static void test_the_legacy_stream_waits_for_blocking_streams(void **state)
{
	CUstream blocking = new_stream(CU_STREAM_DEFAULT);
	CUstream free_ = new_stream(CU_STREAM_NON_BLOCKING);
	close_gate();
	OK(cuMemsetD8(memory, 0, 64));
	wait_at_gate(blocking);
	increment(NULL, 0);     /* after what is in the blocking stream */
	increment(free_, 1);    /* waits for nobody */
	increment(blocking, 2); /* after the legacy stream */
	OK(cuStreamSynchronize(free_));
	assert_int_equal(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	open_gate();
	OK(cuStreamSynchronize(blocking));
	assert_int_equal(read_word(0), 1);
	assert_int_equal(read_word(1), 1);
	assert_int_equal(read_word(2), 1);
	OK(cuStreamDestroy(blocking));
	OK(cuStreamDestroy(free_));
}

static void test_stream_ids_are_never_used_again(void **state)
{
	unsigned long long last = 0, id;
	for (int i = 0; i < 100; i++) {
		CUstream stream = new_stream(0);
		OK(cuStreamGetId(stream, &id));
		assert_true(id > last);
		last = id;
		OK(cuStreamDestroy(stream));
	}
}

static int count_threads(void)
{
	int n = 0;
	DIR *at = opendir("/proc/self/task");
	while (at && readdir(at))
		n++;
	closedir(at);
	return n;
}

static void test_destroyed_streams_leave_no_threads(void **state)
{
	CUevent event = new_event();
	int before = count_threads();
	for (int i = 0; i < 300; i++) {
		CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
		increment(stream, 0);
		OK(cuEventRecord(event, stream));
		OK(cuStreamDestroy(stream));
	}
	OK(cuEventSynchronize(event));
	OK(cuCtxSynchronize());
	while (count_threads() > before) /* they are on their way out */
		sched_yield();
	OK(cuEventDestroy(event));
}

static void CUDA_CB note(void *data)
{
	atomic_fetch_add((_Atomic int *)data, 1);
}

static void test_host_functions_run_in_order(void **state)
{
	CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
	_Atomic int calls = 0;
	close_gate();
	wait_at_gate(stream);
	OK(cuLaunchHostFunc(stream, note, &calls));
	assert_int_equal(calls, 0);
	open_gate();
	OK(cuStreamSynchronize(stream));
	assert_int_equal(calls, 1);
	OK(cuStreamDestroy(stream));
}

static void test_events_measure_time(void **state)
{
	CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
	CUevent start = new_event(), end = new_event();
	float ms = -1;
	close_gate();
	OK(cuEventRecord(start, stream));
	wait_at_gate(stream);
	OK(cuEventRecord(end, stream));
	OK(cuEventSynchronize(start));
	assert_int_equal(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_NOT_READY);
	open_gate();
	OK(cuEventSynchronize(end));
	OK(cuEventElapsedTime(&ms, start, end));
	assert_true(ms > 0 && ms < 60000);
	OK(cuEventDestroy(start));
	OK(cuEventDestroy(end));
	OK(cuStreamDestroy(stream));
}

static void test_pageable_memory_may_change_after_the_call(void **state)
{
	CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
	uint32_t word = 5, got = 0;
	close_gate();
	wait_at_gate(stream);
	OK(cuMemcpyHtoDAsync(memory, &word, 4, stream));
	word = 6;
	open_gate();
	OK(cuMemcpyDtoHAsync(&got, memory, 4,
			     stream)); /* and its target is there when it returns */
	assert_int_equal(got, 5);
	OK(cuStreamDestroy(stream));
}

static void test_one_thread_can_hold_many_devices(void **state)
{
	CUcontext contexts[8];
	CUstream streams[8];
	CUdeviceptr words[8];
	for (int d = 0; d < 8; d++) {
		OK(cuDevicePrimaryCtxRetain(&contexts[d], d));
		OK(cuCtxPushCurrent(contexts[d]));
		OK(cuStreamCreate(&streams[d], CU_STREAM_NON_BLOCKING));
		words[d] = rig_alloc(4);
		struct arguments arguments = {.out = words[d]};
		for (int i = 0; i <= d; i++)
			rig_launch("increment", 1, 1, &arguments, streams[d]);
		OK(cuCtxPopCurrent(NULL));
	}
	for (int d = 0; d < 8; d++) {
		uint32_t got;
		OK(cuStreamSynchronize(streams[d]));
		OK(cuMemcpyDtoH(&got, words[d], 4));
		assert_int_equal(got, d + 1);
		OK(cuStreamDestroy(streams[d]));
		OK(cuMemFree(words[d]));
		OK(cuDevicePrimaryCtxRelease(d));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_stream_runs_in_order),
		cmocka_unit_test(test_streams_do_not_wait_for_each_other),
		cmocka_unit_test(test_an_event_orders_two_streams),
		cmocka_unit_test(test_a_wait_means_the_record_before_it),
		cmocka_unit_test(test_a_destroyed_stream_ends_its_work),
		cmocka_unit_test(test_the_legacy_stream_waits_for_blocking_streams),
		cmocka_unit_test(test_stream_ids_are_never_used_again),
		cmocka_unit_test(test_destroyed_streams_leave_no_threads),
		cmocka_unit_test(test_host_functions_run_in_order),
		cmocka_unit_test(test_events_measure_time),
		cmocka_unit_test(test_pageable_memory_may_change_after_the_call),
		cmocka_unit_test(test_one_thread_can_hold_many_devices),
	};
	return cmocka_run_group_tests(tests, set_up, NULL);
}
