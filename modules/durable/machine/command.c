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

/* The words that have not been parsed yet, and what options have said. */
struct words {
	const struct call *call;
	const struct argument *at, *end;
	bool failed; /* and it was answered */
	struct policy policy;
	struct machine_limits limits;
	struct machine_take take;
	struct machine_order order;
	uint64_t in_ms, due_ms, block_ms; /* NOT_GIVEN, or given */
	uint64_t each, state, paused, memory_level;
	/* Of a list of tasks: where it begins, and how many. */
	const struct argument *ids;
	size_t count;
};

#define NOT_GIVEN UINT64_MAX

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

static uint64_t
take_due(struct words *words)
{
	return take_number(words, "a due time, in unix ms,", 0,
	    words->call->machine->time.now_ms + MACHINE_DELAY_MAX_MS);
}

#define FIELD(name) offsetof(struct words, name)

static const struct option {
	const char *word;
	char set; /* a command allows some sets of options */
	/* Numbers that follow, which the field and the next one become. If
	 * there are none, the field becomes least. */
	unsigned numbers;
	size_t field;
	uint64_t least, most;
} options[] = {
    {"ATTEMPTS", 'a', 1, FIELD(policy.attempts), 1, MACHINE_ATTEMPTS_MAX},
    {"RETRY", 'a', 2, FIELD(policy.retry_first_ms), 0, MACHINE_DELAY_MAX_MS},
    {"EXPIRES", 'a', 1, FIELD(policy.expires_ms), 1, MACHINE_DELAY_MAX_MS},
    {"RESULT", 'a', 1, FIELD(policy.result_ms), 0, MACHINE_DELAY_MAX_MS},
    {"IN", 'w', 1, FIELD(in_ms), 0, MACHINE_DELAY_MAX_MS},
    {"DUE", 'w', 1, FIELD(due_ms), 0, INT64_MAX},
    {"EACH", 'e', 0, FIELD(each), 1, 0},
    {"REQUEST", 'r', 1, FIELD(take.request), 1, INT64_MAX},
    {"BLOCK", 'b', 1, FIELD(block_ms), 0, DAY_MS},
    {"RUNNING", 'q', 1, FIELD(limits.running), 0, MACHINE_LIMIT_MAX},
    {"RATE", 'q', 1, FIELD(limits.rate), 0, MACHINE_LIMIT_MAX},
    {"MAX", 'q', 1, FIELD(limits.pending), 0, MACHINE_LIMIT_MAX},
    {"DONE", 'f', 0, FIELD(order.verb), ORDER_DONE, 0},
    {"FAIL", 'f', 0, FIELD(order.verb), ORDER_FAIL, 0},
    {"RETRY", 'f', 0, FIELD(order.verb), ORDER_RETRY, 0},
    {"REPLAY", 'd', 0, FIELD(order.verb), ORDER_REPLAY, 0},
    {"DROP", 'd', 0, FIELD(order.verb), ORDER_DROP, 0},
    {"LIST", 'd', 0, FIELD(state), STATE_DEAD, 0},
    {"PAUSE", 'q', 0, FIELD(paused), 1, 0},
    {"RESUME", 'q', 0, FIELD(paused), 0, 0},
    {"fsync", 'l', 0, FIELD(memory_level), 0, 0},
    {"memory", 'l', 0, FIELD(memory_level), 1, 0},
};
#define OPTIONS (sizeof(options) / sizeof(*options))

/* Takes the next word if it is an option of these sets. */
static bool
take_option(struct words *words, const char *sets)
{
	const struct option *option = options;
	uint64_t *field;

	while (option < options + OPTIONS &&
	    (strchr(sets, option->set) == NULL ||
		!take_word(words, option->word)))
		option++;
	if (option == options + OPTIONS)
		return false;
	field = (uint64_t *)((uintptr_t)words + option->field);
	field[0] = option->least;
	if (option->numbers > 0)
		field[0] = take_number(
		    words, option->word, option->least, option->most);
	if (option->numbers > 1)
		field[1] =
		    take_number(words, option->word, field[0], option->most);
	return true;
}

/* What IN or DUE has said. A delay counts from the end of the current
 * millisecond. */
