/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's takers and callback threads, its start and its stop: see worker.h.
 */
#define _GNU_SOURCE
#include "modules/durable/client/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sys/secret.h"
#include "sys/valid.h"

#define THREADS_MOST 1024
#define OUTSTANDING_MOST 65536
#define VISIBILITY_DEFAULT HWT_SEC(30)
#define VISIBILITY_MOST HWT_SEC(86400)
/* For so long a take waits at the server, and a stop for it. */
#define BLOCK_MS 500
#define PAUSE_FIRST_NS (50 * MS_NS)
#define PAUSE_MOST_NS HWT_SEC(1)

/* The worker whose callback this thread is in. */
static __thread const struct hwt_durable_worker *calling;

/*
 * Takers.
 */

static int
take_now(
    struct taker *queue, uint64_t request, size_t limit, redisReply **reply)
{
	struct hwt_durable_worker *worker = queue->worker;
	struct call call;
	int error;

	call_begin(&call, worker->durable, "HWT.TAKE", queue->name);
	take_words(&call, worker, limit, request);
	call_run(worker->durable, &call, 1);
	error = call.error;
	*reply = call.reply;
	call.reply = NULL;
	call_free(&call);
	return error;
}

static int
connect_taker(
    struct taker *queue, const struct node *node, uint64_t deadline_ns)
{
	struct connection *connection = queue->connection;
	int error;

	if (connection != NULL && queue->node == node &&
	    connection_is_usable(connection))
		return 0;
	connection_close(connection);
	queue->connection = NULL;
	queue->node = node;
	error = node_connect(
	    queue->worker->durable, node, &connection, deadline_ns);
	if (error == 0)
		queue->connection = connection;
	return error;
}

/* The same, but it waits for tasks. */
static int
take_blocking(
    struct taker *queue, uint64_t request, size_t limit, redisReply **reply)
{
	struct hwt_durable *durable = queue->worker->durable;
	uint64_t deadline_ns =
	    durable_now_ns(durable) + durable->timeout_ns + BLOCK_MS * MS_NS;
	struct route_verdict verdict = {.action = ROUTE_DONE};
	struct buffer command = {0};
	const struct node *node;
	struct call call;
	int error;

	call_begin(&call, durable, "HWT.TAKE", queue->name);
	take_words(&call, queue->worker, limit, request);
	call_text(&call, "BLOCK");
	call_number(&call, BLOCK_MS);
	buffer_command(&command, call.words);
	buffer_add(&command, call.buffer.bytes, call.buffer.length);
	node = node_of_slot(durable, call.slot);
	error = connect_taker(queue, node, deadline_ns);
	if (error == 0)
		error = connection_ask(
		    queue->connection, &command, deadline_ns, reply);
	if (error == 0 && (*reply)->type == REDIS_REPLY_ERROR) {
		call_judge(durable, *reply, &node->address, &verdict);
		error = verdict.error;
	}
	buffer_free(&command);
	call_free(&call);
	if (error != 0) {
		connection_close(queue->connection);
		queue->connection = NULL;
	}
	return error;
}

/* An answer, or -errno. */
static int
take(struct taker *queue, bool blocks, uint64_t request, size_t limit,
    redisReply **reply)
{
	struct hwt_durable *durable = queue->worker->durable;
	int error = blocks ? take_blocking(queue, request, limit, reply)
			   : take_now(queue, request, limit, reply);

	if (error == 0)
		return 0;
	if (*reply != NULL)
		freeReplyObject(*reply);
	*reply = NULL;
	(void)node_refresh(
	    durable, durable_now_ns(durable) + durable->timeout_ns);
	return error;
}

/* With the lock, and without it while the server is asked. Of several queues, a
 * take that blocks is for one task. */
static int
take_once(struct taker *queue)
{
	struct hwt_durable_worker *worker = queue->worker;
	bool one = queue->idle && queue->request == 0 && worker->queues > 1;
	bool blocks = one || worker->queues == 1;
	size_t limit = one ? 1 : take_limit(queue, worker_room(worker));
	uint64_t sent_ns = boot_now_ns();
	uint64_t request = take_begin(queue, limit);
	redisReply *reply = NULL;
	int error;

	worker->reserved += one ? 0 : limit;
	(void)pthread_mutex_unlock(&worker->lock);
	error = take(queue, blocks, request, limit, &reply);
	(void)pthread_mutex_lock(&worker->lock);
	worker->reserved -= one ? 0 : limit;
	if (!take_end(queue, reply, limit, sent_ns))
		error = -EPROTO;
	if (reply != NULL)
		freeReplyObject(reply);
	return error;
}

