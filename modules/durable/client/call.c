/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls: commands of many threads, sent together.
 *
 * THE LEADER. A caller puts its calls into the lists of their nodes. If nobody
 * leads there, it becomes the leader: it takes what is in the list, sends it in
 * one message, waits for all answers, hands them out, and stops leading. What
 * has come meanwhile is led by one of those who wait. So one thread alone waits
 * for its own answer and for nobody else, and many share messages and, for
 * adds, commands, and so a transaction.
 *
 * STATES of a call, and who makes each move, all with the handle's lock:
 *
 *   READY --caller--> QUEUED --leader--> SENT --leader--> ANSWERED --caller-->
 *   READY, to be sent again; or the end
 *
 * A call belongs to its caller but for the time from QUEUED to ANSWERED. QUEUED
 * nobody touches it but to take it off the list; SENT it is the leader's. The
 * caller is in call_run until all its calls are ANSWERED, so they stay.
 *
 * NO LOST WAKE. A caller sleeps only after it has seen, with the lock, that
 * each of its QUEUED calls has a node that somebody leads. Who stops leading
 * wakes, with the lock, the callers of what was answered, and of what is left
 * in the list one that sleeps: it leads, since it looks at all its calls again.
 * If none of them sleeps, each looks before it does. A leader that has QUEUED
 * calls at other nodes that nobody leads wakes a sleeper for these before it
 * begins, since it will not look for long. So: a QUEUED call at a node without
 * leader has a caller that is awake, or about to be.
 *
 * UNSENT AND UNCERTAIN. A command of which not all bytes were handed to the
 * socket has not been executed. One of which they were may have been: if its
 * answer does not come, the result is -ETIMEDOUT.
 *
 * REPLICAS. Behind the commands of a message, WAIT and ROLE tell whether the
 * replicas have them, and how many are connected: see replicas_judge.
 */
#include "modules/durable/client/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CALLS_MAX 256 /* of a message */
#define BYTES_MAX ((size_t)32 << 20) /* of a message, and of a merged command */
#define MERGE_LOOK 8 /* so many commands are looked at to join one */
#define REDIRECTS_MAX 16 /* at once */
#define PAUSE_FIRST_NS (10 * MS_NS)
#define PAUSE_MOST_NS (100 * MS_NS)
#define FALL_NS HWT_SEC(10)

struct caller {
	pthread_cond_t wake;
	bool sleeps; /* with the lock */
	struct call *calls;
	size_t count;
};

/*
 * Building calls.
 */

void
call_word(struct call *call, const void *bytes, size_t length)
{
	buffer_word(&call->buffer, bytes, length);
	call->words++;
}

void
call_text(struct call *call, const char *text)
{
	call_word(call, text, strlen(text));
}

void
call_number(struct call *call, uint64_t number)
{
	buffer_number(&call->buffer, number);
	call->words++;
}

void
call_begin(struct call *call, const struct hwt_durable *durable,
    const char *command, const char *queue)
{
	char key[HWT_DURABLE_SPACE_MAX + HWT_DURABLE_QUEUE_MAX + 3];
	size_t space = strlen(durable->space), length = strlen(queue);

	*call = (struct call){.state = CALL_READY};
	key[0] = '{';
	memcpy(key + 1, durable->space, space);
	key[1 + space] = ':';
	memcpy(key + 2 + space, queue, length);
	key[2 + space + length] = '}';
	call->slot = route_slot(key + 1, space + length + 1);
	call_text(call, command);
	call_word(call, key, space + length + 3);
}

void
call_free(struct call *call)
{
	buffer_free(&call->buffer);
	if (call->reply != NULL)
		freeReplyObject(call->reply);
	call->reply = NULL;
}

/*
 * A message: what one leader sends at once. Its commands are a list by next;
 * further calls of a command hang at its first one by with.
 */
struct message {
	struct hwt_durable *durable;
	struct node *node;
	struct call *first;
	struct buffer buffer;
	size_t sent;
	uint64_t deadline_ns;
	bool writes;
};

static bool
may_join(const struct call *command, const struct call *call)
{
	const struct call *each;
	size_t tasks = call->tasks, bytes = call->buffer.length;

	if (command->tasks == 0 || command->alone || command->error != 0 ||
	    command->body_at != call->body_at ||
	    memcmp(command->buffer.bytes, call->buffer.bytes, call->body_at) !=
		0)
		return false;
	for (each = command; each != NULL; each = each->with) {
		tasks += each->tasks;
		bytes += each->buffer.length;
	}
	return tasks <= HWT_DURABLE_BATCH_MAX && bytes <= BYTES_MAX;
}

