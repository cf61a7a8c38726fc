/* SPDX-License-Identifier: Apache-2.0 */
/* The moves of records between states: see machine.h. */
#include <stdlib.h>
#include <string.h>

#include "modules/durable/machine/internal.h"

/* A fence is an epoch and a counter, so that fences grow from host to host. */
#define FENCE_EPOCH_SHIFT 40
/* A token is an attempt that may begin; they are counted in thousandths. */
#define TOKEN 1000

void
machine_new_epoch(struct machine *machine)
{
	machine->fence = ((machine->fence >> FENCE_EPOCH_SHIFT) + 1)
	    << FENCE_EPOCH_SHIFT;
	machine->revision++;
}

/* The wheel of a state; NULL: it has a list. */
static struct table *
wheel_of(struct machine *machine, enum machine_state state)
{
	if (state == STATE_DUE || state == STATE_DEAD)
		return NULL;
	if (state == STATE_WAITING)
		return &machine->waiting;
	return state == STATE_RUNNING ? &machine->leases : &machine->ended;
}

static struct entry *
entry_of(struct record *record)
{
	return record->state == STATE_RUNNING ? &record->newest->by_time
					      : &record->by_time;
}

void
record_place(
    struct machine *machine, struct record *record, enum machine_state state)
{
	struct table *wheel = wheel_of(machine, state);

	record->state = state & 7;
	machine->count[state]++;
	if (wheel != NULL)
		group_insert(wheel, entry_of(record));
	else
		list_insert(state == STATE_DUE ? &machine->due : &machine->dead,
		    &record->link);
}

void
record_unplace(struct machine *machine, struct record *record)
{
	struct table *wheel = wheel_of(machine, record->state);

	machine->count[record->state]--;
	if (wheel != NULL)
		group_remove(wheel, entry_of(record));
	else
		list_remove(&record->link);
}

/* Waits for its time, or is due if that has come. */
static void
place_for(struct machine *machine, struct record *record, uint64_t due_ms)
{
	record->time_ms = due_ms;
	record_place(machine, record,
	    due_ms <= machine->time.now_ms ? STATE_DUE : STATE_WAITING);
}

/* As if it had just been added. */
static void
place_anew(struct machine *machine, struct record *record, uint64_t due_ms)
{
	record->attempt = 0;
	record->due_ms = due_ms & MACHINE_TIME_MAX_MS;
	place_for(machine, record, due_ms);
}

/* The id is kept for a while, the payload is not. */
static void
place_ended(
    struct machine *machine, struct record *record, enum machine_state state)
{
	machine->counters[state == STATE_DONE ? COUNT_DONE : COUNT_CANCELLED]++;
	if (record->payload_length > 0)
		record = record_strip(machine, record);
	record->time_ms = machine->time.now_ms + record->policy->result_ms;
	record_place(machine, record, state);
}

static void
place_dead(struct machine *machine, struct record *record,
    const struct argument *reason)
{
	machine->counters[COUNT_DEAD]++;
	record_attempt(machine, record, reason, 0, 0);
	record->time_ms = machine->time.now_ms;
	record_place(machine, record, STATE_DEAD);
}

/* The attempt has ended without an end of the task. */
static void
place_again(struct machine *machine, struct record *record, uint64_t delay_ms,
    const char *why)
{
	const struct argument reason = {why, strlen(why)};
	const struct policy *policy = record->policy;
	unsigned i;

	if (record->attempt >= policy->attempts) {
		place_dead(machine, record, &reason);
		return;
	}
	if (delay_ms == RETRY_BY_POLICY) {
		delay_ms = policy->retry_first_ms;
		for (i = 1; i < record->attempt; i++)
			delay_ms = least(2 * delay_ms, policy->retry_most_ms);
	}
	machine->counters[COUNT_RETRIED]++;
	place_for(machine, record, machine->time.now_ms + delay_ms);
}

static void
time_came(struct machine *machine, struct record *record)
{
	if (record->state == STATE_WAITING) {
		/* No change of a row: that it is due follows from the time. */
		machine->revision++;
		machine->came_due++;
		record_unplace(machine, record);
		record_place(machine, record, STATE_DUE);
		return;
	}
	record_changed(machine, record);
	record_unplace(machine, record);
	if (record->state != STATE_RUNNING) {
		machine->counters[COUNT_REMOVED]++;
		record_destroy(machine, record);
		return;
	}
	machine->counters[COUNT_LEASES_ENDED]++;
	record_release(machine, record);
	place_again(machine, record, RETRY_BY_POLICY, "lease ended");
}

/* The first of what is due. */
static struct record *
due_first(const struct machine *machine)
{
	return container_of(machine->due.next, struct record, link);
}

static bool
is_expired(const struct record *record, uint64_t now_ms)
{
	uint64_t expires_ms = record->policy->expires_ms;

	return expires_ms != 0 && now_ms > record->due_ms + expires_ms;
}

