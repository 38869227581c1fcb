/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the benchmark speaks of trouble: one line to stderr with the rank, then the end of the
 * process. Whoever started the ranks sees the exit and stops the others.
 */
#pragma once

/* Who speaks: -1 for the launcher. One value a process. */
void bench_report_as(int process);
/* Ends the process with status 1, without running exit handlers (other threads may be inside the
 * driver). */
_Noreturn void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
void bench_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