/* Joins calls of the list into commands. */
static void
message_merge(struct message *message)
{
	struct call **at = &message->first;
	struct call *command, *call;
	unsigned looked;

	while ((call = *at) != NULL) {
		command = call;
		looked = 0;
		if (call->tasks > 0 && !call->alone && !call->asking &&
		    call->error == 0) {
			for (command = message->first;
			     command != call && looked < MERGE_LOOK;
			     command = command->next, looked++) {
				if (may_join(command, call))
					break;
			}
		}
		if (command == call || looked == MERGE_LOOK) {
			at = &call->next;
			continue;
		}
		*at = call->next;
		call->next = NULL;
		call->with = command->with;
		command->with = call;
	}
}

static void
message_add(struct message *message, struct call *command)
{
	struct buffer *to = &message->buffer;
	const struct call *each;
	size_t words = command->words;

	for (each = command->with; each != NULL; each = each->with)
		words += each->words - each->head_words;
	if (command->asking) {
		buffer_command(to, 1);
		buffer_text(to, "ASKING");
	}
	buffer_command(to, words);
	buffer_add(to, command->buffer.bytes, command->buffer.length);
	for (each = command->with; each != NULL; each = each->with)
		buffer_add(to, each->buffer.bytes + each->body_at,
		    each->buffer.length - each->body_at);
	command->end = to->length;
}

/* The result of a command and those that are joined to it, if they have none
 * yet. */
static void
command_fail(struct call *command, int error, bool unsent)
{
	for (; command != NULL; command = command->with) {
		if (command->error != 0 || command->reply != NULL)
			continue;
		command->error = error;
		command->unsent = unsent;
	}
}

/* False: it is no answer to an add of so many tasks. */
static bool
read_results(
    const redisReply *reply, size_t at, unsigned char *results, size_t count)
{
	const redisReply *element;
	size_t i;

	for (i = 0; i < count; i++) {
		element = reply->element[at + i];
		if (element->type != REDIS_REPLY_INTEGER ||
		    element->integer < 0 ||
		    element->integer > HWT_DURABLE_CANCELLED)
			return false;
		results[i] = (unsigned char)element->integer;
	}
	return true;
}

/* A refusal may be about one of the joined calls alone: each is sent again by
 * itself. */
static void
refuse(struct call *command, redisReply *reply)
{
	if (command->with == NULL) {
		command->reply = reply;
		return;
	}
	freeReplyObject(reply);
	for (; command != NULL; command = command->with) {
		command->alone = command->apart = true;
		command->error = -EAGAIN;
	}
}

static void
command_answer(struct call *command, redisReply *reply)
{
	size_t at = 0, tasks = 0;
	struct call *each;
	bool good;

	if (reply->type == REDIS_REPLY_ERROR) {
		refuse(command, reply);
		return;
	}
	if (command->results == NULL) {
		command->reply = reply;
		return;
	}
	for (each = command; each != NULL; each = each->with)
		tasks += each->tasks;
	good = reply->type == REDIS_REPLY_ARRAY && reply->elements == tasks;
	for (each = command; each != NULL; each = each->with) {
		if (!good ||
		    !read_results(reply, at, each->results, each->tasks))
			each->error = -EPROTO;
		at += each->tasks;
	}
	freeReplyObject(reply);
}

/*
 * Replicas.
 *
 * All that are connected must have what is acknowledged, since each may become
 * the next master. While there are more than are waited for, or never were as
 * many, nothing is sent. While there are fewer than before, one of them may be
 * the master already: what is acknowledged then, or soon after, may be known to
 * nobody but a master that is about to lose it.
 */

static void
replicas_note(struct message *message, const redisReply *role)
{
	struct node *node = message->node;
	int wanted = message->durable->replicas_wanted;

	node->replicas =
	    role->type == REDIS_REPLY_ERROR ? -1 : route_replicas(role);
	if (node->replicas == wanted)
		node->reached = true;
	if (node->replicas < wanted && node->reached)
		node->fell_ns = durable_now_ns(message->durable);
}

static bool
replicas_are_certain(const struct message *message)
{
	const struct node *node = message->node;

	return node->replicas == message->durable->replicas_wanted &&
	    (node->fell_ns == 0 ||
		durable_now_ns(message->durable) - node->fell_ns >= FALL_NS);
}

