/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a capture forbids, to whom, with which result, and that it spoils the capture; forks and
 * joins; what can be asked about a capture.
 */
#include "tests/emulator/rig.h"

static CUstream stream, other;
static CUevent event;
static CUdeviceptr memory;

static int set_up(void **state)
{
	rig_open(0);
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	memory = rig_alloc(64);
	return 0;
}

static void begin(CUstreamCaptureMode mode)
{
	OK(cuStreamBeginCapture(stream, mode));
}

/* The capture ends with a graph. */
static void end_well(void)
{
	CUgraph graph = NULL;
	OK(cuStreamEndCapture(stream, &graph));
	assert_non_null(graph);
	OK(cuGraphDestroy(graph));
}

static void end_spoiled(void)
{
	CUgraph graph = (CUgraph)&graph;
	CUstreamCaptureStatus status;
	OK(cuStreamIsCapturing(stream, &status));
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	assert_int_equal(cuMemsetD8Async(memory, 0, 4, stream),
			 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	assert_null(graph);
	OK(cuStreamIsCapturing(stream, &status));
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
}

/* Calls that may be unsafe while a capture goes on. */
static CUresult allocate(void)
{
	CUdeviceptr address;
	CUresult result = cuMemAlloc(&address, 64);
	if (!result)
		cuMemFree(address);
	return result;
}

static CUresult allocate_host(void)
{
	void *address;
	CUresult result = cuMemHostAlloc(&address, 64, 0);
	if (!result)
		cuMemFreeHost(address);
	return result;
}

static CUresult copy(void)
{
	uint32_t word;
	return cuMemcpyDtoH(&word, memory, 4);
}

static CUresult create_handle(void)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUresult result = cuMemCreate(&handle, 2u << 20, &p, 0);
	if (!result)
		cuMemRelease(handle);
	return result;
}