/* The first of a row of errors is logged; after each, a pause, which grows. */
static void
take_failed(struct taker *queue, int error, uint64_t *pause_ns)
{
	struct hwt_durable_worker *worker = queue->worker;

	(void)pthread_mutex_unlock(&worker->lock);
	if (*pause_ns == 0)
		durable_log(worker->durable,
		    "%s: nothing can be taken of the queue %s: %s",
		    worker->name, queue->name, strerror(-error));
	*pause_ns = *pause_ns == 0          ? PAUSE_FIRST_NS
	    : 2 * *pause_ns < PAUSE_MOST_NS ? 2 * *pause_ns
					    : PAUSE_MOST_NS;
	(void)durable_nap(worker->durable, *pause_ns);
	(void)pthread_mutex_lock(&worker->lock);
}

static void *
take_thread(void *arg)
{
	struct taker *queue = arg;
	struct hwt_durable_worker *worker = queue->worker;
	uint64_t pause_ns = 0;
	int error;

	(void)pthread_mutex_lock(&worker->lock);
	while (!worker->stopping) {
		if (take_limit(queue, worker_room(worker)) == 0) {
			(void)pthread_cond_wait(&worker->room, &worker->lock);
			continue;
		}
		error = take_once(queue);
		if (error != 0)
			take_failed(queue, error, &pause_ns);
		else
			pause_ns = 0;
	}
	worker->takers--;
	(void)pthread_cond_broadcast(&worker->gone);
	(void)pthread_mutex_unlock(&worker->lock);
	connection_close(queue->connection);
	return NULL;
}

/*
 * Callbacks.
 */

/* Of the first queue that has one; with the lock. */
static struct attempt *
next_attempt(struct hwt_durable_worker *worker)
{
	struct attempt *attempt;
	unsigned i;

	for (i = 0; i < worker->queues; i++) {
		attempt = attempts_take(&worker->queue[i].waiting);
		if (attempt != NULL)
			return attempt;
	}
	return NULL;
}

static int
call_back(struct attempt *attempt, uint64_t *delay_ns, char *reason)
{
	struct hwt_durable_worker *worker = attempt->queue->worker;
	redisReply *const *field = attempt->record->element;
	const struct hwt_durable_delivery delivery = {
	    .id = field[0]->str,
	    .queue = attempt->queue->name,
	    .id_length = (size_t)field[0]->len,
	    .payload = field[5]->str,
	    .payload_length = (size_t)field[5]->len,
	    .attempt = (uint32_t)field[2]->integer,
	    .max_attempts = (uint32_t)field[3]->integer,
	    .due_unix_ns = (uint64_t)field[4]->integer * MS_NS,
	    .fence = (uint64_t)field[1]->integer,
	    .retry_delay_ns = delay_ns,
	    .reason = reason,
	    .token = {worker, attempt->number},
	};
	int result;

	calling = worker;
	result = worker->callback(worker->ctx, &delivery);
	calling = NULL;
	return result;
}

static bool
delay_is_known(uint64_t delay_ns)
{
	return delay_ns == HWT_NEVER || delay_ns <= HWT_DURABLE_DELAY_MAX;
}

/* With the lock, and without it in the callback. */
static void
run_attempt(struct attempt *attempt)
{
	struct hwt_durable_worker *worker = attempt->queue->worker;
	char reason[HWT_DURABLE_REASON_MAX + 1];
	uint64_t delay_ns = HWT_NEVER;
	int result;

	reason[0] = reason[HWT_DURABLE_REASON_MAX] = '\0';
	attempt->state = ATTEMPT_CALLED;
	(void)pthread_mutex_unlock(&worker->lock);
	result = call_back(attempt, &delay_ns, reason);
	reason[HWT_DURABLE_REASON_MAX] = '\0';
	(void)pthread_mutex_lock(&worker->lock);
	if (attempt->lost && !attempt->decided)
		attempt_decide(attempt, OUTCOME_NONE, 0, NULL);
	if (!attempt->decided && result != HWT_DURABLE_LATER)
		attempt_decide(attempt,
		    result == 0 || result == HWT_DURABLE_RETRY
			? result
			: HWT_DURABLE_FAIL,
		    delay_is_known(delay_ns) ? delay_ns : HWT_NEVER, reason);
	if (attempt->decided)
		attempt_end(attempt);
	else
		attempt->state = ATTEMPT_OPEN;
}