static uint64_t
due_of(struct words *words)
{
	uint64_t now_ms = words->call->machine->time.now_ms;
	bool in = words->in_ms != NOT_GIVEN;

	if (in + (words->due_ms != NOT_GIVEN) + words->each != 1)
		fail(words, "ARG one of IN, DUE and EACH");
	else if (words->due_ms != NOT_GIVEN &&
	    words->due_ms > now_ms + MACHINE_DELAY_MAX_MS)
		fail(words, "ARG DUE is at most 10 years from now");
	return in ? now_ms + words->in_ms + (words->in_ms > 0) : words->due_ms;
}

/* The rest is groups of so many words each. Returns how many. */
static size_t
take_groups(struct words *words, size_t each)
{
	size_t left = (size_t)(words->end - words->at);

	if (left == 0 || left % each != 0 || left / each > MACHINE_TASKS_MAX)
		fail(words, "ARG 1 to 1024 tasks, each complete");
	return words->failed ? 0 : left / each;
}

static const char *const error_texts[] = {
    [MACHINE_FULL] = "FULL the queue has its most pending tasks",
    [MACHINE_PAUSED] = "PAUSED the queue is paused",
    [MACHINE_NO_MEMORY] = "OOM no memory",
};

static void
run_add(struct call *call, struct words *words)
{
	struct machine_task tasks[MACHINE_TASKS_MAX];
	uint8_t results[MACHINE_TASKS_MAX];
	enum machine_error error;
	size_t count, i;
	uint64_t due_ms;

	while (take_option(words, "awe"))
		;
	if (!take_word(words, "TASKS"))
		fail(words, "ARG a word that ADD does not know, or no TASKS");
	due_ms = due_of(words);
	count = take_groups(words, words->each ? 3 : 2);
	for (i = 0; i < count; i++) {
		tasks[i].id = take_id(words);
		tasks[i].due_ms = words->each ? take_due(words) : due_ms;
		tasks[i].payload =
		    take_bytes(words, "a payload", 0, call->payload_max);
	}
	if (!words_end(words))
		return;
	error =
	    machine_add(call->machine, &words->policy, tasks, count, results);
	if (error != MACHINE_OK) {
		answer(call, "-", error_texts[error]);
		return;
	}
	answer(call, "*", count);
	for (i = 0; i < count; i++)
		answer(call, ":", (uint64_t)results[i]);
}

static void
parse_take(struct words *words, const char *sets)
{
	words->take.worker =
	    take_bytes(words, "a worker's name", 1, MACHINE_WORKER_MAX);
	words->take.limit =
	    take_number(words, "the limit", 1, MACHINE_TASKS_MAX);
	words->take.visibility_ms =
	    take_number(words, "the visibility", 1, DAY_MS);
	while (take_option(words, sets))
		;
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
		    taken[i]->lease->due_ms, record_payload(taken[i]),
		    (size_t)taken[i]->payload_length);
}

