/* SPDX-License-Identifier: Apache-2.0 */
/* Walks a whole machine and says which invariant of machine.h is broken. */
#include "modules/durable/machine/internal.h"

struct check {
	const struct machine *machine;
	size_t count[STATES]; /* of those in the table */
	size_t placed[STATES]; /* of those in wheels and lists */
	const char *broken;
};

static void
check_that(struct check *check, bool holds, const char *what)
{
	if (!holds && check->broken == NULL)
		check->broken = what;
}

static void
check_record(struct node *node, void *ctx)
{
	const struct record *record = (const void *)node;
	struct check *check = ctx;
	const struct lease *lease;

	check_that(check, record->state > STATE_NONE && record->state < STATES,
	    "a record has no state");
	if (check->broken != NULL)
		return;
	check->count[record->state]++;
	check_that(check, record->fence <= check->machine->fence,
	    "5: a fence exceeds the machine's");
	check_that(check, record->attempt <= record->policy->attempts,
	    "more attempts than allowed");
	if (record->state != STATE_RUNNING)
		return;
	for (lease = record->lease->worker->leases; lease != NULL;
	     lease = lease->next) {
		if (lease == record->lease)
			break;
	}
	check_that(check, lease != NULL && lease->record == record,
	    "4: a lease is not in its worker's list");
}

static void
check_worker(struct node *node, void *ctx)
{
	const struct worker *worker = (const void *)node;

	check_that(ctx, worker->leases != NULL, "4: a worker without a lease");
}

static void
check_in_wheel(const struct record *record, void *ctx)
{
	struct check *check = ctx;

	check_that(check,
	    record->state == STATE_WAITING || record->state == STATE_DONE ||
		record->state == STATE_CANCELLED,
	    "1: the wheel has a record of another state");
	check_that(check, record->time_ms >= check->machine->wheel.next,
	    "wheel: a time is before next");
	check->placed[record->state]++;
}

static void
check_in_leases(const struct record *record, void *ctx)
{
	struct check *check = ctx;

	check_that(check, record->state == STATE_RUNNING,
	    "1: the leases have a record of another state");
	check_that(check, record->time_ms >= check->machine->leases.next,
	    "leases: a time is before next");
	check->placed[record->state]++;
}

const char *
machine_check(struct machine *machine)
{
	struct check check = {.machine = machine};
	const struct record *record;
	const struct machine_counters *c = &machine->counters;
	uint64_t cursor = 0;
	size_t sum = 0;
	int i;

	do
		cursor =
		    table_scan(&machine->records, cursor, check_record, &check);
	while (cursor != 0);
	do
		cursor =
		    table_scan(&machine->workers, cursor, check_worker, &check);
	while (cursor != 0);
	wheel_walk(&machine->wheel, check_in_wheel, &check);
	wheel_walk(&machine->leases, check_in_leases, &check);
	for (record = machine->due_first; record; record = record->next) {
		check_that(&check, record->state == STATE_DUE,
		    "1: the due have a record of another state");
		check.placed[record->state]++;
	}
	check.placed[STATE_DEAD] = check.count[STATE_DEAD];
	for (i = STATE_WAITING; i < STATES; i++) {
		check_that(&check, check.placed[i] == check.count[i],
		    "1: a record is in no place, or in two");
		check_that(&check, machine->count[i] == check.count[i],
		    "2: a count is wrong");
		sum += machine->count[i];
	}
	check_that(
	    &check, sum == machine->records.count, "1: the table has others");
	check_that(&check, c->added == sum + c->removed + c->dropped,
	    "3: added is not the sum of the others");
	return check.broken;
}
