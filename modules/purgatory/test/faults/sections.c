/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that together cover the purgatory's interface, each short, so that a
 * fault in each of its calls of the system and of the timer can be tried: see
 * driver/faults.h. A call of hwt_purgatory.h that fails must do so for the
 * fault and with an error that its header lists, and must have changed nothing;
 * the next one must work. Whatever watch accepted has done called once, with
 * the outcome that was given to it. In the end no memory and no descriptor is
 * left.
 */
#include "modules/checkout/test/faults/driver/module.h"

#include "modules/purgatory/hwt_purgatory.h"

#define WAITERS 7200
#define KEY(number) ((struct hwt_key){3, (number)})

static struct waiter {
	hwt_operation handle;
	bool holds;
	uint64_t check; /* its predicate checks this key, once; 0: none */
	bool stays; /* done waits until shutdown waits for it */
	_Atomic unsigned entered, dones;
	enum hwt_outcome outcome;
} waiter[WAITERS];
static unsigned waiters;

static struct hwt_purgatory *purgatory;

/* Each was accepted, and has ended once. */
void
section_settle(void)
{
	struct balance held = balance_now();
	unsigned i;

	for (i = 0; i < waiters; i++) {
		if (waiter[i].dones != 1)
			fail("done of %u was called %u times", i,
			    waiter[i].dones);
	}
	CHECK(held.blocks == 0);
	CHECK(held.fds == 0);
}

/* Calls that are judged. */

/* What hwt_purgatory.h lists, as far as the system and the timer have a part in
 * it. */
static const struct {
	const char *function;
	int errors[4];
} listed[] = {
    {"hwt_purgatory_create", {ENOMEM}},
    {"hwt_purgatory_stats_write", {EIO, ENOSPC}},
    {"hwt_purgatory_watch", {ENOBUFS, ENOMEM, EAGAIN, ESHUTDOWN}},
    {"hwt_operation_reschedule", {ENOBUFS, ENOMEM, EAGAIN, ESHUTDOWN}},
    {"hwt_operation_mailbox_create", {ENOMEM, EMFILE, ENFILE}},
};

int
module_error(const struct fault *fault)
{
	switch (fault->call) {
	case CALL_ALIGNED_ALLOC:
	case CALL_CALLOC:
	case CALL_MALLOC:
	case CALL_MMAP:
		return ENOMEM;
	case CALL_FFLUSH:
	case CALL_HWT_NEW_TIMEOUT:
	case CALL_VFPRINTF:
		return fault->error;
	case CALL_EVENTFD:
		return fault->error == EMFILE || fault->error == ENFILE
		    ? fault->error
		    : ENOMEM;
	default:
		return 0;
	}
}

bool
module_lists(const char *function, int error)
{
	size_t i, k;

	for (i = 0; i < sizeof(listed) / sizeof(listed[0]); i++) {
		for (k = 0; strcmp(listed[i].function, function) == 0 && k < 4;
		     k++) {
			if (listed[i].errors[k] == error)
				return true;
		}
	}
	return false;
}

static struct hwt_purgatory_stats
stats_now(void)
{
	struct hwt_purgatory_stats stats = {0};

	if (purgatory != NULL)
		CHECK(hwt_purgatory_read_stats(purgatory, &stats) == 0);
	stats.memory_bytes = 0; /* what a failure leaves serves the next one */
	return stats;
}

size_t
module_state(void *state)
{
	struct hwt_purgatory_stats stats = stats_now();

	_Static_assert(sizeof(stats) <= STATE_MAX, "a state");
	memcpy(state, &stats, sizeof(stats));
	return sizeof(stats);
}

/* A purgatory of one shard. */

static void
purgatory_open(uint32_t shards)
{
	const struct hwt_purgatory_options options = {.shards = shards};

	MAKE(purgatory, hwt_purgatory_create, timer, &options);
}

static void
open_all(void)
{
	timer_open();
	purgatory_open(1);
}

/* Nothing is pending; no timeout is left, either. */
static void
close_all(void)
{
	struct hwt_purgatory_stats stats = stats_now();

	CHECK(stats.pending == 0 && stats.links == 0 && stats.keys == 0);
	CHECK(hwt_pending_timeouts(timer) == 0);
	CHECK(hwt_purgatory_destroy(purgatory) == 0);
	purgatory = NULL;
	timer_close();
}

/* Operations. */

static bool
looks(hwt_operation operation, void *arg)
{
	struct waiter *w = arg;
	struct hwt_key key = KEY(w->check);

	CHECK(operation.id == w->handle.id && w->dones == 0);
	if (w->check != 0) {
		w->check = 0;
		CHECK(hwt_purgatory_check(purgatory, key, NULL) == 0);
	}
	return w->holds;
}

