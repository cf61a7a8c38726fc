/* SPDX-License-Identifier: Apache-2.0 */
/* Walks a whole machine: NULL, or the invariant of machine.h that is broken. */
#ifndef HWT_DURABLE_TEST_MACHINE_CHECK_H
#define HWT_DURABLE_TEST_MACHINE_CHECK_H

#include "modules/durable/machine/internal.h"

struct check {
	const struct machine *machine;
	size_t count[STATES]; /* of those in the table */
	size_t requested, in_takes; /* attempts */
	size_t placed[STATES]; /* of those in wheels and lists */
	const struct table *wheel; /* that is walked */
	unsigned states; /* that its records may have */
	const char *broken;
};

static inline void
check_that(struct check *check, bool holds, const char *what)
{
	if (!holds && check->broken == NULL)
		check->broken = what;
}

static inline void
check_record(struct node *node, void *ctx)
{
	const struct record *record = (const void *)node;
	struct check *check = ctx;
	check->count[record->state]++;
	check_that(check, record->fence <= check->machine->fence,
	    "5: a fence exceeds the machine's");
	check_that(check, record->attempt <= record->policy->attempts,
	    "more attempts than allowed");
	if (record->state != STATE_RUNNING)
		return;
	check_that(check, record->newest->record == record,
	    "4: an attempt is another record's");
	check->requested += record->newest->request != 0;
}

static inline void
check_take(struct node *node, void *ctx)
{
	const struct attempt *first =
	    container_of(node, struct attempt, by_take.node);
	const struct attempt *attempt = first;
	struct check *check = ctx;

	do {
		check->in_takes++;
		check_that(check,
		    attempt->request == first->request &&
			attempt->record->newest == attempt,
		    "4: an attempt is in the group of another take");
		attempt = container_of(
		    attempt->by_take.link.next, struct attempt, by_take.link);
	} while (attempt != first);
}

static inline void
check_placed(const struct record *record, void *ctx)
{
	struct check *check = ctx;

	check->placed[record->state]++;
	check_that(check, check->states >> record->state & 1,
	    "1: a record is in the place of another state");
	check_that(check,
	    check->wheel == NULL ||
		record->time_ms >= table_least(check->wheel),
	    "a wheel passes a record over");
}

static inline void
check_wheel(struct check *check, const struct table *wheel, unsigned states)
{
	check->wheel = wheel;
	check->states = states;
	wheel_walk(wheel, check_placed, check);
}

static inline void
check_list(struct check *check, const struct link *list, unsigned states)
{
	const struct link *link;

	check->wheel = NULL;
	check->states = states;
	for (link = list->next; link != list; link = link->next)
		check_placed(container_of(link, struct record, link), check);
}

static inline const char *
machine_check(const struct machine *machine)
{
	struct check check = {.machine = machine};
	const uint64_t *counters = machine->counters;
	uint64_t cursor = 0;
	size_t sum = 0;
	int i;

	do
		cursor =
		    table_scan(&machine->records, cursor, check_record, &check);
	while (cursor != 0);
	do
		cursor =
		    table_scan(&machine->takes, cursor, check_take, &check);
	while (cursor != 0);
	check_that(&check, check.requested == check.in_takes,
	    "4: an attempt is in the group of no take");
	check_wheel(&check, &machine->waiting, 1U << STATE_WAITING);
	check_wheel(
	    &check, &machine->ended, 1U << STATE_DONE | 1U << STATE_CANCELLED);
	check_wheel(&check, &machine->leases, 1U << STATE_RUNNING);
	check_list(&check, &machine->due, 1U << STATE_DUE);
	check_list(&check, &machine->dead, 1U << STATE_DEAD);
	for (i = STATE_NONE; i < STATES; i++) {
		check_that(&check, check.placed[i] == check.count[i],
		    "1: a record is in no place, or in two");
		check_that(&check, machine->count[i] == check.count[i],
		    "2: a count is wrong");
		sum += machine->count[i];
	}
	check_that(
	    &check, sum == machine->records.count, "1: the table has others");
	check_that(&check,
	    counters[COUNT_ADDED] ==
		sum + counters[COUNT_REMOVED] + counters[COUNT_DROPPED],
	    "3: added is not the sum of the others");
	return check.broken;
}

#endif
