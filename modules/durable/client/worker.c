/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers.
 *
 *   free --take_answer--> waiting --call_thread--> called --call_back--> open
 *   or ended;  open --hwt_durable_finish--> ended --queue_finish--> reported
 *   --attempts_answer--> free, or ended again if there was no answer
 *
 * THREADS. The loop takes tasks, reports outcomes and extends leases: a step
 * when it is kicked, and at each answer. Callback threads have attempts in
 * between, with the worker's lock. Only the loop frees one, when the server has
 * its outcome; so its record may be read without the lock. The loop has the
 * lock for a whole step: while it waits for that, more end, and are reported
 * together.
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
#include <pthread.h>
#include <semaphore.h>
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
#define WITHIN_MOST HWT_SEC(1000000000)
#define TAKE_MAX 240 /* so that hwtd can answer with payloads of 1 MiB */
#define TASKS_MAX 1024 /* of a command */
#define FINISHES_MAX 64 /* under way, of a queue */
/* For so long a take waits at the server, and a stop for it. */
#define BLOCK_MS 500
#define PAUSE_NS (50 * MS_NS) /* after an error */

/* For an outcome: not known yet; nothing is reported. */
#define OUTCOME_OPEN (-2)
#define OUTCOME_NONE (-1)

struct attempt {
	struct queue *queue;
	/* {id, fence, attempt, attempts, due, payload}; NULL: it is free */
	redisReply *record;
	struct attempt *next; /* of those that wait, or have ended */
	uint64_t number; /* modulo slots, its index */
	uint64_t lease_end_ns; /* CLOCK_BOOTTIME, as at the server or before */
	bool is_left; /* no callback thread has it */
	int outcome;
	char *word; /* of a retry, its delay in ms; of a failure, why */
};

struct queue {
	struct hwt_durable_worker *worker;
	char name[HWT_DURABLE_QUEUE_MAX + 1];
	/* The rest is the loop's. */
	struct attempt *ended;
	struct connection connection; /* of takes that block */
	unsigned finishing; /* finishes under way */
	bool idle;
	bool paused; /* until the next tick */
	bool failing; /* the last answer was an error, which was logged */
	/* Of the take that is not answered; 0: none. It may have brought so
	 * many, for which there must be room when it is repeated. */
	uint64_t request;
	size_t limit, reserved; /* a part of limit is counted in used */
	struct order *taking; /* which has it; NULL: it is to be repeated */
};

struct hwt_durable_worker {
	struct hwt_post kick; /* first */
	struct begin {
		struct hwt_post post; /* first */
		struct hwt_durable_worker *worker;
	} begin; /* of the next callback thread */
	struct hwt_durable *durable;
	struct hwt_durable_worker_options options; /* with the defaults */
	char name[64]; /* unique: of host, process and a random number */
	size_t slots; /* at least half of them are free */
	struct attempt *slot;
	struct hwt_pool *pool; /* the callback threads */
	sem_t gone;

	pthread_mutex_t lock; /* for what follows, and attempts */
	pthread_cond_t work; /* attempts wait, or it is over */
	struct attempt *waiting, **last;
	unsigned begun; /* threads */
	bool kicked, over;

	/* The loop's. */
	struct hwt_durable_worker *link; /* in the list of the handle */
	struct queue queue[HWT_DURABLE_QUEUES_MAX];
	unsigned queues;
	hwt_timeout tick;
	uint64_t last_number, last_request;
	size_t used, orders; /* orders are under way */
	bool woken, stopping;
};

/* A command of a worker. */
struct order {
	struct request request; /* first */
	struct queue *queue;
	struct order *next; /* in a step, of the finishes of a queue */
	enum {
		ORDER_TAKE,
		ORDER_FINISH, /* it may have a take, too */
		ORDER_EXTEND
	} kind;
	uint64_t sent_ns;
	size_t count;
	uint64_t number[TASKS_MAX]; /* of attempts */
};

static const char *const commands[] = {"HWT.TAKE", "HWT.FINISH", "HWT.EXTEND"};

