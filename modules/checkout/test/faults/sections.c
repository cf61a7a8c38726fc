/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that together cover the checkout's interface, each short, so that a
 * fault in each of its calls of the system and of the timer can be tried: see
 * driver/faults.h. A call of hwt_checkout.h that fails must do so for the
 * fault and with an error that its header lists, and must have changed nothing;
 * the next one must work. Each wait that was begun ends once, with the outcome
 * that was given to it. In the end nothing is out, and no memory is left.
 */

#include "modules/checkout/test/faults/driver/module.h"

#include <sys/wait.h>
#include <unistd.h>

#include "modules/checkout/hwt_checkout.h"

#define OBJECTS 3
#define DEMANDS 6

static struct demand {
	struct hwt_request request;
	struct hwt_object *set[OBJECTS];
	unsigned waits; /* that were begun */
	_Atomic unsigned ended;
	enum hwt_grant grant;
	int result; /* of a wait in a thread, or of a pause */
	_Atomic bool over; /* the thread has it */
} demand[DEMANDS];

static struct hwt_checkout *checkout;
static struct hwt_request_mailbox *mailbox; /* NULL: the checkout has none */
static struct hwt_object object[OBJECTS];

void
section_settle(void)
{
	unsigned i;

	for (i = 0; i < DEMANDS; i++) {
		if (demand[i].ended != demand[i].waits)
			fail("of %u waits of %u, %u ended", demand[i].waits, i,
			    demand[i].ended);
	}
	CHECK(balance_now().blocks == 0);
}

/* Calls that are judged. */

/* What hwt_checkout.h lists, as far as the system and the timer have a part in
 * it. */
bool
module_lists(const char *function, int error)
{
	if (strcmp(function, "hwt_checkout_create") == 0 ||
	    strcmp(function, "hwt_store_create") == 0)
		return error == ENOMEM;
	if (strcmp(function, "hwt_request_mailbox_create") == 0)
		return error == ENOMEM || error == EMFILE || error == ENFILE;
	if (strstr(function, "_dump") != NULL ||
	    strstr(function, "_stats_write") != NULL)
		return error == EIO || error == ENOSPC;
	return error == ENOBUFS || error == ENOMEM || error == EAGAIN ||
	    error == ESHUTDOWN;
}

int
module_error(const struct fault *fault)
{
	return fault->call == CALL_EVENTFD && fault->error == ENODEV
	    ? ENOMEM
	    : fault->error;
}

static struct hwt_checkout_stats
stats_now(void)
{
	struct hwt_checkout_stats stats = {0};

	if (checkout != NULL)
		CHECK(hwt_checkout_read_stats(checkout, &stats) == 0);
	return stats;
}

size_t
module_state(void *state)
{
	struct hwt_checkout_stats stats = stats_now();

	_Static_assert(sizeof(stats) <= STATE_MAX, "a state");
	memcpy(state, &stats, sizeof(stats));
	return sizeof(stats);
}

static void
checkout_open(void)
{
	const struct hwt_checkout_options options = {
	    .executor = hwt_request_mailbox_executor(mailbox)};

	MAKE(checkout, hwt_checkout_create, timer, &options);
}

static void
open_all(void)
{
	unsigned i;

	timer_open();
	checkout_open();
	for (i = 0; i < OBJECTS; i++)
		CHECK(hwt_object_init(checkout, &object[i], i) == 0);
}

/* Nothing is out, and no timeout is left, either. */
static void
close_all(void)
{
	struct hwt_checkout_stats stats = stats_now();

	CHECK(stats.out == 0 && stats.waiting == 0);
	CHECK(hwt_pending_timeouts(timer) == 0);
	CHECK(hwt_checkout_destroy(checkout) == 0);
	checkout = NULL;
	timer_close();
}

/* Requests. */

static void
note_granted(struct hwt_request *request, void *arg, enum hwt_grant grant)
{
	struct demand *d = arg;

	CHECK(request == &d->request);
	d->grant = grant;
	d->ended++;
}

/* members: "ac" is a set of the objects 0 and 2. */
static struct demand *
demand_of(unsigned i, const char *members)
{
	struct demand *d = &demand[i];
	unsigned count = 0;

	for (; members[count] != 0; count++)
		d->set[count] = &object[members[count] - 'a'];
	CHECK(
	    hwt_request_init(&d->request, d->set, count, note_granted, d) == 0);
	return d;
}

