/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine against a model that is too simple to be wrong: an array of tasks
 * that is searched from one end to the other. Random commands go to both; every
 * answer must be equal, byte for byte. Beside it run
 *
 *   a replica, which gets what changed the machine, with its time: after each
 *       command its digest must be the machine's;
 *   a log of rows, from which a machine is made that must be equal; so must
 *       another one, after commands that were not stored and for which memory
 *       ran out;
 *   saves and loads, which take the machine's place;
 *   damaged saves, which must be refused or lead to a whole machine.
 *
 *   machine_model [SEEDS [FIRST [STEPS]]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "modules/durable/machine/command.h"
#include "modules/durable/test/machine_check.h"

#define TASKS 400
#define IDS 120
#define WORDS 160
#define ANSWER_MAX 65536
#define ROWS 100000
#define EPOCH (UINT64_C(1) << 40) /* the first one, of fences */

static uint64_t random_state;
static uint64_t seed_now;
static unsigned long step_now;

static uint64_t
random_below(uint64_t bound)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % bound;
}

static bool
one_in(uint64_t n)
{
	return random_below(n) == 0;
}

#define CHECK(condition)                                        \
	do {                                                    \
		if (!(condition))                               \
			failed(__FILE__, __LINE__, #condition); \
	} while (0)

static void
failed(const char *file, int line, const char *what)
{
	(void)fprintf(stderr, "%s:%d: %s\nseed %llu, step %lu\n", file, line,
	    what, (unsigned long long)seed_now, step_now);
	abort();
}

/* Answers as text. */
struct answer {
	char text[ANSWER_MAX];
	size_t length;
};

static void
answer_put(struct answer *answer, const void *bytes, size_t length)
{
	CHECK(answer->length + length < ANSWER_MAX);
	memcpy(answer->text + answer->length, bytes, length);
	answer->length += length;
}

static void
put_number(void *ctx, char mark, uint64_t number)
{
	char text[32];
	int length = snprintf(
	    text, sizeof(text), "%c%llu ", mark, (unsigned long long)number);

	answer_put(ctx, text, (size_t)length);
}

static void
put_bytes(void *ctx, const void *bytes, size_t length)
{
	put_number(ctx, bytes != NULL ? '$' : '_', length);
	if (bytes != NULL)
		answer_put(ctx, bytes, length);
}

/* Only the code: sentences are not the model's business. */
static void
put_error(void *ctx, const char *text)
{
	answer_put(ctx, "-", 1);
	answer_put(ctx, text, strcspn(text, " "));
}

/*
 * The model.
 */

struct task {
	enum machine_state state;
	char id[MACHINE_ID_MAX + 1];
	char payload[64];
	struct policy policy;
	uint64_t time_ms, due_ms, fence, serial;
	uint32_t attempt;
	uint64_t order; /* in which it got to its place */
	char worker[16];
	uint64_t request, lease_due_ms;
	char reason[32];
};

static struct model {
	struct task task[TASKS];
	uint64_t counters[COUNTERS];
	struct machine_settings limits;
	struct machine_time time;
	uint64_t fence, serial, order, tokens, tokens_ms;
	bool paused, memory_level;
} model;

static struct task *
model_find(const char *id)
{
	size_t i;

	for (i = 0; i < TASKS; i++) {
		if (model.task[i].state != STATE_NONE &&
		    strcmp(model.task[i].id, id) == 0)
			return &model.task[i];
	}
	return NULL;
}

static uint64_t
model_count(enum machine_state state)
{
	uint64_t count = 0;
	size_t i;

	for (i = 0; i < TASKS; i++)
		count += model.task[i].state == state;
	return count;
}

static void
model_place(struct task *task, enum machine_state state, uint64_t time_ms)
{
	task->state = state;
	task->time_ms = time_ms;
	task->order = ++model.order;
}

static void
model_wait(struct task *task, uint64_t due_ms)
{
	model_place(task,
	    due_ms <= model.time.now_ms ? STATE_DUE : STATE_WAITING, due_ms);
}

static void
model_die(struct task *task, const char *reason)
{
	model_place(task, STATE_DEAD, model.time.now_ms);
	(void)snprintf(task->reason, sizeof(task->reason), "%s", reason);
	model.counters[COUNT_DEAD]++;
}

static uint64_t
model_back_off(const struct task *task)
{
	uint64_t delay_ms = task->policy.retry_first_ms;
	uint32_t i;

	for (i = 1; i < task->attempt && delay_ms < MACHINE_DELAY_MAX_MS; i++)
		delay_ms *= 2;
	return delay_ms < task->policy.retry_most_ms
	    ? delay_ms
	    : task->policy.retry_most_ms;
}

static void
model_again(struct task *task, uint64_t delay_ms, const char *reason)
{
	if (task->attempt >= task->policy.attempts) {
		model_die(task, reason);
		return;
	}
	model.counters[COUNT_RETRIED]++;
	model_wait(task, model.time.now_ms + delay_ms);
}

enum place {
	WAITING,
	ENDED,
	LEASES,
	FIFO
};

static bool
model_in(const struct task *task, enum place place)
{
	static const enum place places[STATES] = {
	    -1, WAITING, FIFO, LEASES, ENDED, -1, ENDED};

	return places[task->state] == place;
}

/* The one that leaves the place next, if its time has come. */
static struct task *
model_first(enum place place, uint64_t until_ms)
{
	struct task *task, *first = NULL;

	for (task = model.task; task < model.task + TASKS; task++) {
		if (!model_in(task, place) || task->time_ms > until_ms)
			continue;
		if (first == NULL ||
		    (place != FIFO && task->time_ms != first->time_ms
			    ? task->time_ms < first->time_ms
			    : task->order < first->order))
			first = task;
	}
	return first;
}

static void
model_time_came(struct task *task)
{
	if (task->state == STATE_WAITING) {
		model_place(task, STATE_DUE, task->time_ms);
	} else if (task->state == STATE_RUNNING) {
		model.counters[COUNT_LEASES_ENDED]++;
		model_again(task, model_back_off(task), "lease ended");
	} else {
		task->state = STATE_NONE;
		model.counters[COUNT_REMOVED]++;
	}
}

static uint64_t
model_turn(enum place place, uint64_t until_ms, uint64_t work)
{
	struct task *task;

	for (; work > 0 && (task = model_first(place, until_ms)); work--)
		model_time_came(task);
	return work;
}

static void
model_advance(struct machine_time time)
{
	uint64_t work;

	if (time.now_ms > model.time.now_ms)
		model.time.now_ms = time.now_ms;
	if (time.steady_ms > model.time.steady_ms)
		model.time.steady_ms = time.steady_ms;
	work = model_turn(LEASES, model.time.steady_ms, ADVANCE_WORK);
	work = model_turn(WAITING, model.time.now_ms, work);
	(void)model_turn(ENDED, model.time.now_ms, work);
}

/* True: it has expired, and dies. */
static bool
model_expires(struct task *task)
{
	if (task->policy.expires_ms == 0 ||
	    model.time.now_ms <= task->due_ms + task->policy.expires_ms)
		return false;
	model.counters[COUNT_EXPIRED]++;
	model_die(task, "expired");
	return true;
}

/*
 * A command: its words, and the same in the model's terms.
 */

struct words {
	struct argument at[WORDS];
	char text[WORDS][160];
	size_t count;
};

static void
word(struct words *words, const char *text)
{
	size_t length = strlen(text);

	CHECK(words->count < WORDS && length < sizeof(words->text[0]));
	memcpy(words->text[words->count], text, length + 1);
	words->at[words->count] =
	    (struct argument){words->text[words->count], length};
	words->count++;
}

static void
word_number(struct words *words, uint64_t number)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
	word(words, text);
}