static void *
call_thread(void *arg)
{
	struct hwt_durable_worker *worker = arg;
	struct attempt *attempt;

	(void)pthread_mutex_lock(&worker->lock);
	while (!worker->over) {
		attempt = next_attempt(worker);
		if (attempt == NULL) {
			(void)pthread_cond_wait(&worker->work, &worker->lock);
		} else if (attempt->lost ||
		    attempt->lease_end_ns <= boot_now_ns()) {
			attempt_decide(attempt, OUTCOME_NONE, 0, NULL);
			attempt_end(attempt);
		} else {
			run_attempt(attempt);
		}
	}
	(void)pthread_mutex_unlock(&worker->lock);
	return NULL;
}

int
hwt_durable_finish(struct hwt_durable_token token, int outcome,
    uint64_t delay_ns, const char *reason)
{
	struct hwt_durable_worker *worker = token.worker;
	struct attempt *attempt;
	int error = -ESTALE;

	if (worker == NULL ||
	    (outcome != 0 && outcome != HWT_DURABLE_RETRY &&
		outcome != HWT_DURABLE_FAIL) ||
	    (outcome == HWT_DURABLE_RETRY && !delay_is_known(delay_ns)) ||
	    (reason != NULL &&
		strnlen(reason, HWT_DURABLE_REASON_MAX + 1) >
		    HWT_DURABLE_REASON_MAX))
		return -EINVAL;
	if (!durable_is_own(worker->durable))
		return -EOWNERDEAD;
	(void)pthread_mutex_lock(&worker->lock);
	attempt = attempt_find(worker, token.number);
	if (attempt != NULL && !attempt->decided && !attempt->lost) {
		attempt_decide(attempt, outcome, delay_ns, reason);
		if (attempt->state == ATTEMPT_OPEN)
			attempt_end(attempt);
		error = 0;
	}
	(void)pthread_mutex_unlock(&worker->lock);
	return error;
}

/*
 * Start and stop.
 */

/* Names with commas between. False: some are invalid, or there twice. */
static bool
read_queues(struct hwt_durable_worker *worker, const char *text)
{
	struct taker *queue;
	size_t length;
	unsigned i;

	for (;; text += length + 1) {
		length = strcspn(text, ",");
		if (worker->queues == HWT_DURABLE_QUEUES_MAX ||
		    length > HWT_DURABLE_QUEUE_MAX)
			return false;
		queue = &worker->queue[worker->queues];
		memcpy(queue->name, text, length);
		if (!name_is_valid(queue->name, HWT_DURABLE_QUEUE_MAX))
			return false;
		for (i = 0; i < worker->queues; i++) {
			if (strcmp(worker->queue[i].name, queue->name) == 0)
				return false;
		}
		queue->worker = worker;
		queue->index = worker->queues++;
		queue->waiting.last = &queue->waiting.first;
		if (text[length] == '\0')
			return true;
	}
}

static bool
options_are_valid(const struct hwt_durable_worker_options *options)
{
	uint32_t threads = options->threads != 0 ? options->threads : 1;

	return options->queue != NULL && options->callback != NULL &&
	    threads <= THREADS_MOST && options->flags == 0 &&
	    (options->visibility_ns == 0 ||
		(options->visibility_ns >= HWT_SEC(1) &&
		    options->visibility_ns <= VISIBILITY_MOST)) &&
	    (options->outstanding_max == 0 ||
		(options->outstanding_max >= threads &&
		    options->outstanding_max <= OUTSTANDING_MOST)) &&
	    (options->name == NULL ||
		(options->name[0] != '\0' &&
		    strnlen(options->name, 65) < 65)) &&
	    RESERVED_IS_ZERO(options);
}

