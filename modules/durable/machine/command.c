/* SPDX-License-Identifier: Apache-2.0 */
/* See command.h. All words are checked before anything changes. */
#include "modules/durable/machine/command.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define DAY_MS UINT64_C(86400000)
/* One list answers so many records, looks through so many buckets of the table
 * for each of them, and ends after so many bytes. */
#define LIST_MAX 500
#define LIST_BUCKETS 10
#define LIST_BYTES ((size_t)1 << 20)

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

/* Of each letter: * an array of size_t elements, : a uint64_t, $ bytes and
 * their size_t, s a string, _ nothing, - an error. */
static void
answer(const struct call *call, const char *letters, ...)
{
	const struct reply *reply = call->reply;
	const char *text;
	va_list of;

	va_start(of, letters);
	for (; reply != NULL && *letters != '\0'; letters++) {
		if (*letters == '*') {
			reply->number(reply->ctx, '*', va_arg(of, size_t));
		} else if (*letters == ':') {
			reply->number(reply->ctx, ':', va_arg(of, uint64_t));
		} else if (*letters == '$') {
			text = va_arg(of, const char *);
			reply->bytes(reply->ctx, text, va_arg(of, size_t));
		} else if (*letters == 's') {
			text = va_arg(of, const char *);
			reply->bytes(reply->ctx, text, strlen(text));
		} else if (*letters == '_') {
			reply->bytes(reply->ctx, NULL, 0);
		} else {
			reply->error(reply->ctx, va_arg(of, const char *));
		}
	}
	va_end(of);
}

/* The words that have not been parsed yet. */
struct words {
	struct call *call;
	const struct argument *at, *end;
	bool failed; /* and it was answered */
	struct machine_order order;
};

__attribute__((format(printf, 2, 3))) static void
fail(struct words *words, const char *format, ...)
{
	char text[128];
	va_list of;

	va_start(of, format);
	(void)vsnprintf(text, sizeof(text), format, of);
	va_end(of);
	if (!words->failed)
		answer(words->call, "-", text);
	words->failed = true;
}

static bool
any_left(const struct words *words)
{
	return !words->failed && words->at < words->end;
}

/* True: all words are parsed, and none was wrong. */
static bool
words_end(struct words *words)
{
	if (any_left(words))
		fail(words, "ARG a word that is not known here");
	return !words->failed;
}

/* Takes the next word if it is this one. */
static bool
take_word(struct words *words, const char *word)
{
	bool is = any_left(words) && argument_is(words->at, word);

	words->at += is;
	return is;
}

static uint64_t
take_number(
    struct words *words, const char *what, uint64_t least, uint64_t most)
{
	uint64_t number = least;

	if (!any_left(words) ||
	    !argument_number(words->at++, least, most, &number))
		fail(words, "ARG %s is %llu to %llu", what,
		    (unsigned long long)least, (unsigned long long)most);
	return number;
}

static struct argument
take_bytes(struct words *words, const char *what, size_t least, size_t most)
{
	if (any_left(words) && words->at->length >= least &&
	    words->at->length <= most)
		return *words->at++;
	fail(words, "ARG %s has %zu to %zu bytes", what, least, most);
	return (struct argument){"", 0};
}

static struct argument
take_id(struct words *words)
{
	return take_bytes(words, "an id", 1, MACHINE_ID_MAX);
}

/* Takes the next word, if it is this one, and the number after it. */
static bool
take_option(struct words *words, const char *word, uint64_t least,
    uint64_t most, uint64_t *number)
{
	bool is = take_word(words, word);

	if (is)
		*number = take_number(words, word, least, most);
	return is;
}

