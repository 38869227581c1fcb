/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order of calls, on a driver of a few lines that writes down what it is asked. A stream's handle
 * points to what the test says of the stream.
 */
#include "algorithms/order.h"
#include "strait/gpu.h"
#include "strait/status.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

struct node {
	struct node *before; /* its one dependency, or NULL */
};

struct stream {
	unsigned long long id;
	CUstreamCaptureStatus status;
	cuuint64_t capture;
	struct node *tail;
};

static struct {
	char calls[4096]; /* one word for each driver call, a space behind it */
	struct node records[100], *record_behind;
	int n_records;
	CUresult result; /* of all calls that write themselves down */
} driver;

static char event_object, graph_object;
static const CUevent done = (CUevent)&event_object;
static struct strait_order order;

static CUresult note(const char *call)
{
	strcat(driver.calls, call);
	strcat(driver.calls, " ");
	return driver.result;
}

static struct stream *stream_of(CUstream handle)
{
	return (struct stream *)handle;
}

static CUresult get_capture_info(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
				 CUgraph *graph, const CUgraphNode **nodes, size_t *n)
{
	struct stream *stream = stream_of(handle);

	*status = stream->status;
	if (stream->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return CUDA_SUCCESS;
	*id = stream->capture;
	*graph = (CUgraph)&graph_object;
	if (nodes)
		*nodes = (CUgraphNode *)&stream->tail;
	if (n)
		*n = stream->tail != NULL;
	return CUDA_SUCCESS;
}

static CUresult get_id(CUstream handle, unsigned long long *id)
{
	*id = stream_of(handle)->id;
	return CUDA_SUCCESS;
}

static CUresult wait_event(CUstream handle, CUevent event, unsigned flags)
{
	assert_ptr_equal(event, done);
	return note(flags == CU_EVENT_WAIT_EXTERNAL ? "wait-external" : "wait");
}

static CUresult record_event(CUevent event, CUstream handle)
{
	assert_ptr_equal(event, done);
	return note("record");
}

static CUresult add_dependency(CUstream handle, CUgraphNode *nodes, size_t n, unsigned flags)
{
	assert_int_equal(flags, CU_STREAM_ADD_CAPTURE_DEPENDENCIES);
	assert_int_equal(n, 1);
	/* The next node is behind both; its own stream's is not what the tests look for. */
	stream_of(handle)->tail = (struct node *)nodes[0];
	return note("join");
}

static CUresult get_dependencies(CUgraphNode node, CUgraphNode *nodes, size_t *n)
{
	struct node *before = ((struct node *)node)->before;

	if (nodes && *n)
		nodes[0] = (CUgraphNode)before;
	*n = before != NULL;
	return CUDA_SUCCESS;
}

static CUresult add_record(CUgraphNode *ret, CUgraph graph, const CUgraphNode *behind, size_t n,
			   CUevent event)
{
	assert_ptr_equal(graph, &graph_object);
	assert_int_equal(n, 1);
	assert_ptr_equal(event, done);
	driver.record_behind = (struct node *)behind[0];
	*ret = (CUgraphNode)&driver.records[driver.n_records++];
	return note("add-record");
}

static CUresult remove_edge(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n)
{
	assert_ptr_equal(*from, driver.record_behind);
	assert_ptr_equal(*to, &driver.records[driver.n_records - 1]);
	driver.record_behind = NULL;
	return note("remove");
}

static CUresult add_edge(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n)
{
	assert_null(driver.record_behind);
	assert_ptr_equal(*to, &driver.records[driver.n_records - 1]);
	driver.record_behind = (struct node *)*from;
	return note("add");
}

static CUresult get_text(CUresult result, const char **text)
{
	*text = "refused";
	return CUDA_SUCCESS;
}

static int set_up(void **state)
{
	memset(&driver, 0, sizeof(driver));
	strait_gpu_table = (struct strait_gpu_functions){
		.cuStreamGetCaptureInfo_ = get_capture_info,
		.cuStreamGetId = get_id,
		.cuStreamWaitEvent = wait_event,
		.cuEventRecord = record_event,
		.cuStreamUpdateCaptureDependencies_ = add_dependency,
		.cuGraphNodeGetDependencies_ = get_dependencies,
		.cuGraphAddEventRecordNode = add_record,
		.cuGraphRemoveDependencies_ = remove_edge,
		.cuGraphAddDependencies_ = add_edge,
		.cuGetErrorName = get_text,
		.cuGetErrorString = get_text,
	};
	strait_order_init(&order, done);
	return 0;
}

static int tear_down(void **state)
{
	strait_order_deinit(&order);
	return 0;
}

/* One call; `kernel` is the node that it leaves where the stream captures. */
static void call_on(struct stream *stream, struct node *kernel)
{
	struct strait_order_call call;

	driver.calls[0] = '\0';
	assert_int_equal(strait_order_begin(&order, (CUstream)stream, &call), 0);
	if (stream->status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
		kernel->before = stream->tail;
		stream->tail = kernel;
	}
	assert_int_equal(strait_order_end(&order, &call), 0);
}

static struct stream capturing(cuuint64_t capture, struct node *tail)
{
	return (struct stream){
		.status = CU_STREAM_CAPTURE_STATUS_ACTIVE, .capture = capture, .tail = tail};
}

static void test_eager_calls_of_one_stream_never_wait(void **state)
{
	struct stream stream = {.id = 5};

	for (int i = 0; i < 3; i++) {
		call_on(&stream, NULL);
		assert_string_equal(driver.calls, "record ");
	}
}

static void test_eager_call_of_another_stream_waits(void **state)
{
	struct stream a = {.id = 5}, b = {.id = 6};

	call_on(&a, NULL);
	assert_string_equal(driver.calls, "record ");
	call_on(&b, NULL);
	assert_string_equal(driver.calls, "wait record ");
	call_on(&b, NULL);
	assert_string_equal(driver.calls, "record ");
	call_on(&a, NULL);
	assert_string_equal(driver.calls, "wait record ");
}

/* A stream may get the handle of one that is gone; its id tells them apart. */
static void test_new_stream_with_an_old_handle_waits(void **state)
{
	struct stream stream = {.id = 5};

	call_on(&stream, NULL);
	stream.id = 6;
	call_on(&stream, NULL);
	assert_string_equal(driver.calls, "wait record ");
}

static void test_eager_calls_always_wait_once_something_was_captured(void **state)
{
	struct stream eager = {.id = 5}, captured = capturing(1, NULL);
	struct node kernel;

	call_on(&eager, NULL);
	call_on(&captured, &kernel);
	for (int i = 0; i < 3; i++) {
		call_on(&eager, NULL);
		assert_string_equal(driver.calls, "wait record ");
	}
}

static void test_capture_waits_once_and_its_record_moves_with_each_call(void **state)
{
	struct stream stream = capturing(1, NULL);
	struct node kernels[3];

	call_on(&stream, &kernels[0]);
	assert_string_equal(driver.calls, "wait-external add-record ");
	for (int i = 1; i < 3; i++) {
		assert_ptr_equal(driver.record_behind, &kernels[i - 1]);
		call_on(&stream, &kernels[i]);
		assert_string_equal(driver.calls, "remove add ");
	}
	assert_ptr_equal(driver.record_behind, &kernels[2]);
	assert_int_equal(driver.n_records, 1);
}

static void test_users_work_between_captured_calls_needs_no_edge(void **state)
{
	struct stream stream = capturing(1, NULL);
	struct node kernels[2], users[50];

	call_on(&stream, &kernels[0]);
	for (int i = 0; i < 50; i++) {
		users[i].before = stream.tail;
		stream.tail = &users[i];
	}
	call_on(&stream, &kernels[1]);
	assert_string_equal(driver.calls, "remove add ");
}

static void test_stream_that_was_set_back_is_joined_to_the_last_call(void **state)
{
	struct node first = {NULL}, kernels[2];
	struct stream stream = capturing(1, &first);

	call_on(&stream, &kernels[0]);
	stream.tail = &first; /* the same stream, no longer behind its call */
	call_on(&stream, &kernels[1]);
	assert_string_equal(driver.calls, "join remove add ");
	assert_ptr_equal(kernels[1].before, &kernels[0]);
	stream.tail = NULL;
	call_on(&stream, &kernels[0]);
	assert_string_equal(driver.calls, "join remove add ");
}

static void test_other_stream_of_a_capture_is_joined_only_where_it_is_not_behind(void **state)
{
	struct node first = {NULL}, kernels[3], user;
	struct stream a = capturing(1, &first), b = capturing(1, &first);

	call_on(&a, &kernels[0]);
	call_on(&b, &kernels[1]);
	assert_string_equal(driver.calls, "join remove add ");
	user.before = &kernels[1];
	a.tail = &user; /* a waited for b */
	call_on(&a, &kernels[2]);
	assert_string_equal(driver.calls, "remove add ");
}

static void test_captures_do_not_know_each_other(void **state)
{
	struct stream a = capturing(1, NULL), b = capturing(2, NULL);
	struct node kernels[4];

	call_on(&a, &kernels[0]);
	call_on(&b, &kernels[1]);
	assert_string_equal(driver.calls, "wait-external add-record ");
	assert_int_equal(driver.n_records, 2);
	driver.n_records = 1; /* the fake looks at the newest: a's record again */
	driver.record_behind = &kernels[0];
	call_on(&a, &kernels[2]);
	assert_string_equal(driver.calls, "remove add ");
	assert_ptr_equal(driver.record_behind, &kernels[2]);
}

static void test_many_captures_are_survived(void **state)
{
	struct stream eager = {.id = 5};
	struct node kernel;

	for (cuuint64_t id = 1; id <= 90; id++) {
		struct stream stream = capturing(id, NULL);

		call_on(&stream, &kernel);
		assert_string_equal(driver.calls, "wait-external add-record ");
	}
	call_on(&eager, NULL);
	assert_string_equal(driver.calls, "wait record ");
}

static void test_invalid_capture_and_refusing_driver_are_errors(void **state)
{
	struct stream invalid = {.status = CU_STREAM_CAPTURE_STATUS_INVALIDATED};
	struct stream stream = capturing(1, NULL);
	struct strait_order_call call;

	assert_int_equal(strait_order_begin(&order, (CUstream)&invalid, &call), STRAIT_ERROR_CUDA);
	driver.result = CUDA_ERROR_OUT_OF_MEMORY;
	assert_true(strait_order_begin(&order, (CUstream)&stream, &call) < 0);
	driver.result = CUDA_SUCCESS;
	assert_false(order.has_calls);
	assert_int_equal(order.n_captures, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_eager_calls_of_one_stream_never_wait),
		TEST(test_eager_call_of_another_stream_waits),
		TEST(test_new_stream_with_an_old_handle_waits),
		TEST(test_eager_calls_always_wait_once_something_was_captured),
		TEST(test_capture_waits_once_and_its_record_moves_with_each_call),
		TEST(test_users_work_between_captured_calls_needs_no_edge),
		TEST(test_stream_that_was_set_back_is_joined_to_the_last_call),
		TEST(test_other_stream_of_a_capture_is_joined_only_where_it_is_not_behind),
		TEST(test_captures_do_not_know_each_other),
		TEST(test_many_captures_are_survived),
		TEST(test_invalid_capture_and_refusing_driver_are_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