/* Two look like words that may follow ids. */
static const char *
id_of(uint64_t number)
{
	static char id[16];

	(void)snprintf(id, sizeof(id), "id-%u", (unsigned)number);
	return number == 0 ? "take" : number == 1 ? "7" : id;
}

static const char *
random_id(void)
{
	return id_of(random_below(IDS));
}

/* From the next millisecond to beyond several revolutions of the wheel. */
static uint64_t
random_delay(void)
{
	return random_below(UINT64_C(1) << random_below(18));
}

static uint64_t
model_due_in(uint64_t delay_ms)
{
	return model.time.now_ms + delay_ms + (delay_ms > 0);
}

/* Gives an option, or not. */
static void
option(struct words *words, unsigned in, const char *name, uint64_t *field,
    uint64_t value)
{
	if (!one_in(in))
		return;
	*field = value;
	word(words, name);
	word_number(words, value);
}

static void
add_options(struct words *words, struct policy *policy)
{
	*policy = machine_policy;
	option(words, 2, "attempts", &policy->attempts, 1 + random_below(4));
	if (one_in(2)) {
		policy->retry_first_ms = random_delay();
		policy->retry_most_ms = policy->retry_first_ms + random_delay();
		word(words, "RETRY");
		word_number(words, policy->retry_first_ms);
		word_number(words, policy->retry_most_ms);
	}
	option(words, 3, "Expires", &policy->expires_ms, 1 + random_delay());
	option(words, 2, "RESULT", &policy->result_ms, random_delay());
}

/* Returns the state that is answered. */
static enum machine_state
model_add(const char *id, const char *payload, const struct policy *policy,
    uint64_t due_ms)
{
	struct task *task = model_find(id);
	size_t i;

	if (task != NULL)
		return task->state;
	for (i = 0; model.task[i].state != STATE_NONE; i++)
		CHECK(i + 1 < TASKS);
	task = &model.task[i];
	memset(task, 0, sizeof(*task));
	(void)snprintf(task->id, sizeof(task->id), "%s", id);
	(void)snprintf(task->payload, sizeof(task->payload), "%s", payload);
	task->policy = *policy;
	task->due_ms = due_ms;
	task->serial = ++model.serial;
	model_wait(task, due_ms);
	model.counters[COUNT_ADDED]++;
	return STATE_NONE;
}

