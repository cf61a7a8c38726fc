/* SPDX-License-Identifier: Apache-2.0 */
/* hwtd: the server of queues. See man hwtd (8). */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "hwt.h"
#include "modules/durable/machine/command.h"
#include "modules/durable/server/http.h"
#include "modules/durable/server/schedule.h"
#include "modules/durable/server/server.h"

#define LISTEN_DEFAULT "127.0.0.1:7379"
#define LISTEN_MAX 8
#define PAYLOAD_MOST 1048576
#define SECRET_MAX 512

static struct server *server; /* NULL: the engine is a Redis */

static void
end(int number)
{
	(void)number;
	server_stop(server);
}

static const char usage[] =
    "usage: hwtd --data DIR [--listen HOST:PORT | --listen unix:PATH]...\n"
    "       hwtd --redis HOST:PORT | --redis unix:PATH\n"
    "            [--http ADDRESS:PORT] [--token-file FILE]\n"
    "            [--password-file FILE] [--payload BYTES] [--space NAME]\n";

static int
complain(const char *what, const char *why)
{
	(void)fprintf(stderr, "hwtd: %s: %s\n", what, why);
	return -1;
}

static int
listen_unix(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct stat file;
	int fd;

	if (strlen(path) >= sizeof(address.sun_path))
		return complain(path, "the path is too long");
	memcpy(address.sun_path, path, strlen(path));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* Of a server that was killed; any other file makes bind fail. */
	if (lstat(path, &file) == 0 && S_ISSOCK(file.st_mode))
		(void)unlink(path);
	if (fd < 0 || bind(fd, (const void *)&address, sizeof(address)) != 0 ||
	    listen(fd, SOMAXCONN) != 0)
		return complain(path, strerror(errno));
	return fd;
}

