/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must be true of an engine, asked at each connection, and of a node again
 * once a second while calls are sent to it, since CONFIG SET needs no new
 * connection: it is Redis 7 or later, a master, and evicts nothing. Whether it
 * keeps what it has acknowledged goes with the connection, since the level that
 * is needed may only be read from the engine itself.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "connection.h"

#define VERSION_MIN 7

/* The questions, in the order of the answers. */
enum question {
	ROLE,
	INFO,
	PERSISTENCE,
	POLICY,
	APPEND_ONLY,
	APPEND_FSYNC,
	LOAD_TRUNCATED,
	NO_FSYNC,
	QUESTIONS
};

struct asked {
	char *why;
	redisReply *login; /* NULL: not asked */
	redisReply *answer[QUESTIONS];
};

static void
ask_login(struct buffer *buffer, const struct demand *demand)
{
	buffer_command(buffer, demand->user != NULL ? 3 : 2);
	buffer_text(buffer, "AUTH");
	if (demand->user != NULL)
		buffer_text(buffer, demand->user);
	buffer_text(buffer, demand->password);
}

static void
ask_setting(struct buffer *buffer, const char *name)
{
	buffer_command(buffer, 3);
	buffer_text(buffer, "CONFIG");
	buffer_text(buffer, "GET");
	buffer_text(buffer, name);
}

static void
ask_all(struct buffer *buffer)
{
	buffer_command(buffer, 1);
	buffer_text(buffer, "ROLE");
	buffer_command(buffer, 2);
	buffer_text(buffer, "INFO");
	buffer_text(buffer, "server");
	buffer_command(buffer, 2);
	buffer_text(buffer, "INFO");
	buffer_text(buffer, "persistence");
	ask_setting(buffer, "maxmemory-policy");
	ask_setting(buffer, "appendonly");
	ask_setting(buffer, "appendfsync");
	ask_setting(buffer, "aof-load-truncated");
	ask_setting(buffer, "no-appendfsync-on-rewrite");
}

/* An error reply. */
static int
refused(const redisReply *reply, char *why)
{
	static const struct route_address nowhere;
	struct route_verdict verdict;

	(void)snprintf(
	    why, VERIFY_WHY_MAX, "the engine says: %.200s", reply->str);
	/* A password for an engine that has none. */
	if (strstr(reply->str, "AUTH") != NULL)
		return -EACCES;
	route_judge(&verdict, reply->str, reply->len, &nowhere);
	return verdict.error;
}

static int
receive(struct connection *connection, redisReply **reply, char *why,
    const struct limit *limit)
{
	int error = connection_receive(connection, reply, limit);

	/* Nothing that matters was sent. */
	if (error == -ETIMEDOUT || error == -ECONNRESET) {
		(void)snprintf(why, VERIFY_WHY_MAX, "%s",
		    error == -ETIMEDOUT ? "the engine does not answer"
					: "the engine closed the connection");
		return -ECONNREFUSED;
	}
	return error;
}

/* The second of two: name and value. */
static const char *
setting(const redisReply *reply)
{
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
	    reply->element[1]->type != REDIS_REPLY_STRING)
		return "";
	return reply->element[1]->str;
}

static bool
is_master(const redisReply *reply)
{
	return reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 &&
	    reply->element[0]->type == REDIS_REPLY_STRING &&
	    strcmp(reply->element[0]->str, "master") == 0;
}

/* The number at the begin of a field of INFO; 0: there is none. */
static long
info_number(const redisReply *reply, const char *field)
{
	const char *found;

	if (reply->type != REDIS_REPLY_STRING)
		return 0;
	found = strstr(reply->str, field);
	return found == NULL ? 0 : strtol(found + strlen(field), NULL, 10);
}

uint32_t
verify_replicas(const redisReply *role)
{
	return is_master(role) && role->elements >= 3 &&
		role->element[2]->type == REDIS_REPLY_ARRAY
	    ? (uint32_t)role->element[2]->elements
	    : 0;
}

