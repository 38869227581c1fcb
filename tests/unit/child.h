/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a function in a forked child with an environment of its own and collects what it wrote to
 * stderr.
 *
 * The library reads its environment once in a process, so each setting needs a process. The child
 * inherits none of our variables but those given here. It may only use plain returns to report: 0
 * is success, any other value up to 125 is handed back.
 */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Names and values in turn, with a NULL at the end. */
static inline void child_environment(const char *const settings[])
{
	for (char **entry = environ; *entry;) {
		char name[128];
		size_t length = strcspn(*entry, "=");

		if ((strncmp(*entry, "STRAIT_", 7) && strncmp(*entry, "NCCL_", 5)) ||
		    length >= sizeof(name)) {
			entry++;
			continue;
		}
		memcpy(name, *entry, length);
		name[length] = '\0';
		unsetenv(name);
		entry = environ;
	}
	for (int i = 0; settings && settings[i]; i += 2)
		setenv(settings[i], settings[i + 1], 1);
}

/* Returns what `function` returned. Its stderr is in ret_text, cut to text_bytes. */
static inline int child_run(int (*function)(void), const char *const settings[], char *ret_text,
			    size_t text_bytes)
{
	int capture = memfd_create("stderr", 0);
	int status;
	ssize_t n;
	pid_t pid;

	assert_true(capture >= 0);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		dup2(capture, STDERR_FILENO);
		child_environment(settings);
		_exit(function());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	n = pread(capture, ret_text, text_bytes - 1, 0);
	assert_true(n >= 0);
	ret_text[n] = '\0';
	close(capture);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static inline int count_lines(const char *text)
{
	int n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}
