/* SPDX-License-Identifier: Apache-2.0 */
/* The moves of records between states: see machine.h. */
#include <string.h>

#include "modules/durable/machine/internal.h"

/* A fence is an epoch and a counter, so that fences grow from host to host. */
#define FENCE_EPOCH_SHIFT 40
/* A token is an attempt that may begin; they are counted in thousandths. */
#define TOKEN 1000

struct machine *
machine_create(uint64_t seed)
{
	struct machine *machine = memory.zeroed(1, sizeof(*machine));

	if (machine == NULL)
		return NULL;
	machine->records.seed = machine->workers.seed = seed;
	machine->records.key = record_key;
	machine->workers.key = worker_key;
	return machine;
}

void
machine_destroy(struct machine *machine)
{
	machine_clear(machine);
	memory.release(machine->wheel.slots);
	memory.release(machine->changes);
	memory.release(machine);
}

void
machine_new_epoch(struct machine *machine)
{
	machine->fence = ((machine->fence >> FENCE_EPOCH_SHIFT) + 1)
	    << FENCE_EPOCH_SHIFT;
	machine->revision++;
}

static void
due_append(struct machine *machine, struct record *record)
{
	record->next = NULL;
	record->prev = machine->due_last;
	if (machine->due_last != NULL)
		machine->due_last->next = record;
	else
		machine->due_first = record;
	machine->due_last = record;
}

static void
due_remove(struct machine *machine, struct record *record)
{
	if (record->prev != NULL)
		record->prev->next = record->next;
	else
		machine->due_first = record->next;
	if (record->next != NULL)
		record->next->prev = record->prev;
	else
		machine->due_last = record->prev;
}

void
machine_place(
    struct machine *machine, struct record *record, enum machine_state state)
{
	record->state = (uint8_t)state;
	machine->count[state]++;
	if (state == STATE_DUE)
		due_append(machine, record);
	else if (state == STATE_RUNNING)
		wheel_insert(&machine->leases, record);
	else if (state != STATE_DEAD)
		wheel_insert(&machine->wheel, record);
}

void
machine_unplace(struct machine *machine, struct record *record)
{
	enum machine_state state = record->state;

	machine->count[state]--;
	if (state == STATE_DUE)
		due_remove(machine, record);
	else if (state == STATE_RUNNING)
		wheel_remove(&machine->leases, record);
	else if (state != STATE_DEAD)
		wheel_remove(&machine->wheel, record);
}

/* Waits for its time, or is due if that has come. */
static void
place_for(struct machine *machine, struct record *record, uint64_t due_ms)
{
	record->time_ms = due_ms;
	machine_place(machine, record,
	    due_ms <= machine->time.now_ms ? STATE_DUE : STATE_WAITING);
}

/* DONE or CANCELLED: the id is kept for a while, the payload is not. */
static void
place_ended(
    struct machine *machine, struct record *record, enum machine_state state)
{
	record = record_shrink(machine, record);
	record->time_ms = machine->time.now_ms + record->policy->result_ms;
	machine_place(machine, record, state);
}

static void
place_dead(struct machine *machine, struct record *record, const char *reason,
    size_t length)
{
	record_set_reason(machine, record, reason, length);
	record->time_ms = machine->time.now_ms;
	machine_place(machine, record, STATE_DEAD);
	machine->counters.dead++;
}

static uint64_t
retry_delay(const struct record *record)
{
	uint64_t delay_ms = record->policy->retry_first_ms;
	uint16_t i;

	for (i = 1; i < record->attempt; i++) {
		if (delay_ms >= record->policy->retry_most_ms)
			break;
		delay_ms *= 2;
	}
	if (delay_ms > record->policy->retry_most_ms)
		delay_ms = record->policy->retry_most_ms;
	return delay_ms;
}

/* The attempt has ended without an end of the task. The record is in no place.
 */
static void
place_again(struct machine *machine, struct record *record, uint64_t delay_ms,
    const char *reason)
{
	if (record->attempt >= record->policy->attempts) {
		place_dead(machine, record, reason, strlen(reason));
		return;
	}
	machine->counters.retried++;
	place_for(machine, record, machine->time.now_ms + delay_ms);
}

static void
lease_ended(struct record *record, void *ctx)
{
	struct machine *machine = ctx;

	machine->count[STATE_RUNNING]--;
	machine->counters.leases_ended++;
	record_changed(machine, record);
	record_release_lease(machine, record);
	place_again(machine, record, retry_delay(record), "lease ended");
}