static int
judge(struct asked *asked, struct connection *connection)
{
	const char *policy = setting(asked->answer[POLICY]);
	long version = info_number(asked->answer[INFO], "redis_version:");

	if (version < VERSION_MIN) {
		(void)snprintf(asked->why, VERIFY_WHY_MAX,
		    "the engine is version %ld of Redis; %d is needed", version,
		    VERSION_MIN);
		return -EOPNOTSUPP;
	}
	/* struct.pack then has no numbers of 64 bits. */
	if (info_number(asked->answer[INFO], "arch_bits:") == 32) {
		(void)snprintf(asked->why, VERIFY_WHY_MAX,
		    "the engine is built for 32 bits; 64 are needed");
		return -EOPNOTSUPP;
	}
	if (strcmp(policy, "noeviction") != 0) {
		(void)snprintf(asked->why, VERIFY_WHY_MAX,
		    "the engine's maxmemory-policy is %.40s; noeviction is "
		    "needed",
		    policy);
		return -EOPNOTSUPP;
	}
	if (!is_master(asked->answer[ROLE])) {
		(void)snprintf(asked->why, VERIFY_WHY_MAX,
		    "the engine is a replica; a master is needed");
		return -EROFS;
	}
	connection->replicas = verify_replicas(asked->answer[ROLE]);
	connection->rewrites = info_number(asked->answer[PERSISTENCE],
				   "aof_rewrite_in_progress:") != 0 ||
	    info_number(asked->answer[PERSISTENCE], "aof_rewrite_scheduled:") !=
		0;
	connection->keeps_always =
	    strcmp(setting(asked->answer[APPEND_ONLY]), "yes") == 0 &&
	    strcmp(setting(asked->answer[APPEND_FSYNC]), "always") == 0 &&
	    strcmp(setting(asked->answer[LOAD_TRUNCATED]), "no") == 0 &&
	    strcmp(setting(asked->answer[NO_FSYNC]), "no") == 0;
	return 0;
}

/* An engine that does not know the command repeats its arguments, and one of
 * them is the password: only the first word is kept. */
static void
keep_first_word(char *why)
{
	char *reply = strstr(why, ": ");

	if (reply != NULL)
		reply[2 + strcspn(reply + 2, " ")] = 0;
}

/* All of them, also after one that is an error: see verify. */
static int
receive_all(struct connection *connection, const struct demand *demand,
    struct asked *asked, const struct limit *limit)
{
	int error = 0;
	size_t i;

	if (demand->password != NULL)
		error = receive(connection, &asked->login, asked->why, limit);
	for (i = 0; i < QUESTIONS && error == 0; i++)
		error =
		    receive(connection, &asked->answer[i], asked->why, limit);
	return error;
}

static bool
is_error(const redisReply *reply)
{
	return reply != NULL && reply->type == REDIS_REPLY_ERROR;
}

/* The first one among the answers that are there; none: error. */
static int
judge_errors(struct asked *asked, int error)
{
	size_t i;

	if (is_error(asked->login)) {
		error = refused(asked->login, asked->why);
		keep_first_word(asked->why);
		return error;
	}
	for (i = 0; i < QUESTIONS; i++) {
		if (is_error(asked->answer[i]))
			return refused(asked->answer[i], asked->why);
	}
	return error;
}

static void
asked_free(struct asked *asked)
{
	size_t i;

	if (asked->login != NULL)
		freeReplyObject(asked->login);
	for (i = 0; i < QUESTIONS; i++) {
		if (asked->answer[i] != NULL)
			freeReplyObject(asked->answer[i]);
	}
}

int
verify(struct connection *connection, const struct demand *demand,
    char why[VERIFY_WHY_MAX], const struct limit *limit)
{
	struct asked asked = {.why = why};
	struct buffer buffer = {0};
	int error;

	why[0] = 0;
	if (demand->password != NULL)
		ask_login(&buffer, demand);
	ask_all(&buffer);
	error = connection_send(connection, &buffer, limit);
	/* It has the password. */
	if (buffer.data != NULL)
		explicit_bzero(buffer.data, buffer.size);
	buffer_free(&buffer);
	if (error == -ETIMEDOUT)
		error = -ECONNREFUSED;
	/* An engine may say why it closes the connection. */
	else if (error == 0 || error == -ECONNRESET)
		error = receive_all(connection, demand, &asked, limit);
	if (error == 0 || error == -ECONNREFUSED)
		error = judge_errors(&asked, error);
	if (error == 0)
		error = judge(&asked, connection);
	asked_free(&asked);
	return error;
}
