/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results of Strait's own functions. A function that can fail returns int: 0 is success, a negative
 * value is fatal and is forwarded unchanged, a positive value is a named condition of that one
 * function.
 *
 * The negative values are the negated numbers of the ncclResult_t that a user will see, so that
 * shim/ maps them in one place. The first failure on a thread writes a message (what failed, and
 * what the user can do); forwarding with strait_trace() adds a file:line trail at no cost on
 * success.
 */
#pragma once
#include <stddef.h>

enum strait_status {
	STRAIT_OK = 0,
	STRAIT_ERROR_CUDA = -1,     /* the driver refused */
	STRAIT_ERROR_SYSTEM = -2,   /* the operating system refused */
	STRAIT_ERROR_INTERNAL = -3, /* a fault of ours */
	STRAIT_ERROR_ARGUMENT = -4, /* a value the caller gave */
	STRAIT_ERROR_USAGE = -5,    /* a call out of place, or not supported */
	STRAIT_ERROR_REMOTE = -6,   /* a peer failed, left or disagrees */
};

/* Records a failure: formats the message for this thread and for the process (ncclGetLastError),
 * logs it once at INFO and returns `status`. Thread-safe. Never allocates. Message is cut at 1023
 * bytes. */
int strait_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* The compiler sees that the status comes back as it went in: no false warnings about untouched
 * results. */
static inline int strait_status_same(int status, int recorded)
{
	(void)recorded;
	return status;
}
#define strait_fail(status, ...) strait_status_same((status), strait_fail((status), __VA_ARGS__))

/* Adds a place to the trail of a failure that is being forwarded. Zero and positive values pass. */
#define strait_trace(r) strait_status_pass((r), __FILE__, __LINE__)
int strait_status_trace(int status, const char *file, int line) __attribute__((cold));
static inline int strait_status_pass(int status, const char *file, int line)
{
	if (status < 0)
		strait_status_trace(status, file, line);
	return status;
}

/* The newest failure message of the process ("" before the first). The pointer stays valid; the
 * text may be replaced by a later failure, as with ncclGetLastError. */
const char *strait_status_message(void);

/* The places that the calling thread's last failure passed, innermost first, as "file:line <
 * file:line"; "" where none was recorded. Writes into ret_text and returns it. For the one log line
 * of a failed call. */
const char *strait_status_trail(char *ret_text, size_t text_bytes);
