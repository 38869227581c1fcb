/* SPDX-License-Identifier: Apache-2.0 */
/* Counted resources on a driver of a few lines: who keeps them, when they go, and that words in
 * host memory are used again and never given back. */
#include "algorithms/resources.h"
#include "strait/gpu.h"
#include "strait/status.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

enum { MOST_PINNED = 16 };

static struct {
	int n_events, depth, n_objects;
	void *pinned[MOST_PINNED];
	int n_pinned;
	bool is_busy, is_reset, refuses_event, refuses_retain;
	CUhostFn destructor;
	void *destructor_data;
} driver;

static char contexts[3];

static CUcontext context(int i)
{
	return (CUcontext)&contexts[i];
}

static CUresult host_alloc(void **ret, size_t bytes, unsigned flags)
{
	assert_true(flags & CU_MEMHOSTALLOC_DEVICEMAP);
	assert_true(driver.n_pinned < MOST_PINNED);
	*ret = aligned_alloc(128, (bytes + 127) / 128 * 128);
	assert_non_null(*ret);
	memset(*ret, 0xee, bytes);
	driver.pinned[driver.n_pinned++] = *ret;
	return CUDA_SUCCESS;
}

static CUresult device_pointer(CUdeviceptr *ret, void *host, unsigned flags)
{
	if (driver.is_reset)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (CUdeviceptr)host + 0x1000000;
	return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *ret, unsigned flags)
{
	if (driver.refuses_event)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret = (CUevent)&driver;
	driver.n_events++;
	return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
	driver.n_events--;
	return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event)
{
	return driver.is_busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult push(CUcontext pushed)
{
	driver.depth++;
	return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *ret)
{
	driver.depth--;
	return CUDA_SUCCESS;
}

static CUresult object_create(CUuserObject *ret, void *data, CUhostFn destructor, unsigned n,
			      unsigned flags)
{
	assert_int_equal(n, 1);
	driver.destructor = destructor;
	driver.destructor_data = data;
	driver.n_objects++;
	*ret = (CUuserObject)&driver;
	return CUDA_SUCCESS;
}

static CUresult object_release(CUuserObject object, unsigned n)
{
	driver.n_objects--;
	driver.destructor(driver.destructor_data);
	return CUDA_SUCCESS;
}

static CUresult graph_retain(CUgraph graph, CUuserObject object, unsigned n, unsigned flags)
{
	assert_int_equal(flags, CU_GRAPH_USER_OBJECT_MOVE);
	return driver.refuses_retain ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult free_host(void *host)
{
	fail_msg("pinned memory is given back: that waits for every kernel of the context");
	return CUDA_SUCCESS;
}

static CUresult get_text(CUresult result, const char **text)
{
	*text = "refused";
	return CUDA_SUCCESS;
}

/* Words outlive every test, as they outlive every communicator. */
static int set_up(void **state)
{
	const int n_pinned = driver.n_pinned;
	void *pinned[MOST_PINNED];

	memcpy(pinned, driver.pinned, sizeof(pinned));
	memset(&driver, 0, sizeof(driver));
	memcpy(driver.pinned, pinned, sizeof(pinned));
	driver.n_pinned = n_pinned;
	strait_gpu_table = (struct strait_gpu_functions){
		.cuMemHostAlloc = host_alloc,
		.cuMemHostGetDevicePointer = device_pointer,
		.cuMemFreeHost = free_host,
		.cuEventCreate = event_create,
		.cuEventDestroy = event_destroy,
		.cuEventQuery = event_query,
		.cuCtxPushCurrent = push,
		.cuCtxPopCurrent = pop,
		.cuUserObjectCreate = object_create,
		.cuUserObjectRelease = object_release,
		.cuGraphRetainUserObject = graph_retain,
		.cuGetErrorName = get_text,
		.cuGetErrorString = get_text,
	};
	return 0;
}

static int tear_down(void **state)
{
	strait_resources_reap();
	return driver.n_events || driver.depth;
}

static struct strait_resources *make(int in)
{
	struct strait_resources *resources = NULL;

	assert_int_equal(strait_resources_new(context(in), 0, &resources), 0);
	return resources;
}

static void test_resources_live_until_their_last_reference(void **state)
{
	struct strait_resources *resources = make(0);

	assert_ptr_equal(strait_resources_ref(resources), resources);
	assert_null(strait_resources_unref(resources));
	strait_resources_reap();
	assert_int_equal(driver.n_events, 1);
	assert_null(strait_resources_unref(resources));
	assert_int_equal(driver.n_events, 1); /* no driver call in a driver's callback */
	strait_resources_reap();
	assert_int_equal(driver.n_events, 0);
	assert_null(strait_resources_unref(NULL));
}

static void test_what_a_kernel_uses_is_kept_for_a_later_reap(void **state)
{
	struct strait_resources *busy = make(0);

	driver.is_busy = true;
	strait_resources_unref(busy);
	for (int i = 0; i < 3; i++) {
		strait_resources_reap();
		assert_int_equal(driver.n_events, 1);
		assert_int_equal(driver.depth, 0);
	}
	driver.is_busy = false;
	strait_resources_reap();
	assert_int_equal(driver.n_events, 0);
}

static void test_all_that_nobody_uses_goes_in_one_reap(void **state)
{
	enum { N = 5 };
	struct strait_resources *resources[N];

	for (int i = 0; i < N; i++)
		resources[i] = make(i % 2);
	for (int i = 0; i < N; i++)
		strait_resources_unref(resources[i]);
	assert_int_equal(driver.n_events, N);
	strait_resources_reap();
	assert_int_equal(driver.n_events, 0);
}

static void test_words_serve_the_next_of_their_context_cleared(void **state)
{
	struct strait_resources *first = make(2), *second;
	atomic_uint *const word = first->abort_word;
	const int n = driver.n_pinned;

	assert_int_equal(atomic_load(word), 0);
	assert_int_equal(first->abort_word_device, (CUdeviceptr)word + 0x1000000);
	assert_int_equal(first->failures_device, (CUdeviceptr)first->failures + 0x1000000);
	atomic_store(word, 1);
	for (int i = 0; i < STRAIT_MAX_RANKS; i++)
		first->failures[i] = 7;
	strait_resources_unref(first);
	second = make(2); /* the first is not reaped yet */
	assert_ptr_not_equal(second->abort_word, word);
	strait_resources_reap();
	strait_resources_unref(second);
	strait_resources_reap();
	assert_int_equal(driver.n_pinned, n + 1);

	first = make(2);
	second = make(2);
	assert_int_equal(driver.n_pinned, n + 1);
	assert_true(first->abort_word == word || second->abort_word == word);
	assert_int_equal(atomic_load(word), 0);
	for (int i = 0; i < STRAIT_MAX_RANKS; i++)
		assert_int_equal(first->failures[i] | second->failures[i], 0);
	strait_resources_unref(first);
	strait_resources_unref(second);
}

static void test_words_of_one_context_never_serve_another(void **state)
{
	struct strait_resources *a = make(0), *b;
	atomic_uint *const word = a->abort_word;

	strait_resources_unref(a);
	strait_resources_reap();
	b = make(1);
	assert_ptr_not_equal(b->abort_word, word);
	strait_resources_unref(b);
}

/* A reset of the device takes pinned memory with it. */
static void test_words_that_a_reset_took_are_not_used_again(void **state)
{
	struct strait_resources *resources = make(0);
	atomic_uint *const word = resources->abort_word;
	int n;

	strait_resources_unref(resources);
	strait_resources_reap();
	driver.is_reset = true;
	n = driver.n_pinned;
	assert_true(strait_resources_new(context(0), 0, &resources) < 0);
	driver.is_reset = false;
	resources = make(0);
	assert_ptr_not_equal(resources->abort_word, word);
	assert_true(driver.n_pinned > n);
	strait_resources_unref(resources);
}

static void test_failed_creation_leaves_nothing_and_keeps_the_words(void **state)
{
	struct strait_resources *resources = make(0), *untouched = resources;
	int n;

	strait_resources_unref(resources);
	strait_resources_reap();
	n = driver.n_pinned;
	driver.refuses_event = true;
	for (int i = 0; i < 3; i++)
		assert_true(strait_resources_new(context(0), 0, &resources) < 0);
	assert_ptr_equal(resources, untouched);
	assert_int_equal(driver.n_pinned, n);
}

static void test_graph_holds_a_reference_until_it_is_destroyed(void **state)
{
	struct strait_resources *resources = make(0);

	assert_int_equal(strait_resources_retain_by_graph(resources, NULL), 0);
	strait_resources_unref(resources);
	strait_resources_reap();
	assert_int_equal(driver.n_events, 1);
	driver.destructor(driver.destructor_data);
	strait_resources_reap();
	assert_int_equal(driver.n_events, 0);
}

static void test_graph_that_refuses_holds_no_reference(void **state)
{
	struct strait_resources *resources = make(0);

	driver.refuses_retain = true;
	assert_true(strait_resources_retain_by_graph(resources, NULL) < 0);
	assert_int_equal(driver.n_objects, 0);
	assert_int_equal(atomic_load(&resources->n_references), 1);
	strait_resources_unref(resources);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_resources_live_until_their_last_reference),
		TEST(test_what_a_kernel_uses_is_kept_for_a_later_reap),
		TEST(test_all_that_nobody_uses_goes_in_one_reap),
		TEST(test_words_serve_the_next_of_their_context_cleared),
		TEST(test_words_of_one_context_never_serve_another),
		TEST(test_words_that_a_reset_took_are_not_used_again),
		TEST(test_failed_creation_leaves_nothing_and_keeps_the_words),
		TEST(test_graph_holds_a_reference_until_it_is_destroyed),
		TEST(test_graph_that_refuses_holds_no_reference),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
