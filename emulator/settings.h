/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulator's parameters: one struct from settings.def, read from the environment once, at the
 * first use.
 */
#pragma once

struct strait_emu_settings {
#define SETTING_NUMBER(field, variable, value, lowest, highest, text) long field;
#define SETTING_TEXT(field, variable, value, text) const char *field;
#include "emulator/settings.def"
#undef SETTING_NUMBER
#undef SETTING_TEXT
};

const struct strait_emu_settings *strait_emu_settings_get(void);

/* One line on stderr, with the emulator's name before it. */
void strait_emu_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