static void
ends(hwt_operation operation, void *arg, enum hwt_outcome outcome)
{
	struct waiter *w = arg;

	CHECK(operation.id == w->handle.id);
	w->entered++;
	while (w->stays && fault_calls(CALL_NANOSLEEP) < 3)
		pause_ns(100000);
	w->outcome = outcome;
	w->dones++;
}

/* Under that many keys, from first on. */
static struct waiter *
watch_spec(struct hwt_operation_spec spec, uint64_t first, size_t count)
{
	struct waiter *w = &waiter[waiters++];
	struct hwt_key key[100];
	int rc;

	for (spec.key_count = 0; spec.key_count < count; spec.key_count++)
		key[spec.key_count] = KEY(first + spec.key_count);
	spec.done = ends;
	spec.arg = w;
	spec.keys = key;
	do {
		w->handle.id = POISON;
		attempt_begin();
		rc = hwt_purgatory_watch(purgatory, &w->handle, &spec);
		CHECK(rc >= 0 || w->handle.id == 0);
		CHECK(rc >= 0 || w->entered == 0);
	} while (attempt_failed("hwt_purgatory_watch", rc));
	CHECK(rc == 0 && w->handle.id != 0 && w->handle.id != POISON);
	return w;
}

static struct waiter *
watch(uint64_t first, size_t count, uint64_t delay_ns)
{
	return watch_spec((struct hwt_operation_spec){.try_complete = looks,
			      .delay_ns = delay_ns},
	    first, count);
}

static struct waiter *
watch_value(uint64_t key, uint64_t at_least)
{
	return watch_spec(
	    (struct hwt_operation_spec){.at_least = at_least, .delay_ns = FAR},
	    key, 1);
}

static void
check_ended(const struct waiter *w, enum hwt_outcome outcome)
{
	CHECK(w->dones == 1 && w->outcome == outcome);
}

/* An event under that key completes so many. */
static void
event(uint64_t key, size_t expected)
{
	size_t count = SIZE_MAX;

	CHECK(hwt_purgatory_check(purgatory, KEY(key), &count) == 0);
	CHECK(count == expected);
}

static void
cancel_key(uint64_t key, size_t expected)
{
	size_t count = SIZE_MAX;

	CHECK(hwt_purgatory_cancel_key(purgatory, KEY(key), &count) == 0);
	CHECK(count == expected);
}

/* Sections. */

static void
section_create(void)
{
	timer_open();
	purgatory_open(0);
	CHECK(hwt_purgatory_destroy(purgatory) == 0);
	purgatory = NULL;
	purgatory_open(4);
	close_all();
}

static void
section_watch_one(void)
{
	struct waiter *first, *second, *third;

	open_all();
	first = watch(1, 1, FAR);
	second = watch(1, 1, HWT_NEVER);
	third = watch(2, 3, FAR);
	event(1, 0);
	first->holds = true;
	third->holds = true;
	event(1, 1);
	event(4, 1);
	cancel_key(1, 1);
	check_ended(first, HWT_COMPLETED);
	check_ended(second, HWT_CANCELLED);
	check_ended(third, HWT_COMPLETED);
	close_all();
}

/* Links are allocated; the table grows by some segments, and shrinks. */
static void
section_watch_hundred(void)
{
	struct waiter *w, *other;

	open_all();
	w = watch(1, 100, FAR);
	other = watch(51, 100, HWT_NEVER);
	w->holds = true;
	event(60, 1);
	check_ended(w, HWT_COMPLETED);
	cancel_key(60, 1);
	check_ended(other, HWT_CANCELLED);
	close_all();
}

/* More than a slab, a batch, and the first segment of slabs. */
static void
section_many(void)
{
	unsigned i;

	open_all();
	for (i = 0; i < 780; i++)
		(void)watch(1 + i % 2, 1, HWT_NEVER);
	event(1, 0);
	for (i = 0; i < 780; i += 4)
		waiter[i].holds = true;
	event(1, 195);
	cancel_key(1, 195);
	cancel_key(2, 390);
	for (i = 0; i < 780; i++)
		check_ended(
		    &waiter[i], i % 4 == 0 ? HWT_COMPLETED : HWT_CANCELLED);
	close_all();
}

/* More than the pool keeps: memory is offered to the system. */
static void
section_released(void)
{
	unsigned i;

	open_all();
	for (i = 0; i < WAITERS; i++)
		(void)watch(1, 1, HWT_NEVER);
	cancel_key(1, WAITERS);
	for (i = 0; i < WAITERS; i++)
		check_ended(&waiter[i], HWT_CANCELLED);
	waiters = 0;
	memset(waiter, 0, sizeof(waiter));
	for (i = 0; i < WAITERS; i++)
		(void)watch(1, 1, HWT_NEVER);
	cancel_key(1, WAITERS);
	close_all();
}

