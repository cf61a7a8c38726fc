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
#include <sys/un.h>
#include <unistd.h>

#include "hwt.h"
#include "modules/durable/machine/command.h"
#include "modules/durable/server/server.h"

#define PORT_DEFAULT "7379"
#define LISTEN_MAX 8
#define PAYLOAD_MOST 1048576

static struct server *server;

static void
end(int number)
{
	(void)number;
	server_stop(server);
}

static const char usage[] =
    "usage: hwtd --data DIR [--listen HOST:PORT | --listen unix:PATH]...\n"
    "            [--password-file FILE] [--payload BYTES]\n";

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
	int fd;

	if (strlen(path) >= sizeof(address.sun_path))
		return complain(path, "the path is too long");
	memcpy(address.sun_path, path, strlen(path));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
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

/* HOST:PORT, or a port alone for 127.0.0.1. */
static int
listen_tcp(const char *name)
{
	const struct addrinfo hints = {
	    .ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
	const char *colon = strrchr(name, ':');
	const char *port = colon != NULL ? colon + 1 : name;
	char host[256] = "127.0.0.1";
	struct addrinfo *found;
	int error, fd;

	if (colon != NULL && (size_t)(colon - name) < sizeof(host)) {
		memcpy(host, name, (size_t)(colon - name));
		host[colon - name] = '\0';
	}
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
read_password(const char *path)
{
	static char line[514];
	FILE *file = fopen(path, "re");

	if (file == NULL || fgets(line, sizeof(line), file) == NULL) {
		(void)complain(path, "no password is in it");
		exit(2);
	}
	(void)fclose(file);
	line[strcspn(line, "\n")] = '\0';
	return line;
}

struct arguments {
	struct server_options options;
	const char *listen[LISTEN_MAX];
	size_t listen_count;
};

static void
parse(int argc, char **argv, struct arguments *arguments)
{
	static const struct option known[] = {
	    {"data", required_argument, NULL, 'd'},
	    {"listen", required_argument, NULL, 'l'},
	    {"password-file", required_argument, NULL, 'p'},
	    {"payload", required_argument, NULL, 'b'},
	    {"version", no_argument, NULL, 'v'},
	    {"help", no_argument, NULL, 'h'},
	    {NULL, 0, NULL, 0},
	};
	struct server_options *options = &arguments->options;
	struct argument word;
	uint64_t number;
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (option == 'd') {
			options->folder = optarg;
		} else if (option == 'l' &&
		    arguments->listen_count < LISTEN_MAX) {
			arguments->listen[arguments->listen_count++] = optarg;
		} else if (option == 'p') {
			options->password = read_password(optarg);
		} else if (option == 'b') {
			word = (struct argument){optarg, strlen(optarg)};
			if (!argument_number(&word, 1, PAYLOAD_MOST, &number))
				goto wrong;
			options->payload_max = number;
		} else if (option == 'v' || option == 'h') {
			printf("%s\n", option == 'v' ? hwt_version() : usage);
			exit(0);
		} else {
			goto wrong;
		}
	}
	if (options->folder != NULL && optind == argc)
		return;
wrong:
	(void)fputs(usage, stderr);
	exit(2);
}

int
main(int argc, char **argv)
{
	struct arguments arguments = {.listen_count = 0};
	struct sigaction action = {.sa_handler = end};
	char why[200] = "";
	size_t i;
	int error, fd;

	parse(argc, argv, &arguments);
	if (arguments.listen_count == 0)
		arguments.listen[arguments.listen_count++] =
		    "127.0.0.1:" PORT_DEFAULT;
	error = server_create(&server, &arguments.options, why);
	for (i = 0; i < arguments.listen_count && error == 0; i++) {
		fd = listen_on(arguments.listen[i]);
		error = fd < 0 ? fd : server_listen(server, fd);
	}
	if (error != 0) {
		if (why[0] != '\0')
			(void)complain("cannot start", why);
		return 1;
	}
	(void)sigaction(SIGTERM, &action, NULL);
	(void)sigaction(SIGINT, &action, NULL);
	printf("hwtd: ready\n");
	(void)fflush(stdout);
	error = server_run(server, why);
	if (error != 0) {
		(void)complain("ends", why);
		_exit(1);
	}
	server_destroy(server);
	return 0;
}