static uint64_t
model_pending(void)
{
	return model_count(STATE_WAITING) + model_count(STATE_DUE) +
	    model_count(STATE_RUNNING);
}

static void
op_add(struct words *words, struct answer *expected)
{
	static struct model before;
	uint64_t states[8];
	struct policy policy;
	bool each = one_in(3);
	uint64_t due_ms = 0;
	char payload[64];
	size_t i, count = 1 + random_below(8);
	bool full = false;

	add_options(words, &policy);
	if (each) {
		word(words, "EACH");
	} else if (one_in(2)) {
		uint64_t delay_ms = random_delay();

		word(words, "in");
		word_number(words, delay_ms);
		due_ms = model_due_in(delay_ms);
	} else {
		due_ms = model.time.now_ms - 20 + random_delay();
		word(words, "DUE");
		word_number(words, due_ms);
	}
	word(words, "TASKS");
	before = model;
	for (i = 0; i < count; i++) {
		const char *id = random_id();

		word(words, id);
		if (each) {
			due_ms = model.time.now_ms - 20 + random_delay();
			word_number(words, due_ms);
		}
		(void)snprintf(payload, sizeof(payload), "%.*s",
		    (int)random_below(40),
		    "a payload that has up to forty characters");
		word(words, payload);
		if (model.limits.pending != 0 && model_find(id) == NULL &&
		    model_pending() >= model.limits.pending)
			full = true;
		if (!full)
			states[i] = model_add(id, payload, &policy, due_ms);
	}
	if (full) {
		model = before;
		put_error(expected, "FULL");
		return;
	}
	put_number(expected, '*', count);
	for (i = 0; i < count; i++)
		put_number(expected, ':', states[i]);
}

static uint64_t
model_tokens(void)
{
	uint64_t most = model.limits.rate * 1000;
	uint64_t tokens = model.tokens +
	    (model.time.steady_ms - model.tokens_ms) * model.limits.rate;

	return tokens < most ? tokens : most;
}

static void
model_answer_task(const struct task *task, struct answer *expected)
{
	put_number(expected, '*', 6);
	put_bytes(expected, task->id, strlen(task->id));
	put_number(expected, ':', task->fence);
	put_number(expected, ':', task->attempt);
	put_number(expected, ':', task->policy.attempts);
	put_number(expected, ':', task->lease_due_ms);
	put_bytes(expected, task->payload, strlen(task->payload));
}

struct take_choice {
	const char *worker;
	uint64_t limit, visibility_ms, request;
};

static struct take_choice
choose_take(struct words *words)
{
	static const char *const workers[] = {"w1", "42", "worker-three"};
	struct take_choice take = {
	    .worker = workers[random_below(3)],
	    .limit = 1 + random_below(8),
	    .visibility_ms = 1 + random_delay(),
	};

	word(words, take.worker);
	word_number(words, take.limit);
	word_number(words, take.visibility_ms);
	if (one_in(2)) {
		take.request = 1 + random_below(4);
		word(words, "REQUEST");
		word_number(words, take.request);
	}
	return take;
}

/* The repetition of a take: what is left of the first, oldest fence first. */
static size_t
model_take_again(const struct take_choice *take, struct task **taken)
{
	uint64_t after = 0;
	size_t count = 0;

	while (take->request != 0 && count < take->limit) {
		struct task *first = NULL;
		size_t i;

		for (i = 0; i < TASKS; i++) {
			struct task *task = &model.task[i];

			if (task->state == STATE_RUNNING &&
			    task->request == take->request &&
			    task->fence > after &&
			    strcmp(task->worker, take->worker) == 0 &&
			    (first == NULL || task->fence < first->fence))
				first = task;
		}
		if (first == NULL)
			break;
		after = first->fence;
		taken[count++] = first;
	}
	return count;
}

static void
model_begin(struct task *task, const struct take_choice *take)
{
	task->lease_due_ms = task->time_ms;
	model_place(
	    task, STATE_RUNNING, model.time.steady_ms + take->visibility_ms);
	task->fence = ++model.fence;
	task->attempt++;
	task->request = take->request;
	(void)snprintf(task->worker, sizeof(task->worker), "%s", take->worker);
	model.counters[COUNT_BEGUN]++;
}

