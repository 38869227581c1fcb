/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines: one line each, to stderr or to the file that STRAIT_DEBUG_FILE names, never to stdout.
 * The level is the louder of STRAIT_DEBUG and NCCL_DEBUG (VERSION and WARN: warnings; INFO; TRACE);
 * nothing is printed below WARN by default. Never called on a hot path.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum strait_log_level { STRAIT_LOG_NONE, STRAIT_LOG_WARN, STRAIT_LOG_INFO, STRAIT_LOG_TRACE };

/* Subsystems, shown in the line and selectable by STRAIT_DEBUG_SUBSYS (NCCL's names,
 * comma-separated, a leading ^ inverts the list). */
enum strait_log_subsystem {
	STRAIT_INIT,
	STRAIT_COLL,
	STRAIT_BOOTSTRAP,
	STRAIT_MEMORY,
	STRAIT_DRIVER,
	STRAIT_PROXY,
	STRAIT_ENV,
	STRAIT_TUNING,
	STRAIT_N_SUBSYSTEMS
};

bool strait_log_enabled(enum strait_log_level level, enum strait_log_subsystem subsystem);
void strait_log(enum strait_log_level level, enum strait_log_subsystem subsystem,
		const char *format, ...) __attribute__((format(printf, 3, 4)));

#define strait_warn(subsystem, ...) strait_log_if(STRAIT_LOG_WARN, STRAIT_##subsystem, __VA_ARGS__)
#define strait_info(subsystem, ...) strait_log_if(STRAIT_LOG_INFO, STRAIT_##subsystem, __VA_ARGS__)
#define strait_debug(subsystem, ...) \
	strait_log_if(STRAIT_LOG_TRACE, STRAIT_##subsystem, __VA_ARGS__)
#define strait_log_if(level, subsystem, ...)                       \
	do {                                                       \
		if (strait_log_enabled(level, subsystem))          \
			strait_log(level, subsystem, __VA_ARGS__); \
	} while (0)

/* Writes a file name with %h (host), %p (process) and %% replaced; cut to path_bytes with its
 * terminator. */
void strait_log_path_expand(const char *pattern, char *ret_path, size_t path_bytes);
