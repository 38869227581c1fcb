/* SPDX-License-Identifier: Apache-2.0 */
/* Environment variables: defaults, values of each type, bad values, the hash that ranks compare. */
#include "tests/unit/child.h"

#include <stdbool.h>

#include "strait/log.h"
#include "strait/params.h"

static int check_defaults(void)
{
	const struct strait_params *params = strait_params();
	const struct strait_params defaults = {
#define PARAM_BOOL(field, variable, fallback, text) .field = fallback,
#define PARAM_INT(field, variable, fallback, minimum, maximum, text) .field = fallback,
#define PARAM_SIZE(field, variable, fallback, minimum, maximum, text) .field = fallback,
#define PARAM_STRING(field, variable, fallback, text) .field = fallback,
#include "base/params.def"
#undef PARAM_BOOL
#undef PARAM_INT
#undef PARAM_SIZE
#undef PARAM_STRING
	};
	bool equal = true;

#define PARAM_BOOL(field, variable, fallback, text) equal &= params->field == defaults.field;
#define PARAM_INT(field, variable, fallback, minimum, maximum, text) \
	equal &= params->field == defaults.field;
#define PARAM_SIZE PARAM_INT
#define PARAM_STRING PARAM_BOOL
#include "base/params.def"
#undef PARAM_BOOL
#undef PARAM_INT
#undef PARAM_SIZE
#undef PARAM_STRING
	return equal ? 0 : 1;
}

static void test_unset_and_empty_variables_give_defaults(void **state)
{
	const char *const settings[] = {
#define PARAM_BOOL(field, variable, fallback, text) variable, "",
#define PARAM_INT(field, variable, fallback, minimum, maximum, text) variable, "",
#define PARAM_SIZE PARAM_INT
#define PARAM_STRING PARAM_BOOL
#include "base/params.def"
#undef PARAM_BOOL
#undef PARAM_INT
#undef PARAM_SIZE
#undef PARAM_STRING
		NULL};
	char text[4096];

	assert_int_equal(child_run(check_defaults, NULL, text, sizeof(text)), 0);
	assert_string_equal(text, "");
	assert_int_equal(child_run(check_defaults, settings, text, sizeof(text)), 0);
	assert_string_equal(text, "");
}

static void test_defaults_lie_within_their_limits(void **state)
{
#define PARAM_BOOL(field, variable, fallback, text) assert_true((fallback) == 0 || (fallback) == 1);
#define PARAM_INT(field, variable, fallback, minimum, maximum, text) \
	assert_true((fallback) >= (minimum) && (fallback) <= (maximum));
#define PARAM_SIZE PARAM_INT
#define PARAM_STRING(field, variable, fallback, text)
#include "base/params.def"
#undef PARAM_BOOL
#undef PARAM_INT
#undef PARAM_SIZE
#undef PARAM_STRING
}

static int check_given_values(void)
{
	const struct strait_params *params = strait_params();

	if (!params->multi_rank_gpu || params->bootstrap_timeout_s != 7)
		return 1;
	if (params->comm_blocking != -1 || params->scratch_bytes != UINT64_C(3) << 20)
		return 2;
	if (!params->algorithm || strcmp(params->algorithm, "a b"))
		return 3;
	return 0;
}

static void test_each_type_is_read(void **state)
{
	const char *const settings[] = {"NCCL_MULTI_RANK_GPU_ENABLE",
					"1",
					"STRAIT_BOOTSTRAP_TIMEOUT",
					"0x7",
					"NCCL_COMM_BLOCKING",
					"-1",
					"STRAIT_SCRATCH_SIZE",
					"3M",
					"STRAIT_ALGORITHM",
					"a b",
					NULL};
	char text[4096];

	assert_int_equal(child_run(check_given_values, settings, text, sizeof(text)), 0);
	assert_string_equal(text, "");
}

static uint64_t wanted_size;

static int check_size(void)
{
	return strait_params()->scratch_bytes == wanted_size ? 0 : 1;
}

static void size_is(const char *value, uint64_t bytes)
{
	const char *const settings[] = {"STRAIT_SCRATCH_SIZE", value, NULL};
	char text[4096];

	wanted_size = bytes;
	assert_int_equal(child_run(check_size, settings, text, sizeof(text)), 0);
	assert_string_equal(text, "");
}

static void test_size_suffixes_are_powers_of_1024(void **state)
{
	size_is("1048576", 1 << 20);
	size_is("2048k", 2 << 20);
	size_is("64M", 64 << 20);
	size_is("1g", 1 << 30);
}