/* False: paused. */
static bool
model_take(const struct take_choice *take, struct answer *expected)
{
	struct task *taken[16];
	size_t count = model_take_again(take, taken);
	size_t i, begun = 0, bytes = 0, work = ADVANCE_WORK;
	struct task *task;

	if (count == 0 && model.paused)
		return false;
	while (count == begun && begun < take->limit && work-- > 0 &&
	    bytes < TAKE_BYTES &&
	    (task = model_first(FIFO, UINT64_MAX)) != NULL) {
		if (model.limits.running != 0 &&
		    model_count(STATE_RUNNING) >= model.limits.running)
			break;
		if (model.limits.rate != 0 &&
		    model_tokens() < 1000 * (begun + 1))
			break;
		if (model_expires(task))
			continue;
		model_begin(task, take);
		bytes += strlen(task->payload);
		taken[count++] = task;
		begun++;
	}
	if (model.limits.rate != 0 && begun > 0) {
		model.tokens = model_tokens() - 1000 * begun;
		model.tokens_ms = model.time.steady_ms;
	}
	if (count == 0)
		put_bytes(expected, NULL, 0);
	else
		put_number(expected, '*', count);
	for (i = 0; i < count; i++)
		model_answer_task(taken[i], expected);
	return true;
}

static void
op_take(struct words *words, struct answer *expected)
{
	struct take_choice take = choose_take(words);

	if (!model_take(&take, expected))
		put_error(expected, "PAUSED");
}

/* An id and a fence: mostly an attempt that runs. */
static struct task *
choose_attempt(struct words *words)
{
	const char *id = random_id();
	struct task *task = model_find(id);
	uint64_t fence = task != NULL ? task->fence : EPOCH + 7;
	int tries;

	for (tries = 0; tries < 8; tries++) {
		if (task != NULL && task->state == STATE_RUNNING)
			break;
		id = random_id();
		task = model_find(id);
		fence = task != NULL ? task->fence : EPOCH + 7;
	}
	if (one_in(12))
		fence -= fence > 0;
	word(words, id);
	word_number(words, fence);
	return task != NULL && task->state == STATE_RUNNING &&
		task->fence == fence
	    ? task
	    : NULL;
}

static void
model_end(struct task *task, enum machine_state state)
{
	task->payload[0] = '\0';
	model_place(task, state, model.time.now_ms + task->policy.result_ms);
}

/* What an order does to a task. */
static void
model_obey(struct task *task, enum machine_verb verb, uint64_t ms)
{
	if (verb == ORDER_DONE || verb == ORDER_CANCEL) {
		model.counters[verb == ORDER_DONE ? COUNT_DONE
						  : COUNT_CANCELLED]++;
		model_end(
		    task, verb == ORDER_DONE ? STATE_DONE : STATE_CANCELLED);
	} else if (verb == ORDER_FAIL) {
		model_die(task, "it broke");
	} else if (verb == ORDER_RETRY) {
		model_again(task,
		    ms == RETRY_BY_POLICY ? model_back_off(task) : ms,
		    "no attempt left");
	} else if (verb == ORDER_EXTEND) {
		model_place(task, STATE_RUNNING, model.time.steady_ms + ms);
	} else if (verb == ORDER_DROP) {
		task->state = STATE_NONE;
		model.counters[COUNT_DROPPED]++;
	} else {
		task->attempt = 0;
		task->due_ms = ms;
		task->reason[0] = '\0';
		model_wait(task, ms);
	}
}

/* An order to some tasks, and more elements in the answer. */
static void
give_orders(struct words *words, struct answer *expected,
    enum machine_verb verb, uint64_t ms, size_t more)
{
	size_t i, count = 1 + random_below(one_in(9) ? 60 : 4);

	put_number(expected, '*', count + more);
	for (i = 0; i < count; i++) {
		const char *id = random_id();
		struct task *task = model_find(id);
		enum machine_state state =
		    task != NULL ? task->state : STATE_NONE;
		bool obeys = state != STATE_NONE && state <= STATE_RUNNING;

		if (verb <= ORDER_EXTEND) {
			task = choose_attempt(words);
			obeys = task != NULL;
		} else {
			word(words, id);
			if (verb >= ORDER_REPLAY)
				obeys = state == STATE_DEAD;
		}
		if (obeys)
			model_obey(task, verb, ms);
		put_number(expected, ':',
		    obeys ||
			(verb == ORDER_CANCEL && state == STATE_CANCELLED));
	}
}

static void
op_finish(struct words *words, struct answer *expected)
{
	static const char *const outcomes[] = {[ORDER_DONE] = "DONE",
	    [ORDER_FAIL] = "Fail",
	    [ORDER_RETRY] = "RETRY"};
	enum machine_verb verb =
	    (enum machine_verb)random_below(ORDER_RETRY + 1);
	uint64_t ms = one_in(2) ? RETRY_BY_POLICY : random_delay();
	bool takes = one_in(2);
	struct take_choice take;

	word(words, outcomes[verb]);
	if (verb == ORDER_FAIL)
		word(words, "it broke");
	if (verb == ORDER_RETRY && ms == RETRY_BY_POLICY)
		word(words, "-1");
	else if (verb == ORDER_RETRY)
		word_number(words, ms);
	word(words, "TASKS");
	give_orders(words, expected, verb, ms, takes);
	if (!takes)
		return;
	word(words, "TAKE");
	take = choose_take(words);
	if (!model_take(&take, expected))
		put_bytes(expected, NULL, 0);
}