static void
make_name(struct hwt_durable_worker *worker, const char *given)
{
	struct secret random;
	char host[33] = "";

	secret_make(&random);
	worker->last_request = random.word[0] >> 2;
	(void)gethostname(host, sizeof(host) - 1);
	if (given != NULL)
		(void)snprintf(worker->name, sizeof(worker->name), "%s", given);
	else
		(void)snprintf(worker->name, sizeof(worker->name),
		    "%s-%ld-%08x", host, (long)getpid(),
		    (unsigned)random.word[1]);
}

/* Its threads end, and then it is freed. */
static void
worker_end(struct hwt_durable_worker *worker)
{
	struct hwt_durable *durable = worker->durable;
	unsigned thread;
	size_t slot;

	(void)pthread_mutex_lock(&worker->lock);
	worker->stopping = worker->over = true;
	(void)pthread_cond_broadcast(&worker->work);
	(void)pthread_cond_broadcast(&worker->room);
	(void)pthread_cond_broadcast(&worker->outcomes);
	(void)pthread_mutex_unlock(&worker->lock);
	for (thread = 0; thread < worker->threads; thread++)
		(void)pthread_join(worker->thread[thread], NULL);
	(void)!hwt_cancel_wait(durable->timer, worker->extend);
	for (slot = 0; worker->slot != NULL && slot < worker->slots; slot++) {
		if (worker->slot[slot] != NULL)
			attempt_free(worker->slot[slot]);
	}
	(void)pthread_mutex_lock(&durable->lock);
	durable->workers--;
	(void)pthread_mutex_unlock(&durable->lock);
	(void)pthread_mutex_destroy(&worker->lock);
	(void)pthread_cond_destroy(&worker->work);
	(void)pthread_cond_destroy(&worker->room);
	(void)pthread_cond_destroy(&worker->outcomes);
	(void)pthread_cond_destroy(&worker->gone);
	round_destroy(worker->round);
	free(worker->slot);
	free(worker->free_slot);
	free(worker->thread);
	free(worker);
}

/* False: no memory. */
static bool
worker_allocate(struct hwt_durable_worker *worker, unsigned threads)
{
	size_t i;

	worker->slots = worker->outstanding_max + worker->queues;
	worker->slot = calloc(worker->slots, sizeof(struct attempt *));
	worker->free_slot = calloc(worker->slots, sizeof(*worker->free_slot));
	worker->thread =
	    calloc(threads + worker->queues + 1, sizeof(*worker->thread));
	worker->round = round_create();
	if (worker->slot == NULL || worker->free_slot == NULL ||
	    worker->thread == NULL || worker->round == NULL)
		return false;
	worker->free_slots = worker->slots;
	for (i = 0; i < worker->slots; i++)
		worker->free_slot[i] = (uint32_t)i;
	return true;
}

static struct hwt_durable_worker *
worker_create(struct hwt_durable *durable,
    const struct hwt_durable_worker_options *options)
{
	struct hwt_durable_worker *worker = calloc(1, sizeof(*worker));

	if (worker == NULL)
		return NULL;
	worker->durable = durable;
	worker->callback = options->callback;
	worker->ctx = options->ctx;
	worker->visibility_ns = options->visibility_ns != 0
	    ? options->visibility_ns
	    : VISIBILITY_DEFAULT;
	worker->outstanding_max = options->outstanding_max != 0
	    ? options->outstanding_max
	    : 2 * (options->threads != 0 ? options->threads : 1);
	make_name(worker, options->name);
	worker->ended.last = &worker->ended.first;
	(void)pthread_mutex_init(&worker->lock, NULL);
	(void)pthread_cond_init(&worker->work, NULL);
	(void)pthread_cond_init(&worker->room, NULL);
	(void)pthread_cond_init(&worker->outcomes, NULL);
	(void)pthread_cond_init(&worker->gone, NULL);
	(void)pthread_mutex_lock(&durable->lock);
	durable->workers++;
	(void)pthread_mutex_unlock(&durable->lock);
	return worker;
}

static void
extend_leases(hwt_timeout timeout, void *arg)
{
	struct hwt_durable_worker *worker = arg;

	(void)timeout;
	(void)pthread_mutex_lock(&worker->lock);
	worker->extend_due = true;
	(void)pthread_cond_signal(&worker->outcomes);
	(void)pthread_mutex_unlock(&worker->lock);
}

