/* SPDX-License-Identifier: Apache-2.0 */
/* See command.h. All words are checked before anything changes. */
#include "modules/durable/machine/command.h"

#include <string.h>
#include <strings.h>

#define DAY_MS UINT64_C(86400000)
/* Buckets of the table that one list looks through for each record it may
 * answer. */
#define LIST_BUCKETS 10
#define LIST_MAX 1000

/* The words that have not been parsed yet. A parser that fails has answered. */
struct words {
	const struct argument *at, *end;
	const struct reply *reply;
	bool failed;
};

static void
fail(struct words *words, const char *text)
{
	if (!words->failed)
		words->reply->error(words->reply->ctx, text);
	words->failed = true;
}

static bool
any_left(const struct words *words)
{
	return !words->failed && words->at < words->end;
}

bool
argument_is(const struct argument *argument, const char *word)
{
	return argument->length == strlen(word) &&
	    strncasecmp(argument->bytes, word, argument->length) == 0;
}

bool
argument_number(const struct argument *argument, uint64_t least, uint64_t most,
    uint64_t *number)
{
	uint64_t value = 0;
	size_t i;

	if (argument->length == 0 || argument->length > 19)
		return false;
	for (i = 0; i < argument->length; i++) {
		if (argument->bytes[i] < '0' || argument->bytes[i] > '9')
			return false;
		value = 10 * value + (uint64_t)(argument->bytes[i] - '0');
	}
	*number = value;
	return value >= least && value <= most;
}

/* Takes the next word if it is this one. */
static bool
take_word(struct words *words, const char *word)
{
	if (!any_left(words) || !argument_is(words->at, word))
		return false;
	words->at++;
	return true;
}

static uint64_t
take_number(
    struct words *words, uint64_t least, uint64_t most, const char *error)
{
	uint64_t number = least;

	if (!any_left(words) ||
	    !argument_number(words->at, least, most, &number))
		fail(words, error);
	else
		words->at++;
	return number;
}

static const struct argument *
take_bytes(struct words *words, size_t least, size_t most, const char *error)
{
	static const struct argument none = {"", 0};

	if (!any_left(words) || words->at->length < least ||
	    words->at->length > most) {
		fail(words, error);
		return &none;
	}
	return words->at++;
}

static const struct argument *
take_id(struct words *words)
{
	return take_bytes(
	    words, 1, MACHINE_ID_MAX, "ARG an id has 1 to 64 bytes");
}

static struct words
words_of(const struct call *call)
{
	return (struct words){
	    call->argv, call->argv + call->argc, call->reply, false};
}

/* True: all words are parsed, and none was wrong. */
static bool
words_end(struct words *words)
{
	if (any_left(words))
		fail(words, "ARG a word that is not known here");
	return !words->failed;
}

/* The rest is groups of so many words each. Returns how many. */
static size_t
take_groups(struct words *words, size_t each)
{
	size_t left = (size_t)(words->end - words->at);

	if (words->failed)
		return 0;
	if (left == 0 || left % each != 0)
		fail(words, "ARG the list of tasks is not complete");
	else if (left / each > MACHINE_TASKS_MAX)
		fail(words, "ARG more than 1024 tasks");
	return words->failed ? 0 : left / each;
}

static void
answer_error(const struct call *call, enum machine_error error)
{
	static const char *const texts[] = {
	    [MACHINE_FULL] = "FULL the queue has its most pending tasks",
	    [MACHINE_PAUSED] = "PAUSED the queue is paused",
	    [MACHINE_NO_MEMORY] = "OOM no memory",
	};

	call->reply->error(call->reply->ctx, texts[error]);
}

static void
answer_name(const struct reply *reply, const char *name)
{
	reply->bytes(reply->ctx, name, strlen(name));
}

static void
answer_pair(const struct reply *reply, const char *name, uint64_t value)
{
	answer_name(reply, name);
	reply->number(reply->ctx, value);
}

/* A delay counts from the end of the current millisecond. */
static uint64_t
due_in(const struct call *call, uint64_t delay_ms)
{
	return call->machine->time.now_ms + delay_ms + (delay_ms > 0);
}

static uint64_t
take_due(struct words *words, const struct call *call)
{
	return take_number(words, 0,
	    call->machine->time.now_ms + MACHINE_DELAY_MAX_MS,
	    "ARG a due time is in unix ms, at most 10 years from now");
}

static uint64_t
take_delay(struct words *words, uint64_t least)
{
	return take_number(words, least, MACHINE_DELAY_MAX_MS,
	    "ARG a time is in ms, at most 10 years");
}

