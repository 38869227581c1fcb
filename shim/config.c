/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of the fields of ncclConfig_t that NCCL checks. A field counts if the caller's struct is
 * long enough and his header new enough to know it (a field may fill what was padding before).
 */
#include "shim/config.h"

#include <stdlib.h>
#include <string.h>

#include "strait/params.h"
#include "strait/status.h"

struct field {
	size_t offset;
	unsigned since; /* version code of the first header that has it */
	int minimum, maximum;
	const char *name; /* in NCCL's message; NULL: checked elsewhere */
};

#define AT(name) offsetof(struct strait_nccl_config, name)
enum { ANY = INT_MAX, POLICY_BITS = 3 };

static const struct field blocking = {AT(blocking), 21400, 0, 1, "blocking"};
static const struct field cga = {AT(cga_cluster_size), 21700, 0, ANY, "cgaClusterSize"};
static const struct field min_ctas = {AT(min_ctas), 21700, 1, ANY, NULL};
static const struct field max_ctas = {AT(max_ctas), 21700, 1, ANY, NULL};
static const struct field later_fields[] = {
	{AT(split_share), 21800, 0, 1, "splitShare"},
	{AT(collnet_enable), 22700, 0, 1, "collnetEnable"},
	{AT(cta_policy), 22700, 0, POLICY_BITS, "policy"},
	{AT(shrink_share), 22700, 0, 1, "shrinkShare"},
	{AT(nvls_ctas), 22700, 1, ANY, "nvlsCTAs"},
	{AT(n_channels_per_net_peer), 22800, 1, ANY, "nChannelsPerNetPeer"},
	{AT(nvlink_centric_sched), 22800, 0, 1, "nvlinkCentricSched"},
};

static bool known(const struct strait_nccl_config *config, size_t offset, size_t bytes,
		  unsigned since)
{
	return config->version >= since && config->size >= offset + bytes;
}

static int value_of(const struct strait_nccl_config *config, const struct field *field)
{
	int value;

	if (!known(config, field->offset, sizeof(value), field->since))
		return STRAIT_NCCL_UNDEFINED;
	memcpy(&value, (const char *)config + field->offset, sizeof(value));
	return value;
}

static bool in_range(const struct field *field, int value)
{
	return value == STRAIT_NCCL_UNDEFINED ||
	       (value >= field->minimum && value <= field->maximum);
}

static int check(const struct strait_nccl_config *config, const struct field *field)
{
	int value = value_of(config, field);

	if (in_range(field, value))
		return 0;
	return strait_fail(STRAIT_ERROR_ARGUMENT, "Invalid config %s attribute value %d",
			   field->name, value);
}

static int check_all(const struct strait_nccl_config *config)
{
	int low = value_of(config, &min_ctas), high = value_of(config, &max_ctas);
	int r = check(config, &blocking);

	if (r == 0)
		r = check(config, &cga);
	if (r < 0)
		return r;
	if (!in_range(&min_ctas, low) || !in_range(&max_ctas, high) ||
	    (high != STRAIT_NCCL_UNDEFINED && low > high))
		return strait_fail(STRAIT_ERROR_ARGUMENT,
				   "Invalid config min/max channels attribute value %d/%d", low,
				   high);
	for (size_t i = 0; i < sizeof(later_fields) / sizeof(later_fields[0]); i++) {
		r = check(config, &later_fields[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

static char *copy_name(const struct strait_nccl_config *config)
{
	const char *name;

	if (!known(config, AT(comm_name), sizeof(name), 22700))
		return NULL;
	memcpy(&name, (const char *)config + AT(comm_name), sizeof(name));
	return name ? strdup(name) : NULL; /* only for the log: none when out of memory */
}

int strait_config_parse(const struct strait_nccl_config *config, struct strait_config *ret_config)
{
	struct strait_config parsed = {.blocking = true};
	const struct strait_params *params = strait_params();

	if (config) {
		int r, limit;

		if (config->magic != STRAIT_NCCL_CONFIG_MAGIC)
			return strait_fail(STRAIT_ERROR_ARGUMENT,
					   "ncclConfig_t argument not initialized via "
					   "NCCL_CONFIG_INITIALIZER");
		r = check_all(config);
		if (r < 0)
			return strait_trace(r);
		parsed.blocking = value_of(config, &blocking) != 0;
		limit = value_of(config, &max_ctas);
		parsed.max_blocks = limit == STRAIT_NCCL_UNDEFINED ? 0 : limit;
		parsed.name = copy_name(config);
	}
	if (params->comm_blocking >= 0)
		parsed.blocking = params->comm_blocking;
	if (params->max_ctas > 0)
		parsed.max_blocks = (int)params->max_ctas;
	*ret_config = parsed;
	return 0;
}

void strait_config_deinit(struct strait_config *config)
{
	free(config->name);
	config->name = NULL;
}