/* The worker whose callback this thread is in. */
static __thread const struct hwt_durable_worker *calling;

static void order_done(struct request *request);

/* Soon there is a step. */
static void
worker_wake(struct hwt_durable_worker *worker)
{
	worker->woken = true;
	worker->durable->flush = true;
}

/*
 * Attempts.
 */

/* With the lock. */
static void
attempt_end(struct attempt *attempt)
{
	attempt->next = attempt->queue->ended;
	attempt->queue->ended = attempt;
}

static void
kicked(struct hwt_post *post)
{
	struct hwt_durable_worker *worker = (struct hwt_durable_worker *)post;

	(void)pthread_mutex_lock(&worker->lock);
	worker->kicked = false;
	(void)pthread_mutex_unlock(&worker->lock);
	worker_wake(worker);
}

/* With the lock. The first outcome counts. It has ended unless it is open, or
 * in a callback. */
static void
attempt_decide(
    struct attempt *attempt, int outcome, uint64_t delay_ns, const char *reason)
{
	struct hwt_durable_worker *worker = attempt->queue->worker;
	char delay[24];

	if (attempt->outcome == OUTCOME_OPEN) {
		attempt->outcome = outcome;
		(void)snprintf(delay, sizeof(delay), "%llu",
		    (unsigned long long)ms_of(delay_ns));
		if (outcome == HWT_DURABLE_RETRY)
			reason = delay_ns == HWT_NEVER ? NULL : delay;
		if (outcome > 0 && reason != NULL)
			attempt->word = strdup(reason);
	}
	if (!attempt->is_left || attempt->outcome == OUTCOME_OPEN)
		return;
	attempt_end(attempt);
	if (!worker->kicked)
		(void)hwt_mailbox_post(
		    worker->durable->mailbox, &worker->kick, kicked);
	worker->kicked = true;
}

static struct attempt *
attempt_find(const struct hwt_durable_worker *worker, uint64_t number)
{
	struct attempt *attempt = &worker->slot[number % worker->slots];

	return attempt->record != NULL && attempt->number == number ? attempt
								    : NULL;
}

/* With the lock. It waits for a callback thread. */
static void
attempt_create(struct queue *queue, redisReply *record, uint64_t lease_end_ns)
{
	struct hwt_durable_worker *worker = queue->worker;
	struct attempt *attempt;

	do
		attempt = &worker->slot[++worker->last_number % worker->slots];
	while (attempt->record != NULL);
	*attempt = (struct attempt){.queue = queue,
	    .record = record,
	    .number = worker->last_number,
	    .lease_end_ns = lease_end_ns,
	    .outcome = OUTCOME_OPEN};
	*worker->last = attempt;
	worker->last = &attempt->next;
	worker->used++;
	(void)pthread_cond_signal(&worker->work);
}

static void
attempt_free(struct attempt *attempt)
{
	attempt->queue->worker->used--;
	freeReplyObject(attempt->record);
	free(attempt->word);
	attempt->record = NULL;
}

/* Of one that has ended: it is not reported, or not any more: a stop does not
 * wait for a server that is away. Otherwise it is, whenever the server comes
 * back: while it was away, no lease has ended there. */
static bool
is_over(const struct attempt *attempt)
{
	return attempt->outcome == OUTCOME_NONE ||
	    (attempt->queue->worker->stopping &&
		attempt->lease_end_ns <= now_ns());
}

static const char *
word_of(const struct attempt *attempt)
{
	if (attempt->word != NULL)
		return attempt->word;
	return attempt->outcome == HWT_DURABLE_RETRY ? "-1" : "";
}

/* Whether one finish may report both. */
static bool
are_alike(const struct attempt *a, const struct attempt *b)
{
	return a->outcome == b->outcome && strcmp(word_of(a), word_of(b)) == 0;
}