struct add_words {
	struct policy policy;
	uint64_t due_ms;
	bool each, given;
};

static void
parse_add_word(
    struct words *words, const struct call *call, struct add_words *add)
{
	if (take_word(words, "ATTEMPTS")) {
		add->policy.attempts = (uint32_t)take_number(words, 1,
		    MACHINE_ATTEMPTS_MAX, "ARG ATTEMPTS is 1 to 1000");
	} else if (take_word(words, "RETRY")) {
		add->policy.retry_first_ms = take_delay(words, 0);
		add->policy.retry_most_ms =
		    take_delay(words, add->policy.retry_first_ms);
	} else if (take_word(words, "EXPIRES")) {
		add->policy.expires_ms = take_delay(words, 1);
	} else if (take_word(words, "RESULT")) {
		add->policy.result_ms = take_delay(words, 0);
	} else {
		if (add->given)
			fail(words, "ARG one of IN, DUE and EACH");
		add->given = true;
		if (take_word(words, "IN"))
			add->due_ms = due_in(call, take_delay(words, 0));
		else if (take_word(words, "DUE"))
			add->due_ms = take_due(words, call);
		else if (take_word(words, "EACH"))
			add->each = true;
		else
			fail(words, "ARG a word that ADD does not know");
	}
}

static void
run_add(struct call *call)
{
	struct words words = words_of(call);
	struct add_words add = {.policy = machine_policy};
	struct machine_task tasks[MACHINE_TASKS_MAX];
	uint8_t results[MACHINE_TASKS_MAX];
	const struct argument *word;
	enum machine_error error;
	size_t count, i;

	while (any_left(&words) && !take_word(&words, "TASKS"))
		parse_add_word(&words, call, &add);
	if (!add.given)
		fail(&words, "ARG one of IN, DUE and EACH, and then TASKS");
	count = take_groups(&words, add.each ? 3 : 2);
	for (i = 0; i < count; i++) {
		word = take_id(&words);
		tasks[i].id = word->bytes;
		tasks[i].id_length = word->length;
		tasks[i].due_ms =
		    add.each ? take_due(&words, call) : add.due_ms;
		word = take_bytes(
		    &words, 0, call->payload_max, "ARG a payload is too long");
		tasks[i].payload = word->bytes;
		tasks[i].payload_length = word->length;
	}
	if (!words_end(&words))
		return;
	error = machine_add(call->machine, &add.policy, tasks, count, results);
	if (error != MACHINE_OK) {
		answer_error(call, error);
		return;
	}
	call->reply->array(call->reply->ctx, count);
	for (i = 0; i < count; i++)
		call->reply->number(call->reply->ctx, results[i]);
}

static void
parse_take(struct words *words, struct machine_take *take)
{
	const struct argument *worker = take_bytes(words, 1, MACHINE_WORKER_MAX,
	    "ARG a worker's name has 1 to 64 bytes");

	take->worker = worker->bytes;
	take->worker_length = worker->length;
	take->limit = take_number(
	    words, 1, MACHINE_TASKS_MAX, "ARG the limit is 1 to 1024");
	take->visibility_ms = take_number(
	    words, 1, DAY_MS, "ARG the visibility is 1 to 86400000 ms");
}

static void
answer_taken(
    const struct reply *reply, struct record *const *taken, size_t count)
{
	size_t i;

	if (count == 0) {
		reply->null(reply->ctx);
		return;
	}
	reply->array(reply->ctx, count);
	for (i = 0; i < count; i++) {
		const struct record *record = taken[i];

		reply->array(reply->ctx, 6);
		reply->bytes(reply->ctx, record->bytes, record->id_length);
		reply->number(reply->ctx, record->fence);
		reply->number(reply->ctx, record->attempt);
		reply->number(reply->ctx, record->policy->attempts);
		reply->number(reply->ctx, record->lease->due_ms);
		reply->bytes(
		    reply->ctx, record_payload(record), record->payload_length);
	}
}