static int
listen_first(const struct addrinfo *at, const char *name)
{
	int one = 1;
	int fd;

	for (; at != NULL; at = at->ai_next) {
		fd = socket(at->ai_family,
		    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (fd < 0)
			continue;
		(void)setsockopt(
		    fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 &&
		    listen(fd, SOMAXCONN) == 0)
			return fd;
		(void)close(fd);
	}
	return complain(name, strerror(errno));
}

/* HOST:PORT, [ADDRESS]:PORT, or a port alone for 127.0.0.1. */
static int
listen_tcp(const char *name)
{
	const struct addrinfo hints = {
	    .ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
	const char *colon = strrchr(name, ':');
	const char *port = colon != NULL ? colon + 1 : name;
	bool brackets = name[0] == '[' && colon != NULL && colon[-1] == ']';
	char host[256] = "127.0.0.1";
	struct addrinfo *found;
	int error, fd;

	if (colon != NULL)
		(void)snprintf(host, sizeof(host), "%.*s",
		    (int)(colon - name) - 2 * brackets, name + brackets);
	error = getaddrinfo(host, port, &hints, &found);
	if (error != 0)
		return complain(name, gai_strerror(error));
	fd = listen_first(found, name);
	freeaddrinfo(found);
	return fd;
}

static int
listen_on(const char *name)
{
	return strncmp(name, "unix:", 5) == 0 ? listen_unix(name + 5)
					      : listen_tcp(name);
}

/* The first line. */
static char *
read_secret(const char *path)
{
	char line[SECRET_MAX + 2] = "";
	FILE *file = fopen(path, "re");

	if (file == NULL || fgets(line, sizeof(line), file) == NULL ||
	    line[0] == '\n' || strlen(line) > SECRET_MAX) {
		(void)complain(path, "want a first line of 1 to 511 bytes");
		exit(2);
	}
	(void)fclose(file);
	line[strcspn(line, "\n")] = '\0';
	return strdup(line);
}

static const struct option known[] = {
    {"data", required_argument, NULL, 'd'},
    {"listen", required_argument, NULL, 'l'},
    {"redis", required_argument, NULL, 'r'},
    {"http", required_argument, NULL, 'w'},
    {"token-file", required_argument, NULL, 't'},
    {"password-file", required_argument, NULL, 'p'},
    {"space", required_argument, NULL, 's'},
    {"payload", required_argument, NULL, 'b'},
    {"version", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

struct arguments {
	const char *of[128]; /* by the letter of the option */
	const char *listen[LISTEN_MAX];
	size_t listen_count;
	uint64_t payload_max;
	const char *password, *token;
};

/* False: that is no way to call it. */
static bool
parse(int argc, char **argv, struct arguments *arguments)
{
	const char **of = arguments->of;
	struct argument word;
	int letter;

	of['s'] = "hwt";
	of['b'] = "65536";
	while ((letter = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (letter == '?')
			return false;
		of[letter] = optarg != NULL ? optarg : "";
		if (letter != 'l')
			continue;
		if (arguments->listen_count == LISTEN_MAX)
			return false;
		arguments->listen[arguments->listen_count++] = optarg;
	}
	if (of['v'] != NULL || of['h'] != NULL) {
		printf("%s\n", of['v'] != NULL ? hwt_version() : usage);
		exit(0);
	}
	word = (struct argument){of['b'], strlen(of['b'])};
	arguments->password = of['p'] != NULL ? read_secret(of['p']) : NULL;
	arguments->token = of['t'] != NULL ? read_secret(of['t']) : NULL;
	return optind == argc && (of['d'] != NULL) != (of['r'] != NULL) &&
	    (of['r'] == NULL || of['l'] == NULL) &&
	    argument_number(&word, 1, PAYLOAD_MOST, &arguments->payload_max) &&
	    queue_name_is_valid(of['s']) && strlen(of['s']) <= ENGINE_SPACE_MAX;
}

static int
start_server(struct arguments *arguments, char *why)
{
	const struct server_options options = {
	    arguments->of['d'], arguments->password, arguments->payload_max};
	int error, fd;
	size_t i;

	if (arguments->listen_count == 0)
		arguments->listen[arguments->listen_count++] = LISTEN_DEFAULT;
	error = server_create(&server, &options, why);
	for (i = 0; i < arguments->listen_count && error == 0; i++) {
		fd = listen_on(arguments->listen[i]);
		error = fd < 0 ? fd : server_listen(server, fd);
	}
	return error;
}

static int
start_http(struct http **http, struct engine *engine,
    const struct arguments *arguments, char *why)
{
	const struct http_options options = {engine,
	    listen_tcp(arguments->of['w']), arguments->token,
	    arguments->payload_max};

	return options.fd < 0 ? -1 : http_start(http, &options, why);
}

/* Until a signal. */
static int
run(const sigset_t *signals, char *why)
{
	int number;

	if (server == NULL)
		return -sigwait(signals, &number);
	(void)pthread_sigmask(SIG_UNBLOCK, signals, NULL);
	return server_run(server, why);
}

int
main(int argc, char **argv)
{
	struct arguments arguments = {.listen_count = 0};
	const struct sigaction action = {.sa_handler = end};
	struct schedules *schedules;
	struct http *http = NULL;
	struct engine *engine;
	sigset_t signals;
	char why[200] = "";
	int error = 0;

	if (!parse(argc, argv, &arguments)) {
		(void)fputs(usage, stderr);
		return 2;
	}
	(void)signal(SIGPIPE, SIG_IGN);
	/* For the main thread alone. */
	(void)sigemptyset(&signals);
	(void)sigaddset(&signals, SIGTERM);
	(void)sigaddset(&signals, SIGINT);
	(void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
	if (arguments.of['d'] != NULL) {
		error = start_server(&arguments, why);
		(void)sigaction(SIGTERM, &action, NULL);
		(void)sigaction(SIGINT, &action, NULL);
	}
	engine =
	    engine_create(&(struct engine_options){server, arguments.of['r'],
		server != NULL ? NULL : arguments.password, arguments.of['s']});
	if (error == 0 && arguments.of['w'] != NULL)
		error = start_http(&http, engine, &arguments, why);
	schedules =
	    error == 0 && engine != NULL ? schedules_start(engine) : NULL;
	if (schedules == NULL) {
		if (why[0] != '\0')
			(void)complain("cannot start", why);
		return 1;
	}
	printf("hwtd: ready\n");
	(void)fflush(stdout);
	error = run(&signals, why);
	if (error != 0) {
		(void)complain("ends", why);
		_exit(1);
	}
	engine_close(engine);
	if (server != NULL)
		server_destroy(server);
	schedules_stop(schedules);
	if (http != NULL)
		http_stop(http);
	engine_destroy(engine);
	return 0;
}