/* A value that is refused: one warning that names it, and the defaults. */
static void refused(const char *variable, const char *value)
{
	const char *const settings[] = {variable, value, NULL};
	char text[4096], wanted[256];

	assert_int_equal(child_run(check_defaults, settings, text, sizeof(text)), 0);
	snprintf(wanted, sizeof(wanted), " STRAIT WARN ENV: %s=%s is n", variable, value);
	assert_int_equal(count_lines(text), 1);
	assert_non_null(strstr(text, wanted));
}

static void test_bad_value_warns_once_and_keeps_the_default(void **state)
{
	refused("NCCL_P2P_DISABLE", "yes");
	refused("NCCL_P2P_DISABLE", "2");
	refused("STRAIT_BOOTSTRAP_TIMEOUT", "0");
	refused("STRAIT_BOOTSTRAP_TIMEOUT", "5s");
	refused("STRAIT_BOOTSTRAP_TIMEOUT", "99999999999999999999");
	refused("STRAIT_SCRATCH_SIZE", "32T");
	refused("STRAIT_SCRATCH_SIZE", "32MB");
	refused("STRAIT_SCRATCH_SIZE", "-1");
	refused("STRAIT_SCRATCH_SIZE", "M");
	refused("STRAIT_SCRATCH_SIZE", "9223372036854775807G");
}

static int log_before_params(void)
{
	strait_warn(INIT, "first");
	return check_defaults();
}

static void test_bad_value_is_told_even_when_the_log_comes_first(void **state)
{
	const char *const settings[] = {"NCCL_P2P_DISABLE", "yes", NULL};
	char text[4096];

	assert_int_equal(child_run(log_before_params, settings, text, sizeof(text)), 0);
	assert_int_equal(count_lines(text), 2);
}

static int change_environment(void)
{
	const struct strait_params *params = strait_params();
	uint64_t hash = strait_params_hash();
	char *in_environment = getenv("STRAIT_ALGORITHM");

	in_environment[0] = 'X';
	setenv("STRAIT_ALGORITHM", "other", 1);
	return strcmp(strait_params()->algorithm, "mine") == 0 && params == strait_params() &&
			       hash == strait_params_hash()
		       ? 0
		       : 1;
}

static void test_later_changes_of_the_environment_are_not_seen(void **state)
{
	const char *const settings[] = {"STRAIT_ALGORITHM", "mine", NULL};
	char text[4096];

	assert_int_equal(child_run(change_environment, settings, text, sizeof(text)), 0);
}

static int print_hash(void)
{
	fprintf(stderr, "%016llx", (unsigned long long)strait_params_hash());
	return 0;
}

static uint64_t hash_with(const char *variable, const char *value)
{
	const char *const settings[] = {variable, value, NULL};
	char text[4096];

	assert_int_equal(child_run(print_hash, settings, text, sizeof(text)), 0);
	assert_int_equal(strlen(text), 16);
	return strtoull(text, NULL, 16);
}

static void test_hash_follows_agreed_variables_only(void **state)
{
	uint64_t plain = hash_with("STRAIT_HOSTID", "");

	assert_true(plain == hash_with("STRAIT_HOSTID", "me"));
	assert_true(plain == hash_with("STRAIT_SCRATCH_SIZE", "30720K"));
	assert_true(plain == hash_with("NCCL_P2P_DISABLE", "0"));
	assert_true(plain != hash_with("NCCL_P2P_DISABLE", "1"));
	assert_true(plain != hash_with("STRAIT_SCRATCH_SIZE", "16M"));
	assert_true(plain != hash_with("STRAIT_ALGORITHM", "x"));
	assert_true(hash_with("NCCL_ALGO", "x") != hash_with("NCCL_PROTO", "x"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unset_and_empty_variables_give_defaults),
		cmocka_unit_test(test_defaults_lie_within_their_limits),
		cmocka_unit_test(test_each_type_is_read),
		cmocka_unit_test(test_size_suffixes_are_powers_of_1024),
		cmocka_unit_test(test_bad_value_warns_once_and_keeps_the_default),
		cmocka_unit_test(test_bad_value_is_told_even_when_the_log_comes_first),
		cmocka_unit_test(test_later_changes_of_the_environment_are_not_seen),
		cmocka_unit_test(test_hash_follows_agreed_variables_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