static void
take(struct demand *d)
{
	CHECK(hwt_checkout_try(checkout, &d->request) == 0);
}

static void
release(struct demand *d)
{
	CHECK(hwt_checkout_release(checkout, &d->request) == 0);
}

static void
wait_with(struct demand *d, uint64_t delay_ns)
{
	unsigned ended = d->ended;

	CHECK(ATTEMPT(hwt_checkout_acquire, checkout, &d->request, delay_ns) ==
	    1);
	CHECK(d->ended == ended);
	d->waits++;
}

static void
check_ended(const struct demand *d, enum hwt_grant grant)
{
	CHECK(d->ended == d->waits && d->grant == grant);
}

/* Sections. */

static void
section_create(void)
{
	open_all();
	take(demand_of(0, "abc"));
	CHECK(hwt_checkout_destroy(checkout) == -EBUSY);
	release(&demand[0]);
	close_all();
}

static void
section_waits(void)
{
	struct demand *holder, *first, *second, *third, *none;

	open_all();
	holder = demand_of(0, "b");
	first = demand_of(1, "ab");
	second = demand_of(2, "bc");
	third = demand_of(3, "b");
	none = demand_of(4, "ac");
	take(holder);
	wait_with(first, FAR);
	wait_with(second, 2 * TICK);
	wait_with(third, FAR);
	/* They hold nothing. */
	take(none);
	release(none);
	CHECK(hwt_checkout_cancel(checkout, &third->request) == 0);
	check_ended(third, HWT_GRANT_CANCELLED);
	timer_advance(4 * TICK);
	check_ended(second, HWT_GRANT_EXPIRED);
	release(holder);
	check_ended(first, HWT_GRANTED);
	wait_with(second, FAR);
	release(first);
	check_ended(second, HWT_GRANTED);
	release(second);
	close_all();
}

/* Time passes until the thread's deadline has come. A timeout that is pending
 * may still be on its way to the timer. */
static void
join_late(pthread_t thread, const struct demand *d)
{
	while (!d->over) {
		timer_advance(FAR + 2 * TICK);
		pause_ns(100000);
	}
	CHECK(pthread_join(thread, NULL) == 0);
}

/* What waits in a thread. */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *
waits_in_thread(void *arg)
{
	struct demand *d = arg;
	int rc;

	do {
		attempt_begin();
		CHECK(pthread_mutex_lock(&mutex) == 0);
		rc = hwt_checkout_acquire_wait_unlock(
		    checkout, &d->request, FAR, &mutex);
	} while (rc != -ETIMEDOUT && rc != -ECANCELED &&
	    attempt_failed("hwt_checkout_acquire_wait_unlock", rc));
	d->result = rc;
	d->over = true;
	return NULL;
}

static pthread_t
wait_in_thread(struct demand *d)
{
	pthread_t thread;

	d->over = false;
	CHECK(pthread_create(&thread, NULL, waits_in_thread, d) == 0);
	while (stats_now().waiting == 0)
		pause_ns(100000);
	return thread;
}

static void
section_thread(void)
{
	struct demand *holder, *waiter;
	pthread_t thread;
	int rc;

	open_all();
	holder = demand_of(0, "a");
	waiter = demand_of(1, "ab");
	take(holder);
	thread = wait_in_thread(waiter);
	/* A wait that a fault has ended is repeated. */
	while (
	    (rc = hwt_checkout_cancel(checkout, &waiter->request)) == -ENOENT)
		pause_ns(100000);
	CHECK(rc == 0 || rc == -EINPROGRESS);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(waiter->result == -ECANCELED);
	thread = wait_in_thread(waiter);
	join_late(thread, waiter);
	CHECK(waiter->result == -ETIMEDOUT);
	thread = wait_in_thread(waiter);
	release(holder);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(waiter->result == 0);
	release(waiter);
	close_all();
}

/* A pause. */

static void *
pauses(void *unused)
{
	int rc;

	(void)unused;
	do {
		attempt_begin();
		rc = hwt_checkout_pause(checkout, FAR);
	} while (rc != -ETIMEDOUT && attempt_failed("hwt_checkout_pause", rc));
	demand[0].result = rc;
	demand[0].over = true;
	return NULL;
}