static void
time_came(struct record *record, void *ctx)
{
	struct machine *machine = ctx;

	machine->count[record->state]--;
	if (record->state != STATE_WAITING) {
		machine->counters.removed++;
		record_destroy(machine, record);
		return;
	}
	/* No change of a row: a waiting record whose time has come is due. */
	machine->revision++;
	machine->came_due++;
	machine_place(machine, record, STATE_DUE);
}

void
machine_advance(struct machine *machine, struct machine_time time)
{
	size_t work = ADVANCE_WORK;
	uint64_t removed = machine->counters.removed;

	if (time.now_ms > machine->time.now_ms)
		machine->time.now_ms = time.now_ms;
	if (time.steady_ms > machine->time.steady_ms)
		machine->time.steady_ms = time.steady_ms;
	work = wheel_turn(&machine->leases, machine->time.steady_ms, work,
	    lease_ended, machine);
	if (work > 0)
		(void)wheel_turn(&machine->wheel, machine->time.now_ms, work,
		    time_came, machine);
	if (machine->counters.removed != removed)
		machine_unmap_if_empty(machine);
}

static uint64_t
tokens_at(const struct machine *machine, uint64_t steady_ms)
{
	uint64_t most = machine->limits.rate * TOKEN;
	uint64_t since = steady_ms - machine->tokens_ms;

	/* A second fills the bucket. */
	if (since >= 1000 ||
	    machine->tokens + since * machine->limits.rate > most)
		return most;
	return machine->tokens + since * machine->limits.rate;
}

/* How many attempts may begin now, at most so many. */
static size_t
attempts_allowed(const struct machine *machine, size_t most)
{
	uint64_t left;

	if (machine->limits.running != 0) {
		left = machine->count[STATE_RUNNING];
		left = left < machine->limits.running
		    ? machine->limits.running - left
		    : 0;
		if (left < most)
			most = left;
	}
	if (machine->limits.rate != 0) {
		left = tokens_at(machine, machine->time.steady_ms) / TOKEN;
		if (left < most)
			most = left;
	}
	return most;
}

static uint64_t
until(uint64_t time_ms, uint64_t now_ms)
{
	if (time_ms == TIME_NEVER)
		return TIME_NEVER;
	return time_ms > now_ms ? time_ms - now_ms : 0;
}

static uint64_t
least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Until a due record may be taken, as far as the rate is concerned. */
static uint64_t
rate_wait_ms(const struct machine *machine, uint64_t steady_ms)
{
	uint64_t tokens, rate = machine->limits.rate;

	if (rate == 0)
		return 0;
	tokens = tokens_at(machine, steady_ms);
	return tokens >= TOKEN ? 0 : (TOKEN - tokens + rate - 1) / rate;
}

uint64_t
machine_wait_ms(const struct machine *machine, struct machine_time time)
{
	uint64_t wait_ms = TIME_NEVER;
	bool full = machine->limits.running != 0 &&
	    machine->count[STATE_RUNNING] >= machine->limits.running;

	if (machine->wheel.count > 0)
		wait_ms = until(machine->wheel.next, time.now_ms);
	if (machine->leases.count > 0)
		wait_ms =
		    least(wait_ms, until(machine->leases.next, time.steady_ms));
	if (machine->count[STATE_DUE] > 0 && !machine->paused && !full)
		wait_ms = least(wait_ms, rate_wait_ms(machine, time.steady_ms));
	return wait_ms;
}

static size_t
machine_pending(const struct machine *machine)
{
	return machine->count[STATE_WAITING] + machine->count[STATE_DUE] +
	    machine->count[STATE_RUNNING];
}

static enum machine_error
add_one(struct machine *machine, const struct policy *policy,
    const struct machine_task *task, uint8_t *result)
{
	struct record *record =
	    machine_find(machine, task->id, task->id_length);

	*result = record != NULL ? record->state : STATE_NONE;
	if (record != NULL)
		return MACHINE_OK;
	if (machine->limits.pending != 0 &&
	    machine_pending(machine) >= machine->limits.pending)
		return MACHINE_FULL;
	record = record_create(machine, policy, task);
	if (record == NULL)
		return MACHINE_NO_MEMORY;
	record->serial = ++machine->serial;
	record_changed(machine, record);
	place_for(machine, record, task->due_ms);
	machine->counters.added++;
	return MACHINE_OK;
}

