/* SPDX-License-Identifier: Apache-2.0 */
/* One write a line, so that lines of different ranks do not mix. */
#include "bench/report.h"
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static int speaker = -1;

void bench_report_as(int process)
{
	speaker = process;
}

static void say(const char *format, va_list arguments)
{
	char line[2048];
	int length = speaker < 0
			     ? snprintf(line, sizeof(line), "strait-bench: ")
			     : snprintf(line, sizeof(line), "strait-bench: process %d: ", speaker);

	length += vsnprintf(line + length, sizeof(line) - (size_t)length - 1, format, arguments);
	if (length > (int)sizeof(line) - 2)
		length = (int)sizeof(line) - 2;
	line[length] = '\n';
	fflush(stdout);
	if (write(STDERR_FILENO, line, (size_t)length + 1) < 0)
		return;
}

void bench_note(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say(format, arguments);
	va_end(arguments);
}

void bench_die(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say(format, arguments);
	va_end(arguments);
	_exit(1);
}
