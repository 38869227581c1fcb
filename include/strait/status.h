/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results of Strait's own functions. A function that can fail returns int: 0 is success, a negative
 * value is fatal and is forwarded unchanged, a positive value is a named condition of that one function.
 *
 * The negative values are the negated numbers of the ncclResult_t that a user will see, so that shim/
 * maps them in one place. The first failure on a thread writes a message (what failed, and what the
 * user can do); forwarding with strait_trace() adds a file:line trail at no cost on success.
 */
#pragma once

enum strait_status {
	STRAIT_OK = 0,
	STRAIT_ERROR_CUDA = -1,     /* the driver refused */
	STRAIT_ERROR_SYSTEM = -2,   /* the operating system refused */
	STRAIT_ERROR_INTERNAL = -3, /* a fault of ours */
	STRAIT_ERROR_ARGUMENT = -4, /* a value the caller gave */
	STRAIT_ERROR_USAGE = -5,    /* a call out of place, or not supported */
	STRAIT_ERROR_REMOTE = -6,   /* a peer failed, left or disagrees */
};

/* Records a failure: formats the message for this thread and for the process (ncclGetLastError), logs it
 * once at INFO and returns `status`. Thread-safe. Never allocates. Message is cut at 1023 bytes. */
int strait_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* Adds a place to the trail of a failure that is being forwarded. Zero and positive values pass. */
#define strait_trace(r) strait_status_trace((r), __FILE__, __LINE__)
int strait_status_trace(int status, const char *file, int line);

/* The newest failure message of the process ("" before the first). The pointer stays valid; the text
 * may be replaced by a later failure, as with ncclGetLastError. */
const char *strait_status_message(void);
