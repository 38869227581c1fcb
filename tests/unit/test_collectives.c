/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives' checks: order, codes and words, operators of the user, what is refused and what
 * is let pass. */
#include "tests/unit/nccl_ranks.h"

#include "shim/report.h"

static struct ncclComm *ranks[2];

static int make_two(void **state)
{
	fake_reset();
	make_ranks(ranks, 2);
	return 0;
}

static int destroy_two(void **state)
{
	destroy_ranks(ranks, 2);
	return check_nothing_is_left(state);
}

static int all_reduce(int type, int op, size_t count)
{
	return ncclAllReduce((void *)0x1001, (void *)0x2003, count, type, op, ranks[0], NULL);
}

static const struct strait_request *newest(void)
{
	return &fake.events[fake.n_events - 1].request;
}

static void test_request_carries_the_call_as_it_was_made(void **state)
{
	CUstream stream = fake_stream(NULL);
	size_t beyond_4g = ((size_t)1 << 32) + 5;

	for (int type = 0; type < STRAIT_N_TYPES; type++)
		for (int op = 0; op < STRAIT_NCCL_N_OPS; op++) {
			assert_int_equal(ncclAllReduce((void *)0x1001, (void *)0x2003, beyond_4g,
						       type, op, ranks[0], stream),
					 0);
			assert_int_equal(newest()->collective, STRAIT_ALLREDUCE);
			assert_int_equal(newest()->type, type);
			assert_int_equal(newest()->reduction.kind, op);
			assert_int_equal(newest()->count, beyond_4g);
			assert_ptr_equal(newest()->send, (void *)0x1001);
			assert_ptr_equal(newest()->recv, (void *)0x2003);
			assert_ptr_equal(newest()->stream, stream);
		}
	free(stream);
}

