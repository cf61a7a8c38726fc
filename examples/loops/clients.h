/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clients of each of these servers: a thread with the other ends of their
 * socket pairs. Some talk for a while, for longer than the server lets a client
 * be idle, and hang up; the others say nothing and wait until the server closes
 * them.
 */
#ifndef LOOPS_CLIENTS_H
#define LOOPS_CLIENTS_H

#include <hwt.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../must.h"

#define TALKERS 4
#define SILENT 4
#define CLIENTS (TALKERS + SILENT)
#define ROUNDS 10
#define PAUSE_NS HWT_MS(20)
#define IDLE_NS HWT_MS(150)

struct clients {
	pthread_t thread;
	int fds[CLIENTS];
	/* When a client sent the last byte that came back. */
	uint64_t last_ns[CLIENTS];
};

/* What a server counts. */
struct tally {
	unsigned open, hung_up, idle;
};

static inline uint64_t
clock_ns(void)
{
	struct timespec now;

	must(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	return HWT_SEC(now.tv_sec) + (uint64_t)now.tv_nsec;
}

/* The server has closed it, and not too early. */
static inline void
client_closed(struct clients *clients, int i)
{
	must(clock_ns() - clients->last_ns[i] >= IDLE_NS);
}

/* Where the machine is slow, the server may lose patience. */
static inline void
client_talk(struct clients *clients, int i)
{
	uint64_t sent_ns = clock_ns();
	char byte = 'x';

	if (send(clients->fds[i], &byte, 1, MSG_NOSIGNAL) == 1 &&
	    recv(clients->fds[i], &byte, 1, 0) == 1)
		clients->last_ns[i] = sent_ns;
	else
		client_closed(clients, i);
}

static inline void *
clients_main(void *arg)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	struct clients *clients = arg;
	int round, i;
	char byte;

	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < TALKERS; i++)
			client_talk(clients, i);
		nanosleep(&pause, NULL);
	}
	for (i = 0; i < TALKERS; i++)
		close(clients->fds[i]);
	for (; i < CLIENTS; i++) {
		must(recv(clients->fds[i], &byte, 1, 0) == 0);
		client_closed(clients, i);
		close(clients->fds[i]);
	}
	return NULL;
}

/* The server's ends go to fds; they do not block. */
static inline void
clients_start(struct clients *clients, int fds[CLIENTS])
{
	int ends[2], i;

	for (i = 0; i < CLIENTS; i++) {
		must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) ==
		    0);
		clients->fds[i] = ends[0];
		clients->last_ns[i] = clock_ns();
		fds[i] = ends[1];
	}
	must(
	    pthread_create(&clients->thread, NULL, clients_main, clients) == 0);
}

/* Every client was closed once, and each that was silent for its silence. */
static inline void
clients_join(struct clients *clients, const struct tally *tally)
{
	must(pthread_join(clients->thread, NULL) == 0);
	must(tally->open == 0 && tally->hung_up + tally->idle == CLIENTS);
	must(tally->idle >= SILENT);
	printf("%u clients hung up, %u were closed as idle\n", tally->hung_up,
	    tally->idle);
}

#endif