/*
 * Orders. Words may be added to one that was started, since nothing is sent
 * before the step has ended.
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
	order->count = 0;
	order->sent_ns = now_ns();
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
	static const char *const outcomes[] = {"DONE", "RETRY", "FAIL"};
	struct queue *queue = attempt->queue;
	struct order *order = queue->finishing < FINISHES_MAX
	    ? order_create(queue, ORDER_FINISH)
	    : NULL;

	if (order == NULL)
		return NULL;
	queue->finishing++;
	request_text(&order->request, outcomes[attempt->outcome]);
	if (attempt->outcome != 0)
		request_text(&order->request, word_of(attempt));
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
	if (worker->stopping || queue->taking != NULL || before < queue)
		return 0;
	if (queue->request != 0)
		return room >= queue->limit ? queue->limit : 0;
	return room < TAKE_MAX ? room : TAKE_MAX;
}

/* A part of the command. */
static void
order_take(struct order *order, size_t limit, size_t reserved)
{
	struct queue *queue = order->queue;
	struct hwt_durable_worker *worker = queue->worker;
	struct request *request = &order->request;

	if (queue->request == 0)
		queue->request = ++worker->last_request;
	queue->taking = order;
	queue->limit = limit;
	queue->reserved = reserved;
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
		if (order != NULL) {
			order_add(order, attempt);
		} else {
			attempt->next = queue->ended;
			queue->ended = attempt;
		}
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
	worker->woken = false;
	for (; queue < worker->queue + worker->queues; queue++) {
		if (queue->paused)
			continue;
		if (queue->finishing == 0)
			queue_finish(queue);
		queue_take(queue);
	}
	(void)pthread_mutex_unlock(&worker->lock);
	if (worker->stopping && worker->used == 0 && worker->orders == 0)
		(void)sem_post(&worker->gone);
}

void
workers_step(struct hwt_durable *durable)
{
	struct hwt_durable_worker *worker = durable->workers;

	for (; worker != NULL; worker = worker->link) {
		if (worker->woken)
			worker_step(worker);
	}
}

/* Of all that has no outcome, and was not extended or taken just now. What
 * fails is done again the next time. */
static void
extend_leases(struct hwt_durable_worker *worker)
{
	struct order *orders[HWT_DURABLE_QUEUES_MAX] = {NULL}, **order;
	uint64_t visibility_ns = worker->options.visibility_ns;
	uint64_t new_ns = now_ns() + visibility_ns - visibility_ns / 10;
	struct attempt *attempt = worker->slot;

	(void)pthread_mutex_lock(&worker->lock);
	for (; attempt < worker->slot + worker->slots; attempt++) {
		if (attempt->record == NULL ||
		    attempt->outcome != OUTCOME_OPEN ||
		    attempt->lease_end_ns > new_ns)
			continue;
		order = &orders[attempt->queue - worker->queue];
		if (*order == NULL || (*order)->count == TASKS_MAX) {
			*order = order_create(attempt->queue, ORDER_EXTEND);
			if (*order == NULL)
				continue;
			request_number(
			    &(*order)->request, visibility_ns / MS_NS);
			request_text(&(*order)->request, "TASKS");
		}
		order_add(*order, attempt);
	}
	(void)pthread_mutex_unlock(&worker->lock);
}

/* At each fifth of the visibility, and sooner after an error. */
static void
worker_tick(hwt_timeout timeout, void *arg)
{
	struct hwt_durable_worker *worker = arg;
	unsigned i;

	(void)timeout;
	extend_leases(worker);
	for (i = 0; i < worker->queues; i++)
		worker->queue[i].paused = false;
	worker_wake(worker);
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
					  : REDIS_REPLY_INTEGER) ||
		    record->element[i]->integer < 0)
			return false;
	}
	return (size_t)record->element[0]->len <= HWT_DURABLE_ID_MAX;
}

/* To a finish, with a take or without, or an extension. */
static bool
answer_is_valid(const redisReply *reply, size_t count, bool takes)
{
	size_t i;

	if (reply->type != REDIS_REPLY_ARRAY ||
	    reply->elements != count + takes)
		return false;
	for (i = 0; i < count; i++) {
		if (reply->element[i]->type != REDIS_REPLY_INTEGER)
			return false;
	}
	return true;
}