static void
run_take(struct call *call)
{
	struct words words = words_of(call);
	struct record *taken[MACHINE_TASKS_MAX];
	struct machine_take take = {.request = 0};
	enum machine_error error;
	bool blocks = false;
	size_t count;

	parse_take(&words, &take);
	while (any_left(&words)) {
		if (take_word(&words, "REQUEST")) {
			take.request = take_number(
			    &words, 1, INT64_MAX, "ARG REQUEST is 1 or more");
		} else if (take_word(&words, "BLOCK")) {
			blocks = true;
			call->block_ms = take_number(
			    &words, 0, DAY_MS, "ARG BLOCK is 0 to 86400000 ms");
		} else {
			fail(&words, "ARG a word that TAKE does not know");
		}
	}
	if (!words_end(&words))
		return;
	error = machine_take(call->machine, &take, taken, &count);
	if (error == MACHINE_PAUSED && blocks)
		error = MACHINE_OK;
	call->blocked =
	    error == MACHINE_OK && count == 0 && blocks && !call->final;
	if (call->blocked)
		return;
	if (error != MACHINE_OK)
		answer_error(call, error);
	else
		answer_taken(call->reply, taken, count);
}

/* Whether a list of tasks ends at TAKE, in the place of an id: a worker's name
 * follows, and if that is a number, too, a limit and a visibility, which is
 * below all fences. */
static bool
is_end_of_attempts(const struct argument *at, const struct argument *end)
{
	uint64_t number;

	if (!argument_is(at, "TAKE"))
		return false;
	return !argument_number(&at[1], 0, INT64_MAX, &number) ||
	    (end - at >= 4 &&
		argument_number(&at[2], 1, MACHINE_TASKS_MAX, &number) &&
		argument_number(&at[3], 1, DAY_MS, &number));
}

static size_t
take_attempts(struct words *words, const struct argument **attempts)
{
	const struct argument *at;
	uint64_t fence;
	size_t count = 0;

	if (!take_word(words, "TASKS"))
		fail(words, "ARG TASKS is missing");
	*attempts = at = words->at;
	for (; words->end - at >= 2 && !words->failed; at += 2) {
		if (is_end_of_attempts(at, words->end))
			break;
		if (!argument_number(&at[1], 0, INT64_MAX, &fence))
			fail(words, "ARG a fence is a number");
		if (at->length < 1 || at->length > MACHINE_ID_MAX)
			fail(words, "ARG an id has 1 to 64 bytes");
		count++;
	}
	if (count == 0 || count > MACHINE_TASKS_MAX)
		fail(words, "ARG 1 to 1024 tasks");
	words->at = at;
	return words->failed ? 0 : count;
}

struct finish_words {
	enum machine_outcome outcome;
	uint64_t retry_ms;
	const struct argument *reason;
};

static struct finish_words
parse_outcome(struct words *words)
{
	struct finish_words finish = {.outcome = OUTCOME_DONE};
	static const struct argument none = {"", 0};

	finish.reason = &none;
	if (take_word(words, "RETRY")) {
		finish.outcome = OUTCOME_RETRY;
		finish.retry_ms = RETRY_BY_POLICY;
		if (!take_word(words, "-1"))
			finish.retry_ms = take_delay(words, 0);
	} else if (take_word(words, "FAIL")) {
		finish.outcome = OUTCOME_FAIL;
		finish.reason = take_bytes(words, 0, MACHINE_REASON_MAX,
		    "ARG a reason has at most 1024 bytes");
	} else if (!take_word(words, "DONE")) {
		fail(words, "ARG one of DONE, RETRY and FAIL");
	}
	return finish;
}

static void
finish_all(const struct call *call, const struct finish_words *finish,
    const struct argument *attempts, size_t count)
{
	uint64_t fence = 0;
	size_t i;

	for (i = 0; i < count; i++) {
		(void)argument_number(
		    &attempts[2 * i + 1], 0, INT64_MAX, &fence);
		call->reply->number(call->reply->ctx,
		    machine_finish(call->machine, attempts[2 * i].bytes,
			attempts[2 * i].length, fence, finish->outcome,
			finish->retry_ms, finish->reason->bytes,
			finish->reason->length));
	}
}

static void
run_finish(struct call *call)
{
	struct words words = words_of(call);
	struct finish_words finish = parse_outcome(&words);
	struct record *taken[MACHINE_TASKS_MAX];
	struct machine_take take = {.request = 0};
	const struct argument *attempts;
	size_t count = take_attempts(&words, &attempts);
	size_t taken_count = 0;
	bool takes = take_word(&words, "TAKE");

	if (takes)
		parse_take(&words, &take);
	if (takes && take_word(&words, "REQUEST"))
		take.request = take_number(
		    &words, 1, INT64_MAX, "ARG REQUEST is 1 or more");
	if (!words_end(&words))
		return;
	call->reply->array(call->reply->ctx, count + takes);
	finish_all(call, &finish, attempts, count);
	if (!takes)
		return;
	/* Paused, or no memory: nothing is taken, which is no error of this
	 * command. */
	(void)machine_take(call->machine, &take, taken, &taken_count);
	answer_taken(call->reply, taken, taken_count);
}