static void
section_raise(void)
{
	struct waiter *w[5];
	size_t count = SIZE_MAX;
	unsigned i;

	open_all();
	for (i = 0; i < 5; i++)
		w[i] = watch_value(1, 5 - i);
	CHECK(hwt_purgatory_raise(purgatory, KEY(1), 3, &count) == 0);
	CHECK(count == 3 && w[0]->dones + w[1]->dones == 0);
	CHECK(hwt_purgatory_raise(purgatory, KEY(1), 5, &count) == 0);
	CHECK(count == 2);
	for (i = 0; i < 5; i++)
		check_ended(w[i], HWT_COMPLETED);
	close_all();
}

/* Links are allocated, with what is missing. */
static void
section_quorum(void)
{
	struct waiter *w;
	uint64_t i;

	open_all();
	w = watch_spec(
	    (struct hwt_operation_spec){
		.at_least = 5, .quorum = 4, .delay_ns = FAR},
	    1, 5);
	for (i = 2; i <= 5; i++) {
		CHECK(w->dones == 0);
		CHECK(hwt_purgatory_raise(purgatory, KEY(i), i + 3, NULL) == 0);
	}
	check_ended(w, HWT_COMPLETED);
	w = watch_spec(
	    (struct hwt_operation_spec){
		.at_least = 5, .quorum = 2, .delay_ns = FAR},
	    1, 2);
	cancel_key(2, 1);
	check_ended(w, HWT_CANCELLED);
	close_all();
}

static void
section_decide(void)
{
	struct waiter *w[3];

	open_all();
	w[0] = watch(1, 2, FAR);
	w[1] = watch(1, 5, FAR);
	w[2] = watch(1, 1, FAR);
	CHECK(hwt_operation_complete(purgatory, w[0]->handle) == 0);
	CHECK(hwt_operation_cancel(purgatory, w[1]->handle) == 0);
	CHECK(hwt_operation_cancel(purgatory, w[1]->handle) == -ENOENT);
	cancel_key(1, 1);
	check_ended(w[0], HWT_COMPLETED);
	check_ended(w[1], HWT_CANCELLED);
	check_ended(w[2], HWT_CANCELLED);
	close_all();
}

static void
section_expire(void)
{
	struct waiter *w[4];

	open_all();
	w[0] = watch(1, 1, 0);
	w[1] = watch(1, 3, 2 * TICK);
	w[2] = watch(1, 10, 2 * TICK);
	w[3] = watch_value(1, 7);
	timer_advance(TICK);
	check_ended(w[0], HWT_EXPIRED);
	CHECK(w[1]->dones + w[2]->dones == 0);
	timer_advance(2 * TICK);
	check_ended(w[1], HWT_EXPIRED);
	check_ended(w[2], HWT_EXPIRED);
	timer_advance(FAR);
	check_ended(w[3], HWT_EXPIRED);
	close_all();
}

static void
reschedule(const struct waiter *w, uint64_t delay_ns)
{
	CHECK(ATTEMPT(hwt_operation_reschedule, purgatory, w->handle,
		  delay_ns) == 0);
}

/* The first deadline takes a timeout. */
static void
section_reschedule(void)
{
	struct waiter *w[3];

	open_all();
	w[0] = watch(1, 1, HWT_NEVER);
	w[1] = watch(1, 2, HWT_NEVER);
	w[2] = watch(1, 1, TICK);
	reschedule(w[0], TICK);
	reschedule(w[1], FAR);
	reschedule(w[2], FAR);
	CHECK(hwt_pending_timeouts(timer) == 3);
	timer_advance(2 * TICK);
	check_ended(w[0], HWT_EXPIRED);
	CHECK(w[1]->dones + w[2]->dones == 0);
	CHECK(hwt_operation_cancel(purgatory, w[1]->handle) == 0);
	reschedule(w[2], TICK);
	timer_advance(2 * TICK);
	check_ended(w[2], HWT_EXPIRED);
	close_all();
}

/* A predicate that checks: that is remembered, or done at once. */
static void
section_nested(void)
{
	unsigned i;

	open_all();
	for (i = 1; i <= 5; i++)
		watch(i, 1, FAR)->holds = true;
	for (i = 0; i < 4; i++)
		waiter[i].check = i + 2;
	CHECK(hwt_purgatory_check(purgatory, KEY(1), NULL) == 0);
	for (i = 0; i < 5; i++)
		check_ended(&waiter[i], HWT_COMPLETED);
	close_all();
}