/* reply: NULL if there was no answer. False: it makes no sense. */
static bool
take_answer(struct order *order, const redisReply *reply)
{
	struct queue *queue = order->queue;
	size_t i;

	queue->taking = NULL;
	queue->worker->used -= queue->reserved;
	queue->idle = true; /* if not answered: others may go on */
	if (reply == NULL)
		return true;
	queue->request = 0;
	if (reply->type == REDIS_REPLY_NIL)
		return true;
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements > queue->limit)
		return false;
	queue->idle = reply->elements < queue->limit;
	for (i = 0; i < reply->elements; i++) {
		if (!record_is_valid(reply->element[i]))
			return false;
	}
	for (i = 0; i < reply->elements; i++) {
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
		if (order->kind == ORDER_FINISH && reply == NULL)
			attempt_end(attempt);
		else if (order->kind == ORDER_FINISH)
			attempt_free(attempt);
		else if (attempt == NULL || reply == NULL)
			continue;
		else if (reply->element[i]->integer != 0)
			attempt->lease_end_ns =
			    order->sent_ns + worker->options.visibility_ns;
		else if (attempt->outcome == OUTCOME_OPEN)
			attempt_decide(attempt, OUTCOME_NONE, 0, NULL);
	}
}

/* The first of a row of errors is logged. The tick after the pause cannot fail,
 * as it has its timeout already. */
static void
order_failed(const struct order *order, int error)
{
	struct queue *queue = order->queue;
	const struct hwt_durable *durable = queue->worker->durable;

	if (!queue->failing)
		durable_log(durable,
		    "%s: %s of the queue %s failed: %s; it is tried again",
		    queue->worker->name, commands[order->kind], queue->name,
		    strerror(-error));
	if (!queue->paused)
		(void)hwt_reschedule(
		    durable->timer, queue->worker->tick, PAUSE_NS);
	queue->paused = true;
}

static void
order_done(struct request *request)
{
	struct order *order = (struct order *)request;
	struct queue *queue = order->queue;
	bool takes = queue->taking == order;
	redisReply *reply = request->error == 0 ? request->reply : NULL;
	int error = request->error;

	if (reply != NULL && order->kind != ORDER_TAKE &&
	    !answer_is_valid(reply, order->count, takes)) {
		error = -EPROTO;
		reply = NULL;
	}
	queue->worker->orders--;
	queue->finishing -= order->kind == ORDER_FINISH;
	(void)pthread_mutex_lock(&queue->worker->lock);
	attempts_answer(order, reply);
	if (reply != NULL && order->kind == ORDER_FINISH && takes)
		reply = reply->element[order->count];
	if (takes && !take_answer(order, reply))
		error = -EPROTO;
	(void)pthread_mutex_unlock(&queue->worker->lock);
	if (error != 0)
		order_failed(order, error);
	queue->failing = error != 0;
	worker_wake(queue->worker);
	request_free(request);
	free(order);
}

/*
 * Callbacks.
 */

/* With the lock, and without it in the callback. */
static void
call_back(struct hwt_durable_worker *worker, struct attempt *attempt)
{
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
	if (delay_ns > HWT_DURABLE_DELAY_MAX)
		delay_ns = HWT_NEVER;
	(void)pthread_mutex_lock(&worker->lock);
	attempt->is_left = true;
	attempt_decide(attempt, result, delay_ns, reason);
}

