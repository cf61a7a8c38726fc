/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread touches a connection, another closes and frees it; the task frees
 * nothing. The lock serializes the variable idle. A touch that finds the task
 * running makes a new timeout beside it: wait for both, without the lock.
 */
#include "recipe.h"

struct connection {
	pthread_mutex_t lock;
	hwt_timeout idle;
	bool is_silent;
};

static struct hwt *timer;

static void
idle(hwt_timeout timeout, void *arg)
{
	struct connection *connection = arg;

	(void)timeout;
	pthread_mutex_lock(&connection->lock);
	connection->is_silent = true;
	pthread_mutex_unlock(&connection->lock);
}

static void *
use(void *arg)
{
	struct connection *connection = arg;
	hwt_timeout before, after;
	int error = 0;

	while (error == 0) {
		pthread_mutex_lock(&connection->lock);
		before = connection->idle;
		error = hwt_touch(timer, NULL, &connection->idle, idle,
		    connection, HWT_MS(1));
		after = connection->idle;
		pthread_mutex_unlock(&connection->lock);
		if (after.id != before.id)
			(void)!hwt_cancel_wait(timer, before);
	}
	must(error == -ECANCELED);
	return NULL;
}

static void
connection_close(struct connection *connection)
{
	hwt_timeout timeout;

	pthread_mutex_lock(&connection->lock);
	timeout = connection->idle;
	connection->idle = HWT_CLOSED;
	pthread_mutex_unlock(&connection->lock);
	(void)!hwt_cancel_wait(timer, timeout);
}

int
main(void)
{
	struct hwt_options options = {.tick_ns = HWT_US(100)};
	struct connection *connection;
	pthread_t user;
	int i = 500;

	must(hwt_create(&timer, &options) == 0);
	while (i-- > 0) {
		must((connection = calloc(1, sizeof(*connection))) != NULL);
		pthread_mutex_init(&connection->lock, NULL);
		must(pthread_create(&user, NULL, use, connection) == 0);
		connection_close(connection);
		pthread_join(user, NULL);
		free(connection);
	}
	teardown(timer, NULL);
	return puts("the connections are closed") == EOF;
}