/* Dies if it has expired. */
static bool
expires(struct machine *machine, struct record *record)
{
	const struct argument reason = {"expired", strlen("expired")};

	if (!is_expired(record, machine->time.now_ms))
		return false;
	record_changed(machine, record);
	record_unplace(machine, record);
	machine->counters[COUNT_EXPIRED]++;
	place_dead(machine, record, &reason);
	return true;
}

/* Passes each record up to now_ms, in order, to time_came. Stops after *work
 * records, and subtracts how many there were. */
static void
wheel_turn(struct machine *machine, const struct table *wheel, uint64_t now_ms,
    size_t *work)
{
	const struct node *first;
	uint64_t time_ms;
	size_t length;

	for (; *work > 0 && (time_ms = table_least(wheel)) <= now_ms; --*work) {
		first = table_find(wheel, &time_ms, sizeof(time_ms));
		time_came(machine,
		    container_of(
			wheel->key(first, &length), struct record, time_ms));
	}
}

void
machine_advance(struct machine *machine, struct machine_time time)
{
	size_t work = ADVANCE_WORK;

	if (time.now_ms > machine->time.now_ms)
		machine->time.now_ms = time.now_ms;
	if (time.steady_ms > machine->time.steady_ms)
		machine->time.steady_ms = time.steady_ms;
	wheel_turn(machine, &machine->leases, machine->time.steady_ms, &work);
	wheel_turn(machine, &machine->waiting, machine->time.now_ms, &work);
	wheel_turn(machine, &machine->ended, machine->time.now_ms, &work);
}

void
machine_expire(struct machine *machine)
{
	size_t work = ADVANCE_WORK;

	while (work-- > 0 && machine->count[STATE_DUE] > 0 &&
	    expires(machine, due_first(machine)))
		;
}

/* A second fills the bucket. */
static uint64_t
tokens_at(const struct machine *machine, uint64_t steady_ms)
{
	uint64_t since_ms = least(minus(steady_ms, machine->tokens_ms), 1000);

	return least(machine->tokens + since_ms * machine->settings.rate,
	    machine->settings.rate * TOKEN);
}

/* Until an attempt may begin, as far as the limits are concerned. */
static uint64_t
limits_wait_ms(const struct machine *machine, uint64_t steady_ms)
{
	const struct machine_settings *limits = &machine->settings;

	if (limits->running != 0 &&
	    machine->count[STATE_RUNNING] >= limits->running)
		return TIME_NEVER;
	if (limits->rate == 0)
		return 0;
	return (minus(TOKEN, tokens_at(machine, steady_ms)) + limits->rate -
		   1) /
	    limits->rate;
}

uint64_t
machine_wait_ms(const struct machine *machine, struct machine_time time)
{
	uint64_t next_ms = table_least(&machine->waiting);
	uint64_t lease_ms = table_least(&machine->leases);
	uint64_t wait_ms = TIME_NEVER;

	if (next_ms != TIME_NEVER)
		wait_ms = minus(next_ms, time.now_ms);
	if (lease_ms != TIME_NEVER)
		wait_ms = least(wait_ms, minus(lease_ms, time.steady_ms));
	if (machine->count[STATE_DUE] > 0 && !machine->settings.paused)
		wait_ms =
		    least(wait_ms, limits_wait_ms(machine, time.steady_ms));
	return wait_ms;
}

bool
machine_has_task(const struct machine *machine, struct machine_time time)
{
	return machine->count[STATE_DUE] > 0 && !machine->settings.paused &&
	    !is_expired(due_first(machine), time.now_ms) &&
	    limits_wait_ms(machine, time.steady_ms) == 0;
}

/* How many tasks may be added. */
static uint64_t
room_of(const struct machine *machine)
{
	uint64_t most = machine->settings.pending;
	size_t pending = machine->count[STATE_WAITING] +
	    machine->count[STATE_DUE] + machine->count[STATE_RUNNING];

	return least(MACHINE_SERIAL_MAX - 1 - machine->serial,
	    most == 0 ? MACHINE_SERIAL_MAX : minus(most, pending));
}

const char *
machine_add(struct machine *machine, const struct policy *policy,
    const struct machine_task *tasks, size_t count, uint8_t *results)
{
	struct record *made[MACHINE_TASKS_MAX], *record;
	const char *error = NULL;
	uint64_t room = room_of(machine);
	size_t i, n = 0;

	for (i = 0; i < count && error == NULL; i++) {
		record = machine_find(machine, &tasks[i].id);
		results[i] = record != NULL ? record->state : STATE_NONE;
		if (record != NULL)
			continue;
		if (n == room)
			error = "FULL the queue has its most pending tasks";
		else if (!(record = record_create(machine, policy, &tasks[i])))
			error = "OOM no memory";
		else
			made[n++] = record;
	}
	for (i = 0; i < n; i++) {
		if (error != NULL) {
			record_destroy(machine, made[i]);
			continue;
		}
		made[i]->serial = ++machine->serial & MACHINE_SERIAL_MAX;
		record_changed(machine, made[i]);
		place_for(machine, made[i], made[i]->time_ms);
		machine->counters[COUNT_ADDED]++;
	}
	return error;
}

