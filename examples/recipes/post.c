/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another thread posts to a loop's mailbox, and the function runs on the loop's
 * thread, in hwt_mailbox_run. From the post on the message is the loop's. The
 * other thread holds no pointer to a connection, but a number.
 */
#include <poll.h>

#include "recipe.h"

#define CONNECTIONS 1000

/* The post comes first, so that its address is the message's. */
struct message {
	struct hwt_post post;
	unsigned connection;
};

static struct hwt *timer;
static struct hwt_mailbox *mailbox;
static hwt_timeout idle[CONNECTIONS];
static unsigned closed, timed_out;

static void
idle_out(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	timed_out++;
	closed++;
}

static void
close_connection(struct hwt_post *post)
{
	struct message *message = (struct message *)post;

	closed += hwt_cancel(timer, idle[message->connection]) == 0;
	free(message);
}

static void *
other_thread(void *arg)
{
	unsigned i;

	for (i = 0; i < CONNECTIONS; i += 2) {
		struct message *message = malloc(sizeof(*message));

		must(message != NULL);
		message->connection = i;
		must(hwt_mailbox_post(
			 mailbox, &message->post, close_connection) == 0);
	}
	return arg;
}

int
main(void)
{
	struct pollfd due = {.events = POLLIN};
	pthread_t other;
	unsigned i;

	must(hwt_create(&timer, NULL) == 0);
	must(hwt_mailbox_create(&mailbox) == 0);
	due.fd = hwt_mailbox_fd(mailbox);
	for (i = 0; i < CONNECTIONS; i++)
		must(hwt_new_timeout_on(timer, hwt_mailbox_executor(mailbox),
			 &idle[i], idle_out, NULL, HWT_MS(100)) == 0);
	must(pthread_create(&other, NULL, other_thread, NULL) == 0);
	while (closed < CONNECTIONS) {
		must(poll(&due, 1, -1) == 1);
		must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	}
	must(pthread_join(other, NULL) == 0);
	teardown(timer, mailbox);
	printf("%u connections closed, %u as idle\n", closed, timed_out);
	return 0;
}