/* Undoes an add whose results so far are these. */
static void
add_undo(struct machine *machine, const struct machine_task *tasks,
    size_t count, const uint8_t *results)
{
	struct record *record;

	while (count-- > 0) {
		if (results[count] != STATE_NONE)
			continue;
		record = machine_find(
		    machine, tasks[count].id, tasks[count].id_length);
		machine_unplace(machine, record);
		record_destroy(machine, record);
		machine->counters.added--;
		machine->serial--;
	}
	machine_unmap_if_empty(machine);
}

enum machine_error
machine_add(struct machine *machine, const struct policy *policy,
    const struct machine_task *tasks, size_t count, uint8_t *results)
{
	uint64_t revision = machine->revision;
	size_t changes = machine->changes_count;
	enum machine_error error = MACHINE_OK;
	size_t i;

	if (!machine_map_wheels(machine))
		return MACHINE_NO_MEMORY;
	for (i = 0; i < count; i++) {
		error = add_one(machine, policy, &tasks[i], &results[i]);
		if (error != MACHINE_OK) {
			add_undo(machine, tasks, i, results);
			machine->revision = revision;
			machine->changes_count = changes;
			break;
		}
	}
	return error;
}

/* The answer of an earlier take with the same number: in the order of their
 * fences, which is that of the first answer. */
static size_t
take_again(const struct machine *machine, const struct machine_take *take,
    struct record **taken)
{
	const struct worker *worker = (const void *)table_find(
	    &machine->workers, take->worker, take->worker_length);
	const struct lease *lease = worker != NULL ? worker->leases : NULL;
	size_t count = 0;
	size_t i;

	if (take->request == 0)
		return 0;
	for (; lease != NULL; lease = lease->next) {
		if (lease->request != take->request)
			continue;
		for (i = count; i > 0; i--) {
			if (taken[i - 1]->fence < lease->record->fence)
				break;
			if (i < take->limit)
				taken[i] = taken[i - 1];
		}
		if (i < take->limit)
			taken[i] = lease->record;
		if (count < take->limit)
			count++;
	}
	return count;
}

static bool
has_expired(const struct machine *machine, const struct record *record)
{
	uint64_t expires_ms = record->policy->expires_ms;

	return expires_ms != 0 &&
	    machine->time.now_ms > record->due_ms + expires_ms;
}

static void
expire(struct machine *machine, struct record *record)
{
	record_changed(machine, record);
	machine_unplace(machine, record);
	machine->counters.expired++;
	place_dead(machine, record, "expired", strlen("expired"));
}

static bool
begin(struct machine *machine, struct record *record,
    const struct machine_take *take)
{
	if (!record_lease(machine, record, take->worker, take->worker_length,
		take->request, record->time_ms))
		return false;
	record_changed(machine, record);
	machine_unplace(machine, record);
	record->time_ms = machine->time.steady_ms + take->visibility_ms;
	record->fence = ++machine->fence;
	record->attempt++;
	machine_place(machine, record, STATE_RUNNING);
	machine->counters.begun++;
	return true;
}

static void
spend_tokens(struct machine *machine, size_t count)
{
	if (machine->limits.rate == 0 || count == 0)
		return;
	machine->tokens =
	    tokens_at(machine, machine->time.steady_ms) - count * TOKEN;
	machine->tokens_ms = machine->time.steady_ms;
}

enum machine_error
machine_take(struct machine *machine, const struct machine_take *take,
    struct record **taken, size_t *count)
{
	size_t most = attempts_allowed(machine, take->limit);
	size_t work = ADVANCE_WORK;
	struct record *record;

	*count = take_again(machine, take, taken);
	if (*count > 0)
		return MACHINE_OK;
	if (machine->paused)
		return MACHINE_PAUSED;
	while (*count < most && work-- > 0 &&
	    (record = machine->due_first) != NULL) {
		if (has_expired(machine, record)) {
			expire(machine, record);
			continue;
		}
		if (!begin(machine, record, take)) {
			if (*count == 0)
				return MACHINE_NO_MEMORY;
			break;
		}
		taken[(*count)++] = record;
	}
	spend_tokens(machine, *count);
	return MACHINE_OK;
}

static struct record *
find_attempt(const struct machine *machine, const char *id, size_t id_length,
    uint64_t fence)
{
	struct record *record = machine_find(machine, id, id_length);

	if (record == NULL || record->state != STATE_RUNNING ||
	    record->fence != fence)
		return NULL;
	return record;
}

/* Takes a record out of its place, and its lease away. */
static void
revoke(struct machine *machine, struct record *record)
{
	record_changed(machine, record);
	machine_unplace(machine, record);
	if (record->state == STATE_RUNNING)
		record_release_lease(machine, record);
}

