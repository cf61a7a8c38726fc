/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HWT_DURABLE_PERF_RESP_H
#define HWT_DURABLE_PERF_RESP_H

/* A connection by hiredis, for hwt.c and sorted_sets.c. */
#include <hiredis/hiredis.h>

#include "modules/durable/perf/engine.h"

enum {
	WORDS_MAX = 16 + 3 * BATCH_MAX
};

struct connection {
	redisContext *redis;
	unsigned index;
	size_t done_count; /* tasks that the outstanding request ends */
	bool takes, loaded;
	size_t words;
	const char *word[WORDS_MAX];
	size_t length[WORDS_MAX];
	char text[WORDS_MAX * (PAYLOAD_SIZE + 1)], *end; /* of the words */
};

void resp_begin(struct connection *connection, const char *name);
/* The text stays where it is until it is sent. */
void resp_text(struct connection *connection, const char *text);
void resp_number(struct connection *connection, uint64_t number);
void resp_payload(struct connection *connection, const struct task *task);
bool resp_send(struct connection *connection);
/* As engine_receive; an error of the server ends the program. */
int resp_receive(struct connection *connection, redisReply **reply);

#endif