/* Before the message: -EOPNOTSUPP: nothing may be written. */
static int
replicas_look(struct message *message)
{
	struct node *node = message->node;
	struct buffer command = {0};
	redisReply *reply;
	int error;

	if (node->replicas == message->durable->replicas_wanted)
		return 0;
	buffer_command(&command, 1);
	buffer_text(&command, "ROLE");
	error = connection_ask(
	    node->connection, &command, message->deadline_ns, &reply);
	buffer_free(&command);
	if (error != 0)
		return error;
	replicas_note(message, reply);
	freeReplyObject(reply);
	return !node->reached ||
		node->replicas > message->durable->replicas_wanted
	    ? -EOPNOTSUPP
	    : 0;
}

/* WAIT has a part of the time, so that its answer comes in it; and none if
 * there are too few anyway. */
static void
replicas_ask(struct message *message)
{
	struct buffer *to = &message->buffer;
	uint64_t now_ns = durable_now_ns(message->durable);
	int wanted = message->durable->replicas_wanted;
	uint64_t wait_ns = 0;

	if (message->deadline_ns > now_ns && message->node->replicas == wanted)
		wait_ns = (message->deadline_ns - now_ns) * 3 / 4;
	buffer_command(to, 3);
	buffer_text(to, "WAIT");
	buffer_number(to, (uint64_t)wanted);
	buffer_number(to, wait_ns / MS_NS + 1);
	buffer_command(to, 1);
	buffer_text(to, "ROLE");
}

/* After all answers: what was not surely replicated is uncertain. */
static int
replicas_judge(struct message *message)
{
	struct connection *connection = message->node->connection;
	redisReply *wait = NULL, *role = NULL;
	struct call *command, *each;
	bool certain;
	int error = connection_receive(connection, &wait);

	if (error == 0)
		error = connection_receive(connection, &role);
	if (error == 0)
		replicas_note(message, role);
	certain = error == 0 && wait->type == REDIS_REPLY_INTEGER &&
	    wait->integer >= message->durable->replicas_wanted &&
	    replicas_are_certain(message);
	for (command = message->first; !certain && command != NULL;
	     command = command->next) {
		for (each = command; each != NULL; each = each->with) {
			if (!each->writes || each->error != 0 ||
			    (each->reply != NULL &&
				each->reply->type == REDIS_REPLY_ERROR))
				continue;
			each->error = -ETIMEDOUT;
			each->unsent = false;
		}
	}
	if (wait != NULL)
		freeReplyObject(wait);
	if (role != NULL)
		freeReplyObject(role);
	return error;
}

/*
 * Sending.
 */

/* Those whose time is over are not sent, and the others' deadline counts.
 * False: none is left. */
static bool
message_limit(struct message *message)
{
	uint64_t now_ns = durable_now_ns(message->durable);
	struct call *command;

	message->deadline_ns = UINT64_MAX;
	for (command = message->first; command; command = command->next) {
		if (command->deadline_ns <= now_ns)
			command_fail(command, -ECONNREFUSED, true);
		else if (command->deadline_ns < message->deadline_ns)
			message->deadline_ns = command->deadline_ns;
	}
	return message->deadline_ns != UINT64_MAX;
}

static void
message_refuse_writes(struct message *message, int error)
{
	struct call *command;

	for (command = message->first; command; command = command->next) {
		if (command->writes)
			command_fail(command, error, false);
	}
}

static int
message_send(struct message *message)
{
	struct connection *connection = message->node->connection;
	struct call *command;
	int error;

	message->writes = false;
	for (command = message->first; command; command = command->next) {
		if (command->error != 0)
			continue;
		message_add(message, command);
		message->writes |= command->writes;
	}
	if (message->buffer.failed)
		return -ENOMEM;
	if (message->buffer.length == 0)
		return 0;
	message->writes &= message->durable->replicas_wanted > 0;
	if (message->writes)
		replicas_ask(message);
	error = connection_limit(connection, message->deadline_ns);
	if (error == 0)
		error = connection_send(
		    connection, &message->buffer, &message->sent);
	return error;
}

