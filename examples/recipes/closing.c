/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who owns arg: one thread uses a connection and touches it, another closes it.
 * The idle task runs in the worker and frees nothing; the one who closes owns
 * the connection and frees it.
 *
 * The lock serializes the variable idle. Closing stores HWT_CLOSED in it, so
 * that a touch that comes late makes no new timeout. hwt_cancel_wait is called
 * without the lock, which the task may want; when it returns, the task is not
 * running, and nothing refers to the connection.
 */
#include "recipe.h"

#define ROUNDS 500

struct connection {
	pthread_mutex_t lock;
	hwt_timeout idle;
	bool is_silent;
};

static struct hwt *timer;
static unsigned refused;

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
	int error = 0;

	while (error == 0) {
		pthread_mutex_lock(&connection->lock);
		error = hwt_touch(timer, NULL, &connection->idle, idle,
		    connection, HWT_MS(1));
		pthread_mutex_unlock(&connection->lock);
	}
	refused += error == -ECANCELED;
	return NULL;
}

static void
connection_close(struct connection *connection)
{
	hwt_timeout timeout;
	int error;

	pthread_mutex_lock(&connection->lock);
	timeout = connection->idle;
	connection->idle = HWT_CLOSED;
	pthread_mutex_unlock(&connection->lock);
	error = hwt_cancel_wait(timer, timeout);
	must(error == 0 || error == -ENOENT);
}

int
main(void)
{
	struct hwt_options options = {.tick_ns = HWT_US(100)};
	pthread_t user;
	int i;

	must(hwt_create(&timer, &options) == 0);
	for (i = 0; i < ROUNDS; i++) {
		struct connection *connection = calloc(1, sizeof(*connection));

		must(connection != NULL);
		pthread_mutex_init(&connection->lock, NULL);
		must(pthread_create(&user, NULL, use, connection) == 0);
		connection_close(connection);
		pthread_join(user, NULL);
		free(connection);
	}
	must(refused == ROUNDS);
	teardown(timer, NULL);
	printf("%d connections closed, %u touches refused\n", ROUNDS, refused);
	return 0;
}