static void
begin(struct machine *machine, struct record *record,
    const struct machine_take *take)
{
	record_changed(machine, record);
	record_unplace(machine, record);
	record->fence = ++machine->fence;
	record->attempt++;
	record_attempt(
	    machine, record, &take->worker, take->request, record->time_ms);
	record->time_ms = machine->time.steady_ms + take->visibility_ms;
	record_place(machine, record, STATE_RUNNING);
	machine->counters[COUNT_BEGUN]++;
}

static int
compare_fences(const void *a, const void *b)
{
	uint64_t fence = (*(struct record *const *)a)->fence;
	uint64_t other = (*(struct record *const *)b)->fence;

	return (fence > other) - (fence < other);
}

/* The answer of a take that is repeated, in the same order. */
static size_t
take_again(const struct entry *first, uint64_t limit, struct record **taken)
{
	const struct entry *entry = first;
	size_t count = 0;

	do {
		taken[count++] =
		    container_of(entry, struct attempt, by_take)->record;
		entry = container_of(entry->link.next, struct entry, link);
	} while (entry != first && count < MACHINE_TASKS_MAX);
	qsort(taken, count, sizeof(struct record *), compare_fences);
	return least(count, limit);
}

size_t
machine_take(struct machine *machine, const struct machine_take *take,
    struct record **taken)
{
	const struct entry *before =
	    take_find(machine, &take->worker, take->request);
	const struct machine_settings *limits = &machine->settings;
	uint64_t tokens = tokens_at(machine, machine->time.steady_ms);
	uint64_t most = machine->settings.paused ? 0 : take->limit;
	size_t count = 0, bytes = 0, work = ADVANCE_WORK;
	struct record *record;

	if (before != NULL)
		return take_again(before, take->limit, taken);
	if (limits->running != 0)
		most = least(most,
		    minus(limits->running, machine->count[STATE_RUNNING]));
	if (limits->rate != 0)
		most = least(most, tokens / TOKEN);
	while (count < most && work-- > 0 && bytes < TAKE_BYTES &&
	    !list_is_empty(&machine->due)) {
		record = due_first(machine);
		if (expires(machine, record))
			continue;
		begin(machine, record, take);
		bytes += record->payload_length;
		taken[count++] = record;
	}
	if (limits->rate != 0 && count > 0) {
		machine->tokens = tokens - count * TOKEN;
		machine->tokens_ms = machine->time.steady_ms;
	}
	return count;
}

#define IN(state) (1U << (state))
#define IN_PENDING (IN(STATE_WAITING) | IN(STATE_DUE) | IN(STATE_RUNNING))

/* The states of the records that an order may change. */
static const uint8_t order_states[] = {
    [ORDER_DONE] = IN(STATE_RUNNING),
    [ORDER_FAIL] = IN(STATE_RUNNING),
    [ORDER_RETRY] = IN(STATE_RUNNING),
    [ORDER_EXTEND] = IN(STATE_RUNNING),
    [ORDER_CANCEL] = IN_PENDING,
    [ORDER_RESCHEDULE] = IN_PENDING,
    [ORDER_REPLAY] = IN(STATE_DEAD),
    [ORDER_DROP] = IN(STATE_DEAD),
};

bool
machine_order(struct machine *machine, const struct machine_order *order,
    const struct argument *id, uint64_t fence)
{
	struct record *record = machine_find(machine, id);

	if (record == NULL)
		return false;
	if ((order_states[order->verb] & IN(record->state)) == 0)
		return order->verb == ORDER_CANCEL &&
		    record->state == STATE_CANCELLED;
	if (order->verb <= ORDER_EXTEND && record->fence != fence)
		return false;
	record_changed(machine, record);
	record_unplace(machine, record);
	if (order->verb != ORDER_EXTEND)
		record_release(machine, record);
	if (order->verb == ORDER_DONE) {
		place_ended(machine, record, STATE_DONE);
	} else if (order->verb == ORDER_FAIL) {
		place_dead(machine, record, &order->reason);
	} else if (order->verb == ORDER_RETRY) {
		place_again(machine, record, order->ms, "no attempt left");
	} else if (order->verb == ORDER_EXTEND) {
		record->time_ms = machine->time.steady_ms + order->ms;
		record_place(machine, record, STATE_RUNNING);
	} else if (order->verb == ORDER_CANCEL) {
		place_ended(machine, record, STATE_CANCELLED);
	} else if (order->verb == ORDER_RESCHEDULE) {
		place_anew(machine, record, order->ms);
	} else if (order->verb == ORDER_REPLAY) {
		place_anew(machine, record, machine->time.now_ms);
	} else {
		machine->counters[COUNT_DROPPED]++;
		record_destroy(machine, record);
	}
	return true;
}

void
machine_set(struct machine *machine, const struct machine_settings *settings)
{
	if (memcmp(&machine->settings, settings, sizeof(*settings)) == 0)
		return;
	/* Another rate has the tokens that are there, and the first one none:
	 * so changing it to and fro gives none. */
	machine->tokens = tokens_at(machine, machine->time.steady_ms);
	machine->tokens_ms = machine->time.steady_ms;
	machine->settings = *settings;
	machine->revision++;
}
