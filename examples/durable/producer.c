/* SPDX-License-Identifier: Apache-2.0 */
/*
 * producer SERVERS SPACE QUEUE LOG PREFIX RATE SECONDS: adds so many tasks a
 * second, due within 2 s, with ids of PREFIX and a number, and cancels some.
 * What gets no answer is asked again until it does. Writes to LOG, before and
 * after the call:
 *
 *   ask MS ID DELAY-MS          ack MS ID
 *   undo MS ID                  cancelled|kept MS ID
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <hwt_durable.h>

enum {
	BATCH = 64,
	DELAY_MS = 2000
};

struct producer {
	struct hwt_durable *durable;
	const char *prefix, *queue;
	int file;
	uint64_t sent, random;
	char text[BATCH * 96]; /* of the log, to be written at once */
	size_t length;
	struct hwt_durable_task task[BATCH];
	char id[BATCH][32];
};

static uint64_t
clock_ns(clockid_t clock)
{
	struct timespec now;

	(void)clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * HWT_SEC(1) + (uint64_t)now.tv_nsec;
}

static uint64_t
random_next(struct producer *producer)
{
	producer->random ^= producer->random << 13;
	producer->random ^= producer->random >> 7;
	producer->random ^= producer->random << 17;
	return producer->random;
}

static void
log_add(struct producer *producer, const char *what, const char *id,
    const char *more)
{
	producer->length += (size_t)snprintf(producer->text + producer->length,
	    sizeof(producer->text) - producer->length, "%s %" PRIu64 " %s%s\n",
	    what, clock_ns(CLOCK_REALTIME) / HWT_MS(1), id, more);
}

static void
log_write(struct producer *producer)
{
	if (write(producer->file, producer->text, producer->length) !=
	    (ssize_t)producer->length)
		abort();
	producer->length = 0;
}

/* Without an answer, or refused for now. */
static bool
ask_again(int error)
{
	if (error != -ETIMEDOUT && error != -ECONNREFUSED && error != -EAGAIN &&
	    error != -EOPNOTSUPP && error != -ETIME)
		return false;
	(void)usleep(20000);
	return true;
}

static void
batch_fill(struct producer *producer, size_t count)
{
	static const char *const payloads[] = {"fail", "retry", "order"};
	struct hwt_durable_task *task;
	char more[24];
	size_t i, kind;

	for (i = 0; i < count; i++) {
		task = &producer->task[i];
		(void)snprintf(producer->id[i], sizeof(producer->id[i]),
		    "%s-%" PRIu64, producer->prefix, producer->sent + i);
		kind = random_next(producer) % 200;
		kind = kind < 2 ? kind : 2;
		*task = (struct hwt_durable_task){
		    .id = producer->id[i],
		    .id_length = strlen(producer->id[i]),
		    .queue = producer->queue,
		    .delay_ns = HWT_MS(random_next(producer) % DELAY_MS),
		    .payload = payloads[kind],
		    .payload_length = strlen(payloads[kind]),
		};
		(void)snprintf(more, sizeof(more), " %" PRIu64,
		    task->delay_ns / HWT_MS(1));
		log_add(producer, "ask", producer->id[i], more);
	}
	log_write(producer);
}

/* One of the batch, while it is pending or not. */
static bool
cancel_one(struct producer *producer, const char *id)
{
	int error;

	log_add(producer, "undo", id, "");
	log_write(producer);
	do
		error = hwt_durable_cancel(producer->durable, id, strlen(id));
	while (ask_again(error));
	log_add(producer, error == 0 ? "cancelled" : "kept", id, "");
	log_write(producer);
	return error == 0 || error == -EINPROGRESS || error == -EALREADY;
}

static bool
batch_add(struct producer *producer, size_t count)
{
	int error;
	size_t i;

	assert(count > 0);
	batch_fill(producer, count);
	do
		error = hwt_durable_add(
		    producer->durable, count, producer->task, NULL);
	while (ask_again(error));
	if (error != 0)
		return false;
	for (i = 0; i < count; i++)
		log_add(producer, "ack", producer->id[i], "");
	log_write(producer);
	producer->sent += count;
	return random_next(producer) % 4 != 0 ||
	    cancel_one(producer, producer->id[random_next(producer) % count]);
}

static bool
produce(struct producer *producer, uint64_t rate, uint64_t seconds)
{
	uint64_t began_ns = clock_ns(CLOCK_MONOTONIC), spent_ns, wanted;

	while (producer->sent < rate * seconds) {
		spent_ns = clock_ns(CLOCK_MONOTONIC) - began_ns;
		wanted = rate * (spent_ns / HWT_MS(10)) / 100;
		if (wanted > rate * seconds)
			wanted = rate * seconds;
		if (wanted <= producer->sent) {
			(void)usleep(2000);
			continue;
		}
		wanted -= producer->sent;
		if (!batch_add(
			producer, wanted < BATCH ? (size_t)wanted : BATCH))
			return false;
	}
	return true;
}

int
main(int argc, char **argv)
{
	static struct producer producer;
	struct hwt_durable_options options = {0};
	int error;

	if (argc != 8)
		return 2;
	options.servers = argv[1];
	options.space = argv[2];
	producer.queue = argv[3];
	producer.file =
	    open(argv[4], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	producer.prefix = argv[5];
	producer.random = clock_ns(CLOCK_MONOTONIC) | 1;
	do
		error = hwt_durable_open(&producer.durable, &options);
	while (ask_again(error));
	if (producer.file < 0 || error != 0 ||
	    !produce(&producer, strtoull(argv[6], NULL, 10),
		strtoull(argv[7], NULL, 10)))
		return 1;
	return hwt_durable_close(producer.durable) != 0;
}
