/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers.
 *
 *   free --take_answer--> waiting --next_attempt--> called --call_back--> open
 *   or ended;  open --hwt_durable_finish--> ended --queue_finish--> reported
 *   --attempts_answer--> free, or ended again if there was no answer
 *
 * THREADS. The loop takes tasks, reports outcomes and extends leases: a step
 * when it is kicked, and at each answer. Callback threads have attempts in
 * between, with the worker's lock. Only the loop frees one, when the server has
 * its outcome; so its record may be read without the lock.
 *
 * ROOM. used is never more than outstanding_max: it counts attempts, and what
 * takes that are under way may bring; but of several queues, a take that blocks
 * is for one task and is not counted.
 *
 * ORDER OF QUEUES. A take of a queue begins only if all before it are idle:
 * when they were asked last, they had less than was asked for. One that is idle
 * is asked by a take that waits at the server.
 *
 * LOST ANSWERS. A take has a number. Until one is answered, the next take of
 * the queue has the same, and so gets what that one has taken. A finish is
 * repeated until it is answered; during a stop, until the lease is over.
 */
#define _GNU_SOURCE
#include "modules/durable/client/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sys/secret.h"
#include "sys/valid.h"

#define THREADS_MOST 1024
#define OUTSTANDING_MOST 65536
#define VISIBILITY_MOST HWT_SEC(86400)
#define TAKE_MAX 240 /* so that hwtd can answer with payloads of 1 MiB */
#define TASKS_MAX 1024 /* of a command */
#define FINISHES_MAX 64 /* under way, of a queue */
/* For so long a take waits at the server, and a stop for it. */
#define BLOCK_MS 500

/* For an outcome: not known yet; nothing is reported. */
#define OUTCOME_OPEN (-2)
#define OUTCOME_NONE (-1)

struct attempt {
	struct queue *queue;
	uint64_t number; /* modulo slots, its index */
	/* {id, fence, attempt, attempts, due, payload}; NULL: it is free */
	redisReply *record;
	struct attempt *next;
	uint64_t lease_end_ns; /* CLOCK_BOOTTIME, as at the server or before */
	bool is_left; /* no callback thread has it */
	int outcome;
	int64_t delay_ms; /* of a retry; -1: that of the task */
	char *reason; /* of a failure, or NULL */
};

/* All but the lists is the loop's. */
struct queue {
	struct hwt_durable_worker *worker;
	char name[HWT_DURABLE_QUEUE_MAX + 1];
	struct attempt *waiting, **last; /* for callback threads */
	struct attempt *ended;
	struct connection connection; /* of takes that block */
	unsigned finishing; /* finishes under way */
	bool taking, idle, paused;
	bool failing; /* the last answer was an error, which was logged */
	/* Of the take that is not answered; 0: none. It may have brought so
	 * many, for which there must be room when it is repeated. */
	uint64_t request;
	size_t limit;
};

struct hwt_durable_worker {
	struct hwt_post kick; /* first */
	struct hwt_durable *durable;
	struct hwt_durable_worker_options options; /* with the defaults */
	char name[64]; /* unique: of host, process and a random number */
	size_t slots; /* at least half of them are free */
	struct queue queue[HWT_DURABLE_QUEUES_MAX];
	unsigned queues, threads; /* threads that were created */
	pthread_t *thread;
	hwt_timeout extend;
	int error; /* of worker_begin */

	pthread_mutex_t lock; /* for what follows, and attempts */
	pthread_cond_t work; /* attempts wait, or it is over */
	pthread_cond_t gone; /* is_gone */
	struct attempt *slot;
	uint64_t last_number, last_request;
	size_t used, orders; /* orders are under way */
	bool kicked, stopping, over;
};

/* A command of a worker. */
struct order {
	struct request request; /* first */
	struct queue *queue;
	struct order *next; /* in a step, of the finishes of a queue */
	enum {
		ORDER_TAKE,
		ORDER_FINISH,
		ORDER_EXTEND
	} kind;
	uint64_t sent_ns;
	size_t limit, reserved; /* of its take, which a finish may have */
	size_t count;
	uint64_t number[TASKS_MAX]; /* of attempts */
};