static void
run_take(struct call *call, struct words *words)
{
	struct record *taken[MACHINE_TASKS_MAX];
	enum machine_error error;
	size_t count;
	bool blocks;

	parse_take(words, "rb");
	if (!words_end(words))
		return;
	error = machine_take(call->machine, &words->take, taken, &count);
	blocks = words->block_ms != NOT_GIVEN;
	if (error == MACHINE_PAUSED && blocks)
		error = MACHINE_OK;
	call->block_ms = words->block_ms;
	call->blocked =
	    error == MACHINE_OK && count == 0 && blocks && !call->final;
	if (error != MACHINE_OK)
		answer(call, "-", error_texts[error]);
	else if (!call->blocked)
		answer_taken(call, taken, count);
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

/* TASKS id fence [id fence ...] */
static void
parse_attempts(struct words *words)
{
	if (!take_word(words, "TASKS"))
		fail(words, "ARG TASKS is missing");
	words->ids = words->at;
	while (!words->failed && words->end - words->at >= 2 &&
	    !is_end_of_attempts(words->at, words->end)) {
		(void)take_id(words);
		(void)take_number(words, "a fence", 0, INT64_MAX);
		words->count++;
	}
	if (words->count == 0 || words->count > MACHINE_TASKS_MAX)
		fail(words, "ARG 1 to 1024 tasks");
}

/* Gives the order to each attempt or task, and answers so many elements more.
 */
static void
order_all(struct call *call, const struct words *words, size_t more)
{
	size_t each = words->order.verb <= ORDER_EXTEND ? 2 : 1;
	const struct argument *id = words->ids;
	uint64_t fence = 0;
	size_t i;

	answer(call, "*", words->count + more);
	for (i = 0; i < words->count; i++, id += each) {
		if (each == 2)
			(void)argument_number(&id[1], 0, INT64_MAX, &fence);
		answer(call, ":",
		    (uint64_t)machine_order(
			call->machine, &words->order, id, fence));
	}
}

/* An order for each of the ids that are left. */
static void
run_ids(struct call *call, struct words *words)
{
	size_t i;

	words->ids = words->at;
	words->count = take_groups(words, 1);
	for (i = 0; i < words->count; i++)
		(void)take_id(words);
	if (words_end(words))
		order_all(call, words, 0);
}

static void
run_finish(struct call *call, struct words *words)
{
	struct machine_order *order = &words->order;
	struct record *taken[MACHINE_TASKS_MAX];
	size_t count = 0;
	bool takes;

	if (!take_option(words, "f"))
		fail(words, "ARG one of DONE, RETRY and FAIL");
	if (order->verb == ORDER_FAIL)
		order->reason =
		    take_bytes(words, "a reason", 0, MACHINE_REASON_MAX);
	if (order->verb == ORDER_RETRY)
		order->ms = take_word(words, "-1")
		    ? RETRY_BY_POLICY
		    : take_number(words, "RETRY", 0, MACHINE_DELAY_MAX_MS);
	parse_attempts(words);
	takes = take_word(words, "TAKE");
	if (takes)
		parse_take(words, "r");
	if (!words_end(words))
		return;
	order_all(call, words, takes);
	/* Paused, or no memory: nothing is taken, which is no error of this
	 * command. */
	if (takes)
		(void)machine_take(call->machine, &words->take, taken, &count);
	if (takes)
		answer_taken(call, taken, count);
}

static void
run_extend(struct call *call, struct words *words)
{
	words->order.ms = take_number(words, "the visibility", 1, DAY_MS);
	parse_attempts(words);
	if (words_end(words))
		order_all(call, words, 0);
}

static void
run_reschedule(struct call *call, struct words *words)
{
	(void)take_option(words, "w");
	words->order.ms = due_of(words);
	run_ids(call, words);
}

static const char *const state_names[STATES] = {
    "", "waiting", "due", "running", "done", "dead", "cancelled"};

static const char *const counter_names[COUNTERS] = {"added-total",
    "begun-total", "retried-total", "done-total", "dead-total",
    "cancelled-total", "leases-ended-total", "expired-total", "removed-total",
    "dropped-total"};

static void
run_get(struct call *call, struct words *words)
{
	const struct argument id = take_id(words);
	const struct record *record;
	const struct policy *policy;
	struct argument text;
	bool running;

	if (!words_end(words))
		return;
	record = machine_find(call->machine, &id);
	if (record == NULL) {
		answer(call, "_");
		return;
	}
	policy = record->policy;
	text = record_text(record);
	running = record->state == STATE_RUNNING;
	answer(call, "*sss:s:s:s:s:s:s:s:s:s$s$s$", (size_t)26, "state",
	    state_names[record->state], "due", (uint64_t)record->due_ms, "time",
	    record->time_ms, "attempt", (uint64_t)record->attempt, "attempts",
	    policy->attempts, "fence", record->fence, "retry-first",
	    policy->retry_first_ms, "retry-most", policy->retry_most_ms,
	    "expires", policy->expires_ms, "result", policy->result_ms,
	    "worker", text.bytes, running ? text.length : 0, "reason",
	    text.bytes, running ? 0 : text.length, "payload",
	    record_payload(record), (size_t)record->payload_length);
}

static void
run_stat(struct call *call, struct words *words)
{
	const struct machine *machine = call->machine;
	uint64_t now_ms = call->time.now_ms;
	uint64_t first_ms = now_ms;
	int i;

	if (!words_end(words))
		return;
	if (!list_is_empty(&machine->due))
		first_ms = container_of(machine->due.next, struct record, link)
			       ->time_ms;
	answer(call, "*", (size_t)2 * (STATES - 1 + COUNTERS + 8));
	for (i = STATE_WAITING; i < STATES; i++)
		answer(call, "s:", state_names[i], (uint64_t)machine->count[i]);
	for (i = 0; i < COUNTERS; i++)
		answer(call, "s:", counter_names[i], machine->counters[i]);
	/* ahead: of the host's clock. late: the first that is due. */
	answer(call, "s:s:s:s:s:s:s:s:", "paused", machine->paused,
	    "limit-running", machine->limits.running, "limit-rate",
	    machine->limits.rate, "limit-pending", machine->limits.pending,
	    "memory-bytes", (uint64_t)machine_memory(machine), "now",
	    machine->time.now_ms, "ahead", minus(machine->time.now_ms, now_ms),
	    "late", minus(now_ms, first_ms));
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
answer_list(struct call *call, struct words *words)
{
	struct listed listed = {.state = words->state};
	bool dead = words->state == STATE_DEAD;
	uint64_t cursor = 2 * take_number(words, "a cursor", 0, INT64_MAX);
	uint64_t most = take_number(words, "the count", 1, LIST_MAX);
	uint64_t buckets = LIST_BUCKETS * most;
	struct argument reason;
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

		reason = record_text(record);
		answer(call, dead ? "*$::$$" : "*$::", (size_t)(dead ? 5 : 3),
		    record->bytes, (size_t)record->id_length, record->time_ms,
		    (uint64_t)record->attempt, reason.bytes, reason.length,
		    record_payload(record), (size_t)record->payload_length);
	}
}

static void
run_list(struct call *call, struct words *words)
{
	uint64_t number = 0;

	(void)argument_number(words->at, 1, STATES - 1, &number);
	for (words->state = STATE_WAITING; words->state < STATES;
	     words->state++) {
		if (number == words->state ||
		    argument_is(words->at, state_names[words->state]))
			break;
	}
	if (words->state == STATES)
		fail(words, "ARG a state has a name, or 1 to 6");
	words->at++;
	answer_list(call, words);
}

static void
run_dead(struct call *call, struct words *words)
{
	if (!take_option(words, "d"))
		fail(words, "ARG one of LIST, REPLAY and DROP");
	if (words->state == STATE_DEAD)
		answer_list(call, words);
	else
		run_ids(call, words);
}

static void
run_queue(struct call *call, struct words *words)
{
	while (take_option(words, "q") ||
	    (take_word(words, "LEVEL") && take_option(words, "l")))
		;
	if (words->at > words->call->argv &&
	    argument_is(words->at - 1, "LEVEL"))
		fail(words, "ARG a level is fsync or memory");
	if (!words_end(words))
		return;
	machine_expire(call->machine);
	machine_set(
	    call->machine, &words->limits, words->paused, words->memory_level);
	answer(call, "*s:s:s:s:ss", (size_t)10, "paused", words->paused,
	    "running", words->limits.running, "rate", words->limits.rate, "max",
	    words->limits.pending, "level",
	    words->memory_level ? "memory" : "fsync");
}

const struct command command_table[] = {
    {"ADD", 5, true, true, run_add, 0},
    {"TAKE", 3, true, false, run_take, 0},
    {"FINISH", 4, true, false, run_finish, 0},
    {"EXTEND", 4, true, false, run_extend, ORDER_EXTEND},
    {"CANCEL", 1, true, false, run_ids, ORDER_CANCEL},
    {"RESCHEDULE", 3, true, false, run_reschedule, ORDER_RESCHEDULE},
    {"GET", 1, false, false, run_get, 0},
    {"STAT", 0, false, false, run_stat, 0},
    {"LIST", 3, false, false, run_list, 0},
    {"DEAD", 2, true, false, run_dead, 0},
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
	const struct machine *machine = call->machine;
	struct words words = {
	    .call = call,
	    .at = call->argv,
	    .end = call->argv + call->argc,
	    .policy = machine_policy,
	    .limits = machine->limits,
	    .order.verb = command->verb,
	    .in_ms = NOT_GIVEN,
	    .due_ms = NOT_GIVEN,
	    .block_ms = NOT_GIVEN,
	    .paused = machine->paused,
	    .memory_level = machine->memory_level,
	};

	call->blocked = false;
	if (call->argc < command->least || call->argc > COMMAND_WORDS_MAX) {
		fail(&words, "ARG too few or too many words");
		return;
	}
	if (command->writes)
		machine_advance(call->machine, call->time);
	command->run(call, &words);
}
