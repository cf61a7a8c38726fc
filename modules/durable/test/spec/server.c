/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "modules/durable/test/spec/server.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS 60000

static const char *const fsynced[] = {"--appendonly", "yes", "--appendfsync",
    "always", "--aof-load-truncated", "no", NULL};

void
need(bool fine, const char *what)
{
	if (fine)
		return;
	perror(what);
	abort();
}

void
pause_ms(long ms)
{
	const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};

	(void)nanosleep(&pause, NULL);
}

/* Nobody has it; the system gives it to nobody else for a while. */
void
server_free_port(char port[8])
{
	struct sockaddr_in address = {
	    .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t length = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	need(bind(fd, (struct sockaddr *)&address, length) == 0, "bind");
	need(getsockname(fd, (struct sockaddr *)&address, &length) == 0,
	    "getsockname");
	(void)snprintf(port, 8, "%u", ntohs(address.sin_port));
	(void)close(fd);
}

/* The guardian. */

static void
server_exec(const struct server *server, const char *const *settings)
{
	/* execvp does not change what it gets. */
	union {
		const char *word[32 + SERVER_SETTINGS];
		char *changing[32 + SERVER_SETTINGS];
	} argument = {{"redis-server", "--port", "0", "--unixsocket",
	    server->path, "--dir", server->folder, "--save", "", "--daemonize",
	    "no", "--logfile", "log"}};
	size_t count = 13;

	while (*settings != NULL)
		argument.word[count++] = *settings++;
	argument.word[count] = NULL;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)execvp("/usr/bin/redis-server", argument.changing);
	_exit(127);
}

static pid_t
server_spawn(const struct server *server, const char *const *settings)
{
	pid_t pid = fork();

	if (pid == 0)
		server_exec(server, settings);
	return pid;
}

static void
server_end(pid_t *pid)
{
	if (*pid <= 0)
		return;
	(void)kill(*pid, SIGKILL);
	(void)waitpid(*pid, NULL, 0);
	*pid = 0;
}

static int
remove_each(
    const char *path, const struct stat *status, int kind, struct FTW *at)
{
	(void)status;
	(void)kind;
	(void)at;
	return remove(path);
}

/* 's' starts, 'k' kills; the end of its input ends it. */
static void
guard(
    const struct server *server, const char *const *settings, int from, int to)
{
	pid_t pid = 0;
	int tries = 1000;
	char order;

	while (read(from, &order, 1) == 1) {
		server_end(&pid);
		if (order == 's')
			pid = server_spawn(server, settings);
		if (write(to, &pid, sizeof(pid)) != sizeof(pid))
			break;
	}
	server_end(&pid);
	/* A child that rewrites its file may outlive it for a moment. */
	while (access(server->folder, F_OK) == 0 && tries-- > 0) {
		(void)nftw(
		    server->folder, remove_each, 8, FTW_DEPTH | FTW_PHYS);
		pause_ms(10);
	}
	_exit(0);
}

/* Other guardians wait for the end of pipes that this one has inherited. */
static void
close_others(int from, int to)
{
	int fd;

	for (fd = 3; fd < 1024; fd++) {
		if (fd != from && fd != to)
			(void)close(fd);
	}
}

static void
guardian_start(struct server *server, const char *const *settings)
{
	int down[2], up[2];

	need(pipe2(down, O_CLOEXEC) == 0, "pipe2");
	need(pipe2(up, O_CLOEXEC) == 0, "pipe2");
	server->guardian = fork();
	need(server->guardian >= 0, "fork");
	if (server->guardian == 0) {
		/* A signal to the group of a test is not for it. */
		(void)setpgid(0, 0);
		close_others(down[0], up[1]);
		guard(server, settings, down[0], up[1]);
	}
	(void)close(down[0]);
	(void)close(up[1]);
	server->to = down[1];
	server->from = up[0];
}

static void
guardian_order(struct server *server, char order)
{
	need(write(server->to, &order, 1) == 1, "guardian");
	need(read(server->from, &server->pid, sizeof(server->pid)) ==
		sizeof(server->pid),
	    "guardian");
}

/* The test's side. */

static int
server_answers(struct server *server)
{
	redisReply *reply = NULL;
	int answers = 0;

	server->context = redisConnectUnix(server->path);
	if (server->context != NULL && server->context->err == 0)
		reply = redisCommand(server->context, "PING");
	if (reply != NULL)
		answers = reply->type == REDIS_REPLY_STATUS ||
		    strncmp(reply->str, "NOAUTH", 6) == 0;
	if (reply != NULL)
		freeReplyObject(reply);
	if (!answers && server->context != NULL) {
		redisFree(server->context);
		server->context = NULL;
	}
	return answers;
}

void
server_again(struct server *server)
{
	int waited = 0;

	guardian_order(server, 's');
	while (!server_answers(server)) {
		need(waited++ < PATIENCE_MS / 5, "redis-server");
		pause_ms(5);
	}
}

void
server_kill(struct server *server)
{
	if (server->context != NULL)
		redisFree(server->context);
	server->context = NULL;
	guardian_order(server, 'k');
}

void
server_start(struct server *server, const char *const *settings)
{
	const char *scratch = getenv("TMPDIR");

	memset(server, 0, sizeof(*server));
	(void)snprintf(server->folder, sizeof(server->folder),
	    "%.40s/hwt-XXXXXX",
	    scratch != NULL && strlen(scratch) < 40 ? scratch : "/tmp");
	need(mkdtemp(server->folder) != NULL, "mkdtemp");
	(void)snprintf(
	    server->path, sizeof(server->path), "%s/socket", server->folder);
	(void)snprintf(
	    server->servers, sizeof(server->servers), "unix:%s", server->path);
	if (settings == NULL)
		settings = fsynced;
	guardian_start(server, settings);
	server_again(server);
}

void
server_stop(struct server *server)
{
	if (server->context != NULL)
		redisFree(server->context);
	(void)close(server->to);
	(void)waitpid(server->guardian, NULL, 0);
	(void)close(server->from);
	memset(server, 0, sizeof(*server));
}

long long
server_ask(struct server *server, char said[SAID_MAX], const char *format, ...)
{
	redisReply *reply;
	long long number;
	va_list list;

	va_start(list, format);
	reply = redisvCommand(server->context, format, list);
	va_end(list);
	need(reply != NULL, format);
	number = reply->type == REDIS_REPLY_INTEGER
	    ? reply->integer
	    : (long long)reply->elements;
	if (said != NULL)
		(void)snprintf(
		    said, SAID_MAX, "%s", reply->str != NULL ? reply->str : "");
	freeReplyObject(reply);
	return number;
}
