/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A long poll: GET /TOPIC?after=N&wait_ms=M answers as soon as the topic has
 * more than N messages, with their number and the last of them, or with 204
 * after M milliseconds. POST /TOPIC adds a message. GET /_stats prints the
 * counters of the purgatory.
 *
 *   server.c    the event loop: each GET that waits is an operation
 *   clients.c   10,000 of them, who check the account; main
 */
#ifndef LONGPOLL_H
#define LONGPOLL_H

#include <stdbool.h>
#include <stdint.h>

/* Listens on a port of the loopback, 0: any, which is returned. */
uint16_t server_open(uint16_t port);
/* Serves until the descriptor becomes readable or is closed. */
void server_run(int until_fd);
bool server_close(void); /* true: nothing was left, the counters agree */

#endif
