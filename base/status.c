/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The newest failure of the process, and the way it took up the stack of its thread.
 *
 * A message is formatted straight into a slot of a small ring and then published, so that a failure
 * needs no lock and no memory, works in a forked child, and a text that somebody is still reading
 * survives the next few failures. The trail belongs to the thread: it starts anew with each
 * strait_fail() and with each status that the thread has not seen before.
 */
#include "strait/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "strait/log.h"

enum { MESSAGE_BYTES = 1024, N_MESSAGES = 16, TRAIL_PLACES = 12 };

struct trail {
	int status;
	int n_places; /* beyond TRAIL_PLACES the outer places are left out */
	struct {
		const char *file;
		int line;
	} place[TRAIL_PLACES];
};

static char messages[N_MESSAGES][MESSAGE_BYTES];
static atomic_uint next_message;
static _Atomic(const char *) newest_message;
static __thread struct trail trail;

static void trail_start(int status)
{
	trail.status = status;
	trail.n_places = 0;
}

int(strait_fail)(int status, const char *format, ...)
{
	/* errno stays the caller's: %m in the format reads it here, and callers may look at it
	 * later. */
	int caller_errno = errno;
	unsigned slot =
		atomic_fetch_add_explicit(&next_message, 1, memory_order_relaxed) % N_MESSAGES;
	char *message = messages[slot];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, MESSAGE_BYTES, format, arguments);
	va_end(arguments);
	/* pairs with the acquire in strait_status_message() */
	atomic_store_explicit(&newest_message, message, memory_order_release);

	trail_start(status);
	strait_info(INIT, "%s", message);
	errno = caller_errno;
	return status;
}

int strait_status_trace(int status, const char *file, int line)
{
	int caller_errno = errno;

	if (status >= 0)
		return status;
	if (status != trail.status)
		trail_start(status);
	if (trail.n_places < TRAIL_PLACES) {
		trail.place[trail.n_places].file = file;
		trail.place[trail.n_places].line = line;
		trail.n_places++;
	}
	strait_debug(INIT, "status %d passes %s:%d", status, file, line);
	errno = caller_errno;
	return status;
}

const char *strait_status_message(void)
{
	/* pairs with the release in strait_fail() */
	const char *message = atomic_load_explicit(&newest_message, memory_order_acquire);

	return message ? message : "";
}

const char *strait_status_trail(char *ret_text, size_t text_bytes)
{
	size_t used = 0;

	ret_text[0] = '\0';
	for (int i = 0; i < trail.n_places && used < text_bytes; i++) {
		int n = snprintf(ret_text + used, text_bytes - used, "%s%s:%d", i ? " < " : "",
				 trail.place[i].file, trail.place[i].line);
		if (n < 0)
			break;
		used += (size_t)n;
	}
	return ret_text;
}
