/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders that are closed if nobody pays for them in time: make demo-durable.
 *
 *   orders shop SERVERS SECONDS
 *       takes orders: each is to be closed soon, and for every other one that
 *       is cancelled, since it was paid. Prints "due ID" for those that must be
 *       closed, and "paid ID" for the rest.
 *   orders close SERVERS
 *       closes them until SIGTERM: prints "closed ID ATTEMPT"
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "examples/must.h"
#include "hwt_durable.h"

#define QUEUE "orders"
#define IN_TIME HWT_SEC(2)

static void
nap_ms(long ms)
{
	struct timespec span = {ms / 1000, ms % 1000 * 1000000};

	(void)nanosleep(&span, NULL);
}

/* A call that is uncertain, or that has not reached the server, is repeated
 * with the same id until it has an answer. */
static int
is_to_be_repeated(int error)
{
	if (error != -ETIMEDOUT && error != -ECONNREFUSED && error != -EAGAIN)
		return 0;
	nap_ms(50);
	return 1;
}

static int
add(struct hwt_durable *durable, const char *id)
{
	const struct hwt_durable_task task = {
	    .id = id,
	    .id_length = strlen(id),
	    .queue = QUEUE,
	    .delay_ns = IN_TIME,
	    .payload = "close it",
	    .payload_length = 8,
	};
	int error;

	do
		error = hwt_durable_add(durable, 1, &task, NULL);
	while (is_to_be_repeated(error));
	return error;
}

/* -ENOENT: it was closed already. */
static int
pay(struct hwt_durable *durable, const char *id)
{
	int error;

	do
		error = hwt_durable_cancel(durable, QUEUE, id, strlen(id));
	while (is_to_be_repeated(error));
	return error;
}

static void
shop(struct hwt_durable *durable, long seconds)
{
	time_t end = time(NULL) + seconds;
	char id[32];
	unsigned i;
	int error;

	for (i = 0; time(NULL) < end; i++) {
		(void)snprintf(id, sizeof(id), "order-%u", i);
		must(add(durable, id) == 0);
		error = i % 2 != 0 ? pay(durable, id) : -ENOENT;
		printf("%s %s\n", error == 0 ? "paid" : "due", id);
		nap_ms(2);
	}
}

static int
close_order(void *ctx, const struct hwt_durable_delivery *order)
{
	(void)ctx;
	/* One write: the demo kills this process at any time. */
	printf("closed %s %u\n", order->id, order->attempt);
	(void)fflush(stdout);
	return 0;
}

static void
close_orders(struct hwt_durable *durable)
{
	const struct hwt_durable_worker_options options = {
	    .queue = QUEUE,
	    .callback = close_order,
	    .threads = 4,
	    .visibility_ns = HWT_SEC(2),
	};
	struct hwt_durable_worker *worker;
	sigset_t end;
	int which;

	(void)sigemptyset(&end);
	(void)sigaddset(&end, SIGTERM);
	(void)sigprocmask(SIG_BLOCK, &end, NULL);
	must(hwt_durable_worker_start(&worker, durable, &options) == 0);
	(void)sigwait(&end, &which);
	must(hwt_durable_worker_stop(worker, HWT_SEC(20)) == 0);
}

int
main(int argc, char **argv)
{
	struct hwt_durable_options options = {.timeout_ns = HWT_SEC(1)};
	struct hwt_durable *durable;
	int shops = argc == 4 && strcmp(argv[1], "shop") == 0;

	if (!shops && (argc != 3 || strcmp(argv[1], "close") != 0)) {
		(void)fputs("usage: orders shop SERVERS SECONDS\n"
			    "       orders close SERVERS\n",
		    stderr);
		return 2;
	}
	options.servers = argv[2];
	must(hwt_durable_open(&durable, &options) == 0);
	if (shops)
		shop(durable, strtol(argv[3], NULL, 10));
	else
		close_orders(durable);
	must(hwt_durable_close(durable) == 0);
	return 0;
}