static int
message_receive(struct message *message)
{
	struct connection *connection = message->node->connection;
	struct call *command;
	redisReply *reply;
	int error = 0;

	for (command = message->first; command; command = command->next) {
		if (command->error != 0)
			continue;
		if (command->asking) {
			error = connection_receive(connection, &reply);
			if (error != 0)
				return error;
			freeReplyObject(reply);
		}
		error = connection_receive(connection, &reply);
		if (error != 0)
			return error;
		command_answer(command, reply);
	}
	return message->writes ? replicas_judge(message) : 0;
}

/* Connects if it must. */
static int
message_connect(struct message *message, bool stale)
{
	struct node *node = message->node;
	int error;

	if (node->connection != NULL &&
	    (stale || !connection_is_usable(node->connection))) {
		connection_close(node->connection);
		node->connection = NULL;
	}
	if (node->connection != NULL)
		return 0;
	node->replicas = -1;
	error = node_connect(
	    message->durable, node, &node->connection, message->deadline_ns);
	if (error != 0)
		node->connection = NULL;
	return error;
}

/* Connects, and sees whether what is written will be kept. */
static int
message_prepare(struct message *message, bool stale)
{
	int error = message_connect(message, stale);

	if (error != 0 || !message->writes)
		return error;
	error = replicas_look(message);
	if (error != -EOPNOTSUPP)
		return error;
	message_refuse_writes(message, error);
	return 0;
}

/* error: of what was sent; what was not is nowhere. */
static void
message_fail(struct message *message, int error)
{
	struct call *command;
	bool unsent;

	for (command = message->first; command; command = command->next) {
		unsent = command->end == 0 || command->end > message->sent;
		command_fail(command,
		    unsent && error == -ETIMEDOUT ? -ECONNREFUSED : error,
		    unsent);
	}
}

/* Each call has a result then. */
static void
message_run(struct message *message, bool stale)
{
	struct node *node = message->node;
	int error;

	if (!message_limit(message))
		return;
	error = message_prepare(message, stale);
	if (error == 0) {
		message_merge(message);
		error = message_send(message);
	}
	if (error == 0 && message->buffer.length > 0)
		error = message_receive(message);
	if (node->connection != NULL)
		connection_rest(node->connection);
	if (error != 0) {
		message_fail(message, error);
		connection_close(node->connection);
		node->connection = NULL;
	}
	buffer_free(&message->buffer);
}

/*
 * Leading. All with the lock, but for the message itself.
 */

/* Somebody who sleeps is to lead. */
static void
wake_leader(const struct node *node)
{
	const struct call *call = node->first;

	if (node->leading)
		return;
	while (call != NULL && !call->caller->sleeps)
		call = call->next;
	if (call != NULL)
		(void)pthread_cond_signal(&call->caller->wake);
}

static void
take_message(struct message *message)
{
	struct node *node = message->node;
	struct call **end = &message->first;
	struct call *call;
	size_t count = 0, bytes = 0;

	while ((call = node->first) != NULL && count < CALLS_MAX &&
	    (count == 0 || bytes + call->buffer.length <= BYTES_MAX)) {
		node->first = call->next;
		count++;
		bytes += call->buffer.length;
		call->state = CALL_SENT;
		call->with = NULL;
		call->end = 0;
		*end = call;
		end = &call->next;
		message->writes |=
		    call->writes && message->durable->replicas_wanted > 0;
	}
	*end = NULL;
	if (node->first == NULL)
		node->last = &node->first;
}

static void
give_back(struct message *message)
{
	struct call *command, *each, *next, *with;

	for (command = message->first; command != NULL; command = next) {
		next = command->next;
		for (each = command; each != NULL; each = with) {
			with = each->with;
			each->state = CALL_ANSWERED;
			if (each->caller->sleeps)
				(void)pthread_cond_signal(&each->caller->wake);
		}
	}
}

static void
lead(struct hwt_durable *durable, struct node *node, struct caller *caller)
{
	struct message message = {.durable = durable, .node = node};
	bool stale = node->stale;
	size_t i;

	node->leading = true;
	node->stale = false;
	take_message(&message);
	for (i = 0; i < caller->count; i++) {
		if (caller->calls[i].state == CALL_QUEUED)
			wake_leader(caller->calls[i].node);
	}
	(void)pthread_mutex_unlock(&durable->lock);
	message_run(&message, stale);
	(void)pthread_mutex_lock(&durable->lock);
	give_back(&message);
	node->leading = false;
	wake_leader(node);
}