static void
run_extend(struct call *call)
{
	struct words words = words_of(call);
	uint64_t visibility_ms = take_number(
	    &words, 1, DAY_MS, "ARG the visibility is 1 to 86400000 ms");
	const struct argument *attempts;
	size_t count = take_attempts(&words, &attempts);
	uint64_t fence = 0;
	size_t i;

	if (!words_end(&words))
		return;
	call->reply->array(call->reply->ctx, count);
	for (i = 0; i < count; i++) {
		(void)argument_number(
		    &attempts[2 * i + 1], 0, INT64_MAX, &fence);
		call->reply->number(call->reply->ctx,
		    machine_extend(call->machine, attempts[2 * i].bytes,
			attempts[2 * i].length, fence, visibility_ms));
	}
}

/* Runs one of the calls that take nothing but an id for each of the ids that
 * are left. */
static void
for_each_id(struct call *call, struct words *words,
    bool (*of)(struct machine *machine, const char *id, size_t id_length))
{
	size_t count = take_groups(words, 1);
	const struct argument *ids = words->at;
	size_t i;

	for (i = 0; i < count; i++)
		(void)take_id(words);
	if (!words_end(words))
		return;
	call->reply->array(call->reply->ctx, count);
	for (i = 0; i < count; i++)
		call->reply->number(call->reply->ctx,
		    of(call->machine, ids[i].bytes, ids[i].length));
}

static void
run_cancel(struct call *call)
{
	struct words words = words_of(call);

	for_each_id(call, &words, machine_cancel);
}

static void
run_reschedule(struct call *call)
{
	struct words words = words_of(call);
	const struct argument *ids;
	uint64_t due_ms = 0;
	size_t count, i;

	if (take_word(&words, "IN"))
		due_ms = due_in(call, take_delay(&words, 0));
	else if (take_word(&words, "DUE"))
		due_ms = take_due(&words, call);
	else
		fail(&words, "ARG one of IN and DUE");
	count = take_groups(&words, 1);
	ids = words.at;
	for (i = 0; i < count; i++)
		(void)take_id(&words);
	if (!words_end(&words))
		return;
	call->reply->array(call->reply->ctx, count);
	for (i = 0; i < count; i++)
		call->reply->number(call->reply->ctx,
		    machine_reschedule(
			call->machine, ids[i].bytes, ids[i].length, due_ms));
}

static const char *const state_names[STATES] = {
    [STATE_WAITING] = "waiting",
    [STATE_DUE] = "due",
    [STATE_RUNNING] = "running",
    [STATE_DONE] = "done",
    [STATE_DEAD] = "dead",
    [STATE_CANCELLED] = "cancelled",
};

static void
run_get(struct call *call)
{
	struct words words = words_of(call);
	const struct reply *reply = call->reply;
	const struct argument *id = take_id(&words);
	const struct record *record;

	if (!words_end(&words))
		return;
	record = machine_get(call->machine, id->bytes, id->length);
	if (record == NULL) {
		reply->null(reply->ctx);
		return;
	}
	reply->array(reply->ctx, 26);
	answer_name(reply, "state");
	answer_name(reply, state_names[record->state]);
	answer_pair(reply, "due", record->due_ms);
	answer_pair(reply, "time", record->time_ms);
	answer_pair(reply, "attempt", record->attempt);
	answer_pair(reply, "attempts", record->policy->attempts);
	answer_pair(reply, "fence", record->fence);
	answer_pair(reply, "retry-first", record->policy->retry_first_ms);
	answer_pair(reply, "retry-most", record->policy->retry_most_ms);
	answer_pair(reply, "expires", record->policy->expires_ms);
	answer_pair(reply, "result", record->policy->result_ms);
	answer_name(reply, "worker");
	if (record->state == STATE_RUNNING)
		reply->bytes(reply->ctx, record->lease->worker->name,
		    record->lease->worker->length);
	else
		answer_name(reply, "");
	answer_name(reply, "reason");
	if (record->state == STATE_DEAD && record->reason != NULL)
		reply->bytes(
		    reply->ctx, record->reason->text, record->reason->length);
	else
		answer_name(reply, "");
	answer_name(reply, "payload");
	reply->bytes(
	    reply->ctx, record_payload(record), record->payload_length);
}

