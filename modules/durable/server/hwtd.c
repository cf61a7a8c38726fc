/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwtd: the server of queues. See man hwtd (8).
 *
 * The server of --data has a thread. HTTP and schedules are clients of it as
 * others are, by the first address that it listens on; or of the server of
 * --redis.
 */
#include <errno.h>
#include <locale.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "modules/durable/programs/program.h"
#include "modules/durable/server/calendar.h"
#include "modules/durable/server/http.h"
#include "modules/durable/server/schedule.h"
#include "modules/durable/server/server.h"

#define LISTEN_MAX 8
#define PAYLOAD_MOST 1048576
#define SECRET_SIZE 514

static const char usage[] =
    "usage: hwtd --data DIR [--listen HOST:PORT | --listen unix:PATH]...\n"
    "       hwtd --redis HOST:PORT | --redis unix:PATH\n"
    "            [--http ADDRESS:PORT] [--password-file FILE]\n"
    "            [--payload BYTES] [--space NAME]\n";

static struct {
	const char *data, *redis, *http;
	const char *listen[LISTEN_MAX];
	size_t listen_count;
	uint64_t payload_max;
	char password[SECRET_SIZE];
} given = {.payload_max = 65536};

static void
add_listen(const char *name)
{
	if (given.listen_count == LISTEN_MAX)
		program_usage();
	given.listen[given.listen_count++] = name;
}

static int
listen_unix(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct stat file;
	int fd;

	if (strlen(path) >= sizeof(address.sun_path))
		program_fail(1, "%s: the path is too long", path);
	memcpy(address.sun_path, path, strlen(path));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* Of a server that was killed; any other file makes bind fail. */
	if (lstat(path, &file) == 0 && S_ISSOCK(file.st_mode))
		(void)unlink(path);
	if (fd < 0 || bind(fd, (const void *)&address, sizeof(address)) != 0 ||
	    listen(fd, SOMAXCONN) != 0)
		program_fail(1, "%s: %s", path, strerror(errno));
	return fd;
}

/* HOST:PORT, [ADDRESS]:PORT, or a port alone for 127.0.0.1. */
static int
listen_tcp(const char *name)
{
	const struct addrinfo hints = {
	    .ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
	const char *colon = strrchr(name, ':');
	bool brackets = name[0] == '[' && colon != NULL && colon[-1] == ']';
	char host[256] = "127.0.0.1";
	struct addrinfo *found, *at;
	int error, fd, one = 1;

	if (colon != NULL)
		(void)snprintf(host, sizeof(host), "%.*s",
		    (int)(colon - name) - 2 * brackets, name + brackets);
	error =
	    getaddrinfo(host, colon != NULL ? colon + 1 : name, &hints, &found);
	if (error != 0)
		program_fail(1, "%s: %s", name, gai_strerror(error));
	for (at = found; at != NULL; at = at->ai_next) {
		fd = socket(at->ai_family,
		    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (fd < 0)
			continue;
		(void)setsockopt(
		    fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 &&
		    listen(fd, SOMAXCONN) == 0) {
			freeaddrinfo(found);
			return fd;
		}
		(void)close(fd);
	}
	program_fail(1, "%s: %s", name, strerror(errno));
}

static const struct program_option own[] = {
    {"data", .text = &given.data},
    {"listen", .read = add_listen},
    {"redis", .text = &given.redis},
    {"http", .text = &given.http},
    {"password-file", .text = &program.connect.password_file},
    {"space", .text = &program.connect.space},
    {"payload", .number = &given.payload_max, .least = 1, .most = PAYLOAD_MOST},
    {.name = NULL},
};

struct program program = {.name = "hwtd", .usage = usage, .options = {own}};

static void
parse(int argc, char **argv)
{
	if (program_parse(argc, argv) != argc ||
	    (given.data != NULL) == (given.redis != NULL) ||
	    (given.redis != NULL && given.listen_count > 0))
		program_usage();
	if (program.connect.password_file != NULL)
		read_first_line(program.connect.password_file, given.password,
		    sizeof(given.password));
}

/* Until server_stop. What was acknowledged last is not known, if the disk has
 * failed: only the next start can find it out. */
static void *
serve(void *server)
{
	char why[200];

	if (server_run(server, why) == 0)
		return NULL;
	(void)fprintf(stderr, "hwtd: ends: %s\n", why);
	_exit(1);
}

static struct server *
start_server(pthread_t *thread)
{
	const struct server_options options = {given.data,
	    given.password[0] != '\0' ? given.password : NULL,
	    given.payload_max};
	static char first[80];
	struct server *server;
	char why[200];
	size_t i;
	int fd;

	if (given.listen_count == 0)
		add_listen("127.0.0.1:7379");
	if (server_create(&server, &options, why) != 0)
		program_fail(1, "cannot start: %s", why);
	for (i = 0; i < given.listen_count; i++) {
		fd = strncmp(given.listen[i], "unix:", 5) == 0
		    ? listen_unix(given.listen[i] + 5)
		    : listen_tcp(given.listen[i]);
		if (server_listen(server, fd) != 0)
			program_fail(1, "cannot start: no file descriptor");
	}
	program.connect.servers = given.listen[0];
	if (strchr(given.listen[0], ':') == NULL) {
		(void)snprintf(
		    first, sizeof(first), "127.0.0.1:%s", given.listen[0]);
		program.connect.servers = first;
	}
	if (pthread_create(thread, NULL, serve, server) != 0)
		program_fail(1, "cannot start: no thread");
	return server;
}

int
main(int argc, char **argv)
{
	struct server *server = NULL;
	struct hwt_durable *durable;
	const char *why;
	pthread_t thread;
	sigset_t signals;
	int number, http_fd = -1;

	(void)setlocale(LC_CTYPE, "C.UTF-8");
	calendar_begin();
	parse(argc, argv);
	(void)signal(SIGPIPE, SIG_IGN);
	/* For sigwait. */
	(void)sigemptyset(&signals);
	(void)sigaddset(&signals, SIGTERM);
	(void)sigaddset(&signals, SIGINT);
	(void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
	program.connect.servers = given.redis;
	if (given.http != NULL)
		http_fd = listen_tcp(given.http);
	if (given.data != NULL)
		server = start_server(&thread);
	durable = program_open();
	if (given.http != NULL) {
		const struct http_options options = {
		    durable, http_fd, given.password, given.payload_max};

		why = http_start(&options);
		if (why != NULL)
			program_fail(1, "--http: %s", why);
	}
	if (schedules_start(durable) != 0)
		program_fail(1, "cannot start: no thread");
	printf("hwtd: ready\n");
	(void)fflush(stdout);
	(void)sigwait(&signals, &number);
	if (given.http != NULL)
		http_stop();
	if (schedules_stop() == 0)
		(void)hwt_durable_close(durable);
	if (server == NULL)
		return 0;
	server_stop(server);
	(void)pthread_join(thread, NULL);
	server_destroy(server);
	return 0;
}