static CUresult query_event(void)
{
	CUresult result = cuEventQuery(event);
	return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

static CUresult load_library(void)
{
	CUlibrary library;
	CUresult result = cuLibraryLoadData(&library, "STRAIT-EMULATOR:" KERNELS_PATH, NULL, NULL,
					    0, NULL, NULL, 0);
	if (!result)
		cuLibraryUnload(library);
	return result;
}

static CUresult synchronize_other(void)
{
	return cuStreamSynchronize(other);
}

static CUresult (*const unsafe[])(void) = {
	allocate, allocate_host, copy, create_handle, query_event, load_library, synchronize_other};
#define N_UNSAFE (sizeof unsafe / sizeof *unsafe)

static void test_unsafe_calls_of_the_capturing_thread_spoil_it(void **state)
{
	for (int mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
	     mode++)
		for (size_t i = 0; i < N_UNSAFE; i++) {
			begin((CUstreamCaptureMode)mode);
			assert_int_equal(unsafe[i](), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
			end_spoiled();
		}
}

static void test_unsafe_calls_are_allowed_in_relaxed_captures(void **state)
{
	for (size_t i = 0; i < N_UNSAFE; i++) {
		begin(CU_STREAM_CAPTURE_MODE_RELAXED);
		OK(unsafe[i]());
		end_well();
	}
}

static void test_a_thread_can_relax_itself(void **state)
{
	for (size_t i = 0; i < N_UNSAFE; i++) {
		CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
		begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
		OK(cuThreadExchangeStreamCaptureMode(&mode));
		assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
		OK(unsafe[i]());
		OK(cuThreadExchangeStreamCaptureMode(&mode));
		assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
		end_well();
	}
}

static void *call_elsewhere(void *data)
{
	rig_open(0);
	return (void *)(uintptr_t)allocate();
}

static CUresult allocate_on_another_thread(void)
{
	pthread_t thread;
	void *result;
	assert_int_equal(pthread_create(&thread, NULL, call_elsewhere, NULL), 0);
	pthread_join(thread, &result);
	return (CUresult)(uintptr_t)result;
}

static void test_only_a_global_capture_forbids_to_other_threads(void **state)
{
	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	assert_int_equal(allocate_on_another_thread(), CUDA_SUCCESS);
	end_well();
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_int_equal(allocate_on_another_thread(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	end_spoiled();
}

static void test_waiting_for_the_capture_is_forbidden_in_every_mode(void **state)
{
	for (int mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
	     mode++) {
		begin((CUstreamCaptureMode)mode);
		assert_int_equal(cuStreamSynchronize(stream),
				 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		end_spoiled();
		begin((CUstreamCaptureMode)mode);
		assert_int_equal(cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		end_spoiled();
		begin((CUstreamCaptureMode)mode);
		assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		end_spoiled();
		begin((CUstreamCaptureMode)mode);
		OK(cuEventRecord(event, stream));
		assert_int_equal(cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT);
		end_spoiled();
		assert_int_equal(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
		OK(cuEventRecord(event, other));
	}
}

static void test_work_on_other_streams_goes_on(void **state)
{
	uint32_t got;
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuMemsetD32Async(memory, 9, 1, other));
	OK(cuEventRecord(event, other));
	end_well();
	OK(cuStreamSynchronize(other));
	OK(cuMemcpyDtoH(&got, memory, 4));
	assert_int_equal(got, 9);
}

static void test_a_fork_that_is_joined_is_captured(void **state)
{
	CUgraph graph;
	CUgraphNode nodes[8];
	size_t n = 8;
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuMemsetD32Async(memory, 1, 1, stream));
	OK(cuEventRecord(event, stream));
	OK(cuStreamWaitEvent(other, event, 0));
	CUstreamCaptureStatus status;
	OK(cuStreamIsCapturing(other, &status));
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	OK(cuMemsetD32Async(memory + 4, 1, 1, other));
	OK(cuMemsetD32Async(memory + 8, 1, 1, stream));
	OK(cuEventRecord(event, other));
	OK(cuStreamWaitEvent(stream, event, 0));
	OK(cuMemsetD32Async(memory + 12, 1, 1, stream));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphGetNodes(graph, nodes, &n));
	assert_int_equal(n, 4);
	OK(cuStreamIsCapturing(other, &status));
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
	OK(cuGraphDestroy(graph));
	OK(cuEventRecord(event, other));
}

static void test_a_fork_that_is_not_joined_is_an_error(void **state)
{
	CUgraph graph;
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuEventRecord(event, stream));
	OK(cuStreamWaitEvent(other, event, 0));
	OK(cuMemsetD32Async(memory, 1, 1, other));
	assert_int_equal(cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuEventRecord(event, stream));
	OK(cuStreamWaitEvent(other, event, 0));
	OK(cuMemsetD32Async(memory, 1, 1, other));
	assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	assert_null(graph);
	OK(cuEventRecord(event, other));
}

static void test_an_edge_from_outside_is_an_error(void **state)
{
	OK(cuEventRecord(event, other));
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_int_equal(cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	end_spoiled();
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuEventRecord(event, other));
	assert_int_equal(cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
	end_spoiled();
	CUgraph graph;
	assert_int_equal(cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(cuEventRecord(event, other));
}

static void test_external_flags_belong_to_captures(void **state)
{
	assert_int_equal(cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL),
			 CUDA_ERROR_INVALID_VALUE);
}

static void test_the_legacy_stream_is_forbidden_beside_a_blocking_capture(void **state)
{
	CUstream blocking;
	CUgraph graph;
	CUstreamCaptureStatus status;
	OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
	assert_int_equal(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	OK(cuStreamIsCapturing(blocking, &status)); /* the question harms nothing */
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	assert_int_equal(cuMemsetD8Async(memory, 0, 4, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	assert_int_equal(cuStreamEndCapture(blocking, &graph),
			 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	assert_int_equal(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_RELAXED),
			 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	OK(cuStreamDestroy(blocking));
}

static void test_a_capture_tells_of_itself(void **state)
{
	CUresult (*info)(CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *,
			 const CUgraphNode **, size_t *);
	CUresult (*update)(CUstream, CUgraphNode *, size_t, unsigned);
	CUresult (*remove)(CUgraph, const CUgraphNode *, const CUgraphNode *, size_t);
	CUstreamCaptureStatus status;
	cuuint64_t id, again;
	CUgraph graph, result;
	const CUgraphNode *tail;
	CUgraphNode node;
	size_t n;
	OK(cuGetProcAddress("cuStreamGetCaptureInfo", (void **)&info, 12000, 0, NULL));
	OK(cuGetProcAddress("cuStreamUpdateCaptureDependencies", (void **)&update, 12000, 0, NULL));
	OK(cuGetProcAddress("cuGraphRemoveDependencies", (void **)&remove, 12000, 0, NULL));
	OK(info(stream, &status, &id, &graph, &tail, &n));
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(info(stream, &status, &id, &graph, &tail, &n));
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	assert_int_equal(n, 0);
	OK(cuGraphAddEventRecordNode(&node, graph, NULL, 0, event));
	OK(update(stream, &node, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
	OK(cuMemsetD32Async(memory, 1, 1, stream));
	OK(info(stream, &status, &again, &graph, &tail, &n));
	assert_int_equal(id, again);
	assert_int_equal(n, 1);
	CUgraphNode last = tail[0];
	size_t dependencies = 1;
	OK(cuGraphNodeGetDependencies(last, NULL, NULL, &dependencies));
	assert_int_equal(dependencies, 1);
	OK(remove(graph, &node, &last, 1));
	OK(cuGraphDestroyNode(node));
	OK(update(stream, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	OK(cuMemsetD32Async(memory, 1, 1, stream));
	OK(info(stream, &status, NULL, NULL, &tail, &n));
	OK(update(stream, &last, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
	OK(cuStreamEndCapture(stream, &result));
	assert_ptr_equal(result, graph);
	n = 0;
	OK(cuGraphGetNodes(graph, NULL, &n));
	assert_int_equal(n, 2);
	OK(cuGraphDestroy(graph));
}

static void test_every_capture_has_its_own_id(void **state)
{
	cuuint64_t first, second;
	CUstreamCaptureStatus status;
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuStreamGetCaptureInfo(stream, &status, &first, NULL, NULL, NULL, NULL));
	end_well();
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	OK(cuStreamGetCaptureInfo(stream, &status, &second, NULL, NULL, NULL, NULL));
	end_well();
	assert_int_not_equal(first, second);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unsafe_calls_of_the_capturing_thread_spoil_it),
		cmocka_unit_test(test_unsafe_calls_are_allowed_in_relaxed_captures),
		cmocka_unit_test(test_a_thread_can_relax_itself),
		cmocka_unit_test(test_only_a_global_capture_forbids_to_other_threads),
		cmocka_unit_test(test_waiting_for_the_capture_is_forbidden_in_every_mode),
		cmocka_unit_test(test_work_on_other_streams_goes_on),
		cmocka_unit_test(test_a_fork_that_is_joined_is_captured),
		cmocka_unit_test(test_a_fork_that_is_not_joined_is_an_error),
		cmocka_unit_test(test_an_edge_from_outside_is_an_error),
		cmocka_unit_test(test_external_flags_belong_to_captures),
		cmocka_unit_test(test_the_legacy_stream_is_forbidden_beside_a_blocking_capture),
		cmocka_unit_test(test_a_capture_tells_of_itself),
		cmocka_unit_test(test_every_capture_has_its_own_id),
	};
	return cmocka_run_group_tests(tests, set_up, NULL);
}