static int
spawn(struct hwt_durable_worker *worker, void *(*run)(void *), void *arg)
{
	int error =
	    pthread_create(&worker->thread[worker->threads], NULL, run, arg);

	worker->threads += error == 0;
	return error == 0 ? 0 : -EAGAIN;
}

static int
spawn_all(struct hwt_durable_worker *worker, unsigned threads)
{
	int error = spawn(worker, finish_thread, worker);
	unsigned i;

	for (i = 0; i < threads && error == 0; i++)
		error = spawn(worker, call_thread, worker);
	for (i = 0; i < worker->queues && error == 0; i++) {
		(void)pthread_mutex_lock(&worker->lock);
		worker->takers++;
		(void)pthread_mutex_unlock(&worker->lock);
		error = spawn(worker, take_thread, &worker->queue[i]);
		if (error == 0)
			continue;
		(void)pthread_mutex_lock(&worker->lock);
		worker->takers--;
		(void)pthread_mutex_unlock(&worker->lock);
	}
	return error;
}

/* Threads without signals. */
static int
worker_run(struct hwt_durable_worker *worker, unsigned threads)
{
	uint64_t third_ns = worker->visibility_ns / 3;
	sigset_t all, before;
	int error = hwt_new_periodic(worker->durable->timer, NULL,
	    &worker->extend, extend_leases, worker, third_ns, third_ns);

	if (error != 0)
		return error;
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	error = spawn_all(worker, threads);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

int
hwt_durable_worker_start(struct hwt_durable_worker **started,
    struct hwt_durable *durable,
    const struct hwt_durable_worker_options *options)
{
	struct hwt_durable_worker *worker;
	unsigned threads;
	int error;

	if (started == NULL || durable == NULL || options == NULL ||
	    !options_are_valid(options))
		return -EINVAL;
	if (!durable_is_own(durable))
		return -EOWNERDEAD;
	worker = worker_create(durable, options);
	if (worker == NULL)
		return -ENOMEM;
	threads = options->threads != 0 ? options->threads : 1;
	if (!read_queues(worker, options->queue))
		error = -EINVAL;
	else if (!worker_allocate(worker, threads))
		error = -ENOMEM;
	else
		error = worker_run(worker, threads);
	if (error == 0)
		*started = worker;
	else
		worker_end(worker);
	return error;
}

struct alarm {
	struct hwt_durable_worker *worker;
	bool over;
};

static void
alarm_end(hwt_timeout timeout, void *arg)
{
	struct alarm *alarm = arg;

	(void)timeout;
	(void)pthread_mutex_lock(&alarm->worker->lock);
	alarm->over = true;
	(void)pthread_cond_broadcast(&alarm->worker->gone);
	(void)pthread_mutex_unlock(&alarm->worker->lock);
}

/* Waits until nothing is under way any more. -EBUSY: not in time. */
static int
worker_wait(struct hwt_durable_worker *worker, uint64_t within_ns)
{
	struct hwt *timer = worker->durable->timer;
	struct alarm alarm = {worker, false};
	hwt_timeout timeout;
	int error =
	    hwt_new_timeout(timer, &timeout, alarm_end, &alarm, within_ns);

	if (error != 0)
		return error;
	(void)pthread_mutex_lock(&worker->lock);
	worker->stopping = true;
	(void)pthread_cond_broadcast(&worker->room);
	while ((worker->held > 0 || worker->takers > 0) && !alarm.over)
		(void)pthread_cond_wait(&worker->gone, &worker->lock);
	if (worker->held > 0 || worker->takers > 0)
		error = -EBUSY;
	(void)pthread_mutex_unlock(&worker->lock);
	(void)!hwt_cancel_wait(timer, timeout);
	return error;
}

int
hwt_durable_worker_stop(struct hwt_durable_worker *worker, uint64_t within_ns)
{
	int error;

	if (worker == NULL)
		return -EINVAL;
	if (!durable_is_own(worker->durable))
		return -EOWNERDEAD;
	if (calling == worker)
		return -EDEADLK;
	error = worker_wait(worker, within_ns);
	if (error == 0)
		worker_end(worker);
	return error;
}