/* The same, and what it says of the tasks of an add. */
static bool
take_policy(struct words *words, struct policy *policy)
{
	uint64_t most_ms = MACHINE_DELAY_MAX_MS;
	bool retry =
	    take_option(words, "RETRY", 0, most_ms, &policy->retry_first_ms);

	if (retry)
		policy->retry_most_ms = take_number(
		    words, "RETRY", policy->retry_first_ms, most_ms);
	return retry ||
	    take_option(words, "ATTEMPTS", 1, MACHINE_ATTEMPTS_MAX,
		&policy->attempts) ||
	    take_option(words, "EXPIRES", 1, most_ms, &policy->expires_ms) ||
	    take_option(words, "RESULT", 0, most_ms, &policy->result_ms);
}

static uint64_t
latest_ms(const struct words *words)
{
	return words->call->machine->time.now_ms + MACHINE_DELAY_MAX_MS;
}

/* IN or DUE. A delay counts from the end of the current millisecond. */
static bool
take_due(struct words *words, uint64_t *due_ms)
{
	bool in = take_option(words, "IN", 0, MACHINE_DELAY_MAX_MS, due_ms);

	if (in && *due_ms > 0)
		++*due_ms;
	if (in)
		*due_ms += words->call->machine->time.now_ms;
	return in || take_option(words, "DUE", 0, latest_ms(words), due_ms);
}

static void
run_add(struct words *words)
{
	struct call *call = words->call;
	struct machine_task tasks[MACHINE_TASKS_MAX];
	uint8_t results[MACHINE_TASKS_MAX];
	struct policy policy = machine_policy;
	const char *error;
	size_t dues = 0, count = 0, i;
	uint64_t due_ms = 0;
	bool each = false;

	do {
		each = each || take_word(words, "EACH");
		dues += take_due(words, &due_ms);
	} while (take_policy(words, &policy));
	if (dues + each != 1)
		fail(words, "ARG one of IN, DUE and EACH");
	if (!take_word(words, "TASKS"))
		fail(words, "ARG a word that ADD does not know, or no TASKS");
	for (; any_left(words) && count < MACHINE_TASKS_MAX; count++) {
		tasks[count].id = take_id(words);
		tasks[count].due_ms = !each
		    ? due_ms
		    : take_number(words, "a due time", 0, latest_ms(words));
		tasks[count].payload =
		    take_bytes(words, "a payload", 0, call->payload_max);
	}
	if (count == 0 || any_left(words))
		fail(words, "ARG 1 to 1024 tasks");
	if (words->failed)
		return;
	error = machine_add(call->machine, &policy, tasks, count, results);
	if (error != NULL) {
		answer(call, "-", error);
		return;
	}
	answer(call, "*", count);
	for (i = 0; i < count; i++)
		answer(call, ":", (uint64_t)results[i]);
}

/* block_ms: NULL where a take may not BLOCK. */
static struct machine_take
parse_take(struct words *words, uint64_t *block_ms)
{
	struct machine_take take = {.request = 0};

	take.worker =
	    take_bytes(words, "a worker's name", 1, MACHINE_WORKER_MAX);
	take.limit = take_number(words, "the limit", 1, MACHINE_TASKS_MAX);
	take.visibility_ms = take_number(words, "the visibility", 1, DAY_MS);
	while (take_option(words, "REQUEST", 1, INT64_MAX, &take.request) ||
	    (block_ms != NULL &&
		take_option(words, "BLOCK", 0, DAY_MS, block_ms)))
		;
	return take;
}

static void
answer_taken(const struct call *call, struct record *const *taken, size_t count)
{
	size_t i;

	answer(call, count == 0 ? "_" : "*", count);
	for (i = 0; i < count; i++)
		answer(call, "*$::::$", (size_t)6, taken[i]->bytes,
		    (size_t)taken[i]->id_length, taken[i]->fence,
		    (uint64_t)taken[i]->attempt, taken[i]->policy->attempts,
		    taken[i]->newest->due_ms, record_payload(taken[i]),
		    (size_t)taken[i]->payload_length);
}