static void test_nothing_is_issued_for_no_elements_but_it_is_checked(void **state)
{
	assert_int_equal(all_reduce(STRAIT_FLOAT32, STRAIT_SUM, 0), 0);
	assert_int_equal(fake.n_events, 0);
	assert_int_equal(all_reduce(99, STRAIT_SUM, 0), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(ncclAllReduce(NULL, NULL, 0, 7, 0, NULL, NULL),
			 STRAIT_NCCL_INVALID_ARGUMENT);
}

static void test_bad_values_are_named(void **state)
{
	assert_int_equal(all_reduce(12, STRAIT_SUM, 4), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_string_equal(ncclGetLastError(NULL), "AllReduce : invalid type 12");
	assert_int_equal(all_reduce(-1, STRAIT_SUM, 4), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(all_reduce(STRAIT_FLOAT32, 5, 4), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_string_equal(ncclGetLastError(NULL), "AllReduce : invalid reduction operation 5");
	assert_int_equal(all_reduce(STRAIT_FLOAT32, -1, 4), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(all_reduce(STRAIT_FLOAT32, INT_MAX, 4), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(all_reduce(STRAIT_FLOAT64, STRAIT_SUM, (size_t)-1),
			 STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(ncclBroadcast(NULL, NULL, 4, 7, 2, ranks[0], NULL),
			 STRAIT_NCCL_INVALID_ARGUMENT);
	assert_string_equal(ncclGetLastError(NULL),
			    "Broadcast : invalid root 2 (root should be in the 0..2 range)");
	assert_int_equal(ncclSend(NULL, 4, 7, -1, ranks[0], NULL), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(fake.n_events, 0);
	assert_int_equal(all_reduce(STRAIT_FLOAT32, STRAIT_SUM, 4), 0);
}

static void test_host_scalar_is_copied_when_the_operator_is_made(void **state)
{
	uint16_t scalar = 0x3f00;
	int op;

	assert_int_equal(ncclRedOpCreatePreMulSum(&op, &scalar, STRAIT_BFLOAT16,
						  STRAIT_NCCL_SCALAR_HOST, ranks[0]),
			 0);
	scalar = 0;
	assert_int_equal(all_reduce(STRAIT_BFLOAT16, op, 4), 0);
	assert_int_equal(newest()->reduction.kind, STRAIT_PREMULSUM);
	assert_int_equal(newest()->reduction.scalar_bits, 0x3f00);
	assert_null(newest()->reduction.scalar_device);
	assert_int_equal(ncclRedOpDestroy(op, ranks[0]), 0);
}

static void test_device_scalar_is_kept_as_a_pointer(void **state)
{
	int op;

	assert_int_equal(ncclRedOpCreatePreMulSum(&op, (void *)0x77000, STRAIT_FLOAT32,
						  STRAIT_NCCL_SCALAR_DEVICE, ranks[0]),
			 0);
	assert_int_equal(all_reduce(STRAIT_FLOAT32, op, 4), 0);
	assert_ptr_equal(newest()->reduction.scalar_device, (void *)0x77000);
	assert_int_equal(ncclRedOpDestroy(op, ranks[0]), 0);
}

static void test_operator_may_be_destroyed_before_the_group_ends(void **state)
{
	float scalar = 2;
	uint32_t bits;
	int op;

	memcpy(&bits, &scalar, sizeof(bits));
	assert_int_equal(ncclGroupStart(), 0);
	assert_int_equal(ncclRedOpCreatePreMulSum(&op, &scalar, STRAIT_FLOAT32,
						  STRAIT_NCCL_SCALAR_HOST, ranks[0]),
			 0);
	assert_int_equal(all_reduce(STRAIT_FLOAT32, op, 4), 0);
	assert_int_equal(ncclRedOpDestroy(op, ranks[0]), 0);
	assert_int_equal(ncclGroupEnd(), 0);
	assert_int_equal(newest()->reduction.scalar_bits, bits);
	assert_int_equal(all_reduce(STRAIT_FLOAT32, op, 4), STRAIT_NCCL_INVALID_ARGUMENT);
}

static void test_operator_of_another_type_or_communicator_is_refused(void **state)
{
	float scalar = 2;
	int op;

	assert_int_equal(ncclRedOpCreatePreMulSum(&op, &scalar, STRAIT_FLOAT32,
						  STRAIT_NCCL_SCALAR_HOST, ranks[0]),
			 0);
	assert_int_equal(all_reduce(STRAIT_FLOAT64, op, 4), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_string_equal(ncclGetLastError(NULL),
			    "Data type supplied to user-created ncclRedOp_t does not match "
			    "type given to reduction operation");
	assert_int_equal(ncclAllReduce(NULL, NULL, 4, STRAIT_FLOAT32, op, ranks[1], NULL),
			 STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(ncclRedOpDestroy(op, ranks[1]), STRAIT_NCCL_INVALID_ARGUMENT);
	assert_string_equal(ncclGetLastError(NULL),
			    "ncclRedOpDestroy : operator unknown to this communicator.");
	assert_int_equal(ncclRedOpDestroy(op, ranks[0]), 0);
	assert_int_equal(ncclRedOpDestroy(op, ranks[0]), STRAIT_NCCL_INVALID_ARGUMENT);
}

static void test_bad_operators_are_not_made(void **state)
{
	float scalar = 2;
	int op = 77;

	assert_int_equal(
		ncclRedOpCreatePreMulSum(&op, &scalar, 12, STRAIT_NCCL_SCALAR_HOST, ranks[0]),
		STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(ncclRedOpCreatePreMulSum(&op, &scalar, STRAIT_FLOAT32, 2, ranks[0]),
			 STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(ncclRedOpCreatePreMulSum(&op, NULL, STRAIT_FLOAT32, 1, ranks[0]),
			 STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(ncclRedOpCreatePreMulSum(NULL, &scalar, STRAIT_FLOAT32, 1, ranks[0]),
			 STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(op, 77);
}

static void test_operations_without_a_native_path_say_so_and_are_counted(void **state)
{
	char *text = NULL;
	size_t bytes;
	FILE *file;

	assert_int_equal(ncclAllGather(NULL, NULL, 256, STRAIT_FLOAT32, ranks[0], NULL),
			 STRAIT_NCCL_INVALID_USAGE);
	assert_non_null(strstr(ncclGetLastError(NULL), "ncclAllGather: Strait has no native path"));
	assert_int_equal(ncclBcast(NULL, 4, STRAIT_FLOAT32, 0, ranks[0], NULL),
			 STRAIT_NCCL_INVALID_USAGE);
	assert_non_null(strstr(ncclGetLastError(NULL), "ncclBroadcast: "));
	assert_int_equal(ncclCommSplit(ranks[0], 0, 0, &ranks[1], NULL), STRAIT_NCCL_INVALID_USAGE);
	assert_int_equal(all_reduce(STRAIT_FLOAT32, STRAIT_SUM, 256), 0);
	file = open_memstream(&text, &bytes);
	strait_report_print(file);
	fclose(file);
	assert_non_null(
		strstr(text, "AllGather\t1024\t2047\trefused: no native path, no real NCCL\t1\n"));
	assert_non_null(strstr(text, "AllReduce\t1024\t2047\tfake path\t1\n"));
	free(text);
}

static void test_default_answers_are_harmless(void **state)
{
	const struct strait_nccl_team team = ncclTeamWorld(ranks[0]);
	const struct strait_nccl_id id = {{0}};
	struct ncclComm *comm = NULL;

	assert_int_equal(team.n_ranks, 0);
	assert_int_equal(ncclTeamRankToWorld(ranks[0], team, 0), -1);
	ncclParamDumpAll();
	assert_int_equal(ncclCommGrow(NULL, 2, &id, -1, &comm, NULL), STRAIT_NCCL_INVALID_USAGE);
	assert_non_null(strstr(ncclGetLastError(NULL), "ncclCommGrow: Strait has no native path"));
}

static void test_registration_succeeds_and_gives_nothing_to_hold(void **state)
{
	void *handle = (void *)0x55, *window = (void *)0x55;
	void *buffer = (void *)0x4000;

	assert_int_equal(ncclCommRegister(ranks[0], buffer, 4096, &handle), 0);
	assert_null(handle);
	assert_int_equal(ncclCommDeregister(ranks[0], handle), 0);
	assert_int_equal(ncclCommDeregister(ranks[0], (void *)0x55), STRAIT_NCCL_INVALID_USAGE);
	assert_string_equal(ncclGetLastError(NULL), "Deregister: Could not find handle");
	assert_int_equal(ncclCommWindowRegister(ranks[0], NULL, 4096, &window, 1), 0);
	assert_ptr_equal(window, (void *)0x55);
	assert_int_equal(ncclCommWindowRegister(ranks[0], (char *)buffer + 8, 4096, &window, 1),
			 STRAIT_NCCL_INVALID_ARGUMENT);
	assert_int_equal(ncclCommWindowRegister(ranks[0], buffer, 4096, &window, 1), 0);
	assert_null(window);
	assert_int_equal(ncclCommWindowDeregister(ranks[0], window), 0);
	assert_int_equal(ncclCommWindowRegister(NULL, buffer, 4096, &window, 1),
			 STRAIT_NCCL_INVALID_ARGUMENT);
}

static int check_pointers(void)
{
	char host[8], here[8], there[8], unknown[8];
	struct ncclComm *comm;
	struct strait_nccl_id id;

	fake_reset();
	fake_know_pointer(host, -1);
	fake_know_pointer(here, 0);
	fake_know_pointer(there, 1);
	fake_set_current(fake_primary(0));
	if (ncclGetUniqueId(&id) || ncclCommInitRank(&comm, 1, id, 0))
		return 1;
#define CALL(send, recv) ncclAllReduce(send, recv, 1, STRAIT_FLOAT32, STRAIT_SUM, comm, NULL)
	if (CALL(here, here) || CALL(host, here))
		return 2;
	if (CALL(unknown, here) != STRAIT_NCCL_INVALID_ARGUMENT ||
	    !strstr(ncclGetLastError(NULL), "AllReduce : sendbuff 0x") ||
	    !strstr(ncclGetLastError(NULL), " is not a valid pointer"))
		return 3;
	if (CALL(here, there) != STRAIT_NCCL_INVALID_ARGUMENT ||
	    strcmp(ncclGetLastError(NULL),
		   "AllReduce : recvbuff allocated on device 1 mismatchs with NCCL device 0"))
		return 4;
	return CALL(here, NULL) == STRAIT_NCCL_INVALID_ARGUMENT ? 0 : 5;
#undef CALL
}

static void test_pointers_are_checked_where_that_is_asked_for(void **state)
{
	const char *const settings[] = {"NCCL_CHECK_POINTERS", "1", NULL};
	char text[256];

	assert_int_equal(child_run(check_pointers, settings, text, sizeof(text)), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_two, destroy_two)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pointers_are_checked_where_that_is_asked_for), /* first: reads
											variables */
		TEST(test_request_carries_the_call_as_it_was_made),
		TEST(test_nothing_is_issued_for_no_elements_but_it_is_checked),
		TEST(test_bad_values_are_named),
		TEST(test_host_scalar_is_copied_when_the_operator_is_made),
		TEST(test_device_scalar_is_kept_as_a_pointer),
		TEST(test_operator_may_be_destroyed_before_the_group_ends),
		TEST(test_operator_of_another_type_or_communicator_is_refused),
		TEST(test_bad_operators_are_not_made),
		TEST(test_operations_without_a_native_path_say_so_and_are_counted),
		TEST(test_default_answers_are_harmless),
		TEST(test_registration_succeeds_and_gives_nothing_to_hold),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
