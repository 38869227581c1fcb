/* SPDX-License-Identifier: Apache-2.0 */
/* A caller's configuration is read by its own size and version, and refused in NCCL's words. */
#include "tests/unit/child.h"

#include "shim/config.h"
#include "strait/status.h"

/* Sizes and versions of the releases' headers. */
static const struct {
	size_t size;
	unsigned version;
} releases[] = {{24, 21400}, {40, 21700}, {48, 21800}, {48, 22600}, {72, 22700},
		{80, 22809}, {88, 22902}, {96, 23003}, {96, 23007}, {112, 23102}};

static struct strait_nccl_config *new_config(void *at, size_t size, unsigned version)
{
	struct strait_nccl_config *config = at;
	char *fields = (char *)at + offsetof(struct strait_nccl_config, blocking);

	/* Every int undefined, every pointer NULL. */
	for (size_t i = 0; i + 16 + sizeof(int) <= size; i += sizeof(int)) {
		int undefined = STRAIT_NCCL_UNDEFINED;
		memcpy(fields + i, &undefined, sizeof(undefined));
	}
	if (size >= 40)
		config->net_name = NULL;
	if (size >= 56)
		config->comm_name = NULL;
	config->size = size;
	config->magic = STRAIT_NCCL_CONFIG_MAGIC;
	config->version = version;
	return config;
}

static void test_no_configuration_gives_the_defaults(void **state)
{
	struct strait_config parsed;

	assert_int_equal(strait_config_parse(NULL, &parsed), 0);
	assert_true(parsed.blocking);
	assert_int_equal(parsed.max_blocks, 0);
	assert_null(parsed.name);
}

static void test_struct_of_each_release_may_end_at_an_unmapped_page(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *pages =
		mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(pages, MAP_FAILED);
	assert_int_equal(munmap(pages + page, page), 0);
	for (size_t i = 0; i < sizeof(releases) / sizeof(releases[0]); i++) {
		struct strait_nccl_config *config = new_config(
			pages + page - releases[i].size, releases[i].size, releases[i].version);
		struct strait_config parsed;

		config->blocking = 0;
		assert_int_equal(strait_config_parse(config, &parsed), 0);
		assert_false(parsed.blocking);
		strait_config_deinit(&parsed);
	}
	munmap(pages, page);
}

static void test_header_alone_is_enough(void **state)
{
	struct strait_nccl_config config = {
		.size = 16, .magic = STRAIT_NCCL_CONFIG_MAGIC, .version = 22809};
	struct strait_config parsed;

	assert_int_equal(strait_config_parse(&config, &parsed), 0);
	assert_true(parsed.blocking);
}