static void
queue_call(struct caller *caller, struct call *call)
{
	struct node *node = call->node;

	call->caller = caller;
	call->error = 0;
	call->unsent = call->apart = false;
	call->next = NULL;
	call->state = CALL_QUEUED;
	*node->last = call;
	node->last = &call->next;
}

/* Until all have their answers. */
static void
drive(struct hwt_durable *durable, struct caller *caller)
{
	struct call *call, *end = caller->calls + caller->count;
	bool waits;

	for (;;) {
		waits = false;
		for (call = caller->calls; call < end; call++) {
			if (call->state == CALL_QUEUED && !call->node->leading)
				break;
			waits |= call->state == CALL_QUEUED ||
			    call->state == CALL_SENT;
		}
		if (call < end) {
			lead(durable, call->node, caller);
		} else if (waits) {
			caller->sleeps = true;
			(void)pthread_cond_wait(&caller->wake, &durable->lock);
			caller->sleeps = false;
		} else {
			return;
		}
	}
}

/*
 * Results.
 */

/* Connects anew, since another one may be the master. */
static void
forsake(struct hwt_durable *durable, const struct address *address)
{
	unsigned i;

	(void)pthread_mutex_lock(&durable->lock);
	for (i = 0; i < durable->nodes; i++) {
		if (durable->servers.kind != ROUTE_CLUSTER ||
		    route_is_same(&durable->node[i]->address, address))
			durable->node[i]->stale = true;
	}
	(void)pthread_mutex_unlock(&durable->lock);
}

void
call_judge(struct hwt_durable *durable, const redisReply *reply,
    const struct address *from, struct route_verdict *verdict)
{
	struct node *node;

	route_judge(verdict, reply, from);
	if (verdict->action == ROUTE_MOVED) {
		node = node_at(durable, &verdict->address);
		if (node != NULL)
			node_set_slot(durable, verdict->slot, node);
	} else if (verdict->action == ROUTE_ELSEWHERE) {
		forsake(durable, from);
	}
}

/* What is to be done with a call that was answered: true: it is to be sent
 * again, and *pauses: not at once. */
static bool
settle(struct hwt_durable *durable, struct call *call, bool *pauses)
{
	bool many = durable->servers.kind == ROUTE_SENTINEL ||
	    durable->servers.kind == ROUTE_CLUSTER;
	struct route_verdict verdict;
	bool again;

	call->asking = false;
	if (!call->fixed)
		call->node = NULL;
	if (call->apart)
		return true;
	if (call->error != 0) {
		again = many && call->unsent &&
		    (call->error == -ECONNREFUSED || call->error == -EAGAIN);
		*pauses |= again;
		return again;
	}
	if (call->reply == NULL || call->reply->type != REDIS_REPLY_ERROR)
		return false;
	call_judge(durable, call->reply, &call->from, &verdict);
	call->error = verdict.error;
	if (verdict.action == ROUTE_DONE)
		return false;
	freeReplyObject(call->reply);
	call->reply = NULL;
	call->transient = call->error;
	if (verdict.action == ROUTE_ASK || verdict.action == ROUTE_MOVED)
		call->node = node_at(durable, &verdict.address);
	call->asking = verdict.action == ROUTE_ASK && call->node != NULL;
	*pauses |= verdict.action == ROUTE_AGAIN ||
	    verdict.action == ROUTE_ELSEWHERE ||
	    ++call->redirects % REDIRECTS_MAX == 0;
	return true;
}

/* Settles those that were answered. Returns how many are to be sent again. */
static size_t
settle_all(struct hwt_durable *durable, struct caller *caller, bool *pauses)
{
	uint64_t now_ns = durable_now_ns(durable);
	struct call *call, *end = caller->calls + caller->count;
	size_t again = 0;

	for (call = caller->calls; call < end; call++) {
		if (call->state != CALL_ANSWERED || call->settled)
			continue;
		call->settled = !settle(durable, call, pauses) ||
		    now_ns >= call->deadline_ns;
		/* Its time was over before it could be sent again. */
		if (call->settled && call->unsent && call->transient != 0)
			call->error = call->transient;
		if (call->settled)
			continue;
		call->state = CALL_READY;
		again++;
	}
	return again;
}

static void
queue_all(struct hwt_durable *durable, struct caller *caller)
{
	struct call *call, *end = caller->calls + caller->count;

	for (call = caller->calls; call < end; call++) {
		if (call->state == CALL_READY && call->node == NULL)
			call->node = node_of_slot(durable, call->slot);
	}
	(void)pthread_mutex_lock(&durable->lock);
	for (call = caller->calls; call < end; call++) {
		if (call->state != CALL_READY)
			continue;
		call->from = call->node->address;
		queue_call(caller, call);
	}
	drive(durable, caller);
	(void)pthread_mutex_unlock(&durable->lock);
}

