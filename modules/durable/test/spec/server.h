/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real engine for a test: /usr/bin/redis-server on a socket in a scratch
 * folder. A guardian process starts it, and ends it and removes the folder when
 * this process ends, in whatever way.
 */
#ifndef HWT_DURABLE_TEST_SERVER_H
#define HWT_DURABLE_TEST_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

#include <hiredis/hiredis.h>

#define SERVER_FOLDER 64
#define SERVER_SETTINGS 24

struct server {
	char folder[SERVER_FOLDER];
	char path[SERVER_FOLDER + 8]; /* of its socket */
	char servers[SERVER_FOLDER + 16]; /* as the options have it */
	pid_t pid, guardian;
	int to, from;
	redisContext *context;
};

/* settings: pairs of words, ended by NULL; NULL: those of level FSYNCED. */
void server_start(struct server *server, const char *const *settings);
void server_stop(struct server *server);

/* kill -9; and the same engine again, on what is left on its disk. */
void server_kill(struct server *server);
void server_again(struct server *server);

/* Ends the program with errno and these words, unless all is fine. */
void need(bool fine, const char *what);
void pause_ms(long ms);

/* Of the loopback, in text. */
void server_free_port(char port[8]);

/* A command, its reply as a number; text is copied to said, if that is not
 * NULL. Fails the test if it cannot be sent. */
#define SAID_MAX 4096
long long server_ask(
    struct server *server, char said[SAID_MAX], const char *format, ...);

#endif
