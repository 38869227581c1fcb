/* SPDX-License-Identifier: Apache-2.0 */
/* Who shares a host and who a process. The environment is read once, so each setting has a process
 * of its own. */
#include "channels/host_identity.h"
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

struct identity {
	uint64_t host, process;
	int is_ready; /* the preparation was possible */
};

/* The identity of a forked process that `prepare` has changed. */
static struct identity identity_of_child(int (*prepare)(void))
{
	struct identity identity = {0};
	int fds[2], status;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		identity.is_ready = !prepare || !prepare();
		identity.host = strait_host_hash();
		identity.process = strait_process_hash();
		_exit(write(fds[1], &identity, sizeof(identity)) != sizeof(identity));
	}
	assert_int_equal(read(fds[0], &identity, sizeof(identity)), sizeof(identity));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(fds[0]);
	close(fds[1]);
	return identity;
}

static int name_a(void)
{
	return setenv("NCCL_HOSTID", "a", 1);
}

static int name_b(void)
{
	return setenv("NCCL_HOSTID", "b", 1);
}

static int name_b_over_a(void)
{
	return name_a() || setenv("STRAIT_HOSTID", "b", 1);
}

static int other_host_name(void)
{
	return unshare(CLONE_NEWUTS) || sethostname("elsewhere", 9);
}

static int other_shared_memory(void)
{
	return unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	       mount("none", "/dev/shm", "tmpfs", 0, NULL);
}

static int other_network(void)
{
	return unshare(CLONE_NEWNET);
}

static void test_processes_of_one_machine_share_the_host_only(void **state)
{
	struct identity a = identity_of_child(NULL), b = identity_of_child(NULL);

	assert_true(a.host != 0 && a.process != 0);
	assert_true(a.host == b.host);
	assert_true(a.process != b.process);
}

static void test_user_names_the_host(void **state)
{
	struct identity none = identity_of_child(NULL), a = identity_of_child(name_a);
	struct identity b = identity_of_child(name_b), over = identity_of_child(name_b_over_a);

	assert_true(a.host != b.host && a.host != none.host && b.host != none.host);
	assert_true(a.host == identity_of_child(name_a).host);
	assert_true(over.host == b.host);
}

static void test_host_name_and_network_do_not_count(void **state)
{
	struct identity named = identity_of_child(other_host_name);
	struct identity networked = identity_of_child(other_network);

	if (!named.is_ready || !networked.is_ready)
		skip(); /* no permission to make namespaces */
	assert_true(named.host == identity_of_child(NULL).host);
	assert_true(networked.host == identity_of_child(NULL).host);
}

static void test_containers_with_separate_shared_memory_are_two_hosts(void **state)
{
	struct identity other = identity_of_child(other_shared_memory);

	if (!other.is_ready)
		skip(); /* no permission to mount */
	assert_true(other.host != identity_of_child(NULL).host);
}

static void *read_process_hash(void *ret)
{
	*(uint64_t *)ret = strait_process_hash();
	return NULL;
}

static void test_threads_of_a_process_share_it(void **state)
{
	uint64_t hashes[8];
	pthread_t threads[8];

	for (int i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, read_process_hash, &hashes[i]),
				 0);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 8; i++)
		assert_true(hashes[i] == strait_process_hash());
}

static void test_forked_child_of_a_process_with_an_identity_has_its_own(void **state)
{
	uint64_t mine = strait_process_hash();
	struct identity child = identity_of_child(NULL);

	assert_true(child.process != mine);
	assert_true(strait_process_hash() == mine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_processes_of_one_machine_share_the_host_only),
		cmocka_unit_test(test_user_names_the_host),
		cmocka_unit_test(test_host_name_and_network_do_not_count),
		cmocka_unit_test(test_containers_with_separate_shared_memory_are_two_hosts),
		cmocka_unit_test(test_threads_of_a_process_share_it),
		cmocka_unit_test(test_forked_child_of_a_process_with_an_identity_has_its_own),
	};

	unsetenv("NCCL_HOSTID");
	unsetenv("STRAIT_HOSTID");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