/* Those that cannot be sent are answered. */
static void
prepare(struct hwt_durable *durable, struct call *calls, size_t count)
{
	uint64_t deadline_ns = durable_now_ns(durable) + durable->timeout_ns;
	struct call *call;

	for (call = calls; call < calls + count; call++) {
		call->deadline_ns = deadline_ns;
		if (!call->buffer.failed)
			continue;
		call->error = -ENOMEM;
		call->state = CALL_ANSWERED;
		call->settled = true;
	}
}

void
call_run(struct hwt_durable *durable, struct call *calls, size_t count)
{
	struct caller caller = {
	    .wake = PTHREAD_COND_INITIALIZER, .calls = calls, .count = count};
	uint64_t pause_ns = PAUSE_FIRST_NS;
	bool pauses = false;

	prepare(durable, calls, count);
	for (;;) {
		queue_all(durable, &caller);
		if (settle_all(durable, &caller, &pauses) == 0)
			break;
		if (!pauses)
			continue;
		pauses = false;
		if (durable_nap(durable, pause_ns) != 0)
			break;
		if (pause_ns < PAUSE_MOST_NS)
			pause_ns *= 2;
		(void)node_refresh(
		    durable, durable_now_ns(durable) + durable->timeout_ns);
	}
	(void)pthread_cond_destroy(&caller.wake);
}

/*
 * For programs.
 */

int
durable_call(struct hwt_durable *durable, const char *queue,
    const struct durable_word *words, size_t count, redisReply **reply)
{
	char command[32];
	struct call call;
	size_t i;
	int error;

	*reply = NULL;
	if (!durable_is_own(durable))
		return -EOWNERDEAD;
	if (count == 0 || words[0].length >= sizeof(command) ||
	    !name_is_valid(queue, HWT_DURABLE_QUEUE_MAX))
		return -EINVAL;
	memcpy(command, words[0].bytes, words[0].length);
	command[words[0].length] = '\0';
	call_begin(&call, durable, command, queue);
	for (i = 1; i < count; i++)
		call_word(&call, words[i].bytes, words[i].length);
	call_run(durable, &call, 1);
	error = call.error;
	*reply = call.reply;
	call.reply = NULL;
	call_free(&call);
	return error;
}

/* The nodes that have slots, or the one. */
static unsigned
list_nodes(struct hwt_durable *durable, bool named[ROUTE_NODES_MAX])
{
	unsigned slot, count;

	memset(named, 0, ROUTE_NODES_MAX * sizeof(*named));
	(void)pthread_mutex_lock(&durable->lock);
	named[0] = durable->servers.kind != ROUTE_CLUSTER;
	for (slot = 0; slot < ROUTE_SLOTS; slot++) {
		if (durable->node_of[slot] > 0)
			named[durable->node_of[slot] - 1] = true;
	}
	count = durable->nodes;
	(void)pthread_mutex_unlock(&durable->lock);
	return count;
}

static int
call_node(struct hwt_durable *durable, struct node *node,
    const struct durable_word *words, size_t count,
    int (*visit)(void *ctx, const redisReply *reply), void *ctx)
{
	struct call call = {.state = CALL_READY, .node = node, .fixed = true};
	size_t i;
	int error;

	for (i = 0; i < count; i++)
		call_word(&call, words[i].bytes, words[i].length);
	call_run(durable, &call, 1);
	error = call.error;
	if (error == 0)
		error = visit(ctx, call.reply);
	call_free(&call);
	return error;
}

int
durable_call_each(struct hwt_durable *durable, const struct durable_word *words,
    size_t count, int (*visit)(void *ctx, const redisReply *reply), void *ctx)
{
	bool named[ROUTE_NODES_MAX];
	unsigned nodes, i;
	int error = 0;

	if (!durable_is_own(durable))
		return -EOWNERDEAD;
	nodes = list_nodes(durable, named);
	for (i = 0; i < nodes && error == 0; i++) {
		if (named[i])
			error = call_node(durable, durable->node[i], words,
			    count, visit, ctx);
	}
	return error;
}

const char *
durable_space(const struct hwt_durable *durable)
{
	return durable->space;
}