static const char *const commands[] = {"HWT.TAKE", "HWT.FINISH", "HWT.EXTEND"};

/* The worker whose callback this thread is in. */
static __thread const struct hwt_durable_worker *calling;

static void worker_step(struct hwt_durable_worker *worker);
static void order_done(struct request *request);

static uint64_t
boot_now_ns(void)
{
	struct timespec now = {0};

	(void)clock_gettime(CLOCK_BOOTTIME, &now);
	return HWT_SEC(now.tv_sec) + (uint64_t)now.tv_nsec;
}

/* Nothing of it is held or under way, nor is a kick. */
static bool
is_gone(const struct hwt_durable_worker *worker)
{
	return worker->used == 0 && worker->orders == 0 && !worker->kicked;
}

static void
kicked(struct hwt_post *post)
{
	struct hwt_durable_worker *worker = (struct hwt_durable_worker *)post;

	(void)pthread_mutex_lock(&worker->lock);
	worker->kicked = false;
	(void)pthread_mutex_unlock(&worker->lock);
	worker_step(worker);
}

static void
worker_kick(struct hwt_durable_worker *worker)
{
	if (!worker->kicked)
		(void)hwt_mailbox_post(
		    worker->durable->mailbox, &worker->kick, kicked);
	worker->kicked = true;
}

/*
 * Attempts. With the lock.
 */

static struct attempt *
attempt_find(const struct hwt_durable_worker *worker, uint64_t number)
{
	struct attempt *attempt = &worker->slot[number % worker->slots];

	return attempt->record != NULL && attempt->number == number ? attempt
								    : NULL;
}

/* It waits for a callback thread. */
static void
attempt_create(struct queue *queue, redisReply *record, uint64_t lease_end_ns)
{
	struct hwt_durable_worker *worker = queue->worker;
	struct attempt *attempt;

	do
		attempt = &worker->slot[++worker->last_number % worker->slots];
	while (attempt->record != NULL);
	*attempt = (struct attempt){
	    .queue = queue,
	    .number = worker->last_number,
	    .record = record,
	    .lease_end_ns = lease_end_ns,
	    .outcome = OUTCOME_OPEN,
	};
	*queue->last = attempt;
	queue->last = &attempt->next;
	worker->used++;
	(void)pthread_cond_signal(&worker->work);
}

static void
attempt_free(struct attempt *attempt)
{
	attempt->queue->worker->used--;
	freeReplyObject(attempt->record);
	free(attempt->reason);
	attempt->record = NULL;
}

static void
attempt_end(struct attempt *attempt)
{
	attempt->next = attempt->queue->ended;
	attempt->queue->ended = attempt;
}

/* The first outcome counts. It is ended unless it is in a callback. */
static void
attempt_decide(
    struct attempt *attempt, int outcome, uint64_t delay_ns, const char *reason)
{
	if (attempt->outcome == OUTCOME_OPEN) {
		attempt->outcome = outcome;
		if (outcome == HWT_DURABLE_RETRY)
			attempt->delay_ms = delay_ns == HWT_NEVER
			    ? -1
			    : (int64_t)ms_of(delay_ns);
		if (outcome == HWT_DURABLE_FAIL && reason != NULL)
			attempt->reason = strdup(reason);
	}
	if (!attempt->is_left || attempt->outcome == OUTCOME_OPEN)
		return;
	attempt_end(attempt);
	worker_kick(attempt->queue->worker);
}

/* It is not reported, or not any more: a stop does not wait for a server that
 * is away. Otherwise it is, whenever the server comes back: while it was away,
 * no lease has ended there. */
static bool
is_over(const struct attempt *attempt)
{
	return attempt->outcome == OUTCOME_NONE ||
	    (attempt->queue->worker->stopping &&
		attempt->lease_end_ns <= boot_now_ns());
}

/* Whether one finish may report both. */
static bool
are_alike(const struct attempt *a, const struct attempt *b)
{
	return a->outcome == b->outcome && a->delay_ms == b->delay_ms &&
	    (a->reason == b->reason ||
		(a->reason != NULL && b->reason != NULL &&
		    strcmp(a->reason, b->reason) == 0));
}

