/* SPDX-License-Identifier: Apache-2.0 */
/* Loops of schedulers and workers: see loop.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "loop.h"

#define BACK_OFF_FIRST_NS HWT_MS(10)
#define BACK_OFF_LAST_NS HWT_MS(500)
#define POLL_MS 1000

uint64_t
back_off_next(uint64_t *back_off_ns)
{
	uint64_t next =
	    *back_off_ns == 0 ? BACK_OFF_FIRST_NS : *back_off_ns * 2;

	*back_off_ns = next > BACK_OFF_LAST_NS ? BACK_OFF_LAST_NS : next;
	return *back_off_ns / 2 + random_number() % (*back_off_ns / 2);
}

static void
descriptor_close(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

static void
signal_fd(int fd)
{
	while (eventfd_write(fd, 1) != 0 && errno == EINTR)
		continue;
}

int
loop_create(struct loop *loop)
{
	int error = hwt_mailbox_create(&loop->mailbox);

	loop->may_connect = true;
	loop->hurry_fd = -1;
	loop->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (loop->wake_fd >= 0)
		loop->hurry_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (error == 0 && loop->hurry_fd < 0)
		error = errno == EMFILE || errno == ENFILE ? -errno : -ENOMEM;
	if (error != 0)
		loop_destroy(loop);
	return error;
}

/* A timeout that was cancelled on its way into the mailbox arrives late. */
void
loop_destroy(struct loop *loop)
{
	const struct timespec pause = {.tv_nsec = 100000};

	loop_cancel(loop, &loop->reconnect);
	engine_subscription_close(loop->subscription);
	loop->subscription = NULL;
	while (hwt_mailbox_destroy(loop->mailbox) == -EBUSY) {
		(void)hwt_mailbox_run(loop->mailbox, 0, NULL);
		(void)nanosleep(&pause, NULL);
	}
	loop->mailbox = NULL;
	descriptor_close(&loop->wake_fd);
	descriptor_close(&loop->hurry_fd);
}

void
loop_wake(const struct loop *loop)
{
	signal_fd(loop->wake_fd);
}

void
loop_hurry(const struct loop *loop)
{
	signal_fd(loop->hurry_fd);
}

struct engine_wait
loop_no_retry(const struct loop *loop)
{
	return (struct engine_wait){
	    .stop_fd = loop->hurry_fd, .no_retry = true};
}

int
loop_after(struct loop *loop, hwt_timeout *timeout, hwt_task *task, void *arg,
    uint64_t delay_ns)
{
	int error = hwt_touch(loop->timer, hwt_mailbox_executor(loop->mailbox),
	    timeout, task, arg, delay_ns);

	if (error != 0)
		loop->must_poll = true;
	return error;
}

static void
nothing(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
}

int
loop_wake_after(struct loop *loop, hwt_timeout *timeout, uint64_t delay_ns)
{
	return loop_after(loop, timeout, nothing, NULL, delay_ns);
}

void
loop_cancel(struct loop *loop, hwt_timeout *timeout)
{
	if (timeout->id != 0)
		(void)!hwt_cancel(loop->timer, *timeout);
	*timeout = (hwt_timeout){0};
}

/* The subscription. */

static void
loop_reconnect(hwt_timeout timeout, void *arg)
{
	struct loop *loop = arg;

	(void)timeout;
	loop->may_connect = true;
}

/* Whoever was not listening may have missed something. */
static void
loop_connect(struct loop *loop)
{
	struct engine_wait wait = loop_no_retry(loop);
	int error;

	/* A node that does not answer must not keep it from the others. */
	wait.timeout_ns = SECOND_NS;
	loop->may_connect = false;
	error = engine_subscription_open(
	    &loop->subscription, loop->engine, loop->channel, &wait);
	if (error == -EACCES || error == -EPROTO)
		engine_log(loop->engine, LOG_WARNING,
		    "no hints, it polls once a second: %s", error_says(error));
	if (error == 0) {
		loop->back_off_ns = 0;
		loop->notify(loop->ctx, EVERY_QUEUE, EVERY_SHARD);
		return;
	}
	(void)loop_after(loop, &loop->reconnect, loop_reconnect, loop,
	    back_off_next(&loop->back_off_ns));
}

static void
loop_lose_subscription(struct loop *loop)
{
	engine_subscription_close(loop->subscription);
	loop->subscription = NULL;
	(void)loop_after(loop, &loop->reconnect, loop_reconnect, loop,
	    back_off_next(&loop->back_off_ns));
}

static void
loop_listen(struct loop *loop)
{
	uint32_t queue, shard;
	int result = 0;

	if (loop->subscription == NULL && loop->may_connect)
		loop_connect(loop);
	while (loop->subscription != NULL &&
	    (result = engine_subscription_read(
		 loop->subscription, &queue, &shard)) == 1)
		loop->notify(loop->ctx, queue, shard);
	if (result < 0)
		loop_lose_subscription(loop);
}

void
loop_await_hint(struct loop *loop)
{
	struct engine_wait wait = loop_no_retry(loop);

	wait.timeout_ns = SECOND_NS;
	if (loop->subscription != NULL &&
	    engine_subscription_wait(loop->subscription, loop->engine, &wait) !=
		0)
		loop_lose_subscription(loop);
}

static void
loop_poll(struct loop *loop)
{
	loop->must_poll = false;
	loop->may_connect = true;
	loop->notify(loop->ctx, EVERY_QUEUE, EVERY_SHARD);
}

void
loop_turn(struct loop *loop, bool wait)
{
	struct pollfd polled[] = {
	    {.fd = loop->wake_fd, .events = POLLIN},
	    {.fd = hwt_mailbox_fd(loop->mailbox), .events = POLLIN},
	    {.fd = loop->subscription != NULL
		    ? engine_subscription_fd(loop->subscription)
		    : -1,
		.events = POLLIN},
	};
	int timeout_ms = loop->must_poll || loop->expects ? POLL_MS : -1;
	eventfd_t ignored;

	if (loop->subscription == NULL && loop->may_connect)
		wait = false;
	if (poll(polled, 3, wait ? timeout_ms : 0) == 0 && wait)
		loop_poll(loop);
	(void)eventfd_read(loop->wake_fd, &ignored);
	(void)hwt_mailbox_run(loop->mailbox, 0, NULL);
	loop_listen(loop);
}

/* Threads. */

int
thread_begin(
    pthread_t *thread, void *(*run)(void *arg), void *arg, const char *name)
{
	sigset_t all, before;
	int error;

	(void)sigfillset(&all);
	(void)sigdelset(&all, SIGSEGV);
	(void)sigdelset(&all, SIGBUS);
	(void)sigdelset(&all, SIGFPE);
	(void)sigdelset(&all, SIGILL);
	(void)sigdelset(&all, SIGTRAP);
	(void)sigdelset(&all, SIGSYS);
	(void)sigdelset(&all, SIGPROF);
	(void)pthread_sigmask(SIG_BLOCK, &all, &before);
	error = pthread_create(thread, NULL, run, arg);
	if (error == 0)
		(void)pthread_setname_np(*thread, name);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error == 0 ? 0 : -EAGAIN;
}