static void
section_stats(void)
{
	FILE *file = fopen("/dev/null", "we");

	CHECK(file != NULL);
	open_all();
	(void)watch(1, 2, HWT_NEVER);
	CHECK(ATTEMPT(hwt_purgatory_stats_write, purgatory, file,
		  HWT_PROMETHEUS) == 0);
	cancel_key(1, 1);
	close_all();
	CHECK(fclose(file) == 0);
}

/* Mailboxes. */

static struct hwt_operation_mailbox *mailbox;

static bool
is_readable(void)
{
	return fd_is_readable(hwt_operation_mailbox_fd(mailbox));
}

static struct waiter *
watch_for_mailbox(uint64_t key)
{
	const struct hwt_operation_spec spec = {
	    .executor = hwt_operation_mailbox_executor(mailbox),
	    .delay_ns = FAR};

	return watch_spec(spec, key, 1);
}

static void *
hands_over(void *unused)
{
	(void)unused;
	cancel_key(1, 3);
	return NULL;
}

/* Where the descriptor could not be made readable, the next hand-over does
 * that. */
static void
await_readable(void)
{
	struct waiter *w;

	if (is_readable())
		return;
	signal_failed();
	w = watch_for_mailbox(2);
	CHECK(hwt_operation_cancel(purgatory, w->handle) == 0);
	if (!is_readable())
		fail("a mailbox stays silent after the next one");
}

static void
mailbox_turn(size_t max)
{
	unsigned i, first = waiters;
	size_t count = 0, turns = 0;

	for (i = 0; i < 3; i++)
		(void)watch_for_mailbox(1);
	signal_in_thread(hands_over);
	for (i = first; i < waiters; i++) {
		for (; waiter[i].dones == 0; turns++) {
			await_readable();
			CHECK(hwt_operation_mailbox_run(mailbox, max, &count) ==
			    0);
			CHECK(max == 0 || count <= max);
			CHECK(turns < 10);
		}
		check_ended(&waiter[i], HWT_CANCELLED);
	}
}

static void
section_mailbox(void)
{
	open_all();
	MAKE(mailbox, hwt_operation_mailbox_create);
	mailbox_turn(0);
	mailbox_turn(2);
	CHECK(hwt_purgatory_shutdown(purgatory) == 0);
	CHECK(hwt_operation_mailbox_destroy(mailbox) == 0);
	close_all();
}

/* The end. */

static void *
completes_first(void *unused)
{
	(void)unused;
	CHECK(hwt_operation_complete(purgatory, waiter[0].handle) == 0);
	return NULL;
}

/* With some pending, and a callback on another thread, which is waited for. */
static void
section_shutdown(void)
{
	pthread_t thread;
	struct waiter *w[3];

	open_all();
	w[0] = watch(1, 1, FAR);
	w[1] = watch(1, 1, FAR);
	w[2] = watch(1, 100, HWT_NEVER);
	w[0]->stays = true;
	CHECK(pthread_create(&thread, NULL, completes_first, NULL) == 0);
	while (w[0]->entered == 0)
		pause_ns(100000);
	CHECK(hwt_purgatory_shutdown(purgatory) == 0);
	check_ended(w[0], HWT_COMPLETED);
	check_ended(w[1], HWT_SHUT_DOWN);
	check_ended(w[2], HWT_SHUT_DOWN);
	CHECK(pthread_join(thread, NULL) == 0);
	close_all();
}

/* Its operations end by shutdown. */
static void
section_timer_stopped(void)
{
	struct waiter *w[2];

	open_all();
	w[0] = watch(1, 1, FAR);
	w[1] = watch(1, 1, HWT_NEVER);
	CHECK(hwt_stop(timer, NULL) == 0);
	CHECK(hwt_purgatory_destroy(purgatory) == -EBUSY);
	CHECK(hwt_purgatory_shutdown(purgatory) == 0);
	check_ended(w[0], HWT_SHUT_DOWN);
	check_ended(w[1], HWT_SHUT_DOWN);
	CHECK(hwt_purgatory_destroy(purgatory) == 0);
	CHECK(hwt_destroy(timer) == 0);
}

const struct section sections[] = {
    {"create", section_create},
    {"watch-one", section_watch_one},
    {"watch-hundred", section_watch_hundred},
    {"many", section_many},
    {"released", section_released},
    {"raise", section_raise},
    {"quorum", section_quorum},
    {"decide", section_decide},
    {"expire", section_expire},
    {"reschedule", section_reschedule},
    {"nested", section_nested},
    {"stats", section_stats},
    {"mailbox", section_mailbox},
    {"shutdown", section_shutdown},
    {"timer-stopped", section_timer_stopped},
    {NULL, NULL},
};
