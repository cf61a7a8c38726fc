/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hwtd answers over HTTP. --listen serves all of it; --metrics only
 * /metrics and /health, to whoever asks.
 *
 * WHO MAY ASK. With a token: whoever sends it; the page, which has no data, is
 * for all. Without one: this machine alone. A page of another site can make a
 * browser on it send requests, so those with a foreign Origin or Host are
 * refused.
 */
#ifndef HWT_DURABLE_HWTD_SERVE_H
#define HWT_DURABLE_HWTD_SERVE_H

#include <stdbool.h>

#include "http.h"
#include "modules/durable/hwt_durable.h"

#define TOKEN_MIN 16
#define TOKEN_MAX 256

/* One for each server, which has it. */
struct serve {
	bool api; /* all paths, to those who may; not only two of them */
	unsigned servers; /* of this process */
	char where[64]; /* its address, with the port */
	size_t token_length; /* 0: there is none */
	char token[TOKEN_MAX];
};

/* Not healthy if a task waits for a worker for longer; 0: however long. */
extern uint64_t serve_queue_wait_ns;

/* The first line of a file. 0; -EINVAL: that is no token; or another -errno:
 * the file cannot be read. */
int serve_token_read(struct serve *serve, const char *path);

/* Once, before the first start. stop_fd is readable when hwtd ends. */
void serve_init(struct hwt_durable *durable, int stop_fd);

/* As http_start. */
int serve_start(struct http **http, int listener, struct serve *serve);

#endif
