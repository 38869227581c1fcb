/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which path every call took: counters per operation, size class (power of two) and path or reason,
 * printed when the process exits if STRAIT_REPORT asks for it.
 */
#pragma once
#include <stdint.h>
#include <stdio.h>

/* Arranges for the report at exit; at the first communicator, so that a process that never makes
 * one is left alone. */
void strait_report_start(void);

/* Counts one call. `operation` and `path` are literals. Any thread, lock-free, no memory. */
void strait_report_count(const char *operation, uint64_t bytes, const char *path);

/* Writes the table, one line a counter. */
void strait_report_print(FILE *file);