static void
call_thread(struct hwt_post *post)
{
	struct hwt_durable_worker *worker = ((struct begin *)post)->worker;
	struct attempt *attempt;

	(void)pthread_mutex_lock(&worker->lock);
	if (++worker->begun < worker->options.threads)
		(void)!hwt_pool_post(worker->pool, post, call_thread);
	while (!worker->over) {
		attempt = worker->waiting;
		if (attempt == NULL) {
			(void)pthread_cond_wait(&worker->work, &worker->lock);
			continue;
		}
		worker->waiting = attempt->next;
		if (worker->waiting == NULL)
			worker->last = &worker->waiting;
		if (attempt->outcome == OUTCOME_OPEN &&
		    attempt->lease_end_ns > now_ns()) {
			call_back(worker, attempt);
		} else {
			attempt->is_left = true;
			attempt_decide(attempt, OUTCOME_NONE, 0, NULL);
		}
	}
	(void)pthread_mutex_unlock(&worker->lock);
}

int
hwt_durable_finish(struct hwt_durable_token token, int outcome,
    uint64_t delay_ns, const char *reason)
{
	struct hwt_durable_worker *worker = token.worker;
	struct attempt *attempt;
	int error = -ESTALE;

	if (worker == NULL || outcome < 0 || outcome > HWT_DURABLE_FAIL ||
	    (outcome == HWT_DURABLE_RETRY && delay_ns != HWT_NEVER &&
		delay_ns > HWT_DURABLE_DELAY_MAX) ||
	    (reason != NULL &&
		strnlen(reason, HWT_DURABLE_REASON_MAX + 1) >
		    HWT_DURABLE_REASON_MAX))
		return -EINVAL;
	if (!durable_is_own(worker->durable))
		return -EOWNERDEAD;
	(void)pthread_mutex_lock(&worker->lock);
	attempt = &worker->slot[token.number % worker->slots];
	if (attempt->number == token.number &&
	    attempt->outcome == OUTCOME_OPEN) {
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
read_queues(struct hwt_durable_worker *worker)
{
	const char *text = worker->options.queue;
	struct queue *queue = worker->queue, *other;
	size_t length;

	for (;; text += length + 1, queue++) {
		length = strcspn(text, ",");
		if (worker->queues++ == HWT_DURABLE_QUEUES_MAX ||
		    length > HWT_DURABLE_QUEUE_MAX)
			return false;
		memcpy(queue->name, text, length);
		for (other = worker->queue; other < queue; other++) {
			if (strcmp(other->name, queue->name) == 0)
				return false;
		}
		if (!name_is_valid(queue->name, HWT_DURABLE_QUEUE_MAX))
			return false;
		queue->worker = worker;
		if (text[length] == '\0')
			return true;
	}
}

/* With the defaults. False: some are invalid. */
static bool
read_options(struct hwt_durable_worker_options *options)
{
	if (options->threads == 0)
		options->threads = 1;
	if (options->visibility_ns == 0)
		options->visibility_ns = HWT_SEC(30);
	if (options->outstanding_max == 0)
		options->outstanding_max = 2 * (uint64_t)options->threads;
	return options->queue != NULL && options->callback != NULL &&
	    options->threads <= THREADS_MOST && options->flags == 0 &&
	    options->visibility_ns >= HWT_SEC(1) &&
	    options->visibility_ns <= VISIBILITY_MOST &&
	    options->outstanding_max >= options->threads &&
	    options->outstanding_max <= OUTSTANDING_MOST &&
	    RESERVED_IS_ZERO(options);
}

static void
worker_begin(void *arg)
{
	struct hwt_durable_worker *worker = arg;
	struct hwt_durable *durable = worker->durable;
	unsigned i;

	worker->link = durable->workers;
	durable->workers = worker;
	for (i = 0; i < worker->queues; i++)
		connection_create(&worker->queue[i].connection, durable, NULL);
	worker_wake(worker);
}

static void
worker_stopping(void *arg)
{
	struct hwt_durable_worker *worker = arg;

	worker->stopping = true;
	worker_tick(worker->tick, worker);
}

static void
worker_close(void *arg)
{
	struct hwt_durable_worker *worker = arg;
	struct hwt_durable_worker **at = &worker->durable->workers;
	unsigned i;

	(void)!hwt_cancel(worker->durable->timer, worker->tick);
	for (i = 0; i < worker->queues; i++)
		connection_destroy(&worker->queue[i].connection);
	while (*at != worker)
		at = &(*at)->link;
	*at = worker->link;
}

/* When it is gone, or was never begun. */
static void
worker_free(struct hwt_durable_worker *worker)
{
	/* A call of hwt_durable_finish that is about to leave it has the lock.
	 */
	(void)pthread_mutex_lock(&worker->lock);
	worker->over = true;
	(void)pthread_cond_broadcast(&worker->work);
	(void)pthread_mutex_unlock(&worker->lock);
	(void)!hwt_pool_destroy(worker->pool);
	(void)pthread_mutex_destroy(&worker->lock);
	(void)pthread_cond_destroy(&worker->work);
	(void)sem_destroy(&worker->gone);
	free(worker->slot);
	free(worker);
}

static int
worker_run(struct hwt_durable_worker *worker)
{
	const struct hwt_durable_worker_options *options = &worker->options;
	struct hwt_durable *durable = worker->durable;
	uint64_t part_ns = options->visibility_ns / 5;
	int error;

	worker->slots = 2 * (options->outstanding_max + worker->queues);
	worker->slot = calloc(worker->slots, sizeof(*worker->slot));
	if (worker->slot == NULL)
		return -ENOMEM;
	error = hwt_pool_create(&worker->pool, options->threads, 0);
	if (error == 0)
		error = hwt_new_periodic(durable->timer,
		    hwt_mailbox_executor(durable->mailbox), &worker->tick,
		    worker_tick, worker, part_ns, part_ns);
	if (error != 0)
		return error;
	(void)!hwt_pool_post(worker->pool, &worker->begin.post, call_thread);
	loop_call(durable, worker_begin, worker);
	return 0;
}

int
hwt_durable_worker_start(struct hwt_durable_worker **started,
    struct hwt_durable *durable, const struct hwt_durable_worker_options *given)
{
	struct hwt_durable_worker *worker;
	struct secret random;
	char host[33] = "";
	int error = -EINVAL;

	if (started == NULL || durable == NULL || given == NULL)
		return -EINVAL;
	if (!durable_is_own(durable))
		return -EOWNERDEAD;
	worker = calloc(1, sizeof(*worker));
	if (worker == NULL)
		return -ENOMEM;
	worker->durable = durable;
	worker->options = *given;
	worker->last = &worker->waiting;
	worker->begin.worker = worker;
	(void)pthread_mutex_init(&worker->lock, NULL);
	(void)pthread_cond_init(&worker->work, NULL);
	(void)sem_init(&worker->gone, 0, 0);
	secret_make(&random);
	worker->last_request = random.word[0] >> 2;
	(void)gethostname(host, sizeof(host) - 1);
	(void)snprintf(worker->name, sizeof(worker->name), "%s-%ld-%08x", host,
	    (long)getpid(), (unsigned)random.word[1]);
	if (read_options(&worker->options) && read_queues(worker))
		error = worker_run(worker);
	if (error == 0)
		*started = worker;
	else
		worker_free(worker);
	return error;
}

int
hwt_durable_worker_stop(struct hwt_durable_worker *worker, uint64_t within_ns)
{
	struct timespec end = {0};

	if (worker == NULL)
		return -EINVAL;
	if (!durable_is_own(worker->durable))
		return -EOWNERDEAD;
	if (calling == worker)
		return -EDEADLK;
	if (within_ns > WITHIN_MOST)
		within_ns = WITHIN_MOST;
	(void)clock_gettime(CLOCK_MONOTONIC, &end);
	within_ns += (uint64_t)end.tv_nsec;
	end.tv_sec += (time_t)(within_ns / HWT_SEC(1));
	end.tv_nsec = (long)(within_ns % HWT_SEC(1));
	loop_call(worker->durable, worker_stopping, worker);
	while (sem_clockwait(&worker->gone, CLOCK_MONOTONIC, &end) != 0) {
		if (errno == ETIMEDOUT)
			return -EBUSY;
	}
	loop_call(worker->durable, worker_close, worker);
	worker_free(worker);
	return 0;
}
