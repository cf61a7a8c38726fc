/* SPDX-License-Identifier: Apache-2.0 */
/*
 * longpoll PORT serves until its standard input ends. longpoll demo [WAITERS
 * [SECONDS]] serves 10,000 clients of another process; its status is 0 if all
 * adds up. Without enough file descriptors there are fewer clients.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "longpoll.h"

enum {
	WAITERS = 10000,
	DEMO_TOPICS = 100,
	SECONDS = 6
};

static unsigned
waiters_possible(unsigned wanted)
{
	struct rlimit limit;
	unsigned possible;

	(void)getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
	possible =
	    limit.rlim_cur > 1000000 ? 1000000 : (unsigned)limit.rlim_cur;
	possible = possible > 200 ? possible - 100 : possible / 2;
	return wanted < possible ? wanted : possible;
}

static int
demo(unsigned waiters, unsigned seconds)
{
	struct server *server = server_open(0);
	int ends[2], status = 1;
	pid_t child;

	if (server == NULL || pipe(ends) != 0) {
		perror("longpoll");
		return 1;
	}
	waiters = waiters_possible(waiters);
	(void)fflush(stdout);
	child = fork();
	if (child == 0) {
		(void)close(ends[0]);
		exit(clients_run(
			 server_port(server), waiters, DEMO_TOPICS, seconds)
			? 0
			: 1);
	}
	(void)close(ends[1]);
	server_run(server, ends[0]);
	(void)waitpid(child, &status, 0);
	(void)close(ends[0]);
	if (!server_close(server)) {
		printf("FAILED: the server has something left\n");
		return 1;
	}
	return status == 0 ? 0 : 1;
}

int
main(int argc, char **argv)
{
	struct server *server;

	if (argc >= 2 && strcmp(argv[1], "demo") == 0)
		return demo(
		    argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : WAITERS,
		    argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : SECONDS);
	if (argc != 2) {
		(void)fprintf(
		    stderr, "longpoll PORT | demo [WAITERS [SECONDS]]\n");
		return 2;
	}
	server = server_open((uint16_t)strtoul(argv[1], NULL, 10));
	if (server == NULL) {
		perror("longpoll");
		return 1;
	}
	(void)waiters_possible(0);
	printf("port %u\n", server_port(server));
	(void)fflush(stdout);
	server_run(server, STDIN_FILENO);
	return server_close(server) ? 0 : 1;
}