static void
run_take(struct words *words)
{
	struct call *call = words->call;
	struct record *taken[MACHINE_TASKS_MAX];
	struct machine_take take;
	size_t count;
	bool blocks;

	call->block_ms = UINT64_MAX;
	take = parse_take(words, &call->block_ms);
	if (!words_end(words))
		return;
	count = machine_take(call->machine, &take, taken);
	blocks = call->block_ms != UINT64_MAX;
	call->blocked = count == 0 && blocks && !call->final;
	if (count == 0 && !blocks && call->machine->settings.paused)
		answer(call, "-", "PAUSED the queue is paused");
	else if (!call->blocked)
		answer_taken(call, taken, count);
}

/* Whether a list of attempts ends at TAKE, in the place of an id: a worker's
 * name follows, and if that is a number, too, a limit and a visibility, which
 * is below all fences. */
static bool
is_end_of_attempts(const struct argument *at, const struct argument *end)
{
	uint64_t number;

	if (!argument_is(at, "TAKE") || end - at < 2)
		return false;
	return !argument_number(&at[1], 0, INT64_MAX, &number) ||
	    (end - at >= 4 &&
		argument_number(&at[2], 1, MACHINE_TASKS_MAX, &number) &&
		argument_number(&at[3], 1, DAY_MS, &number));
}

/* The order to each of the tasks that follow: TASKS id fence [id fence ...],
 * and with an end also TAKE; or ids. */
static void
run_order(struct words *words)
{
	struct call *call = words->call;
	struct machine_order *order = &words->order;
	bool attempts = order->verb <= ORDER_EXTEND, takes = false;
	struct record *taken[MACHINE_TASKS_MAX];
	const struct argument *id;
	struct machine_take take;
	uint64_t fence = 0;
	size_t count = 0;

	if (order->verb == ORDER_EXTEND)
		order->ms = take_number(words, "the visibility", 1, DAY_MS);
	if (order->verb == ORDER_RESCHEDULE && !take_due(words, &order->ms))
		fail(words, "ARG one of IN and DUE");
	if (attempts && !take_word(words, "TASKS"))
		fail(words, "ARG TASKS is missing");
	id = words->at;
	while (any_left(words) &&
	    !(attempts && is_end_of_attempts(words->at, words->end))) {
		(void)take_id(words);
		if (attempts)
			(void)take_number(words, "a fence", 0, INT64_MAX);
		count++;
	}
	if (count == 0 || count > MACHINE_TASKS_MAX)
		fail(words, "ARG 1 to 1024 tasks");
	if (order->verb < ORDER_EXTEND && take_word(words, "TAKE")) {
		take = parse_take(words, NULL);
		takes = true;
	}
	if (!words_end(words))
		return;
	answer(call, "*", count + takes);
	for (; count > 0; count--, id += 1 + attempts) {
		if (attempts)
			(void)argument_number(&id[1], 0, INT64_MAX, &fence);
		answer(call, ":",
		    (uint64_t)machine_order(call->machine, order, id, fence));
	}
	if (takes) {
		count = machine_take(call->machine, &take, taken);
		answer_taken(call, taken, count);
	}
}

static void
run_finish(struct words *words)
{
	struct machine_order *order = &words->order;

	if (take_word(words, "FAIL")) {
		order->verb = ORDER_FAIL;
		order->reason =
		    take_bytes(words, "a reason", 0, MACHINE_REASON_MAX);
	} else if (take_word(words, "RETRY")) {
		order->verb = ORDER_RETRY;
		order->ms = take_word(words, "-1")
		    ? RETRY_BY_POLICY
		    : take_number(words, "RETRY", 0, MACHINE_DELAY_MAX_MS);
	} else if (!take_word(words, "DONE")) {
		fail(words, "ARG one of DONE, RETRY and FAIL");
	}
	run_order(words);
}

static const char *const state_names[STATES] = {
    "", "waiting", "due", "running", "done", "dead", "cancelled"};

static const char *const counter_names[COUNTERS] = {"added-total",
    "begun-total", "retried-total", "done-total", "dead-total",
    "cancelled-total", "leases-ended-total", "expired-total", "removed-total",
    "dropped-total"};