static void
op_extend(struct words *words, struct answer *expected)
{
	uint64_t visibility_ms = 1 + random_delay();

	word_number(words, visibility_ms);
	word(words, "TASKS");
	give_orders(words, expected, ORDER_EXTEND, visibility_ms, 0);
}

static void
op_cancel(struct words *words, struct answer *expected)
{
	give_orders(words, expected, ORDER_CANCEL, 0, 0);
}

static void
op_reschedule(struct words *words, struct answer *expected)
{
	uint64_t delay_ms = random_delay();

	word(words, "IN");
	word_number(words, delay_ms);
	give_orders(
	    words, expected, ORDER_RESCHEDULE, model_due_in(delay_ms), 0);
}

static void
op_dead(struct words *words, struct answer *expected)
{
	bool replays = one_in(2);

	word(words, replays ? "REPLAY" : "DROP");
	give_orders(words, expected, replays ? ORDER_REPLAY : ORDER_DROP,
	    model.time.now_ms, 0);
}

static void
expect_pair(struct answer *expected, const char *name, uint64_t number)
{
	put_bytes(expected, name, strlen(name));
	put_number(expected, ':', number);
}

static void
expect_text(struct answer *expected, const char *name, const char *text)
{
	put_bytes(expected, name, strlen(name));
	put_bytes(expected, text, strlen(text));
}

static uint64_t
random_limit(uint64_t most)
{
	return one_in(2) ? 0 : 1 + random_below(most);
}

static void
op_queue(struct words *words, struct answer *expected)
{
	size_t work = ADVANCE_WORK;
	struct task *task;

	while (work-- > 0 && (task = model_first(FIFO, UINT64_MAX)) != NULL &&
	    model_expires(task))
		;
	model.tokens = model_tokens();
	model.tokens_ms = model.time.steady_ms;
	if (one_in(3)) {
		model.paused = one_in(4);
		word(words, model.paused ? "pause" : "RESUME");
	}
	option(words, 3, "RUNNING", &model.limits.running, random_limit(20));
	option(words, 3, "RATE", &model.limits.rate, random_limit(50));
	option(words, 3, "MAX", &model.limits.pending, random_limit(80));
	if (one_in(5)) {
		model.memory_level = one_in(2);
		word(words, "LEVEL");
		word(words, model.memory_level ? "memory" : "fsync");
	}
	put_number(expected, '*', 10);
	expect_pair(expected, "paused", model.paused);
	expect_pair(expected, "running", model.limits.running);
	expect_pair(expected, "rate", model.limits.rate);
	expect_pair(expected, "max", model.limits.pending);
	expect_text(expected, "level", model.memory_level ? "memory" : "fsync");
}

static const char *const names[STATES] = {
    "", "waiting", "due", "running", "done", "dead", "cancelled"};

static void
op_get(struct words *words, struct answer *expected)
{
	const char *id = random_id();
	const struct task *task = model_find(id);

	word(words, id);
	if (task == NULL) {
		put_bytes(expected, NULL, 0);
		return;
	}
	put_number(expected, '*', 26);
	expect_text(expected, "state", names[task->state]);
	expect_pair(expected, "due", task->due_ms);
	expect_pair(expected, "time", task->time_ms);
	expect_pair(expected, "attempt", task->attempt);
	expect_pair(expected, "attempts", task->policy.attempts);
	expect_pair(expected, "fence", task->fence);
	expect_pair(expected, "retry-first", task->policy.retry_first_ms);
	expect_pair(expected, "retry-most", task->policy.retry_most_ms);
	expect_pair(expected, "expires", task->policy.expires_ms);
	expect_pair(expected, "result", task->policy.result_ms);
	expect_text(expected, "worker",
	    task->state == STATE_RUNNING ? task->worker : "");
	expect_text(
	    expected, "reason", task->state == STATE_DEAD ? task->reason : "");
	expect_text(expected, "payload", task->payload);
}

static const struct {
	const char *name;
	unsigned weight;
	void (*make)(struct words *words, struct answer *expected);
} operations[] = {
    {"ADD", 6, op_add},
    {"Take", 6, op_take},
    {"FINISH", 6, op_finish},
    {"EXTEND", 1, op_extend},
    {"CANCEL", 2, op_cancel},
    {"RESCHEDULE", 1, op_reschedule},
    {"DEAD", 2, op_dead},
    {"queue", 1, op_queue},
    {"GET", 2, op_get},
};

/*
 * The machine, its replica, and its rows.
 */

static struct machine *machine, *replica;
static struct machine_time now;

/* What a server has stored: the newest header, and the records of its
 * transactions in their order. The oldest ones are removed, and those that are
 * whole and still there stored again. */
