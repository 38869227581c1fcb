/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice of an interface. What a machine has differs, so most properties are stated against the
 * list of the kernel; a namespace with interfaces of known names is made where that is permitted.
 */
#include "channels/interfaces.h"
#include "strait/status.h"
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* Whether the address belongs to an interface whose name begins so. */
static bool belongs_to(const struct strait_address *address, const char *prefix)
{
	struct ifaddrs *all;
	bool found = false;

	assert_int_equal(getifaddrs(&all), 0);
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		if (!i->ifa_addr || strncmp(i->ifa_name, prefix, strlen(prefix)))
			continue;
		if (i->ifa_addr->sa_family == AF_INET && address->family == 4)
			found |= !memcmp(address->ip,
					 &((struct sockaddr_in *)i->ifa_addr)->sin_addr, 4);
		if (i->ifa_addr->sa_family == AF_INET6 && address->family == 6)
			found |= !memcmp(address->ip,
					 &((struct sockaddr_in6 *)i->ifa_addr)->sin6_addr, 16);
	}
	freeifaddrs(all);
	return found;
}

static bool has_other_than_loopback(void)
{
	struct strait_address address;

	return !strait_interface_choose("^lo", NULL, &address);
}

static void test_default_is_loopback_only_where_there_is_nothing_else(void **state)
{
	struct strait_address address;

	assert_int_equal(strait_interface_choose(NULL, NULL, &address), 0);
	assert_int_equal(belongs_to(&address, "lo"), !has_other_than_loopback());
	assert_int_equal(address.port, 0);
}

static void test_named_interface_is_taken(void **state)
{
	static const char *const lists[] = {"lo", "=lo", "nosuch,lo", "=nosuch,lo", "l"};

	for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++) {
		struct strait_address address;

		assert_int_equal(strait_interface_choose(lists[i], NULL, &address), 0);
		assert_true(belongs_to(&address, "l"));
	}
}

static void test_exact_name_is_no_prefix(void **state)
{
	struct strait_address address = {.family = 99};

	assert_int_equal(strait_interface_choose("=l", NULL, &address), STRAIT_ERROR_ARGUMENT);
	assert_int_equal(address.family, 99);
	assert_int_equal(strait_interface_choose("^=l", NULL, &address), 0);
}

static void test_excluded_interface_is_not_taken(void **state)
{
	struct strait_address address;

	if (!has_other_than_loopback())
		skip();
	assert_int_equal(strait_interface_choose("^docker,lo", NULL, &address), 0);
	assert_false(belongs_to(&address, "lo"));
}

static void test_no_match_is_an_error_that_lists_what_there_is(void **state)
{
	struct strait_address address;

	assert_int_equal(strait_interface_choose("nosuch", NULL, &address), STRAIT_ERROR_ARGUMENT);
	assert_non_null(strstr(strait_status_message(), "nosuch"));
	assert_non_null(strstr(strait_status_message(), "lo/AF_INET"));
}

static void test_family_is_obeyed(void **state)
{
	struct strait_address address;

	assert_int_equal(strait_interface_choose("lo", "AF_INET", &address), 0);
	assert_int_equal(address.family, 4);
	if (strait_interface_choose("lo", "AF_INET6", &address))
		skip(); /* no IPv6 here */
	assert_int_equal(address.family, 6);
	assert_int_equal(strait_interface_family("AF_INET"), 4);
	assert_int_equal(strait_interface_family("AF_INET6"), 6);
	assert_int_equal(strait_interface_family("nonsense"), 0);
	assert_int_equal(strait_interface_family(NULL), 0);
}

/* Kernels differ in which kinds of pretended interfaces they have. */
static bool make_interface(const char *name, const char *ip)
{
	struct strait_address unused;
	char command[256];

	snprintf(command, sizeof(command),
		 "{ ip link add %s type dummy || ip link add %s type bridge; } && "
		 "ip addr add %s dev %s && ip link set %s up",
		 name, name, ip, name, name);
	return !system(command) && !strait_interface_choose(name, NULL, &unused);
}

static int choose_among_known(void)
{
	struct strait_address address;

	if (unshare(CLONE_NEWNET) || system("ip link set lo up") ||
	    !make_interface("docker0", "10.9.0.1/24"))
		return 77;
	/* Nothing but lo and docker: docker. */
	if (strait_interface_choose(NULL, NULL, &address) || address.ip[1] != 9)
		return 1;
	if (!make_interface("wan0", "10.8.0.1/24"))
		return 77;
	/* Something else: that, though it came last. */
	if (strait_interface_choose(NULL, NULL, &address) || address.ip[1] != 8)
		return 2;
	/* In a list the earlier name wins. */
	if (strait_interface_choose("docker,wan", NULL, &address) || address.ip[1] != 9)
		return 3;
	return 0;
}

static void test_docker_comes_before_loopback_and_after_all_else(void **state)
{
	pid_t pid;
	int status;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		if (!freopen("/dev/null", "w", stderr))
			_exit(78);
		_exit(choose_among_known());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip(); /* no permission, or no dummy interfaces */
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_default_is_loopback_only_where_there_is_nothing_else),
		cmocka_unit_test(test_named_interface_is_taken),
		cmocka_unit_test(test_exact_name_is_no_prefix),
		cmocka_unit_test(test_excluded_interface_is_not_taken),
		cmocka_unit_test(test_no_match_is_an_error_that_lists_what_there_is),
		cmocka_unit_test(test_family_is_obeyed),
		cmocka_unit_test(test_docker_comes_before_loopback_and_after_all_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
