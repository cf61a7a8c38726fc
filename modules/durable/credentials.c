/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user and the password of the options.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "engine_internal.h"

#define PASSWORD_MAX 512 /* bytes */

/* -EINVAL: it is too long, or has a byte that a text cannot have; what is left
 * of it would be another password. */
static int
password_keep(struct engine *engine, const char *line, size_t count)
{
	const char *end = memchr(line, '\n', count);
	size_t length = end != NULL ? (size_t)(end - line) : count;

	if (length > 0 && line[length - 1] == '\r')
		length--;
	if (length > PASSWORD_MAX || memchr(line, 0, length) != NULL) {
		engine_log(engine, LOG_ERR,
		    "the first line of the password file has more than %d "
		    "bytes, or a zero byte",
		    PASSWORD_MAX);
		return -EINVAL;
	}
	engine->password = strndup(line, length);
	return engine->password != NULL ? 0 : -ENOMEM;
}

static int
password_is_missing(struct engine *engine)
{
	engine_log(
	    engine, LOG_ERR, "the password file cannot be read, or is empty");
	return -ENOENT;
}

static int
password_read(struct engine *engine, const char *path)
{
	char line[PASSWORD_MAX + 2]; /* its end, or one byte too many */
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t count = 1;
	size_t length = 0;
	int error;

	if (fd < 0)
		return password_is_missing(engine);
	while (length < sizeof(line) && count > 0) {
		count = read(fd, line + length, sizeof(line) - length);
		length += count > 0 ? (size_t)count : 0;
	}
	(void)close(fd);
	error = count >= 0 && length > 0 ? password_keep(engine, line, length)
					 : password_is_missing(engine);
	explicit_bzero(line, sizeof(line));
	return error;
}

/* A user without a password file has any password, in Redis' words. */
int
credentials_read(
    struct engine *engine, const struct hwt_durable_options *options)
{
	int error = 0;

	if (options->user != NULL) {
		engine->user = strdup(options->user);
		if (engine->user == NULL)
			return -ENOMEM;
	}
	if (options->password_file != NULL)
		error = password_read(engine, options->password_file);
	engine->demand.user = engine->user;
	engine->demand.password = engine->password;
	if (engine->user != NULL && engine->password == NULL)
		engine->demand.password = "";
	return error;
}