/*
 * Orders. On the loop, with the lock. Words may be added to one that was
 * started, since nothing is sent before the step has ended.
 */

/* It is started. NULL: there is no memory. */
static struct order *
order_create(struct queue *queue, int kind)
{
	struct hwt_durable_worker *worker = queue->worker;
	struct order *order = malloc(sizeof(*order));

	if (order == NULL)
		return NULL;
	request_begin(
	    &order->request, worker->durable, commands[kind], queue->name);
	order->request.done = order_done;
	order->queue = queue;
	order->kind = kind;
	order->limit = order->reserved = order->count = 0;
	order->sent_ns = boot_now_ns();
	worker->orders++;
	if (kind == ORDER_TAKE) {
		order->request.own = &queue->connection;
		order->request.timeout_ns =
		    worker->durable->timeout_ns + BLOCK_MS * MS_NS;
	}
	request_start(worker->durable, &order->request);
	return order;
}

static void
order_add(struct order *order, const struct attempt *attempt)
{
	redisReply *const *field = attempt->record->element;

	request_word(&order->request, field[0]->str, (size_t)field[0]->len);
	request_number(&order->request, field[1]->integer);
	order->number[order->count++] = attempt->number;
}

static struct order *
finish_create(const struct attempt *attempt)
{
	struct queue *queue = attempt->queue;
	struct order *order = queue->finishing < FINISHES_MAX
	    ? order_create(queue, ORDER_FINISH)
	    : NULL;

	if (order == NULL)
		return NULL;
	queue->finishing++;
	if (attempt->outcome == 0) {
		request_text(&order->request, "DONE");
	} else if (attempt->outcome == HWT_DURABLE_RETRY) {
		request_text(&order->request, "RETRY");
		request_number(&order->request, attempt->delay_ms);
	} else {
		request_text(&order->request, "FAIL");
		request_text(&order->request,
		    attempt->reason != NULL ? attempt->reason : "");
	}
	request_text(&order->request, "TASKS");
	return order;
}

/* How many tasks a take of the queue may ask for now, if so much more has room;
 * 0: it may not begin. */
static size_t
take_limit(const struct queue *queue, size_t more)
{
	const struct hwt_durable_worker *worker = queue->worker;
	const struct queue *before = worker->queue;
	size_t room = worker->options.outstanding_max + more;

	while (before < queue && before->idle)
		before++;
	room = room > worker->used ? room - worker->used : 0;
	if (worker->stopping || queue->taking || before < queue)
		return 0;
	if (queue->request != 0)
		return room >= queue->limit ? queue->limit : 0;
	return room < TAKE_MAX ? room : TAKE_MAX;
}

/* A part of the command. reserved: of limit. */
static void
order_take(struct order *order, size_t limit, size_t reserved)
{
	struct queue *queue = order->queue;
	struct hwt_durable_worker *worker = queue->worker;
	struct request *request = &order->request;

	if (queue->request == 0)
		queue->request = ++worker->last_request;
	queue->taking = true;
	queue->limit = order->limit = limit;
	order->reserved = reserved;
	worker->used += reserved;
	request_text(request, worker->name);
	request_number(request, limit);
	request_number(request, worker->options.visibility_ns / MS_NS);
	request_text(request, "REQUEST");
	request_number(request, queue->request);
}

/*
 * Steps.
 */

/* What has ended is reported: what is alike together. One command takes what it
 * makes room for, and more if there is room. */
static void
queue_finish(struct queue *queue)
{
	struct attempt *attempt, *ended = queue->ended;
	struct order *orders = NULL, *order, *most;
	size_t limit;

	queue->ended = NULL;
	while ((attempt = ended) != NULL) {
		ended = attempt->next;
		if (is_over(attempt)) {
			attempt_free(attempt);
			continue;
		}
		order = orders;
		while (order != NULL &&
		    (order->count == TASKS_MAX ||
			!are_alike(attempt,
			    attempt_find(queue->worker, order->number[0]))))
			order = order->next;
		if (order == NULL && (order = finish_create(attempt)) != NULL) {
			order->next = orders;
			orders = order;
		}
		if (order != NULL)
			order_add(order, attempt);
		else
			attempt_end(attempt);
	}
	for (most = order = orders; order != NULL; order = order->next)
		most = order->count > most->count ? order : most;
	limit = most != NULL ? take_limit(queue, most->count) : 0;
	if (limit == 0)
		return;
	request_text(&most->request, "TAKE");
	/* used still counts those that it finishes. */
	order_take(most, limit, limit > most->count ? limit - most->count : 0);
}

