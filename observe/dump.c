/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_dump: a line for each timeout, which says where it is: at a tick of the
 * wheel, of which the bucket and round follow (one whose deadline was put off
 * still has its earlier entry); in the queue, so that the worker has not seen
 * the present deadline yet; never due; in an executor; or running there.
 *
 * The records in use are copied first. Nobody turns the wheel meanwhile: the
 * timer is stopped, or this thread turns it (timer_turn_begin). hwt_stop waits
 * for that, so the text is made and written afterwards: names take the dynamic
 * linker's lock, and a file can block. Callers may use their records: one whose
 * word changes while it is copied is left out.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "core/timer.h"
#include "observe/page.h"
#include "observe/symbol.h"

/* A copy of a record. */
struct copied {
	uint64_t tick; /* of the wheel's entry; 0: it has none */
	uint64_t id, word, deadline_ns;
	hwt_task *task;
	void *arg;
	const struct hwt_executor *executor;
	uint64_t period_ns;
};

/* A copy of a timer's state. */
struct copy {
	bool stopped;
	uint64_t now_ns, next_tick;
	size_t count;
	struct copied *items;
};

/* False: the record is free, or has changed. */
static bool
copy_record(
    struct copied *item, const struct record_store *store, uint32_t index)
{
	const struct record *record = record_at(store, index);
	struct wide seen = wide_load(&record->wide);

	if (word_state(seen.word) == STATE_FREE)
		return false;
	*item = (struct copied){
	    .id = word_id(seen.word, index),
	    .word = seen.word,
	    .deadline_ns = seen.deadline_ns,
	    .task = record_task(record),
	    /* E:reused acquire */
	    .arg = aptr_load_acquire(&record->arg),
	    .executor = aptr_load_acquire(&record->executor),
	    .period_ns = a64_load_acquire(&record->period_ns),
	};
	if ((seen.word & FLAG_HAS_ENTRY) && record->entry_at != 0)
		item->tick = record->entry_tick;
	return wide_word(&record->wide) == seen.word;
}

/* Copies up to capacity records, all but what is scheduled meanwhile. */
static size_t
copy_records(
    struct copied *items, size_t capacity, const struct record_store *store)
{
	struct copied item;
	size_t count = 0;
	uint32_t index = 0;

	while ((index = record_next_used(store, index)) != 0) {
		if (!copy_record(&item, store, index))
			continue;
		if (items != NULL && count < capacity)
			items[count] = item;
		count++;
	}
	return items == NULL || count < capacity ? count : capacity;
}

static void
print_place(
    struct page *page, const struct hwt *timer, const struct copied *item)
{
	uint64_t state = word_state(item->word);

	page_print(page, "%#" PRIx64, item->id);
	if (state == STATE_HANDED || state == STATE_REVOKED)
		page_print(page, " in an executor");
	else if (state == STATE_RUNNING)
		page_print(page, " running");
	else if (!(item->word & FLAG_HAS_ENTRY))
		page_print(page, " in the queue");
	else if (item->tick != 0)
		page_print(page,
		    " at tick %" PRIu64 " (bucket %" PRIu64 ", round %" PRIu64
		    ")",
		    item->tick, item->tick & timer->wheel.mask,
		    item->tick >> timer->wheel.bits);
}

static void
print_deadline(struct page *page, const struct copied *item, uint64_t now_ns)
{
	if (item->deadline_ns == DEADLINE_NEVER)
		page_print(page, " never due");
	else
		page_print(page, " deadline %" PRIu64 " ns in %" PRId64 " ns",
		    item->deadline_ns, (int64_t)(item->deadline_ns - now_ns));
}

static void
print_item(struct page *page, const struct hwt *timer,
    const struct copied *item, uint64_t now_ns)
{
	char task[SYMBOL_BYTES];

	print_place(page, timer, item);
	print_deadline(page, item, now_ns);
	if (item->period_ns != 0)
		page_print(page, " period %" PRIu64 " ns", item->period_ns);
	page_print(page, " task %s arg %p",
	    symbol_name(
		(const void *)(uintptr_t)item->task, task, sizeof(task)),
	    item->arg);
	if (item->executor != NULL)
		page_print(page, " executor %p", (const void *)item->executor);
	else if (timer->executor.execute != NULL)
		page_print(page, " the timer's executor");
	if (word_state(item->word) == STATE_REVOKED)
		page_print(page, " cancelled");
	page_print(page, "\n");
}

static void
print_timer(struct page *page, const struct hwt *timer, const struct copy *copy)
{
	page_print(page,
	    "hwt timer %p: %s\n"
	    "tick_ns %" PRIu64 ", ticks_per_wheel %u, flags %u\n"
	    "thread_name \"%s\"\n"
	    "now %" PRIu64 " ns, next tick %" PRIu64 " at %" PRIu64
	    " ns, %zu timeouts\n",
	    (const void *)timer, copy->stopped ? "stopped" : "manual",
	    timer->options.tick_ns, timer->wheel.mask + 1, timer->options.flags,
	    timer->life.thread_name, copy->now_ns, copy->next_tick,
	    timer_boundary(timer, copy->next_tick), copy->count);
}

/* Nobody turns the wheel meanwhile. */
static int
copy_timer(struct copy *copy, const struct hwt *timer)
{
	size_t capacity = copy_records(NULL, 0, &timer->store);

	copy->items = calloc(capacity + 1, sizeof(*copy->items));
	if (copy->items == NULL)
		return -ENOMEM;
	copy->count = copy_records(copy->items, capacity, &timer->store);
	copy->next_tick = timer->wheel.next_tick;
	copy->now_ns = timer_now(timer);
	return 0;
}

static int
print_copy(const struct copy *copy, const struct hwt *timer, FILE *file)
{
	struct page page = {.file = file};
	size_t i;

	print_timer(&page, timer, copy);
	for (i = 0; i < copy->count; i++)
		print_item(&page, timer, &copy->items[i], copy->now_ns);
	return page_end(&page);
}

static bool
is_stopped(struct hwt *timer)
{
	bool stopped;

	(void)pthread_mutex_lock(&timer->life.lock);
	stopped = a64_load_relaxed(&timer->phase) == PHASE_STOPPED;
	(void)pthread_mutex_unlock(&timer->life.lock);
	return stopped;
}

int
hwt_dump(const struct hwt *timer, FILE *file)
{
	/* For its lock, and to keep others from turning the wheel. */
	struct hwt *held = (struct hwt *)(uintptr_t)timer;
	struct copy copy = {0};
	int error = timer_check(timer, file != NULL);

	if (error != 0)
		return error;
	copy.stopped = is_stopped(held);
	if (!copy.stopped && timer_turn_begin(held) != 0)
		return -EBUSY;
	error = copy_timer(&copy, timer);
	if (!copy.stopped)
		timer_turn_end(held);
	if (error == 0)
		error = print_copy(&copy, timer, file);
	free(copy.items);
	return error;
}
