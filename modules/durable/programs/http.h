/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers GET over HTTP/1.0, one connection at a time: whoever is slow to ask,
 * to read the answer or to close is cut off after a second.
 */
#ifndef HWT_DURABLE_HTTP_H
#define HWT_DURABLE_HTTP_H

#include <stdint.h>
#include <stdio.h>

/* Writes the body of the answer, whose type is text/plain, and returns its
 * status: 200, 404 or 503. */
typedef int http_answer(void *ctx, const char *path, FILE *body);

/* Listens on ADDRESS:PORT, on loopback if that is only a port; port 0: a free
 * one. Writes where, as "127.0.0.1:9000", to where. Returns a descriptor, or
 * -errno; -EINVAL: address is none. */
int http_listen(const char *address, char where[64]);

/* Serves the connection that waits on the descriptor. */
void http_serve(int listener, http_answer *answer, void *ctx);

#endif