static void
run_get(struct words *words)
{
	struct call *call = words->call;
	const struct argument id = take_id(words);
	const struct record *record;
	const struct policy *policy;
	const struct attempt *newest;
	bool running;

	if (!words_end(words))
		return;
	record = machine_find(call->machine, &id);
	if (record == NULL) {
		answer(call, "_");
		return;
	}
	policy = record->policy;
	newest = record_newest(record);
	running = record->state == STATE_RUNNING;
	answer(call, "*sss:s:s:s:s:s:s:s:s:s$s$s$", (size_t)26, "state",
	    state_names[record->state], "due", (uint64_t)record->due_ms, "time",
	    record->time_ms, "attempt", (uint64_t)record->attempt, "attempts",
	    policy->attempts, "fence", record->fence, "retry-first",
	    policy->retry_first_ms, "retry-most", policy->retry_most_ms,
	    "expires", policy->expires_ms, "result", policy->result_ms,
	    "worker", newest->text, running ? newest->length : 0, "reason",
	    newest->text, running ? 0 : newest->length, "payload",
	    record_payload(record), (size_t)record->payload_length);
}

static void
run_stat(struct words *words)
{
	struct call *call = words->call;
	const struct machine *machine = call->machine;
	const struct machine_settings *settings = &machine->settings;
	uint64_t now_ms = call->time.now_ms;
	uint64_t ahead_ms = minus(machine->time.now_ms, now_ms);
	uint64_t first_ms = table_least(&machine->waiting);
	int i;

	if (!words_end(words))
		return;
	if (!list_is_empty(&machine->due))
		first_ms = least(first_ms,
		    container_of(machine->due.next, struct record, link)
			->time_ms);
	answer(call, "*", (size_t)2 * (STATES - 1 + COUNTERS + 8));
	for (i = STATE_WAITING; i < STATES; i++)
		answer(call, "s:", state_names[i], (uint64_t)machine->count[i]);
	for (i = 0; i < COUNTERS; i++)
		answer(call, "s:", counter_names[i], machine->counters[i]);
	/* ahead: of the host's clock. late: the first that is due, which this
	 * command, since it only reads, may find in the wheel. */
	answer(call, "s:s:s:s:s:s:s:s:", "paused", settings->paused,
	    "limit-running", settings->running, "limit-rate", settings->rate,
	    "limit-pending", settings->pending, "memory-bytes",
	    (uint64_t)machine_memory(machine), "now", machine->time.now_ms,
	    "ahead", ahead_ms, "late", minus(now_ms + ahead_ms, first_ms));
}

/* Records of one call, before it is known how many. */
struct listed {
	uint64_t state;
	const struct record *records[2 * LIST_MAX];
	size_t count, bytes;
};

static void
list_record(struct node *node, void *ctx)
{
	const struct record *record = (const void *)node;
	struct listed *listed = ctx;

	if (record->state != listed->state || listed->count == 2 * LIST_MAX)
		return;
	listed->records[listed->count++] = record;
	if (listed->state == STATE_DEAD)
		listed->bytes += record->payload_length;
}

/* [cursor, [[id, time, attempt], ...]]; of dead letters the reason and the
 * payload, too. The lowest bit of a cursor is 0, and 63 bits have 19 digits. */
static void
answer_list(struct words *words, enum machine_state state)
{
	struct call *call = words->call;
	struct listed listed = {.state = state};
	bool dead = state == STATE_DEAD;
	uint64_t cursor = 2 * take_number(words, "a cursor", 0, INT64_MAX);
	uint64_t most = take_number(words, "the count", 1, LIST_MAX);
	uint64_t buckets = LIST_BUCKETS * most;
	const struct attempt *newest;
	char text[24];
	size_t i;

	if (!words_end(words))
		return;
	/* A bucket is never answered in part. */
	do
		cursor = table_scan(
		    &call->machine->records, cursor, list_record, &listed);
	while (cursor != 0 && listed.count < most &&
	    listed.bytes < LIST_BYTES && --buckets > 0);
	(void)snprintf(
	    text, sizeof(text), "%llu", (unsigned long long)cursor / 2);
	answer(call, "*s*", (size_t)2, text, listed.count);
	for (i = 0; i < listed.count; i++) {
		const struct record *record = listed.records[i];

		newest = record_newest(record);
		answer(call, dead ? "*$::$$" : "*$::", (size_t)(dead ? 5 : 3),
		    record->bytes, (size_t)record->id_length, record->time_ms,
		    (uint64_t)record->attempt, newest->text, newest->length,
		    record_payload(record), (size_t)record->payload_length);
	}
}

