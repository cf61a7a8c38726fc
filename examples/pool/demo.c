/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 32 users count in a Redis through a pool of 8 connections. The server is
 * killed and started again behind a pause that is longer than the wait limit:
 * no user sees an error but -ETIMEDOUT. Then it does not answer for a while,
 * which the check before use finds out; and nobody does anything until the pool
 * has closed all. In the end the servers have counted as often as the users.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../must.h"
#include "pool.h"

enum {
	USERS = 32,
	CONNECTIONS = 8
};

struct user {
	struct pool_hold hold; /* the first */
	hwt_timeout timeout;
};

static struct pool pool;
static struct user users[USERS];
static pid_t server;
static uint16_t port;
static char folder[] = "/tmp/hwt-pool-XXXXXX";
static _Atomic bool going;
static _Atomic unsigned waiting; /* users that have a timeout or a hold */
static _Atomic unsigned long long done, timed_out, refused;

/* The server, in a scratch folder and on a free port. */

static void
choose_port(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	must(fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0);
	must(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
	must(close(fd) == 0);
	port = ntohs(address.sin_port);
}

/* By a connection of its own. -1: no answer. */
static long long
server_count(void)
{
	redisContext *redis = redisConnect("127.0.0.1", port);
	redisReply *reply = redisCommand(redis, "INCRBY count 0");
	long long count = reply != NULL ? reply->integer : -1;

	freeReplyObject(reply);
	redisFree(redis);
	return count;
}

static void
server_start(void)
{
	char text[8];

	(void)snprintf(text, sizeof(text), "%u", port);
	server = fork();
	if (server == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)execlp("redis-server", "redis-server", "--port", text,
		    "--bind", "127.0.0.1", "--save", "", "--dir", folder,
		    "--logfile", "/dev/null", (char *)NULL);
		_exit(1);
	}
	while (server_count() < 0) {
		must(waitpid(server, NULL, WNOHANG) == 0);
		(void)usleep(10000);
	}
}

/* It keeps nothing: what it has counted. */
static unsigned long long
server_kill(void)
{
	long long count = server_count();

	must(count >= 0 && kill(server, SIGKILL) == 0);
	must(waitpid(server, NULL, 0) == server);
	return (unsigned long long)count;
}

/* Users, on the loop. */

static void
user_later(struct user *user, hwt_task *task, uint64_t delay_ns)
{
	must(hwt_new_timeout_on(pool.timer, hwt_mailbox_executor(pool.mailbox),
		 &user->timeout, task, user, delay_ns) == 0);
}

static void taken(struct pool_hold *hold, int error);

static void
take(hwt_timeout timeout, void *user)
{
	(void)timeout;
	if (going)
		pool_take(&pool, user, taken);
	else
		waiting--;
}

static void
replied(redisAsyncContext *redis, void *answer, void *arg)
{
	redisReply *reply = answer;
	struct user *user = arg;

	(void)redis;
	must(reply != NULL && reply->type == REDIS_REPLY_INTEGER);
	done++;
	pool_release(&user->hold);
	user_later(user, take, 0);
}

static void
taken(struct pool_hold *hold, int error)
{
	struct user *user = (struct user *)hold;

	if (error == 0) {
		must(redisAsyncCommand(
			 hold->redis, replied, user, "INCR count") == REDIS_OK);
		return;
	}
	timed_out += error == -ETIMEDOUT;
	refused += error == -ECONNREFUSED;
	user_later(user, take, HWT_MS(10));
}

/* The events of a run. */

static void
users_go(void)
{
	unsigned i;

	going = true;
	waiting = USERS;
	for (i = 0; i < USERS; i++)
		user_later(&users[i], take, 0);
}

static void
users_stop(void)
{
	going = false;
	while (waiting != 0)
		(void)usleep(5000);
}

int
main(void)
{
	struct pool_options options = {.most = CONNECTIONS,
	    .wait_ns = HWT_MS(400),
	    .idle_ns = HWT_MS(300),
	    .check_ns = HWT_MS(50),
	    .answer_ns = HWT_SEC(1)};
	struct hwt_checkout_stats stats;
	unsigned long long counted;

	(void)signal(SIGPIPE, SIG_IGN);
	must(mkdtemp(folder) != NULL);
	choose_port();
	server_start();
	options.port = port;
	pool_open(&pool, &options);
	users_go();
	(void)sleep(1);
	must(pool_pause(&pool, HWT_SEC(10)) == 0);
	must(pool_pause(&pool, 0) == -EALREADY);
	counted = server_kill();
	while (timed_out == 0)
		(void)usleep(10000);
	server_start();
	must(hwt_checkout_resume(pool.checkout) == 0);
	(void)sleep(1);
	users_stop();
	must(refused == 0);
	/* It accepts connections, but does not answer on any. */
	must(kill(server, SIGSTOP) == 0);
	(void)usleep(60000); /* longer than use without a check */
	users_go();
	while (refused < CONNECTIONS)
		(void)usleep(10000);
	must(kill(server, SIGCONT) == 0);
	users_stop();
	while (pool.count[MADE] !=
	    pool.count[IDLE] + pool.count[PAUSED] + pool.count[BROKEN])
		(void)usleep(10000);
	counted += server_kill();
	must(rmdir(folder) == 0);
	printf("counted %llu, timed out %llu, refused %llu; %llu connections\n",
	    counted, timed_out, refused, pool.count[MADE]);
	must(hwt_checkout_read_stats(pool.checkout, &stats) == 0);
	must(counted == done && stats.granted == done + refused);
	must(timed_out == stats.expired && stats.out + stats.waiting == 0);
	must(pool.count[IDLE] > 0 && pool.count[PAUSED] > 0);
	must(pool.count[BROKEN] >= CONNECTIONS);
	pool_close(&pool);
	printf("all adds up\n");
	return 0;
}