static struct row {
	unsigned char bytes[MACHINE_HEADER_MAX];
	size_t length;
} rows[ROWS], header_row;
static size_t rows_first, rows_end;
static uint64_t serial_stored;

static void
row_store(const struct record *record, bool whole)
{
	struct row *row = &rows[rows_end++ % ROWS];

	CHECK(rows_end - rows_first < ROWS &&
	    record_encoded_max(record) <= sizeof(row->bytes));
	row->length = record_encode(record, whole, row->bytes);
}

static void
rows_commit(void)
{
	const struct record *record = NULL;
	const struct row *row;
	size_t removed = (rows_end - rows_first) * (step_now % 4) / 3;

	while ((record = machine_changed(machine, record)) != NULL) {
		bool new = record->serial > serial_stored;

		if (!new || record->state != STATE_NONE)
			row_store(record, new);
	}
	serial_stored = machine->serial;
	header_row.length = machine_save_header(machine, header_row.bytes);
	while (removed-- > 0) {
		row = &rows[rows_first++ % ROWS];
		record = machine_find_encoded(machine, row->bytes, row->length);
		if (record != NULL)
			row_store(record, true);
	}
	machine_settle(machine);
}

/* A machine that is made of the rows, as a server does when it starts. */
static struct machine *
rows_load(uint64_t seed)
{
	struct machine *made = machine_create(seed);
	size_t i;

	CHECK(made != NULL);
	CHECK(machine_load_header(made, header_row.bytes, header_row.length));
	for (i = rows_first; i < rows_end; i++)
		CHECK(machine_load_record(
		    made, rows[i % ROWS].bytes, rows[i % ROWS].length));
	CHECK(machine_load_end(made));
	return made;
}

/* The first is the header. */
static struct saved {
	struct piece {
		unsigned char bytes[1024];
		size_t length;
	} piece[1 + TASKS];
	size_t count;
} saved;

static void
save_piece(const struct record *record, void *ctx)
{
	struct piece *piece = &saved.piece[saved.count++];

	(void)ctx;
	CHECK(saved.count <= 1 + TASKS &&
	    record_encoded_max(record) <= sizeof(piece->bytes));
	piece->length = record_encode(record, true, piece->bytes);
}

static struct machine *
load(void)
{
	struct machine *made = machine_create(random_below(UINT64_MAX));
	struct piece *piece = saved.piece;
	bool whole;

	CHECK(made != NULL);
	whole = machine_load_header(made, piece->bytes, piece->length);
	while (whole && ++piece < saved.piece + saved.count)
		whole = machine_load_record(made, piece->bytes, piece->length);
	if (whole && machine_load_end(made))
		return made;
	machine_destroy(made);
	return NULL;
}

/* A byte of what was saved is changed: it is refused, or a whole machine. */
static void
load_damaged(void)
{
	struct piece *piece = &saved.piece[random_below(saved.count)];
	unsigned char *at = &piece->bytes[random_below(piece->length)];
	unsigned char before = *at;
	struct machine *made;

	*at ^= (unsigned char)(1 + random_below(255));
	made = load();
	*at = before;
	if (made == NULL)
		return;
	CHECK(machine_check(made) == NULL);
	machine_destroy(made);
}

static struct machine *
save_and_load(const struct machine *from)
{
	struct machine *made;

	saved.piece[0].length = machine_save_header(from, saved.piece[0].bytes);
	saved.count = 1;
	machine_walk(from, save_piece, NULL);
	load_damaged();
	made = load();
	CHECK(made != NULL);
	CHECK(machine_check(made) == NULL);
	CHECK(machine_digest(made) == machine_digest(from));
	return made;
}

static size_t records_left = SIZE_MAX; /* for which there is memory */

/* An add allocates nothing larger than a record but records. */
static void *
scarce_allocate(size_t bytes)
{
	if (bytes > sizeof(struct record) && records_left-- == 0)
		return NULL;
	return malloc(bytes);
}

static void
run(struct machine *on, const struct command *command,
    const struct words *words, struct machine_time time, struct answer *answer)
{
	const struct reply reply = {answer, put_number, put_bytes, put_error};
	struct call call = {
	    .machine = on,
	    .time = time,
	    .argc = words->count,
	    .argv = words->at,
	    .reply = &reply,
	    .payload_max = 65536,
	    .final = true,
	};
	uint64_t revision = on->revision;
	bool has_task = machine_has_task(on, time);

	answer->length = 0;
	command_run(command, &call);
	if (answer->text[0] != '_' || command != command_find("TAKE", 4))
		return;
	CHECK(!has_task);
	/* One that changed nothing would be tried again at once, for ever. */
	CHECK(on->revision != revision || machine_wait_ms(on, on->time) > 0);
}