static pthread_t
pause_in_thread(void)
{
	pthread_t thread;
	int rc;

	demand[0].over = false;
	CHECK(pthread_create(&thread, NULL, pauses, NULL) == 0);
	/* Its timeout is there before it closes the gate. */
	while ((rc = hwt_checkout_resume(checkout)) == -EALREADY)
		pause_ns(100000);
	CHECK(rc == -EBUSY);
	return thread;
}

static void
section_pause(void)
{
	struct demand *holder, *waiter;
	pthread_t thread;

	open_all();
	holder = demand_of(0, "a");
	waiter = demand_of(1, "b");
	take(holder);
	thread = pause_in_thread();
	wait_with(waiter, HWT_NEVER);
	join_late(thread, holder);
	CHECK(holder->result == -ETIMEDOUT);
	check_ended(waiter, HWT_GRANTED);
	release(waiter);
	thread = pause_in_thread();
	release(holder);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(holder->result == 0);
	CHECK(stats_now().out == 0);
	wait_with(waiter, FAR);
	CHECK(hwt_checkout_resume(checkout) == 0);
	check_ended(waiter, HWT_GRANTED);
	release(waiter);
	close_all();
}

/* The end. */

static void
section_retire(void)
{
	struct demand *holder, *waiter;

	open_all();
	holder = demand_of(0, "ab");
	waiter = demand_of(1, "bc");
	take(holder);
	wait_with(waiter, FAR);
	CHECK(hwt_object_retire(checkout, &object[1]) == 0);
	check_ended(waiter, HWT_GRANT_RETIRED);
	release(holder);
	close_all();
}

static void
section_shutdown(void)
{
	struct demand *holder, *first, *second;

	open_all();
	holder = demand_of(0, "b");
	first = demand_of(1, "ab");
	second = demand_of(2, "b");
	take(holder);
	wait_with(first, FAR);
	wait_with(second, HWT_NEVER);
	CHECK(hwt_checkout_shutdown(checkout) == 0);
	check_ended(first, HWT_GRANT_SHUT_DOWN);
	check_ended(second, HWT_GRANT_SHUT_DOWN);
	release(holder);
	close_all();
}

/* Waits go on, without their deadlines. */
static void
section_timer_stopped(void)
{
	struct demand *holder, *waiter;

	open_all();
	holder = demand_of(0, "b");
	waiter = demand_of(1, "ab");
	take(holder);
	wait_with(waiter, FAR);
	CHECK(hwt_stop(timer, NULL) == 0);
	release(holder);
	check_ended(waiter, HWT_GRANTED);
	release(waiter);
	CHECK(hwt_checkout_destroy(checkout) == 0);
	CHECK(hwt_destroy(timer) == 0);
}

/* A mailbox. */

static bool
is_readable(void)
{
	return fd_is_readable(hwt_request_mailbox_fd(mailbox));
}

static void *
cancels(void *unused)
{
	(void)unused;
	CHECK(hwt_checkout_cancel(checkout, &demand[1].request) == 0);
	CHECK(hwt_checkout_cancel(checkout, &demand[2].request) == 0);
	return NULL;
}

/* Where the descriptor could not be made readable, the next request does
 * that. */
static void
await_readable(struct demand *next)
{
	if (is_readable())
		return;
	signal_failed();
	wait_with(next, FAR);
	CHECK(hwt_checkout_cancel(checkout, &next->request) == 0);
	if (!is_readable())
		fail("a mailbox stays silent after the next one");
}

static void
section_mailbox(void)
{
	struct demand *holder;
	size_t told = 0;
	unsigned i;

	timer_open();
	MAKE(mailbox, hwt_request_mailbox_create);
	checkout_open();
	CHECK(hwt_object_init(checkout, &object[0], 0) == 0);
	holder = demand_of(0, "a");
	take(holder);
	for (i = 1; i < 3; i++)
		wait_with(demand_of(i, "a"), FAR);
	signal_in_thread(cancels);
	(void)demand_of(3, "a");
	for (i = 1; i < 3; i++) {
		await_readable(&demand[3]);
		CHECK(hwt_request_mailbox_run(mailbox, 1, &told) == 0);
		CHECK(told == 1);
		check_ended(&demand[i], HWT_GRANT_CANCELLED);
	}
	CHECK(hwt_request_mailbox_run(mailbox, 0, NULL) == 0);
	release(holder);
	CHECK(hwt_checkout_destroy(checkout) == 0);
	CHECK(hwt_request_mailbox_destroy(mailbox) == 0);
	mailbox = NULL;
	checkout = NULL;
	timer_close();
}

/* A store. */

