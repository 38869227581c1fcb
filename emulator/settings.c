/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the emulator's environment variables. The only reader: nothing else in the emulator calls
 * getenv.
 */
#include "emulator/settings.h"
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static struct strait_emu_settings settings;

void strait_emu_say(const char *format, ...)
{
	char line[1024];
	va_list list;
	va_start(list, format);
	vsnprintf(line, sizeof line, format, list);
	va_end(list);
	fprintf(stderr, "strait emulator: %s\n", line);
}

static long read_number(const char *variable, long value, long lowest, long highest)
{
	const char *text = getenv(variable);
	if (!text || !*text)
		return value;
	char *end;
	errno = 0;
	long number = strtol(text, &end, 0);
	if (errno || *end || number < lowest || number > highest) {
		strait_emu_say("%s=%s is not a number from %ld to %ld: %ld is used", variable, text,
			       lowest, highest, value);
		return value;
	}
	return number;
}

static const char *read_text(const char *variable, const char *value)
{
	const char *text = getenv(variable);
	return text && *text ? text : value;
}

static void read_all(void)
{
#define SETTING_NUMBER(field, variable, value, lowest, highest, text) \
	settings.field = read_number(#variable, value, lowest, highest);
#define SETTING_TEXT(field, variable, value, text) settings.field = read_text(#variable, value);
#include "emulator/settings.def"
#undef SETTING_NUMBER
#undef SETTING_TEXT
}

const struct strait_emu_settings *strait_emu_settings_get(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, read_all);
	return &settings;
}