bool
machine_finish(struct machine *machine, const char *id, size_t id_length,
    uint64_t fence, enum machine_outcome outcome, uint64_t retry_ms,
    const char *reason, size_t reason_length)
{
	struct record *record = find_attempt(machine, id, id_length, fence);

	if (record == NULL)
		return false;
	revoke(machine, record);
	if (outcome == OUTCOME_DONE) {
		machine->counters.done++;
		place_ended(machine, record, STATE_DONE);
	} else if (outcome == OUTCOME_FAIL) {
		place_dead(machine, record, reason, reason_length);
	} else {
		if (retry_ms == RETRY_BY_POLICY)
			retry_ms = retry_delay(record);
		place_again(machine, record, retry_ms, "no attempt left");
	}
	return true;
}

bool
machine_extend(struct machine *machine, const char *id, size_t id_length,
    uint64_t fence, uint64_t visibility_ms)
{
	struct record *record = find_attempt(machine, id, id_length, fence);

	if (record == NULL)
		return false;
	record_changed(machine, record);
	machine_unplace(machine, record);
	record->time_ms = machine->time.steady_ms + visibility_ms;
	machine_place(machine, record, STATE_RUNNING);
	return true;
}

static bool
is_pending(const struct record *record)
{
	return record != NULL && record->state <= STATE_RUNNING;
}

bool
machine_cancel(struct machine *machine, const char *id, size_t id_length)
{
	struct record *record = machine_find(machine, id, id_length);

	if (!is_pending(record))
		return record != NULL && record->state == STATE_CANCELLED;
	revoke(machine, record);
	machine->counters.cancelled++;
	place_ended(machine, record, STATE_CANCELLED);
	return true;
}

/* As if it had just been added. */
static void
place_anew(struct machine *machine, struct record *record, uint64_t due_ms)
{
	record->attempt = 0;
	record->due_ms = due_ms;
	place_for(machine, record, due_ms);
}

bool
machine_reschedule(
    struct machine *machine, const char *id, size_t id_length, uint64_t due_ms)
{
	struct record *record = machine_find(machine, id, id_length);

	if (!is_pending(record))
		return false;
	revoke(machine, record);
	place_anew(machine, record, due_ms);
	return true;
}

static struct record *
find_dead(const struct machine *machine, const char *id, size_t id_length)
{
	struct record *record = machine_find(machine, id, id_length);

	return record != NULL && record->state == STATE_DEAD ? record : NULL;
}

bool
machine_replay(struct machine *machine, const char *id, size_t id_length)
{
	struct record *record = find_dead(machine, id, id_length);

	if (record == NULL)
		return false;
	revoke(machine, record);
	record_clear_reason(machine, record);
	place_anew(machine, record, machine->time.now_ms);
	return true;
}

bool
machine_drop(struct machine *machine, const char *id, size_t id_length)
{
	struct record *record = find_dead(machine, id, id_length);

	if (record == NULL)
		return false;
	revoke(machine, record);
	record_clear_reason(machine, record);
	record_destroy(machine, record);
	machine->counters.dropped++;
	machine_unmap_if_empty(machine);
	return true;
}

void
machine_set_limits(struct machine *machine, const struct machine_limits *limits)
{
	if (limits->rate != machine->limits.rate) {
		machine->tokens = limits->rate * TOKEN;
		machine->tokens_ms = machine->time.steady_ms;
	}
	machine->limits = *limits;
	machine->revision++;
}

void
machine_set_paused(struct machine *machine, bool paused)
{
	machine->paused = paused;
	machine->revision++;
}

void
machine_set_level(struct machine *machine, bool memory_level)
{
	machine->memory_level = memory_level;
	machine->revision++;
}

const struct record *
machine_get(const struct machine *machine, const char *id, size_t id_length)
{
	return machine_find(machine, id, id_length);
}

struct list_visit {
	enum machine_state state;
	void (*visit)(const struct record *record, void *ctx);
	void *ctx;
};

static void
list_one(struct node *node, void *ctx)
{
	const struct list_visit *list = ctx;
	const struct record *record = (const void *)node;

	if (record->state == list->state)
		list->visit(record, list->ctx);
}

uint64_t
machine_list(struct machine *machine, enum machine_state state, uint64_t cursor,
    size_t buckets, void (*visit)(const struct record *record, void *ctx),
    void *ctx)
{
	struct list_visit list = {state, visit, ctx};

	do
		cursor = table_scan(&machine->records, cursor, list_one, &list);
	while (cursor != 0 && --buckets > 0);
	return cursor;
}