static void
compare_stats(void)
{
	int i;

	CHECK(memcmp(machine->counters, model.counters,
		  sizeof(model.counters)) == 0);
	for (i = STATE_WAITING; i < STATES; i++)
		CHECK(machine->count[i] == model_count((enum machine_state)i));
	CHECK(machine->fence == model.fence);
}

static void
compare_record(struct node *node, void *ctx)
{
	const struct record *record = (const void *)node;
	char id[MACHINE_ID_MAX + 1] = "";
	const struct task *task;

	memcpy(id, record->bytes, record->id_length);
	task = model_find(id);
	CHECK(task != NULL && task->state == record->state);
	CHECK(task->time_ms == record->time_ms);
	++*(uint64_t *)ctx;
}

/* A scan of the table that goes on from step to step. */
static struct {
	uint64_t cursor, serial; /* the last one when it began */
	uint64_t seen[ROWS]; /* so often, by serial */
} scan;

static void
count_seen(struct node *node, void *ctx)
{
	compare_record(node, ctx);
	scan.seen[((const struct record *)(const void *)node)->serial]++;
}

/* What is there during the whole scan is seen once. */
static void
step_scan(void)
{
	uint64_t count = 0;
	size_t i;

	if (scan.cursor == 0) {
		memset(scan.seen, 0, sizeof(*scan.seen) * (model.serial + 1));
		scan.serial = model.serial;
	}
	scan.cursor =
	    table_scan(&machine->records, scan.cursor, count_seen, &count);
	if (scan.cursor != 0)
		return;
	for (i = 0; i < TASKS; i++) {
		const struct task *task = &model.task[i];

		CHECK(task->state == STATE_NONE || task->serial > scan.serial ||
		    scan.seen[task->serial] == 1);
	}
}

static uint64_t
model_next(enum place place)
{
	const struct task *task = model_first(place, UINT64_MAX);

	return task != NULL ? task->time_ms : TIME_NEVER;
}

static void
step_time(void)
{
	uint64_t by =
	    one_in(3) ? 0 : random_below(UINT64_C(1) << random_below(12));

	if (one_in(500))
		by = random_below(1000000);
	now.now_ms += by;
	now.steady_ms += by;
	/* The wall clock leaps ahead; leases do not. */
	if (one_in(300))
		now.now_ms += random_below(10000);
}

static bool
is_advanced(const struct machine *of)
{
	return table_least(&of->waiting) > of->time.now_ms &&
	    table_least(&of->ended) > of->time.now_ms &&
	    table_least(&of->leases) > of->time.steady_ms;
}

/* Words that are no command of the kind. */
static void
step_garbage(void)
{
	static const char *const junk[] = {"", "NaN", "-1", "1e9",
	    "99999999999999999999", "TASKS", "TAKE", "EACH", "IN", "DUE", "5",
	    "18446744073709551615", "id", "REQUEST", "BLOCK", "LIST", "0"};
	const struct command *command =
	    &command_table[random_below(command_count)];
	static struct answer answer;
	struct words words = {.count = 0};
	uint64_t revision, digest;

	machine_advance(machine, now);
	machine_advance(replica, now);
	model_advance(now);
	if (!is_advanced(machine))
		return;
	revision = machine->revision;
	digest = machine_digest(machine);
	do
		word(&words, junk[random_below(sizeof(junk) / sizeof(*junk))]);
	while (words.count < 8 && !one_in(6));
	if (command->writes)
		words.at[words.count - 1].length = 0;
	run(machine, command, &words, now, &answer);
	CHECK(answer.length > 0);
	/* What was an error has changed nothing. */
	if (answer.text[0] == '-')
		CHECK(machine->revision == revision &&
		    machine_digest(machine) == digest);
}

static void
step(void)
{
	static struct answer got, expected, ignored;
	struct words words = {.count = 0};
	const struct command *command;
	uint64_t revision = machine->revision;
	size_t i;

	do
		i = random_below(sizeof(operations) / sizeof(*operations));
	while (random_below(6) >= operations[i].weight);
	command = command_find(operations[i].name, strlen(operations[i].name));
	CHECK(command != NULL);
	step_time();
	if (command->writes)
		model_advance(now);
	expected.length = 0;
	operations[i].make(&words, &expected);
	run(machine, command, &words, now, &got);
	CHECK(got.length == expected.length &&
	    memcmp(got.text, expected.text, got.length) == 0);
	if (machine->revision != revision)
		run(replica, command, &words, now, &ignored);
	CHECK(machine_digest(machine) == machine_digest(replica));
	compare_stats();
	CHECK(table_least(&machine->waiting) == model_next(WAITING));
	CHECK(table_least(&machine->ended) == model_next(ENDED));
	CHECK(table_least(&machine->leases) == model_next(LEASES));
}

static void
compare_with_other(struct node *node, void *ctx)
{
	const struct record *record = (const void *)node;
	const struct argument id = {record->bytes, record->id_length};
	const struct record *other = machine_find(ctx, &id);
	unsigned char bytes[1024], other_bytes[1024];
	size_t length = record_encode(record, true, bytes);

	CHECK(
	    other != NULL && record_encode(other, true, other_bytes) == length);
	CHECK(memcmp(bytes, other_bytes, length) == 0);
}