static void
run_list(struct words *words)
{
	enum machine_state state = STATE_WAITING;
	char digit[] = "1";

	for (; state < STATES; state++, digit[0]++) {
		if (take_word(words, state_names[state]) ||
		    take_word(words, digit))
			break;
	}
	if (state == STATES)
		fail(words, "ARG a state has a name, or 1 to 6");
	answer_list(words, state);
}

static void
run_dead(struct words *words)
{
	if (take_word(words, "LIST")) {
		answer_list(words, STATE_DEAD);
		return;
	}
	if (take_word(words, "DROP"))
		words->order.verb = ORDER_DROP;
	else if (!take_word(words, "REPLAY"))
		fail(words, "ARG one of LIST, REPLAY and DROP");
	run_order(words);
}

static bool
take_level(struct words *words)
{
	bool memory_level = take_word(words, "memory");

	if (!memory_level && !take_word(words, "fsync"))
		fail(words, "ARG a level is fsync or memory");
	return memory_level;
}

static void
run_queue(struct words *words)
{
	struct machine_settings settings = words->call->machine->settings;

	while (any_left(words)) {
		if (take_word(words, "PAUSE"))
			settings.paused = 1;
		else if (take_word(words, "RESUME"))
			settings.paused = 0;
		else if (take_word(words, "LEVEL"))
			settings.memory_level = take_level(words);
		else if (!take_option(words, "RUNNING", 0, MACHINE_LIMIT_MAX,
			     &settings.running) &&
		    !take_option(
			words, "RATE", 0, MACHINE_LIMIT_MAX, &settings.rate) &&
		    !take_option(
			words, "MAX", 0, MACHINE_LIMIT_MAX, &settings.pending))
			fail(words, "ARG a word that QUEUE does not know");
	}
	if (words->failed)
		return;
	machine_expire(words->call->machine);
	machine_set(words->call->machine, &settings);
	answer(words->call, "*s:s:s:s:ss", (size_t)10, "paused",
	    settings.paused, "running", settings.running, "rate", settings.rate,
	    "max", settings.pending, "level",
	    settings.memory_level ? "memory" : "fsync");
}

const struct command command_table[] = {
    {"ADD", 5, true, true, run_add, 0},
    {"TAKE", 3, true, false, run_take, 0},
    {"FINISH", 4, true, false, run_finish, ORDER_DONE},
    {"EXTEND", 4, true, false, run_order, ORDER_EXTEND},
    {"CANCEL", 1, true, false, run_order, ORDER_CANCEL},
    {"RESCHEDULE", 3, true, false, run_order, ORDER_RESCHEDULE},
    {"GET", 1, false, false, run_get, 0},
    {"STAT", 0, false, false, run_stat, 0},
    {"LIST", 3, false, false, run_list, 0},
    {"DEAD", 2, true, false, run_dead, ORDER_REPLAY},
    {"QUEUE", 0, true, false, run_queue, 0},
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
	struct words words = {
	    .call = call,
	    .at = call->argv,
	    .end = call->argv + call->argc,
	    .order.verb = command->verb,
	};

	call->blocked = false;
	if (call->argc < command->least || call->argc > COMMAND_WORDS_MAX) {
		fail(&words, "ARG too few or too many words");
		return;
	}
	if (command->writes)
		machine_advance(call->machine, call->time);
	command->run(&words);
}