static void test_wrong_magic_is_refused(void **state)
{
	struct strait_nccl_config config = {
		.size = sizeof(config), .magic = 0xdeadbeef, .version = 22809};
	struct strait_config parsed;

	assert_int_equal(strait_config_parse(&config, &parsed), STRAIT_ERROR_ARGUMENT);
	assert_string_equal(strait_status_message(),
			    "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
}

static void test_limit_of_blocks_and_name_are_taken(void **state)
{
	struct strait_nccl_config config;
	struct strait_config parsed;
	char name[] = "pipeline";

	new_config(&config, sizeof(config), 22809);
	config.max_ctas = 7;
	config.comm_name = name;
	assert_int_equal(strait_config_parse(&config, &parsed), 0);
	name[0] = 'X'; /* the caller may reuse his string */
	assert_int_equal(parsed.max_blocks, 7);
	assert_string_equal(parsed.name, "pipeline");
	strait_config_deinit(&parsed);
}

static void test_fields_newer_than_the_callers_header_are_not_read(void **state)
{
	struct strait_nccl_config config;
	struct strait_config parsed;

	/* The memory is there, and full of nonsense, but the header did not know it. */
	memset(&config, 0x7f, sizeof(config));
	config.size = sizeof(config);
	config.magic = STRAIT_NCCL_CONFIG_MAGIC;
	config.version = 21400;
	config.blocking = 1;
	assert_int_equal(strait_config_parse(&config, &parsed), 0);
	assert_int_equal(parsed.max_blocks, 0);
	assert_null(parsed.name);
}

static void test_values_out_of_range_are_refused_by_name(void **state)
{
	static const struct {
		size_t offset;
		int value;
		const char *message;
	} rows[] = {
#define ROW(field, value, message) \
	{offsetof(struct strait_nccl_config, field), value, "Invalid config " message}
		ROW(blocking, 2, "blocking attribute value 2"),
		ROW(cga_cluster_size, -1, "cgaClusterSize attribute value -1"),
		ROW(min_ctas, 0, "min/max channels attribute value 0/-2147483648"),
		ROW(max_ctas, -5, "min/max channels attribute value -2147483648/-5"),
		ROW(split_share, 3, "splitShare attribute value 3"),
		ROW(collnet_enable, 2, "collnetEnable attribute value 2"),
		ROW(cta_policy, 4, "policy attribute value 4"),
		ROW(shrink_share, -2, "shrinkShare attribute value -2"),
		ROW(nvls_ctas, 0, "nvlsCTAs attribute value 0"),
		ROW(n_channels_per_net_peer, 0, "nChannelsPerNetPeer attribute value 0"),
		ROW(nvlink_centric_sched, 9, "nvlinkCentricSched attribute value 9"),
#undef ROW
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct strait_nccl_config config;
		struct strait_config parsed;

		new_config(&config, sizeof(config), 22809);
		memcpy((char *)&config + rows[i].offset, &rows[i].value, sizeof(int));
		assert_int_equal(strait_config_parse(&config, &parsed), STRAIT_ERROR_ARGUMENT);
		assert_string_equal(strait_status_message(), rows[i].message);
	}
}

static void test_minimum_above_maximum_is_refused(void **state)
{
	struct strait_nccl_config config;
	struct strait_config parsed;

	new_config(&config, sizeof(config), 22809);
	config.min_ctas = 4;
	assert_int_equal(strait_config_parse(&config, &parsed), 0);
	strait_config_deinit(&parsed);
	config.max_ctas = 3;
	assert_int_equal(strait_config_parse(&config, &parsed), STRAIT_ERROR_ARGUMENT);
	config.max_ctas = 4;
	assert_int_equal(strait_config_parse(&config, &parsed), 0);
}

static int parse_against_environment(void)
{
	struct strait_nccl_config config;
	struct strait_config parsed;

	new_config(&config, sizeof(config), 22809);
	config.blocking = 1;
	config.max_ctas = 7;
	if (strait_config_parse(&config, &parsed))
		return 1;
	if (parsed.blocking || parsed.max_blocks != 3)
		return 2;
	return strait_config_parse(NULL, &parsed) || parsed.blocking || parsed.max_blocks != 3 ? 3
											       : 0;
}

static void test_environment_wins_over_the_struct(void **state)
{
	const char *const settings[] = {"NCCL_COMM_BLOCKING", "0", "NCCL_MAX_CTAS", "3", NULL};
	char text[256];

	assert_int_equal(child_run(parse_against_environment, settings, text, sizeof(text)), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* Before any test reads the variables in this process. */
		cmocka_unit_test(test_environment_wins_over_the_struct),
		cmocka_unit_test(test_no_configuration_gives_the_defaults),
		cmocka_unit_test(test_struct_of_each_release_may_end_at_an_unmapped_page),
		cmocka_unit_test(test_header_alone_is_enough),
		cmocka_unit_test(test_wrong_magic_is_refused),
		cmocka_unit_test(test_limit_of_blocks_and_name_are_taken),
		cmocka_unit_test(test_fields_newer_than_the_callers_header_are_not_read),
		cmocka_unit_test(test_values_out_of_range_are_refused_by_name),
		cmocka_unit_test(test_minimum_above_maximum_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