/* Rows do not keep the order of what is due; all else is equal once the machine
 * that was made of them has caught up. */
static void
compare_with_rows(struct machine *made)
{
	uint64_t cursor = 0;

	do
		machine_advance(made, now);
	while (!is_advanced(made));
	CHECK(machine_check(made) == NULL);
	CHECK(made->records.count == machine->records.count);
	do
		cursor = table_scan(
		    &machine->records, cursor, compare_with_other, made);
	while (cursor != 0);
}

static void
take_the_place(struct machine **of, struct machine *with)
{
	machine_destroy(*of);
	*of = with;
}

/* A server starts from the rows, memory runs out, one of its batches does not
 * commit, and it starts from them again. */
static void
step_rows(void)
{
	static struct model before;
	static struct answer answer;
	struct machine_time at = now;
	struct machine *made;
	int commands = 1 + (int)random_below(5);

	machine_advance(machine, now);
	machine_advance(replica, now);
	model_advance(now);
	rows_commit();
	if (one_in(3)) {
		take_the_place(&machine, save_and_load(machine));
		machine->tracked = true;
		scan.cursor = 0;
	}
	if (!is_advanced(machine))
		return;
	made = rows_load(random_below(UINT64_MAX));
	made->tracked = true;
	before = model;
	while (commands-- > 0) {
		struct words words = {.count = 0};
		const struct command *command;
		size_t i =
		    random_below(sizeof(operations) / sizeof(*operations));

		at.now_ms += random_below(3000);
		at.steady_ms += random_below(3000);
		model_advance(at);
		answer.length = 0;
		operations[i].make(&words, &answer);
		command = command_find(
		    operations[i].name, strlen(operations[i].name));
		do
			machine_advance(made, at);
		while (!is_advanced(made));
		if (command->adds && one_in(2))
			records_left = random_below(1 + random_below(12));
		run(made, command, &words, at, &answer);
		records_left = SIZE_MAX;
		CHECK(machine_check(made) == NULL);
	}
	model = before;
	machine_destroy(made);
	made = rows_load(seed_now);
	CHECK(machine_check(made) == NULL);
	now = at;
	machine_advance(machine, now);
	machine_advance(replica, now);
	model_advance(now);
	if (is_advanced(machine))
		compare_with_rows(made);
	machine_destroy(made);
}

static void
seed_begin(uint64_t seed)
{
	seed_now = seed;
	random_state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	memset(&model, 0, sizeof(model));
	now = (struct machine_time){
	    1000000 + random_below(100000), random_below(1000)};
	scan.cursor = 0;
	machine = machine_create(seed);
	replica = machine_create(~seed);
	CHECK(machine != NULL && replica != NULL);
	machine_new_epoch(machine);
	machine_new_epoch(replica);
	model.fence = EPOCH;
	machine->tracked = true;
	rows_first = rows_end = serial_stored = 0;
}

/* After all retention, memory is what it was. */
static void
seed_end(void)
{
	static struct answer answer;
	static struct words words;
	int turns, drops;
	size_t i;

	for (turns = 0; turns < 2000 && machine->records.count > 0; turns++) {
		now.now_ms += 700000;
		now.steady_ms += 700000;
		machine_advance(machine, now);
		for (drops = 0; drops < 2; drops++) {
			words.count = 0;
			if (drops)
				word(&words, "DROP");
			for (i = 0; i < IDS; i++)
				word(&words, id_of(i));
			run(machine,
			    command_find(
				drops ? "DEAD" : "CANCEL", drops ? 4 : 6),
			    &words, now, &answer);
		}
		machine_settle(machine);
	}
	CHECK(machine->records.count == 0);
	CHECK(machine_memory(machine) == sizeof(*machine));
	CHECK(machine_check(machine) == NULL);
	machine_destroy(machine);
	machine_destroy(replica);
}

int
main(int argc, char **argv)
{
	unsigned long seeds = argc > 1 ? strtoul(argv[1], NULL, 10) : 100;
	unsigned long first = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
	unsigned long steps = argc > 3 ? strtoul(argv[3], NULL, 10) : 2000;
	unsigned long seed;

	memory.allocate = scarce_allocate;
	for (seed = first; seed < first + seeds; seed++) {
		seed_begin(seed);
		for (step_now = 0; step_now < steps; step_now++) {
			step();
			if (one_in(100))
				step_garbage();
			step_scan();
			if (one_in(40))
				step_rows();
			if (one_in(150))
				take_the_place(
				    &replica, save_and_load(machine));
			CHECK(machine_check(machine) == NULL);
		}
		seed_end();
	}
	printf("%lu seeds of %lu commands: all answers equal\n", seeds, steps);
	return 0;
}
