/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict on who may form a communicator, and the limits of grids that follow. */
#include "algorithms/setup.h"
#include "strait/status.h"
#include "tests/unit/child.h"

static struct strait_member members[STRAIT_MAX_RANKS];
static struct strait_limits limits;

/* n ranks with a GPU of their own each, on one host. */
static void make_members(int n)
{
	memset(members, 0, sizeof(members));
	for (int i = 0; i < n; i++) {
		members[i] = (struct strait_member){.host = 1,
						    .process = (uint64_t)i,
						    .parameters = 2,
						    .n_multiprocessors = 132,
						    .max_threads = 1024};
		members[i].uuid[3] = (unsigned char)i;
		snprintf(members[i].bus_id, sizeof(members[i].bus_id), "0000:%02x:00.0", i);
	}
}

static int check_members(int n)
{
	return strait_members_check(members, n, &limits);
}

static void test_equal_members_get_the_largest_grids(void **state)
{
	for (int n = 1; n <= STRAIT_MAX_RANKS; n++) {
		make_members(n);
		assert_int_equal(check_members(n), 0);
		assert_int_equal(limits.n_ranks, n);
		assert_int_equal(limits.max_blocks, STRAIT_MAX_BLOCKS);
		assert_int_equal(limits.max_threads, 1024);
	}
}

static void test_any_two_ranks_on_one_gpu_are_refused_by_name(void **state)
{
	enum { N = 4 };

	for (int a = 0; a < N; a++)
		for (int b = a + 1; b < N; b++) {
			char words[64];

			make_members(N);
			memcpy(members[b].uuid, members[a].uuid, sizeof(members[a].uuid));
			assert_int_equal(check_members(N), STRAIT_ERROR_USAGE);
			snprintf(words, sizeof(words), "rank %d and rank %d both on CUDA device %s",
				 a, b, members[a].bus_id);
			assert_non_null(strstr(strait_status_message(), words));
		}
}

static void test_other_host_is_refused_and_is_no_duplicate(void **state)
{
	make_members(3);
	members[2].host = 9;
	memcpy(members[2].uuid, members[0].uuid, sizeof(members[0].uuid));
	assert_int_equal(check_members(3), STRAIT_ERROR_USAGE);
	assert_non_null(strstr(strait_status_message(), "different hosts"));
	assert_non_null(strstr(strait_status_message(), "STRAIT_HOSTID"));
}

static void test_other_settings_are_refused(void **state)
{
	for (int odd = 0; odd < 3; odd++) {
		make_members(3);
		members[odd].parameters = 77;
		assert_int_equal(check_members(3), STRAIT_ERROR_USAGE);
		assert_non_null(strstr(strait_status_message(), "different settings"));
	}
}

static void test_refusal_leaves_the_limits_alone(void **state)
{
	make_members(2);
	members[1].host = 9;
	limits = (struct strait_limits){.n_ranks = 99, .max_blocks = 77};
	assert_true(check_members(2) < 0);
	assert_int_equal(limits.n_ranks, 99);
	assert_int_equal(limits.max_blocks, 77);
}

static void test_smallest_of_all_ranks_limits_every_grid(void **state)
{
	for (int small = 0; small < 3; small++) {
		make_members(3);
		members[small].n_multiprocessors = 5;
		assert_int_equal(check_members(3), 0);
		assert_int_equal(limits.max_blocks, 5);

		make_members(3);
		members[small].max_blocks = 3;
		members[(small + 1) % 3].max_blocks = 8;
		assert_int_equal(check_members(3), 0);
		assert_int_equal(limits.max_blocks, 3);

		make_members(3);
		members[small].max_threads = 64;
		assert_int_equal(check_members(3), 0);
		assert_int_equal(limits.max_threads, 64);
	}
}

/* So many communicators of all ranks of a GPU at once, a multiprocessor for each block. */
static int check_shared(unsigned n_communicators)
{
	for (int n = 2; n <= 8; n++) {
		const unsigned n_grids = n_communicators * (unsigned)n;

		make_members(n + 1);
		for (int i = 1; i < n; i++)
			memcpy(members[i].uuid, members[0].uuid, sizeof(members[0].uuid));
		for (int i = 0; i < n; i++)
			members[i].n_multiprocessors = 40;
		if (check_members(n + 1))
			return 1;
		if (limits.max_blocks * n_grids > 40 || limits.max_blocks < 1)
			return 2;
		if ((limits.max_blocks + 1) * n_grids <= 40)
			return 3; /* more would fit */
	}
	members[0].n_multiprocessors = 1;
	return check_members(9) || limits.max_blocks != 1 ? 4 : 0;
}

static int check_two_communicators(void)
{
	return check_shared(2);
}

static int check_one_communicator(void)
{
	return check_shared(1);
}

static void test_ranks_of_a_shared_gpu_leave_room_for_a_second_communicator(void **state)
{
	char text[512];

	assert_int_equal(child_run(check_two_communicators,
				   (const char *const[]){"NCCL_MULTI_RANK_GPU_ENABLE", "1", NULL},
				   text, sizeof(text)),
			 0);
}

static void test_room_on_a_shared_gpu_is_the_users_choice(void **state)
{
	const char *const settings[] = {"NCCL_MULTI_RANK_GPU_ENABLE", "1",
					"STRAIT_SHARED_GPU_COMMUNICATORS", "1", NULL};
	char text[512];

	assert_int_equal(child_run(check_one_communicator, settings, text, sizeof(text)), 0);
}

static int check_most_ctas(void)
{
	make_members(4);
	if (check_members(4) || limits.max_blocks != 7)
		return 1;
	members[3].max_blocks = 6;
	return check_members(4) || limits.max_blocks != 6 ? 2 : 0;
}

static void test_users_limit_of_grids_is_kept(void **state)
{
	char text[512];

	assert_int_equal(child_run(check_most_ctas,
				   (const char *const[]){"NCCL_MAX_CTAS", "7", NULL}, text,
				   sizeof(text)),
			 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranks_of_a_shared_gpu_leave_room_for_a_second_communicator),
		cmocka_unit_test(test_room_on_a_shared_gpu_is_the_users_choice),
		cmocka_unit_test(test_users_limit_of_grids_is_kept),
		cmocka_unit_test(test_equal_members_get_the_largest_grids),
		cmocka_unit_test(test_any_two_ranks_on_one_gpu_are_refused_by_name),
		cmocka_unit_test(test_other_host_is_refused_and_is_no_duplicate),
		cmocka_unit_test(test_other_settings_are_refused),
		cmocka_unit_test(test_refusal_leaves_the_limits_alone),
		cmocka_unit_test(test_smallest_of_all_ranks_limits_every_grid),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