static void
run_stat(struct call *call)
{
	struct words words = words_of(call);
	const struct reply *reply = call->reply;
	const struct machine *machine = call->machine;
	const struct machine_counters *c = &machine->counters;
	int i;

	if (!words_end(&words))
		return;
	reply->array(reply->ctx, 2 * (STATES - 1 + 18));
	for (i = STATE_WAITING; i < STATES; i++)
		answer_pair(reply, state_names[i], machine->count[i]);
	answer_pair(reply, "added-total", c->added);
	answer_pair(reply, "begun-total", c->begun);
	answer_pair(reply, "retried-total", c->retried);
	answer_pair(reply, "done-total", c->done);
	answer_pair(reply, "dead-total", c->dead);
	answer_pair(reply, "cancelled-total", c->cancelled);
	answer_pair(reply, "leases-ended-total", c->leases_ended);
	answer_pair(reply, "expired-total", c->expired);
	answer_pair(reply, "removed-total", c->removed);
	answer_pair(reply, "dropped-total", c->dropped);
	answer_pair(reply, "paused", machine->paused);
	answer_pair(reply, "limit-running", machine->limits.running);
	answer_pair(reply, "limit-rate", machine->limits.rate);
	answer_pair(reply, "limit-pending", machine->limits.pending);
	answer_pair(reply, "memory-bytes", machine_memory(machine));
	answer_pair(reply, "now", machine->time.now_ms);
	/* How far the queue's time is ahead of the host's clock. */
	answer_pair(reply, "ahead",
	    machine->time.now_ms > call->time.now_ms
		? machine->time.now_ms - call->time.now_ms
		: 0);
	/* For how long the first of the due ones has been due. */
	answer_pair(reply, "late",
	    machine->due_first != NULL &&
		    call->time.now_ms > machine->due_first->time_ms
		? call->time.now_ms - machine->due_first->time_ms
		: 0);
}

/* Records of one call, before it is known how many. */
struct listed {
	const struct record *records[LIST_MAX];
	size_t count;
	uint64_t most;
};

static void
list_record(const struct record *record, void *ctx)
{
	struct listed *listed = ctx;

	if (listed->count < LIST_MAX)
		listed->records[listed->count++] = record;
}

/* One bucket after the other, until there are enough: a bucket is never
 * answered in part. */
static uint64_t
list_some(struct machine *machine, enum machine_state state, uint64_t cursor,
    struct listed *listed)
{
	uint64_t buckets = LIST_BUCKETS * listed->most;

	do
		cursor = machine_list(
		    machine, state, cursor, 1, list_record, listed);
	while (cursor != 0 && listed->count < listed->most && --buckets > 0);
	return cursor;
}

static void
answer_number_text(const struct reply *reply, uint64_t number)
{
	char text[20];
	size_t at = sizeof(text);

	do {
		text[--at] = (char)('0' + number % 10);
		number /= 10;
	} while (number != 0);
	reply->bytes(reply->ctx, text + at, sizeof(text) - at);
}

/* [cursor, [[id, time, attempt], ...]]; of dead letters the reason and the
 * payload, too. */
static void
answer_list(
    const struct call *call, enum machine_state state, struct words *words)
{
	struct listed listed = {.count = 0};
	const struct reply *reply = call->reply;
	uint64_t cursor;
	size_t i;

	/* The lowest bit of a cursor is 0, and 63 bits have 19 digits. */
	cursor = 2 *
	    take_number(words, 0, INT64_MAX,
		"ARG a cursor is a number of an earlier answer, or 0");
	listed.most =
	    take_number(words, 1, LIST_MAX / 2, "ARG the count is 1 to 500");
	if (!words_end(words))
		return;
	cursor = list_some(call->machine, state, cursor, &listed);
	reply->array(reply->ctx, 2);
	answer_number_text(reply, cursor / 2);
	reply->array(reply->ctx, listed.count);
	for (i = 0; i < listed.count; i++) {
		const struct record *record = listed.records[i];

		reply->array(reply->ctx, state == STATE_DEAD ? 5 : 3);
		reply->bytes(reply->ctx, record->bytes, record->id_length);
		reply->number(reply->ctx, record->time_ms);
		reply->number(reply->ctx, record->attempt);
		if (state != STATE_DEAD)
			continue;
		reply->bytes(reply->ctx,
		    record->reason != NULL ? record->reason->text : "",
		    record->reason != NULL ? record->reason->length : 0);
		reply->bytes(
		    reply->ctx, record_payload(record), record->payload_length);
	}
}

