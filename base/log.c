/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines as "host:pid:tid STRAIT INFO INIT: text".
 *
 * A line is built in full on the stack and leaves in one write(2) with O_APPEND, so lines of
 * threads and processes that share a file never mix. Control characters in a text become spaces: a
 * line is a line. Warnings ignore the choice of subsystems, as NCCL's do. Nothing here allocates or
 * takes a lock after the first line.
 */
#include "strait/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "strait/params.h"

enum { LINE_BYTES = 2048, PATH_BYTES = 1024 };

static const char *const subsystem_names[STRAIT_N_SUBSYSTEMS] = {
	[STRAIT_INIT] = "INIT",     [STRAIT_COLL] = "COLL",     [STRAIT_BOOTSTRAP] = "BOOTSTRAP",
	[STRAIT_MEMORY] = "MEMORY", [STRAIT_DRIVER] = "DRIVER", [STRAIT_PROXY] = "PROXY",
	[STRAIT_ENV] = "ENV",       [STRAIT_TUNING] = "TUNING",
};

/* Set once under `once`, read only afterwards. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static enum strait_log_level shown_level;
static unsigned shown_subsystems;
static int log_fd;
static char host_name[64];

static void write_line(const char *level, const char *subsystem, const char *format,
		       va_list arguments)
{
	char line[LINE_BYTES];
	int head, text;
	size_t length;

	head = snprintf(line, sizeof(line), "%s:%d:%ld STRAIT %s %s: ", host_name, (int)getpid(),
			syscall(SYS_gettid), level, subsystem);
	text = vsnprintf(line + head, sizeof(line) - (size_t)head - 1, format, arguments);
	length = (size_t)head + (size_t)(text < 0 ? 0 : text);
	if (length > sizeof(line) - 2)
		length = sizeof(line) - 2;
	while (length > (size_t)head && line[length - 1] == '\n')
		length--;
	for (size_t i = 0; i < length; i++) {
		if ((unsigned char)line[i] < ' ')
			line[i] = ' ';
	}
	line[length++] = '\n';
	/* A full disk or a closed stderr must not disturb the application: the line is lost. */
	if (write(log_fd, line, length) < 0)
		return;
}

static void __attribute__((format(printf, 1, 2))) warn_about_settings(const char *format, ...)
{
	va_list arguments;

	if (shown_level < STRAIT_LOG_WARN)
		return;
	va_start(arguments, format);
	write_line("WARN", "ENV", format, arguments);
	va_end(arguments);
}

/* The level that a variable asks for; -1 where it is unset or not a level. */
static int level_parse(const char *text)
{
	static const struct {
		const char *name;
		enum strait_log_level level;
	} levels[] = {
		{"NONE", STRAIT_LOG_NONE},  {"VERSION", STRAIT_LOG_WARN},
		{"WARN", STRAIT_LOG_WARN},  {"INFO", STRAIT_LOG_INFO},
		{"ABORT", STRAIT_LOG_INFO}, {"TRACE", STRAIT_LOG_TRACE},
	};

	for (size_t i = 0; text && i < sizeof(levels) / sizeof(levels[0]); i++) {
		if (strcasecmp(text, levels[i].name) == 0)
			return (int)levels[i].level;
	}
	return -1;
}

/* The bit of the subsystem named by the `length` bytes at `name`, all bits for ALL, 0 for an
 * unknown one. */
static unsigned subsystem_bits(const char *name, size_t length)
{
	if (length == 3 && strncasecmp(name, "ALL", 3) == 0)
		return ~0u;
	for (unsigned i = 0; i < STRAIT_N_SUBSYSTEMS; i++) {
		if (strlen(subsystem_names[i]) == length &&
		    strncasecmp(name, subsystem_names[i], length) == 0)
			return 1u << i;
	}
	return 0;
}

static unsigned subsystems_parse(const char *list)
{
	unsigned chosen = 0;
	bool inverted = list && list[0] == '^';

	if (!list)
		return ~0u;
	for (const char *name = list + inverted; *name;) {
		size_t length = strcspn(name, ",");

		/* Names that only NCCL has are no mistake, since its list is often copied here. */
		chosen |= subsystem_bits(name, length);
		name += length;
		name += *name == ',';
	}
	return inverted ? ~chosen : chosen;
}

void strait_log_path_expand(const char *pattern, char *ret_path, size_t path_bytes)
{
	size_t used = 0;

	ret_path[0] = '\0';
	for (const char *p = pattern; *p && used + 1 < path_bytes; p++) {
		char piece[sizeof(host_name)] = {*p};

		if (p[0] == '%' && (p[1] == 'h' || p[1] == 'p' || p[1] == '%')) {
			p++;
			if (*p == 'h' && gethostname(piece, sizeof(piece) - 1))
				snprintf(piece, sizeof(piece), "unknown");
			if (*p == 'h')
				piece[strcspn(piece, ".")] = '\0';
			if (*p == 'p')
				snprintf(piece, sizeof(piece), "%d", (int)getpid());
		}
		used += (size_t)snprintf(ret_path + used, path_bytes - used, "%s", piece);
	}
}

static void open_file(const char *pattern)
{
	char path[PATH_BYTES];
	int fd;

	strait_log_path_expand(pattern, path, sizeof(path));
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (fd < 0)
		warn_about_settings("STRAIT_DEBUG_FILE: cannot open %s (%m); logging to stderr",
				    path);
	else
		log_fd = fd;
}

static void set_up(void)
{
	const struct strait_params *params = strait_params_values();
	int own_level = level_parse(params->debug);
	int nccl_level = level_parse(params->nccl_debug);

	log_fd = STDERR_FILENO;
	strait_log_path_expand("%h", host_name, sizeof(host_name));
	shown_subsystems = subsystems_parse(params->debug_subsys);
	shown_level = STRAIT_LOG_WARN;
	if (own_level >= 0 || nccl_level >= 0)
		shown_level =
			(enum strait_log_level)(own_level > nccl_level ? own_level : nccl_level);
	if (params->debug_file)
		open_file(params->debug_file);
	if (params->debug && own_level < 0)
		warn_about_settings(
			"STRAIT_DEBUG=%s is not a level (NONE, WARN, INFO or TRACE); using %s",
			params->debug, nccl_level < 0 ? "WARN" : "NCCL_DEBUG");
}

bool strait_log_enabled(enum strait_log_level level, enum strait_log_subsystem subsystem)
{
	pthread_once(&once, set_up);
	return level <= shown_level &&
	       (level == STRAIT_LOG_WARN || (shown_subsystems >> (unsigned)subsystem & 1u));
}

void strait_log(enum strait_log_level level, enum strait_log_subsystem subsystem,
		const char *format, ...)
{
	static const char *const level_names[] = {"NONE", "WARN", "INFO", "TRACE"};
	int caller_errno = errno;
	va_list arguments;

	if (!strait_log_enabled(level, subsystem))
		return;
	errno = caller_errno; /* for %m */
	va_start(arguments, format);
	write_line(level_names[level], subsystem_names[subsystem], format, arguments);
	va_end(arguments);
	errno = caller_errno;
}