/* Of several queues, a take that blocks is for one task. */
static void
queue_take(struct queue *queue)
{
	bool several = queue->worker->queues > 1;
	bool one = several && queue->idle && queue->request == 0;
	size_t limit = take_limit(queue, 0);
	struct order *order =
	    limit > 0 ? order_create(queue, ORDER_TAKE) : NULL;

	if (order == NULL)
		return;
	order_take(order, one ? 1 : limit, one ? 0 : limit);
	request_text(&order->request, "BLOCK");
	request_number(&order->request, one || !several ? BLOCK_MS : 1);
}

static void
worker_step(struct hwt_durable_worker *worker)
{
	struct queue *queue = worker->queue;

	(void)pthread_mutex_lock(&worker->lock);
	for (; queue < worker->queue + worker->queues; queue++) {
		if (queue->paused)
			continue;
		if (queue->finishing == 0)
			queue_finish(queue);
		queue_take(queue);
	}
	if (is_gone(worker))
		(void)pthread_cond_broadcast(&worker->gone);
	(void)pthread_mutex_unlock(&worker->lock);
}

/* Of all that has no outcome. What fails is done again the next time. */
static void
extend_leases(hwt_timeout timeout, void *arg)
{
	struct hwt_durable_worker *worker = arg;
	struct order *orders[HWT_DURABLE_QUEUES_MAX] = {NULL}, **order;
	struct attempt *attempt;
	size_t i;

	(void)timeout;
	(void)pthread_mutex_lock(&worker->lock);
	for (i = 0; i < worker->slots; i++) {
		attempt = &worker->slot[i];
		if (attempt->record == NULL || attempt->outcome != OUTCOME_OPEN)
			continue;
		order = &orders[attempt->queue - worker->queue];
		if (*order == NULL || (*order)->count == TASKS_MAX) {
			*order = order_create(attempt->queue, ORDER_EXTEND);
			if (*order == NULL)
				continue;
			request_number(&(*order)->request,
			    worker->options.visibility_ns / MS_NS);
			request_text(&(*order)->request, "TASKS");
		}
		order_add(*order, attempt);
	}
	for (i = 0; i < worker->queues; i++)
		worker->queue[i].paused = false;
	(void)pthread_mutex_unlock(&worker->lock);
	worker_step(worker);
}

/*
 * Answers.
 */

static bool
record_is_valid(const redisReply *record)
{
	size_t i;

	if (record->type != REDIS_REPLY_ARRAY || record->elements != 6)
		return false;
	for (i = 0; i < 6; i++) {
		if (record->element[i]->type !=
		    (i == 0 || i == 5 ? REDIS_REPLY_STRING
				      : REDIS_REPLY_INTEGER))
			return false;
	}
	return (size_t)record->element[0]->len <= HWT_DURABLE_ID_MAX;
}

/* reply: NULL if there was no answer. False: it makes no sense. */
static bool
take_answer(struct order *order, const redisReply *reply)
{
	struct queue *queue = order->queue;
	size_t i;

	queue->taking = false;
	queue->idle = true; /* if not answered: others may go on */
	if (reply == NULL)
		return true;
	queue->request = 0;
	if (reply->type == REDIS_REPLY_NIL)
		return true;
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements > order->limit)
		return false;
	queue->idle = reply->elements < order->limit;
	for (i = 0; i < reply->elements; i++) {
		if (!record_is_valid(reply->element[i]))
			return false;
		attempt_create(queue, reply->element[i],
		    order->sent_ns + queue->worker->options.visibility_ns);
		reply->element[i] = NULL;
	}
	return true;
}

