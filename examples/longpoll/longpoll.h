/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A long poll: GET /TOPIC?after=N&wait_ms=M answers as soon as the topic has
 * more than N messages, with their number and the last of them, or with 204
 * after M milliseconds. POST /TOPIC adds a message. GET /_stats tells what the
 * purgatory counts.
 *
 *   server.c    the event loop: each GET that waits is an operation
 *   clients.c   10,000 of them, who see to it that all adds up
 *   main.c      longpoll PORT serves; longpoll demo shows both
 */
#ifndef LONGPOLL_H
#define LONGPOLL_H

#include <stdbool.h>
#include <stdint.h>

enum {
	TOPICS = 1024,
	MESSAGE_MAX = 200,
	REQUEST_MAX = 1024
};

struct server;

/* Binds to a port of the loopback, 0: any. NULL: errno says why not. */
struct server *server_open(uint16_t port);
uint16_t server_port(const struct server *server);
/* Serves until the descriptor becomes readable or is closed. */
void server_run(struct server *server, int until_fd);
/* True: nothing was left, and all adds up. */
bool server_close(struct server *server);

/* Plays all clients against that port; true: all adds up. */
bool clients_run(
    uint16_t port, unsigned waiters, unsigned topics, unsigned seconds);

#endif
