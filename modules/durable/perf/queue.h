/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is measured: hwt.c, zset.c, expiry.c, beanstalkd.c and postgresql.c each
 * give client.c these functions. What cannot go on writes why to stderr and
 * exits.
 */
#ifndef HWT_DURABLE_PERF_QUEUE_H
#define HWT_DURABLE_PERF_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
	PAYLOAD = 64, /* bytes of each task */
	BATCH_MAX = 512
};

struct task {
	uint64_t number; /* unique in a run, and the id where there are ids */
	uint64_t due_ms; /* Unix time */
	char payload[PAYLOAD + 1]; /* number and due time, as text */
};

struct producer;

/* The resolution of due times in a queue, in ms. */
extern const unsigned queue_unit_ms;

/* Once, before all else. server: see the top of the file of each queue. */
void queue_open(const char *server);
void queue_close(void);

/* Of one thread. */
struct producer *producer_open(void);
void producer_close(struct producer *producer);
/* Whether all were acknowledged. If not, it is to be repeated: what was sent
 * may have been stored or not. */
bool producer_add(
    struct producer *producer, size_t count, const struct task *tasks);

/* So many threads that take what is due and call task_executed. */
void work_start(unsigned threads);
void work_stop(void);

/* Of client.c; any thread. */
void task_executed(const char *payload);

/* Unix time. */
static inline uint64_t
now_ms(void)
{
	struct timespec now = {0};

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

#define FAIL(...) \
	((void)fprintf(stderr, __VA_ARGS__), (void)fputc('\n', stderr), exit(1))

#endif
