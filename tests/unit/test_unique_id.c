/* SPDX-License-Identifier: Apache-2.0 */
/* Unique ids: what is written is read back, and nothing else passes for an id. */
#include "channels/unique_id.h"
#include "strait/status.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static const struct strait_address root = {.family = 4, .port = 4567, .ip = {10, 1, 2, 3}};
static const uint8_t nonce[STRAIT_NONCE_BYTES] = "0123456789abcde";
static uint8_t id[STRAIT_ID_BYTES];

static int write_id(void **state)
{
	memset(id, 0xaa, sizeof(id));
	strait_unique_id_write(&root, nonce, 0, id);
	return 0;
}

static void assert_refused(const char *reason)
{
	assert_int_equal(strait_bootstrap_id_check(id), STRAIT_ERROR_ARGUMENT);
	if (!strstr(strait_status_message(), reason))
		fail_msg("\"%s\" is not in \"%s\"", reason, strait_status_message());
}

static void test_id_is_read_as_it_was_written(void **state)
{
	struct strait_unique_id read;

	assert_int_equal(strait_unique_id_read(id, &read), 0);
	assert_memory_equal(&read.root, &root, sizeof(root));
	assert_memory_equal(read.nonce, nonce, sizeof(nonce));
	assert_int_equal(read.flags, 0);
	assert_int_equal(strait_bootstrap_id_check(id), 0);
}

/* NCCL's own ids keep their address there. */
static void test_first_half_of_an_id_is_zero(void **state)
{
	static const uint8_t zero[64];

	assert_memory_equal(id, zero, sizeof(zero));
}

static void test_no_byte_of_an_id_can_change_unnoticed(void **state)
{
	for (size_t i = 0; i < sizeof(id); i++) {
		for (int bit = 0; bit < 8; bit++) {
			id[i] ^= (uint8_t)(1 << bit);
			assert_int_equal(strait_bootstrap_id_check(id), STRAIT_ERROR_ARGUMENT);
			id[i] ^= (uint8_t)(1 << bit);
		}
	}
	assert_int_equal(strait_bootstrap_id_check(id), 0);
}

static void test_each_kind_of_foreign_id_is_told_apart(void **state)
{
	memset(id, 0, sizeof(id));
	assert_refused("all zero");
	/* as NCCL makes them: a number, a socket address, zeros */
	memcpy(id, "\x12\x34\x56\x78\x9a\xbc\xde\xf0\x02\x00\x1f\x90\x0a\x00\x00\x01", 16);
	assert_refused("another library");
	write_id(state);
	id[0] = 1;
	assert_refused("beside NCCL");
	write_id(state);
	id[80] ^= 1;
	assert_refused("damaged");
	write_id(state);
	id[72] ^= 2; /* the version */
	assert_refused("version");
}

static void test_ids_of_a_process_differ(void **state)
{
	uint8_t other[STRAIT_ID_BYTES];

	assert_int_equal(strait_bootstrap_id_create(id), 0);
	assert_int_equal(strait_bootstrap_id_create(other), 0);
	assert_memory_not_equal(id, other, sizeof(id));
	assert_int_equal(strait_bootstrap_id_check(id), 0);
	assert_int_equal(strait_bootstrap_id_check(other), 0);
}

static void test_build_hash_is_the_same_each_time_and_not_zero(void **state)
{
	assert_true(strait_build_hash() != 0);
	assert_true(strait_build_hash() == strait_build_hash());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_id_is_read_as_it_was_written, write_id),
		cmocka_unit_test_setup(test_first_half_of_an_id_is_zero, write_id),
		cmocka_unit_test_setup(test_no_byte_of_an_id_can_change_unnoticed, write_id),
		cmocka_unit_test_setup(test_each_kind_of_foreign_id_is_told_apart, write_id),
		cmocka_unit_test_setup(test_ids_of_a_process_differ, write_id),
		cmocka_unit_test(test_build_hash_is_the_same_each_time_and_not_zero),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