/* What the server has said about attempts, or nothing, if reply is NULL. */
static void
attempts_answer(struct order *order, const redisReply *reply)
{
	struct hwt_durable_worker *worker = order->queue->worker;
	struct attempt *attempt;
	size_t i;

	for (i = 0; i < order->count; i++) {
		attempt = attempt_find(worker, order->number[i]);
		if (order->kind == ORDER_FINISH && reply != NULL)
			attempt_free(attempt);
		else if (order->kind == ORDER_FINISH)
			attempt_end(attempt);
		else if (attempt == NULL || reply == NULL)
			continue;
		else if (reply->element[i]->integer != 0)
			attempt->lease_end_ns =
			    order->sent_ns + worker->options.visibility_ns;
		else if (attempt->outcome == OUTCOME_OPEN)
			attempt_decide(attempt, OUTCOME_NONE, 0, NULL);
		else
			attempt->outcome = OUTCOME_NONE;
	}
}

/* The first of a row of errors is logged. The connection pauses; if it cannot,
 * the queue does, until leases are extended. */
static void
order_failed(const struct order *order, int error)
{
	struct connection *connection = order->request.connection;
	struct queue *queue = order->queue;

	if (!queue->failing)
		durable_log(queue->worker->durable,
		    "%s: %s of the queue %s failed: %s; it is tried again",
		    queue->worker->name, commands[order->kind], queue->name,
		    strerror(-error));
	queue->paused = connection == NULL || !connection_pause(connection);
}

static void
order_done(struct request *request)
{
	struct order *order = (struct order *)request;
	struct queue *queue = order->queue;
	struct hwt_durable_worker *worker = queue->worker;
	redisReply *reply = request->error == 0 ? request->reply : NULL;
	int error = request->error;

	if (reply != NULL && order->kind != ORDER_TAKE &&
	    (reply->type != REDIS_REPLY_ARRAY ||
		reply->elements != order->count + (order->limit != 0))) {
		error = -EPROTO;
		reply = NULL;
	}
	(void)pthread_mutex_lock(&worker->lock);
	worker->orders--;
	worker->used -= order->reserved;
	queue->finishing -= order->kind == ORDER_FINISH;
	attempts_answer(order, reply);
	if (reply != NULL && order->kind == ORDER_FINISH && order->limit != 0)
		reply = reply->element[order->count];
	if (order->limit != 0 && !take_answer(order, reply))
		error = -EPROTO;
	(void)pthread_mutex_unlock(&worker->lock);
	if (error != 0)
		order_failed(order, error);
	queue->failing = error != 0;
	request_free(request);
	free(order);
	worker_step(worker);
}

/*
 * Callbacks.
 */

/* Of the first queue that has one; with the lock. */
static struct attempt *
next_attempt(struct hwt_durable_worker *worker)
{
	struct queue *queue = worker->queue;
	struct attempt *attempt = NULL;

	for (; queue < worker->queue + worker->queues; queue++) {
		attempt = queue->waiting;
		if (attempt == NULL)
			continue;
		queue->waiting = attempt->next;
		if (queue->waiting == NULL)
			queue->last = &queue->waiting;
		break;
	}
	return attempt;
}

static bool
is_retry_delay(uint64_t delay_ns)
{
	return delay_ns == HWT_NEVER || delay_ns <= HWT_DURABLE_DELAY_MAX;
}

