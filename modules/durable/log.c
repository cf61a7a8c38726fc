/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of the options: which lines it gets, and which are counted instead,
 * so that an engine that is away for long does not fill it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>

#include "engine_internal.h"

#define LOG_LINE_MAX 512
#define REPEAT_NS HWT_SEC(60)
#define ERRORS_MAX 16u /* different ones at once; then one or two a second */

/* The one that has this hash, or else the oldest. */
static struct logged *
line_find(struct engine *engine, uint64_t hash)
{
	struct logged *oldest = engine->line;
	struct logged *logged;

	for (logged = engine->line; logged < engine->line + LINES_MAX;
	     logged++) {
		if (logged->hash == hash)
			return logged;
		if (logged->written_ns < oldest->written_ns)
			oldest = logged;
	}
	return oldest;
}

/* Whether a line that is not the last one may follow it now. */
static bool
log_may_follow(struct engine *engine, int level, uint64_t now)
{
	uint64_t seconds = (now - engine->logged_ns) / HWT_SEC(1);

	if (engine->logged_ns == 0 || seconds > 0) {
		engine->errors -= seconds < engine->errors ? (uint32_t)seconds
							   : engine->errors;
		return true;
	}
	return level <= LOG_ERR && engine->errors++ < ERRORS_MAX;
}

/* False: it was written less than a minute ago, or another one less than a
 * second ago, and it is no error, or one of many. With the lock. */
static bool
log_may_write(struct engine *engine, int level, uint64_t hash, uint64_t *again,
    uint64_t *others)
{
	struct logged *logged = line_find(engine, hash);
	uint64_t now = boot_now_ns();

	*again = logged->hash == hash ? logged->held_back : 0;
	if (logged->hash == hash && now - logged->written_ns < REPEAT_NS) {
		logged->held_back++;
		return false;
	}
	*others = engine->held_back;
	if (!log_may_follow(engine, level, now)) {
		engine->held_back++;
		return false;
	}
	*logged = (struct logged){.hash = hash, .written_ns = now};
	engine->held_back = 0;
	engine->logged_ns = now;
	return true;
}

static void
line_append(char line[LOG_LINE_MAX], uint64_t count, const char *what)
{
	size_t length = strlen(line);

	if (count > 0)
		(void)snprintf(line + length, LOG_LINE_MAX - length,
		    " (%llu %s)", (unsigned long long)count, what);
}

void
engine_log(struct engine *engine, int level, const char *format, ...)
{
	char line[LOG_LINE_MAX];
	uint64_t again = 0, others = 0;
	va_list list;
	bool may;

	va_start(list, format);
	(void)vsnprintf(line, sizeof(line), format, list);
	va_end(list);
	lock(engine);
	may = log_may_write(
	    engine, level, id_hash(line, strlen(line)), &again, &others);
	unlock(engine);
	if (!may)
		return;
	line_append(line, again, "times since it was last logged");
	line_append(line, others, "other lines were held back");
	if (engine->log.write != NULL)
		engine->log.write(engine->log.ctx, level, line);
	else
		(void)fprintf(stderr, "hwt_durable: %s\n", line);
}
