/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HWT_DURABLE_PERF_ENGINE_H
#define HWT_DURABLE_PERF_ENGINE_H

/*
 * A queue, for load.c, which is linked with redis.c or postgresql.c. A
 * connection has at most one request outstanding; nothing waits for an answer
 * but the caller, in poll().
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	BATCH_MAX = 512,
	PAYLOAD_SIZE = 64
};

struct task {
	uint64_t number, due_ms, fence;
};

struct connection;

/* How long a worker pauses that has got nothing; 0: the server blocks it. */
extern unsigned engine_pause_ms;
/* Milliseconds of a lease, where the engine has leases. */
extern unsigned engine_visibility_ms;

/* NULL: it is not reached. */
struct connection *engine_connect(const char *address, unsigned index);
void engine_close(struct connection *connection);
int engine_fd(const struct connection *connection);

/* False: the connection is lost. */
bool engine_send_add(
    struct connection *connection, const struct task *tasks, size_t count);
/* Ends the tasks that are done, and takes up to limit. */
bool engine_send_take(struct connection *connection, const struct task *done,
    size_t count, unsigned limit);

/* 1: the answer is there, with what a take has got; *refused is how many of the
 * finished tasks were not this attempt's any more. 0: it has not come yet. -1:
 * the connection is lost. */
int engine_receive(struct connection *connection, struct task *taken,
    size_t *count, size_t *refused);

/* PAYLOAD_SIZE bytes and a NUL. */
void payload_write(char *payload, const struct task *task);
void payload_read(const char *payload, struct task *task);
void fail(const char *what, const char *why) __attribute__((noreturn));

#endif