static struct hwt_store *store;
static int load_result;

static int
load(void *ctx, struct hwt_store_job *job, const void *key, size_t size,
    struct hwt_loaded *loaded)
{
	(void)ctx;
	(void)job;
	(void)key;
	(void)size;
	(void)loaded;
	return load_result;
}

static void
store_open(void)
{
	const struct hwt_store_options options = {.load = load,
	    .idle_ns = 10 * TICK,
	    .backoff_ns = 10 * TICK,
	    .shards = 1};

	MAKE(store, hwt_store_create, checkout, &options);
}

static void
store_use(unsigned char name, int result)
{
	struct hwt_store_item item = {.key = &name, .size = 1};
	struct hwt_store_request request;
	int rc;

	CHECK(
	    hwt_store_request_init(store, &request, &item, 1, NULL, NULL) == 0);
	do {
		attempt_begin();
		rc = hwt_store_acquire_wait(store, &request, FAR);
	} while (rc != result && attempt_failed("hwt_store_acquire_wait", rc));
	CHECK(rc == result);
	if (rc == 0)
		CHECK(hwt_store_release(store, &request) == 0);
}

static uint64_t
store_loaded(void)
{
	struct hwt_store_stats stats;

	CHECK(hwt_store_read_stats(store, &stats) == 0);
	return stats.loaded;
}

/* A child is forked when the old table has been freed. It leaves the shard, its
 * objects too, as it is, since it is locked, and frees the new table, the
 * shards and the store. */
static unsigned forks;

static void
fork_and_destroy(void)
{
	int64_t blocks = balance_now().blocks;
	int status;
	pid_t child;

	fault_freed = NULL;
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(hwt_store_destroy(store) == 0);
		CHECK(balance_now().blocks == blocks - 3);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(status == 0);
	fault_freed = fork_and_destroy;
	forks++;
}

/* Its table grows and shrinks; without memory for that it stays. Without a
 * timeout, an object stays, and an error is not kept. */
static void
section_store(void)
{
	bool is_sound = fault_here()->call == CALL_NONE;
	unsigned char name;

	timer_open();
	checkout_open();
	store_open();
	fault_freed = is_sound ? fork_and_destroy : NULL;
	for (name = 0; name < 40; name++)
		store_use(name, 0);
	fault_freed = NULL;
	CHECK(forks == (is_sound ? 2 : 0));
	timer_advance(15 * TICK);
	CHECK(store_loaded() <= 40);
	if (fault_here()->call != CALL_HWT_NEW_TIMEOUT)
		CHECK(store_loaded() == 0);
	load_result = -EIO;
	store_use(50, -EIO);
	load_result = 0;
	timer_advance(15 * TICK);
	store_use(50, 0);
	CHECK(hwt_store_trim(store, 0) == 0);
	CHECK(hwt_store_destroy(store) == 0);
	CHECK(hwt_pending_timeouts(timer) == 0);
	CHECK(hwt_checkout_destroy(checkout) == 0);
	checkout = NULL;
	timer_close();
}

/* Text. */

static void
section_text(void)
{
	struct demand *holder, *waiter;
	FILE *file = fopen("/dev/null", "we");

	CHECK(file != NULL);
	open_all();
	store_open();
	holder = demand_of(0, "a");
	waiter = demand_of(1, "a");
	take(holder);
	wait_with(waiter, HWT_NEVER);
	load_result = -EIO;
	store_use(1, -EIO);
	load_result = 0;
	CHECK(ATTEMPT(hwt_checkout_stats_write, checkout, file,
		  HWT_PROMETHEUS) == 0);
	CHECK(ATTEMPT(hwt_checkout_dump, checkout, file) == 0);
	CHECK(ATTEMPT(hwt_store_stats_write, store, file, HWT_JSON) == 0);
	CHECK(ATTEMPT(hwt_store_dump, store, file) == 0);
	release(holder);
	release(waiter);
	CHECK(hwt_store_destroy(store) == 0);
	close_all();
	CHECK(fclose(file) == 0);
}

const struct section sections[] = {
    {"create", section_create},
    {"waits", section_waits},
    {"thread", section_thread},
    {"pause", section_pause},
    {"retire", section_retire},
    {"shutdown", section_shutdown},
    {"timer-stopped", section_timer_stopped},
    {"mailbox", section_mailbox},
    {"store", section_store},
    {"text", section_text},
    {NULL, NULL},
};