/* With the lock, and without it in the callback. */
static void
call_back(struct attempt *attempt)
{
	struct hwt_durable_worker *worker = attempt->queue->worker;
	redisReply *const *field = attempt->record->element;
	char reason[HWT_DURABLE_REASON_MAX + 1];
	uint64_t delay_ns = HWT_NEVER;
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
	    .retry_delay_ns = &delay_ns,
	    .reason = reason,
	    .token = {worker, attempt->number},
	};
	int result;

	reason[0] = '\0';
	(void)pthread_mutex_unlock(&worker->lock);
	calling = worker;
	result = worker->options.callback(worker->options.ctx, &delivery);
	calling = NULL;
	reason[HWT_DURABLE_REASON_MAX] = '\0';
	if (result == HWT_DURABLE_LATER)
		result = OUTCOME_OPEN;
	else if (result < 0 || result > HWT_DURABLE_LATER)
		result = HWT_DURABLE_FAIL;
	if (!is_retry_delay(delay_ns))
		delay_ns = HWT_NEVER;
	(void)pthread_mutex_lock(&worker->lock);
	attempt->is_left = true;
	attempt_decide(attempt, result, delay_ns, reason);
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
		} else if (attempt->outcome == OUTCOME_NONE ||
		    attempt->lease_end_ns <= boot_now_ns()) {
			attempt->is_left = true;
			attempt_decide(attempt, OUTCOME_NONE, 0, NULL);
		} else {
			call_back(attempt);
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

	if (worker == NULL || outcome < 0 || outcome > HWT_DURABLE_FAIL ||
	    (outcome == HWT_DURABLE_RETRY && !is_retry_delay(delay_ns)) ||
	    (reason != NULL &&
		strnlen(reason, HWT_DURABLE_REASON_MAX + 1) >
		    HWT_DURABLE_REASON_MAX))
		return -EINVAL;
	if (!durable_is_own(worker->durable))
		return -EOWNERDEAD;
	(void)pthread_mutex_lock(&worker->lock);
	attempt = attempt_find(worker, token.number);
	if (attempt != NULL && attempt->outcome == OUTCOME_OPEN) {
		attempt_decide(attempt, outcome, delay_ns, reason);
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
	struct queue *queue = worker->queue;
	size_t length;
	unsigned i;

	for (;; text += length + 1, queue++) {
		length = strcspn(text, ",");
		if (worker->queues == HWT_DURABLE_QUEUES_MAX ||
		    length > HWT_DURABLE_QUEUE_MAX)
			return false;
		memcpy(queue->name, text, length);
		if (!name_is_valid(queue->name, HWT_DURABLE_QUEUE_MAX))
			return false;
		for (i = 0; i < worker->queues; i++) {
			if (strcmp(worker->queue[i].name, queue->name) == 0)
				return false;
		}
		queue->worker = worker;
		queue->last = &queue->waiting;
		worker->queues++;
		if (text[length] == '\0')
			return true;
	}
}

static bool
options_are_valid(const struct hwt_durable_worker_options *options)
{
	return options->queue != NULL && options->callback != NULL &&
	    options->threads <= THREADS_MOST && options->flags == 0 &&
	    options->visibility_ns >= HWT_SEC(1) &&
	    options->visibility_ns <= VISIBILITY_MOST &&
	    options->outstanding_max >= options->threads &&
	    options->outstanding_max <= OUTSTANDING_MOST &&
	    RESERVED_IS_ZERO(options);
}

/* On the loop. */
static void
worker_begin(void *arg)
{
	struct hwt_durable_worker *worker = arg;
	struct hwt_durable *durable = worker->durable;
	uint64_t part_ns = worker->options.visibility_ns / 5;
	unsigned i;

	worker->error = hwt_new_periodic(durable->timer,
	    hwt_mailbox_executor(durable->mailbox), &worker->extend,
	    extend_leases, worker, part_ns, part_ns);
	if (worker->error != 0)
		return;
	for (i = 0; i < worker->queues; i++)
		connection_create(&worker->queue[i].connection, durable, NULL);
	worker_step(worker);
}

/* On the loop, when it is gone, or was never begun. */
static void
worker_close(void *arg)
{
	struct hwt_durable_worker *worker = arg;
	struct queue *queue = worker->queue;

	(void)!hwt_cancel(worker->durable->timer, worker->extend);
	for (; queue < worker->queue + worker->queues; queue++) {
		if (queue->connection.durable != NULL)
			connection_destroy(&queue->connection);
	}
}

/* Its threads end, and then it is freed. */
static void
worker_end(struct hwt_durable_worker *worker)
{
	(void)pthread_mutex_lock(&worker->lock);
	worker->over = true;
	(void)pthread_cond_broadcast(&worker->work);
	(void)pthread_mutex_unlock(&worker->lock);
	while (worker->threads > 0)
		(void)pthread_join(worker->thread[--worker->threads], NULL);
	loop_call(worker->durable, worker_close, worker);
	atomic_fetch_sub(&worker->durable->workers, 1);
	(void)pthread_mutex_destroy(&worker->lock);
	(void)pthread_cond_destroy(&worker->work);
	(void)pthread_cond_destroy(&worker->gone);
	free(worker->slot);
	free(worker->thread);
	free(worker);
}

static int
worker_run(struct hwt_durable_worker *worker)
{
	const struct hwt_durable_worker_options *options = &worker->options;
	pthread_condattr_t monotonic;
	char host[33] = "";
	struct secret random;

	secret_make(&random);
	worker->last_request = random.word[0] >> 2;
	(void)gethostname(host, sizeof(host) - 1);
	(void)snprintf(worker->name, sizeof(worker->name), "%s-%ld-%08x", host,
	    (long)getpid(), (unsigned)random.word[1]);
	(void)pthread_mutex_init(&worker->lock, NULL);
	(void)pthread_cond_init(&worker->work, NULL);
	(void)pthread_condattr_init(&monotonic);
	(void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&worker->gone, &monotonic);
	(void)pthread_condattr_destroy(&monotonic);
	if (!read_queues(worker, options->queue))
		return -EINVAL;
	worker->slots = 2 * (options->outstanding_max + worker->queues);
	worker->slot = calloc(worker->slots, sizeof(*worker->slot));
	worker->thread = calloc(options->threads, sizeof(*worker->thread));
	if (worker->slot == NULL || worker->thread == NULL)
		return -ENOMEM;
	for (; worker->threads < options->threads; worker->threads++) {
		if (durable_thread(&worker->thread[worker->threads],
			call_thread, worker) != 0)
			return -EAGAIN;
	}
	loop_call(worker->durable, worker_begin, worker);
	return worker->error;
}

int
hwt_durable_worker_start(struct hwt_durable_worker **started,
    struct hwt_durable *durable, const struct hwt_durable_worker_options *given)
{
	struct hwt_durable_worker_options options;
	struct hwt_durable_worker *worker;
	int error;

	if (started == NULL || durable == NULL || given == NULL)
		return -EINVAL;
	options = *given;
	if (options.threads == 0)
		options.threads = 1;
	if (options.visibility_ns == 0)
		options.visibility_ns = HWT_SEC(30);
	if (options.outstanding_max == 0)
		options.outstanding_max = 2 * (uint64_t)options.threads;
	if (!options_are_valid(&options))
		return -EINVAL;
	if (!durable_is_own(durable))
		return -EOWNERDEAD;
	worker = calloc(1, sizeof(*worker));
	if (worker == NULL)
		return -ENOMEM;
	worker->durable = durable;
	worker->options = options;
	atomic_fetch_add(&durable->workers, 1);
	error = worker_run(worker);
	if (error == 0)
		*started = worker;
	else
		worker_end(worker);
	return error;
}

int
hwt_durable_worker_stop(struct hwt_durable_worker *worker, uint64_t within_ns)
{
	struct timespec end = {0};
	bool gone;
	int error = 0;

	if (worker == NULL)
		return -EINVAL;
	if (!durable_is_own(worker->durable))
		return -EOWNERDEAD;
	if (calling == worker)
		return -EDEADLK;
	if (within_ns > HWT_SEC(1000000000))
		within_ns = HWT_SEC(1000000000);
	(void)clock_gettime(CLOCK_MONOTONIC, &end);
	within_ns += (uint64_t)end.tv_nsec;
	end.tv_sec += (time_t)(within_ns / HWT_SEC(1));
	end.tv_nsec = (long)(within_ns % HWT_SEC(1));
	(void)pthread_mutex_lock(&worker->lock);
	worker->stopping = true;
	worker_kick(worker);
	while (error == 0 && !is_gone(worker))
		error =
		    pthread_cond_timedwait(&worker->gone, &worker->lock, &end);
	gone = is_gone(worker);
	(void)pthread_mutex_unlock(&worker->lock);
	if (!gone)
		return -EBUSY;
	worker_end(worker);
	return 0;
}
