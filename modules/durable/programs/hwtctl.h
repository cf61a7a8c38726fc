/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HWT_DURABLE_PROGRAMS_HWTCTL_H
#define HWT_DURABLE_PROGRAMS_HWTCTL_H

#include "modules/durable/client/call.h"
#include "modules/durable/programs/options.h"

#define SCHEDULES "hwt.schedules"

/* What a command line says. NULL or 0: the option was not given. */
struct request {
	struct program *program;
	struct hwt_durable *durable;
	const char *id, *retry, *expires, *result, *cron, *zone, *level;
	const char *in, *at, *attempts, *every, *late, *running, *rate, *max;
	const char *limit;
	bool pause, resume, all;
	int argc; /* what follows the command and the options */
	char **argv;
};

/* A command in the making. Texts must outlive it. */
struct words {
	size_t count;
	struct durable_word word[16 + HWT_DURABLE_BATCH_MAX];
};

void words_add(struct words *words, const char *text);
void words_add_bytes(struct words *words, const void *bytes, size_t length);

/* Sends it; an error ends the program. The caller frees the reply. */
redisReply *request_call(const struct request *request, const char *queue,
    const struct words *words);
/* Unix time in ms, of --in or --at; 0: neither. */
bool request_due(const struct request *request, struct words *words);
/* The argument, or standard input if it is "-"; NULL, 0: nothing. */
char *request_payload(
    const struct request *request, const char *argument, size_t *length);
/* Says of each id whether it was done. Returns the exit status. */
int request_each_id(const struct request *request, const char *queue,
    struct words *words, char **ids, int count, const char *refused);
void print_time(const char *name, long long ms);

int run_list(struct request *request);
int run_dead(struct request *request);
int run_queue(struct request *request);
int run_stat(struct request *request);
int run_schedule(struct request *request);

#endif