static void
run_list(struct call *call)
{
	struct words words = words_of(call);
	uint64_t number;
	int state;

	for (state = STATE_WAITING; state < STATES; state++) {
		if (argument_is(words.at, state_names[state]) ||
		    (argument_number(words.at, 1, STATES - 1, &number) &&
			number == (uint64_t)state))
			break;
	}
	if (state == STATES)
		fail(&words,
		    "ARG a state is waiting, due, running, done, dead "
		    "or cancelled");
	words.at++;
	answer_list(call, (enum machine_state)state, &words);
}

static void
run_dead(struct call *call)
{
	struct words words = words_of(call);

	if (take_word(&words, "LIST"))
		answer_list(call, STATE_DEAD, &words);
	else if (take_word(&words, "REPLAY"))
		for_each_id(call, &words, machine_replay);
	else if (take_word(&words, "DROP"))
		for_each_id(call, &words, machine_drop);
	else
		fail(&words, "ARG one of LIST, REPLAY and DROP");
}

/* -1: as it is. */
struct queue_words {
	struct machine_limits limits;
	int paused, memory_level;
	bool limited;
};

static void
parse_queue_word(struct words *words, struct queue_words *queue)
{
	const char *range = "ARG a limit is 0 (none) to 1000000000";
	uint64_t *limit;

	if (take_word(words, "PAUSE")) {
		queue->paused = 1;
		return;
	}
	if (take_word(words, "RESUME")) {
		queue->paused = 0;
		return;
	}
	if (take_word(words, "LEVEL")) {
		queue->memory_level = take_word(words, "memory");
		if (!queue->memory_level && !take_word(words, "fsync"))
			fail(words, "ARG a level is fsync or memory");
		return;
	}
	if (take_word(words, "RUNNING"))
		limit = &queue->limits.running;
	else if (take_word(words, "RATE"))
		limit = &queue->limits.rate;
	else if (take_word(words, "MAX"))
		limit = &queue->limits.pending;
	else {
		fail(words, "ARG a word that QUEUE does not know");
		return;
	}
	queue->limited = true;
	*limit = take_number(words, 0, MACHINE_LIMIT_MAX, range);
}

static void
run_queue(struct call *call)
{
	struct words words = words_of(call);
	struct machine *machine = call->machine;
	const struct reply *reply = call->reply;
	struct queue_words queue = {machine->limits, -1, -1, false};

	while (any_left(&words))
		parse_queue_word(&words, &queue);
	if (!words_end(&words))
		return;
	if (queue.paused >= 0 && machine->paused != (bool)queue.paused)
		machine_set_paused(machine, queue.paused);
	if (queue.memory_level >= 0 &&
	    machine->memory_level != (bool)queue.memory_level)
		machine_set_level(machine, queue.memory_level);
	if (queue.limited)
		machine_set_limits(machine, &queue.limits);
	reply->array(reply->ctx, 10);
	answer_pair(reply, "paused", machine->paused);
	answer_pair(reply, "running", machine->limits.running);
	answer_pair(reply, "rate", machine->limits.rate);
	answer_pair(reply, "max", machine->limits.pending);
	answer_name(reply, "level");
	answer_name(reply, machine->memory_level ? "memory" : "fsync");
}

const struct command command_table[] = {
    {"ADD", 5, true, true, run_add},
    {"TAKE", 3, true, false, run_take},
    {"FINISH", 4, true, false, run_finish},
    {"EXTEND", 4, true, false, run_extend},
    {"CANCEL", 1, true, false, run_cancel},
    {"RESCHEDULE", 3, true, false, run_reschedule},
    {"GET", 1, false, false, run_get},
    {"STAT", 0, false, false, run_stat},
    {"LIST", 3, false, false, run_list},
    {"DEAD", 2, true, false, run_dead},
    {"QUEUE", 0, true, false, run_queue},
};
const size_t command_count = sizeof(command_table) / sizeof(*command_table);

const struct command *
command_find(const char *name, size_t length)
{
	const struct argument argument = {name, length};
	size_t i;

	for (i = 0; i < command_count; i++) {
		if (argument_is(&argument, command_table[i].name))
			return &command_table[i];
	}
	return NULL;
}

void
command_run(const struct command *command, struct call *call)
{
	call->blocked = false;
	if (call->argc < command->least) {
		call->reply->error(call->reply->ctx, "ARG too few words");
		return;
	}
	if (command->writes)
		machine_advance(call->machine, call->time);
	command->run(call);
}
