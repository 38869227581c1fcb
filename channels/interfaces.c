/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interfaces of this network namespace, ranked by what the user said and by what is likely to
 * reach others. The lowest mark wins; of equal marks, the kernel's order.
 */
#include "channels/interfaces.h"
#include "strait/log.h"
#include "strait/status.h"
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

enum { UNFIT = 1 << 30 };

int strait_interface_family(const char *family)
{
	if (!family || !*family)
		return 0;
	if (!strcmp(family, "AF_INET"))
		return 4;
	if (!strcmp(family, "AF_INET6"))
		return 6;
	return 0;
}

/* Place of the first entry of the list that `name` matches, or -1. */
static int match(const char *list, bool exact, const char *name)
{
	int place = 0;

	for (const char *entry = list; *entry; place++) {
		size_t bytes = strcspn(entry, ",");

		if (bytes && !strncmp(name, entry, bytes) && (!exact || !name[bytes]))
			return place;
		entry += bytes;
		entry += *entry == ',';
	}
	return -1;
}

static int mark_by_name(const char *names, const char *name)
{
	bool excludes, exact;
	int place;

	if (!names || !*names)
		return !strncmp(name, "lo", 2) ? 2 : !strncmp(name, "docker", 6) ? 1 : 0;
	excludes = *names == '^';
	names += excludes;
	exact = *names == '=';
	names += exact;
	place = match(names, exact, name);
	if (excludes)
		return place >= 0 ? UNFIT : mark_by_name(NULL, name);
	return place >= 0 ? place : UNFIT;
}

static bool address_of(const struct ifaddrs *interface, struct strait_address *ret)
{
	struct strait_address address = {0};

	if (!interface->ifa_addr || !(interface->ifa_flags & IFF_UP) ||
	    !(interface->ifa_flags & IFF_RUNNING))
		return false;
	if (interface->ifa_addr->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)interface->ifa_addr;

		address.family = 4;
		memcpy(address.ip, &in->sin_addr, 4);
	} else if (interface->ifa_addr->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)interface->ifa_addr;

		address.family = 6;
		address.scope = in6->sin6_scope_id;
		memcpy(address.ip, &in6->sin6_addr, 16);
	} else {
		return false;
	}
	*ret = address;
	return true;
}

static int fail_none(const char *names, const char *family, const struct ifaddrs *all)
{
	char there[256] = "";
	size_t used = 0;

	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		struct strait_address address;
		int n;

		if (!address_of(i, &address))
			continue;
		n = snprintf(there + used, sizeof(there) - used, " %s/%s", i->ifa_name,
			     address.family == 4 ? "AF_INET" : "AF_INET6");
		if (n < 0 || (size_t)n >= sizeof(there) - used)
			break;
		used += (size_t)n;
	}
	return strait_fail(
		STRAIT_ERROR_ARGUMENT,
		"no network interface for NCCL_SOCKET_IFNAME=%s NCCL_SOCKET_FAMILY=%s; there is:%s",
		names ? names : "", family ? family : "", there);
}

int strait_interface_choose(const char *names, const char *family,
			    struct strait_address *ret_address)
{
	int wanted_family = strait_interface_family(family), best_mark = UNFIT, r = 0;
	struct strait_address best = {0};
	const char *best_name = "";
	struct ifaddrs *all;

	if (getifaddrs(&all))
		return strait_fail(STRAIT_ERROR_SYSTEM, "cannot list network interfaces: %s",
				   strerror(errno));
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		struct strait_address address;
		int mark;

		if (!address_of(i, &address) || (wanted_family && address.family != wanted_family))
			continue;
		mark = mark_by_name(names, i->ifa_name);
		if (mark == UNFIT)
			continue;
		mark = mark * 4 + (address.family == 6) + strait_address_is_link_local(&address);
		if (mark < best_mark) {
			best_mark = mark;
			best = address;
			best_name = i->ifa_name;
		}
	}
	if (best_mark == UNFIT) {
		r = fail_none(names, family, all);
	} else {
		char text[STRAIT_ADDRESS_TEXT];

		strait_info(BOOTSTRAP, "interface %s, address %s", best_name,
			    strait_address_text(&best, text));
		*ret_address = best;
	}
	freeifaddrs(all);
	return r;
}
