/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Explores the interleavings of small programs on a checkout: each access to
 * an atomic word, a lock or a timeout is a step, and all orders of the steps
 * are tried that can differ in what comes out, or all with at most two
 * preemptions, or random ones (see test/explore/explore.h).
 *
 *   checkout-explore SCHEDULES [NAME [SCHEDULE]]
 *
 * at most so many schedules in each search; programs whose name contains NAME;
 * a schedule that a failure printed. In a checkout with one shard, the lock of
 * a list orders what happens to all objects, too: what needs other orders runs
 * with many shards besides, as NAME/16.
 *
 * Checked in each execution, at every moment:
 *
 *   one-holder   a granted object has no other holder, but readers beside
 *                readers
 *   pause        nothing is granted, and nothing out, during a pause
 *   once         granted is called once for each wait, and for nothing else
 *   memory       no word of a request is used after its end, nor one of a
 *                retired object
 *
 * and at its end: nobody waits but where an object is still out; nothing is
 * out; stats agree; the checkout can be destroyed.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "explore_shim.h"
#include "modules/checkout/checkout.h"

#include "explore_programs.h"

#define OBJECTS 3
#define REQUESTS 6
#define TIMEOUTS 6

enum fake_state {
	FAKE_NONE,
	FAKE_PENDING,
	FAKE_RUNNING,
	FAKE_OVER
};

struct fake {
	uint32_t state;
	hwt_task *task;
	void *arg;
};

/* A request, and what became of it. */
struct subject {
	struct hwt_request request;
	struct hwt_object *set[OBJECTS]; /* or with has_items */
	struct hwt_item item[OBJECTS]; /* use is kept without, too */
	bool has_items;
	bool pauses; /* its set; all, if it has none */
	unsigned count;
	unsigned turn; /* of its grant among all; 1 is the first */
	unsigned accepted, granted, ended; /* calls of granted, by outcome */
	unsigned out;
	bool keeps; /* it is not released when it is granted */
	bool gone; /* its memory is the caller's */
	bool used; /* another thread's call has it: gone only after that */
};

static struct world {
	struct fake fake[TIMEOUTS];
	struct subject subject[REQUESTS];
	struct hwt_object object[OBJECTS];
	struct hwt_group group, next; /* next: made after group was retired */
	struct hwt_request of_next;
	struct hwt_item next_item;
	unsigned turns;
	const struct subject *holder[OBJECTS]; /* that writes */
	unsigned readers[OBJECTS];
	bool retired[OBJECTS];
	unsigned timeouts;
	uint64_t now_ns;
	unsigned flag;
	bool paused;
	unsigned groups_retired;
	struct hwt_request *request[REQUESTS]; /* handed to an executor */
	uint32_t handed, run;
	uint64_t mutex[(sizeof(pthread_mutex_t) + 7) / 8];
	bool hidden; /* under it: object a is not found any more */
} world;
struct hwt_checkout *checkout;
static uint32_t shards; /* of the checkouts that are made */
static const struct program *running;
static const struct verb verbs[];

static bool
lies_in(const void *at, const void *memory, size_t bytes)
{
	return (uintptr_t)at - (uintptr_t)memory < bytes;
}

/* Memory that is the user's again. */
static void
watch_memory(const void *at)
{
	unsigned i;

	for (i = 0; i < REQUESTS; i++) {
		if (world.subject[i].gone &&
		    lies_in(at, &world.subject[i].request,
			sizeof(struct hwt_request)))
			explore_fail("request %u is used after its end", i);
	}
	for (i = 0; i < OBJECTS; i++) {
		if (world.retired[i] &&
		    lies_in(at, &world.object[i], sizeof(struct hwt_object)))
			explore_fail("object %u is used after its end", i);
	}
}

/* The timer. */

int
hwt_new_timeout(struct hwt *timer, hwt_timeout *timeout, hwt_task *task,
    void *arg, uint64_t delay_ns)
{
	struct fake *fake = &world.fake[world.timeouts++];

	(void)timer;
	(void)delay_ns;
	timeout->id = world.timeouts;
	fake->task = task;
	fake->arg = arg;
	explore_modify(&fake->state, 4);
	fake->state = FAKE_PENDING;
	return 0;
}

int
hwt_cancel(struct hwt *timer, hwt_timeout timeout)
{
	struct fake *fake = &world.fake[timeout.id - 1];

	(void)timer;
	explore_modify(&fake->state, 4);
	if (fake->state == FAKE_RUNNING)
		return -EINPROGRESS;
	if (fake->state == FAKE_OVER)
		return -ENOENT;
	fake->state = FAKE_OVER;
	return 0;
}

static bool
is_not_running(const void *state)
{
	return *(const uint32_t *)state != FAKE_RUNNING;
}

int
hwt_cancel_wait(struct hwt *timer, hwt_timeout timeout)
{
	struct fake *fake = &world.fake[timeout.id - 1];

	(void)timer;
	explore_await(&fake->state, 4, is_not_running, &fake->state);
	if (fake->state == FAKE_OVER)
		return -ENOENT;
	fake->state = FAKE_OVER;
	return 0;
}

int
hwt_reschedule(struct hwt *timer, hwt_timeout timeout, uint64_t delay_ns)
{
	struct fake *fake = &world.fake[timeout.id - 1];

	(void)timer;
	(void)delay_ns;
	explore_modify(&fake->state, 4);
	if (fake->state == FAKE_PENDING)
		return 0;
	return fake->state == FAKE_RUNNING ? -EINPROGRESS : -ENOENT;
}

/* It passes when something is due. */
int
hwt_now(const struct hwt *timer, uint64_t *now_ns)
{
	(void)timer;
	*now_ns = explore_load(&world.now_ns, 8);
	return 0;
}

int
hwt_state(struct hwt *timer, hwt_timeout timeout, void **arg)
{
	(void)timer;
	(void)timeout;
	(void)arg;
	return -ENOENT;
}

static void
fire_one(struct fake *fake)
{
	explore_modify(&fake->state, 4);
	if (fake->state != FAKE_PENDING)
		return;
	fake->state = FAKE_RUNNING;
	explore_store(&world.now_ns, 8, world.now_ns + 1000, EXPLORE_SEQ);
	fake->task((hwt_timeout){1}, fake->arg);
	explore_modify(&fake->state, 4);
	fake->state = FAKE_OVER;
}

/* Time passes: what is pending comes due. */
void
fire(void)
{
	struct fake *fake;

	for (fake = world.fake; fake < world.fake + TIMEOUTS; fake++)
		fire_one(fake);
}

void
fire_last(void)
{
	fire_one(&world.fake[world.timeouts - 1]);
}

bool
timeouts_pend(void)
{
	const struct fake *fake;

	for (fake = world.fake; fake < world.fake + TIMEOUTS; fake++) {
		if (fake->state == FAKE_PENDING)
			return true;
	}
	return false;
}

/* Requests. */

static unsigned
index_of(const struct hwt_object *object)
{
	return (unsigned)(object - world.object);
}

/* The object that it has got for its number i; NULL: it was retired. */
static const struct hwt_object *
got(const struct subject *subject, unsigned i)
{
	return subject->has_items ? subject->item[i].granted : subject->set[i];
}

/* And it is from now on. */
static void
check_paused(void)
{
	unsigned i;

	for (i = 0; i < OBJECTS; i++)
		explore_check(world.holder[i] == NULL && world.readers[i] == 0);
	world.paused = true;
}

static void
take(struct subject *subject)
{
	unsigned i, at;

	explore_check(!world.paused);
	subject->out = 1;
	subject->turn = ++world.turns;
	if (subject->pauses && subject->count == 0) {
		check_paused();
		/* It was declared, too. */
		explore_check(checkout->paused);
	}
	for (i = 0; i < subject->count; i++) {
		at = index_of(got(subject, i));
		explore_check(at < OBJECTS && world.holder[at] == NULL);
		if (subject->item[i].use == HWT_READ) {
			world.readers[at]++;
			continue;
		}
		explore_check(world.readers[at] == 0);
		world.holder[at] = subject;
	}
}

static void
release(unsigned number)
{
	struct subject *subject = &world.subject[number];
	unsigned i;

	subject->out = 0;
	if (subject->pauses && subject->count == 0)
		world.paused = false;
	for (i = 0; i < OBJECTS; i++) {
		if (world.holder[i] == subject)
			world.holder[i] = NULL;
	}
	for (i = 0; i < subject->count; i++) {
		if (subject->item[i].use == HWT_READ)
			world.readers[index_of(got(subject, i))]--;
	}
	explore_check(hwt_checkout_release(checkout, &subject->request) == 0);
	subject->gone = !subject->used;
}

/* It has been granted. */
static void
receive(struct subject *subject)
{
	take(subject);
	if (!subject->keeps)
		release((unsigned)(subject - world.subject));
}

static void
note_granted(struct hwt_request *request, void *arg, enum hwt_grant grant)
{
	struct subject *subject = arg;

	explore_check(request == &subject->request && !subject->gone);
	explore_check(subject->granted + subject->ended == 0);
	if (subject == &world.subject[running->granted])
		script_run(running->in_granted, verbs);
	if (grant != HWT_GRANTED) {
		subject->ended++;
		subject->gone = !subject->used;
		return;
	}
	subject->granted++;
	receive(subject);
}

static void
acquire(unsigned i, uint64_t delay_ns)
{
	struct subject *subject = &world.subject[i];
	int result =
	    hwt_checkout_acquire(checkout, &subject->request, delay_ns);

	explore_check(result == 0 || result == 1 || result == -ESHUTDOWN ||
	    (result == -EALREADY && subject->pauses));
	if (result == 1)
		subject->accepted++;
	if (result == 0)
		receive(subject);
}

static void
acquire_wait(unsigned i, uint64_t delay_ns, int other)
{
	struct subject *subject = &world.subject[i];
	int result =
	    hwt_checkout_acquire_wait(checkout, &subject->request, delay_ns);

	explore_check(result == 0 || result == other);
	if (result == 0)
		receive(subject);
	else
		subject->gone = !subject->used;
}

static void
cancel(unsigned i)
{
	struct subject *subject = &world.subject[i];
	int result;

	/* Whoever cancels knows that the memory is still a request. */
	if (subject->gone)
		return;
	subject->used = true;
	result = hwt_checkout_cancel(checkout, &subject->request);
	subject->used = false;
	explore_check(
	    result == 0 || result == -EINPROGRESS || result == -ENOENT);
}

/* See struct program. */
static void
subject_make(unsigned i, const char *members)
{
	struct subject *subject = &world.subject[i];
	struct hwt_item *item;

	if (*members == '!') {
		subject->pauses = true;
		members++;
	}
	subject->has_items = strcspn(members, "gABC") < strcspn(members, " ");
	for (; *members > ' ' && subject->has_items; members++) {
		item = &subject->item[subject->count++];
		item->use = strchr("ABC", *members) ? HWT_READ : HWT_WRITE;
		item->wanted = *members == 'g'
		    ? &world.group.any
		    : &world.object[(*members - 'a') & 31];
	}
	if (subject->has_items) {
		explore_check(
		    hwt_request_init_items(&subject->request, subject->item,
			subject->count, note_granted, subject) == 0);
		return;
	}
	for (; *members > ' '; members++)
		subject->set[subject->count++] = &world.object[*members - 'a'];
	if (subject->pauses)
		explore_check(
		    hwt_request_init_pause(checkout, &subject->request,
			subject->count > 0 ? subject->set : NULL,
			subject->count, note_granted, subject) == 0);
	else
		explore_check(hwt_request_init(&subject->request, subject->set,
				  subject->count, note_granted, subject) == 0);
}

void
checkout_make(uint32_t hold_after)
{
	struct hwt_checkout_options options;

	memset(&world, 0, sizeof(world));
	sim_reset();
	memset(&options, 0, sizeof(options));
	memset(&queue_of_thread, 0, sizeof(queue_of_thread));
	options.shards = shards;
	options.hold_after = hold_after;
	explore_check(hwt_checkout_create(&checkout,
			  (struct hwt *)&world.timeouts, &options) == 0);
}

static void
world_make(const struct program *program)
{
	const char *members = program->requests;
	unsigned i;

	checkout_make(program->hold_after);
	for (i = 0; i < OBJECTS; i++)
		explore_check(
		    hwt_object_init(checkout, &world.object[i], i) == 0);
	explore_check(hwt_group_init(checkout, &world.group, OBJECTS) == 0);
	for (i = 0; *members != 0; i++) {
		subject_make(i, members);
		members += strcspn(members, " ");
		members += strspn(members, " ");
	}
}

static void
world_end(void)
{
	struct hwt_checkout_stats stats;
	unsigned i;

	for (i = 0; i < REQUESTS; i++) {
		const struct subject *subject = &world.subject[i];

		explore_check(subject->out == 0);
		if (subject->accepted != subject->granted + subject->ended)
			explore_fail("request %u has not ended", i);
	}
	explore_check(hwt_checkout_read_stats(checkout, &stats) == 0);
	explore_check(stats.out == 0 && stats.waiting == 0);
	for (i = 0; i < OBJECTS; i++) {
		if (!world.retired[i])
			explore_check(
			    (*(uint64_t *)&world.object[i] & ~MEMBER) == 0);
	}
	explore_check(
	    checkout->gate.word == 0 || checkout->gate.word == RETIRED);
	explore_check(checkout->busy == 0);
	explore_check(hwt_checkout_destroy(checkout) == 0);
}

/* Verbs. */

static void
never(unsigned i)
{
	acquire(i, HWT_NEVER);
}

static void
soon(unsigned i)
{
	acquire(i, 1);
}

static void
keep(unsigned i)
{
	world.subject[i].keeps = true;
}

static void
hold(unsigned i)
{
	keep(i);
	never(i);
}

static void
try(unsigned i)
{
	struct subject *subject = &world.subject[i];
	int result = hwt_checkout_try(checkout, &subject->request);

	explore_check(result == 0 || result == -EAGAIN ||
	    (result == -EALREADY && subject->pauses));
	if (result == 0)
		receive(subject);
}

#define WAIT(name, delay_ns, other)               \
	static void name(unsigned i)              \
	{                                         \
		acquire_wait(i, delay_ns, other); \
	}
WAIT(wait_never, HWT_NEVER, 0)
WAIT(wait_soon, 1, -ETIMEDOUT)
WAIT(wait_cancelled, HWT_NEVER, -ECANCELED)
WAIT(wait_retired, 1, -EIDRM)
WAIT(wait_shut_down, HWT_NEVER, -ESHUTDOWN)

static void
shut_down(void)
{
	explore_check(hwt_checkout_shutdown(checkout) == 0);
}

static void
refuse_to_destroy(void)
{
	int result = hwt_checkout_destroy(checkout);

	if (result == 0)
		explore_fail("destroyed, and a request waits or is out");
	explore_check(result == -EBUSY);
}

/* Nothing is written: the file is not one of the explorer's. */
static void
dump(void)
{
	static FILE *file;

	if (file == NULL)
		file = fopen("/dev/null", "we");
	explore_check(file != NULL);
	explore_check(hwt_checkout_dump(checkout, file) == 0);
}

/* Threads wait for each other. */

static void
set_flag(unsigned value)
{
	explore_modify(&world.flag, 4);
	world.flag = value;
}

static bool
is_flag(const void *value)
{
	return world.flag >= *(const unsigned *)value;
}

static void
await_flag(unsigned value)
{
	explore_await(&world.flag, 4, is_flag, &value);
}

static bool
somebody_waits(const void *waiting)
{
	return *(const uint64_t *)waiting != 0;
}

static void
await_waiter(void)
{
	explore_await(&checkout->busy, 8, somebody_waits, &checkout->busy);
}

static bool
is_retired(const void *word)
{
	return *(const uint64_t *)word & RETIRED;
}

static void
await_retirement(unsigned object)
{
	const void *word = &world.object[object];

	explore_await(word, 8, is_retired, word);
}

/* Retiring. */

/* Whoever reads it without an atomic operation, which sim_touch does not see,
 * finds no addresses; it stays RETIRED. */
static void
spoil(struct hwt_object *object)
{
	world.retired[index_of(object)] = true;
	world.holder[index_of(object)] = NULL;
	memset(object, 0xff, sizeof(*object));
}

/* What that request holds, and releases then. */
static void
retire(unsigned holder)
{
	struct hwt_object *object = world.subject[holder].set[0];

	explore_check(hwt_object_retire(checkout, object) == 0);
	spoil(object);
	release(holder);
}

static void
try_and_retire(unsigned i)
{
	struct subject *subject = &world.subject[i];

	if (hwt_checkout_try(checkout, &subject->request) != 0)
		return;
	take(subject);
	retire(i);
}

/* The mutex of the user's, under which object a is found. */
static pthread_mutex_t *
users_mutex(void)
{
	return (pthread_mutex_t *)(void *)world.mutex;
}

/* With a deadline, if it is one that may come. */
static void
find_and_wait(unsigned i, uint64_t delay_ns)
{
	struct subject *subject = &world.subject[i];
	int result;

	(void)pthread_mutex_lock(users_mutex());
	if (world.hidden) {
		(void)pthread_mutex_unlock(users_mutex());
		return;
	}
	result = hwt_checkout_acquire_wait_unlock(
	    checkout, &subject->request, delay_ns, users_mutex());
	explore_check(result == 0 || result == -EIDRM ||
	    (result == -ETIMEDOUT && delay_ns != HWT_NEVER));
	if (result == 0)
		receive(subject);
	else
		subject->gone = true;
}

static void
find(unsigned i)
{
	find_and_wait(i, HWT_NEVER);
}

static void
find_soon(unsigned i)
{
	find_and_wait(i, 1);
}

/* No callback is called under it. */
static void
lock_users_mutex(void)
{
	(void)pthread_mutex_lock(users_mutex());
	(void)pthread_mutex_unlock(users_mutex());
}

static void
hide(void)
{
	(void)pthread_mutex_lock(users_mutex());
	world.hidden = true;
	(void)pthread_mutex_unlock(users_mutex());
}

/* Pauses. */

static void
resume(void)
{
	explore_check(hwt_checkout_resume(checkout) == 0);
}

static void
pause_once(void)
{
	explore_check(hwt_checkout_pause(checkout, HWT_NEVER) == 0);
	check_paused();
	explore_modify(&world.flag, 4);
	world.paused = false;
	resume();
}

static void
pause_stays(unsigned delay_ns)
{
	explore_check(hwt_checkout_pause(checkout, delay_ns) == 0);
}

/* It may answer that as well. */
static void
pause_or(uint64_t delay_ns, int other)
{
	int result = hwt_checkout_pause(checkout, delay_ns);

	explore_check(result == 0 || result == -ETIMEDOUT || result == other);
	if (result == 0)
		resume();
}

static void
pause_within(unsigned delay_ns)
{
	pause_or(delay_ns, 0);
}

static void
pause_or_not(void)
{
	pause_or(0, -EALREADY);
}

static void
pause_shut_down(void)
{
	explore_check(hwt_checkout_pause(checkout, HWT_NEVER) == -ESHUTDOWN);
}

/* A pause of another thread, when it has begun. */
static void
resume_other(void)
{
	int result;

	while ((result = hwt_checkout_resume(checkout)) != 0) {
		explore_check(result == -EALREADY || result == -EBUSY);
		explore_yield();
	}
}

static bool
is_in_use(const void *word)
{
	return *(const uint64_t *)word & IN_USE;
}

/* What finds the gate closed is no reason for a pause to fail. */
static void
try_when_closed(unsigned i)
{
	void *gate = &checkout->gate.word;

	explore_await(gate, 8, is_in_use, gate);
	explore_check(
	    hwt_checkout_try(checkout, &world.subject[i].request) == -EAGAIN);
}

/* Groups. */

static void
add_member(unsigned object)
{
	explore_check(
	    hwt_group_add(checkout, &world.group, &world.object[object]) == 0);
}

/* Of the group, which request 0 holds; another one takes its place. */
static void
replace_member(void)
{
	explore_check(hwt_object_retire(checkout, &world.object[0]) == 0);
	explore_check(got(&world.subject[0], 0) == NULL);
	spoil(&world.object[0]);
	add_member(1);
	release(0);
}

/* By the group that is being retired. */
static void
acquire_retired(unsigned i)
{
	struct subject *subject = &world.subject[i];
	int result =
	    hwt_checkout_acquire(checkout, &subject->request, HWT_NEVER);

	explore_check(result == 1 || result == -EIDRM);
	subject->accepted = result == 1;
}

/* Two threads may. */
static void
retire_group(void)
{
	int error = hwt_group_retire(checkout, &world.group);

	explore_check(error == 0 || error == -EIDRM);
	world.groups_retired += error == 0;
}

/* Two groups have slots of their own: each has its member back. */
static void
check_slots(void)
{
	struct hwt_group group[2];
	unsigned i;

	for (i = 0; i < 2; i++)
		explore_check(hwt_group_init(checkout, &group[i], i) == 0);
	explore_check(group[0].private_words[2] != group[1].private_words[2]);
}

/* It may get the slots of the group that was retired. */
static void
make_next_group(void)
{
	unsigned i;

	explore_check(hwt_group_init(checkout, &world.next, OBJECTS) == 0);
	explore_check(
	    hwt_group_add(checkout, &world.next, &world.object[1]) == 0);
	world.next_item.wanted = &world.next.any;
	explore_check(hwt_request_init_items(&world.of_next, &world.next_item,
			  1, NULL, NULL) == 0);
	for (i = 0; i < 2; i++) {
		/* The other thread may have the member for a moment. */
		if (hwt_checkout_try(checkout, &world.of_next) == -EAGAIN)
			continue;
		explore_check(
		    hwt_checkout_release(checkout, &world.of_next) == 0);
	}
}

/* Its member is free, and was granted to no request of the other group. */
static void
check_next_group(void)
{
	explore_check(hwt_checkout_try(checkout, &world.of_next) == 0);
	explore_check(hwt_checkout_release(checkout, &world.of_next) == 0);
}

/* An executor: what it has accepted is run by another thread. */

static int
execute(void *ctx, struct hwt_checkout *of, struct hwt_request *request)
{
	(void)ctx;
	explore_check(of == checkout);
	explore_modify(&world.handed, 4);
	world.request[world.handed++] = request;
	return 0;
}

static int
refuse(void *ctx, struct hwt_checkout *of, struct hwt_request *request)
{
	(void)ctx;
	(void)of;
	(void)request;
	return EAGAIN;
}

static void
executor(void)
{
	checkout->executor.execute = execute;
}

static void
refuser(void)
{
	checkout->executor.execute = refuse;
}

static bool
something_is_handed(const void *count)
{
	return *(const uint32_t *)count > world.run;
}

static void
await_handed(void)
{
	explore_await(&world.handed, 4, something_is_handed, &world.handed);
}

static void
run(void)
{
	await_handed();
	explore_check(
	    hwt_request_run(checkout, world.request[world.run++]) == 0);
}

/* Ends. */

/* Each was granted after those before it, if it was. */
static void
check_order(void)
{
	unsigned i;

	for (i = 1; i < 4; i++)
		explore_check(world.subject[i].turn == 0 ||
		    world.subject[i].turn > world.subject[i - 1].turn);
}

/* It was the next one that got its objects. */
static void
check_second(unsigned i)
{
	explore_check(world.subject[i].turn == 2);
}

/* Request 0 reads, and holds until all others have ended: who waits could
 * share with it. */
static void
check_shared(void)
{
	unsigned i;

	for (i = 1; i < REQUESTS; i++) {
		if (world.subject[i].accepted >
		    world.subject[i].granted + world.subject[i].ended)
			explore_fail("request %u waits, and may read", i);
	}
}

/* It is not the first that waits for b, which others read. */
static void
check_not_first(unsigned i)
{
	const struct object *b = (struct object *)&world.object[1];

	if (b->first == (struct request *)&world.subject[i].request)
		explore_fail("request %u waits, and may read", i);
}

#define GRANTS_BEFORE UINT64_C(0xffffffff)

/* As if each shard had had so many grants that all were released. */
static void
many_grants(void)
{
	checkout->shards[0].in_flight = GRANTS_BEFORE << 32;
}

static void
check_two_more(void)
{
	struct hwt_checkout_stats stats;

	explore_check(hwt_checkout_read_stats(checkout, &stats) == 0);
	explore_check(stats.granted == GRANTS_BEFORE + 2);
}

static const struct verb verbs[] = {
    {"acquire", .of = never},
    {"soon", .of = soon}, /* acquire with a deadline */
    {"keep", .of = keep}, /* it will not be released in granted */
    {"hold", .of = hold}, /* keep, and acquire */
    {"try", .of = try},
    {"release", .of = release},
    {"cancel", .of = cancel},
    {"wait", .of = wait_never},
    {"wait-soon", .of = wait_soon}, /* or what else it may come to: */
    {"wait-cancelled", .of = wait_cancelled},
    {"wait-retired", .of = wait_retired},
    {"wait-shutdown", .of = wait_shut_down},
    {"find", .of = find}, /* under the mutex, and wait */
    {"find-soon", .of = find_soon},
    {"hide", .alone = hide},
    {"lock", .alone = lock_users_mutex},
    {"retire", .of = retire},
    {"try-and-retire", .of = try_and_retire},
    {"fire", .alone = fire}, /* what is pending comes due */
    {"flag", .of = set_flag},
    {"await-flag", .of = await_flag},
    {"await-waiter", .alone = await_waiter},
    {"await-retired", .of = await_retirement},
    {"shutdown", .alone = shut_down},
    {"refuse-destroy", .alone = refuse_to_destroy},
    {"dump", .alone = dump},
    {"pause", .alone = pause_once}, /* and resume */
    {"pause-within", .of = pause_within},
    {"pause-or-not", .alone = pause_or_not},
    {"pause-stays", .of = pause_stays},
    {"pause-shutdown", .alone = pause_shut_down},
    {"resume", .alone = resume},
    {"resume-other", .alone = resume_other},
    {"try-closed", .of = try_when_closed},
    {"member", .of = add_member}, /* of the group, from now on */
    {"replace-member", .alone = replace_member},
    {"acquire-retired", .of = acquire_retired},
    {"retire-group", .alone = retire_group},
    {"next-group", .alone = make_next_group},
    {"check-next-group", .alone = check_next_group},
    {"check-slots", .alone = check_slots},
    {"executor", .alone = executor},
    {"refuser", .alone = refuser},
    {"await-handed", .alone = await_handed},
    {"run", .alone = run}, /* what the executor has accepted */
    {"check-order", .alone = check_order},
    {"check-second", .of = check_second},
    {"check-shared", .alone = check_shared},
    {"check-not-first", .of = check_not_first},
    {"many-grants", .alone = many_grants},
    {"check-two-more", .alone = check_two_more},
    {0},
};

static const struct program programs[] = {
    {"acquire/two", "ab ab", .run = "acquire 0 | acquire 1"},
    {"acquire/ring", "ab bc ac", .run = "acquire 0 | acquire 1 | acquire 2"},
    {"acquire/crossed", "abc ac", .run = "acquire 0 | acquire 1"},
    {"acquire/four", "ab bc a c",
	.run = "acquire 0 | acquire 1 | acquire 2 | acquire 3"},
    {"acquire/try", "ab bc ac", .run = "acquire 0 | try 1 | acquire 2"},
    {"release/waiters", "a ab a", .begin = "hold 0, acquire 1, acquire 2",
	.run = "release 0 | cancel 1 | fire"},
    {"release/three-wait", "a ab ab a",
	.begin = "hold 0, acquire 1, acquire 2, acquire 3",
	.run = "release 0 | cancel 1"},
    {"baton/refused-before", "b ab a",
	.run = "acquire 0 | acquire 1 | acquire 2"},
    {"baton/refused-behind", "a ab b",
	.run = "acquire 0 | acquire 1 | acquire 2"},
    {"baton/cancel", "a ab a", .begin = "hold 0, acquire 1, acquire 2",
	.run = "release 0 | cancel 1"},
    {"baton/expire", "a ab a", .begin = "hold 0, soon 1, soon 2",
	.run = "release 0 | fire"},
    {"baton/pair", "ab b ab a", .begin = "hold 0, acquire 1, acquire 2",
	.run = "release 0 | acquire 3 | cancel 1"},
    {"deadline/release", "a a", .begin = "hold 0, soon 1",
	.run = "release 0 | fire"},
    {"deadline/acquire", "a a a", .run = "soon 0 | soon 1 | fire"},
    {"deadline/ring", "ab bc ac", .run = "soon 0 | soon 1 | soon 2 | fire"},
    {"deadline/cancel", "a a", .begin = "hold 0, soon 1",
	.run = "release 0 | fire | cancel 1"},
    {"cancel/acquire", "a a a",
	.run = "acquire 0 | soon 1, cancel 1 | acquire 2"},
    {"cancel/try", "a a a", .run = "cancel 0 | soon 0 | try 1 | fire"},
    {"retire/waiters", "a ab a b", .begin = "hold 0, acquire 1, acquire 2",
	.run = "retire 0 | cancel 1"},
    {"retire/acquire", "a ab a b", .begin = "hold 0, acquire 1, acquire 2",
	.run = "retire 0 | acquire 3"},
    {"retire/expire", "a ab a", .begin = "hold 0, soon 1, soon 2",
	.run = "retire 0 | fire"},
    {"retire/shutdown", "a ab a b", .begin = "hold 0, acquire 1, acquire 2",
	.run = "retire 0 | shutdown"},
    {"retire/woken", "a b ab b", .begin = "hold 1, acquire 2, hold 0",
	.run = "retire 0 | release 1"},
    {"retire/woken-behind", "a b ab b", .begin = "hold 1, acquire 2, hold 0",
	.run = "retire 0 | release 1 | acquire 3"},
    {"retire/baton", "a a ab ab", .begin = "hold 1, acquire 2",
	.run = "try-and-retire 0 | release 1"},
    /* Request 2 waits for b, which request 1 has. In granted of request 5 it
     * is woken, and it is tried after that has returned, when b is being
     * retired. Then it waits for a, which request 3 has, and is woken again. */
    {"retire/woken-again", "b b ab a a a",
	.begin = "hold 1, acquire 2, hold 3, acquire 5",
	.run = "cancel 5, acquire 4, flag 2 | await-flag 1, try-and-retire 0 | "
	       "await-flag 2, release 3",
	.granted = 5, .in_granted = "release 1, flag 1, await-retired 1"},
    {"dump/release", "a ab a", .begin = "hold 0, soon 1, soon 2",
	.run = "dump | release 0 | fire"},
    {"dump/cancel", "a ab a", .begin = "hold 0, acquire 1, acquire 2",
	.run = "dump | release 0 | cancel 1"},
    {"dump/retire", "a ab a b", .begin = "hold 0, acquire 1, acquire 2",
	.run = "dump | retire 0"},
    {"dump/retire-woken", "a b ab b", .begin = "hold 1, acquire 2, hold 0",
	.run = "dump | retire 0 | release 1"},
    {"dump/shutdown", "a ab a", .begin = "hold 0, acquire 1, acquire 2",
	.run = "dump | release 0 | shutdown"},
    {"dump/dump", "a ab a", .begin = "hold 0, acquire 1, acquire 2",
	.run = "dump | dump | release 0"},
    {"pause/acquire", "ab ab", .run = "acquire 0 | acquire 1 | pause"},
    {"pause/release", "a ab a", .begin = "hold 0, acquire 1, acquire 2",
	.run = "release 0 | pause"},
    {"pause/ring", "ab bc ac",
	.run = "acquire 0 | acquire 1 | acquire 2 | pause"},
    {"pause/expire", "a a", .begin = "hold 0, soon 1",
	.run = "release 0 | pause-within 1 | fire"},
    {"pause/at-once", "ab ab", .run = "acquire 0 | acquire 1 | pause-within 0"},
    {"pause/try", "ab ab", .run = "pause-stays 0 | try-closed 0",
	.end = "resume"},
    /* Another thread may end a pause before the call of the one that paused
     * has ended, and its timeout. The next pause has none. */
    {"pause/late-timeout", "a", .begin = "keep 0",
	.run = "pause-stays 1 | resume-other, acquire 0, flag 1, pause | fire, "
	       "await-flag 1, release 0"},
    {"pause/cancel", "a a a", .run = "soon 0 | pause | cancel 0"},
    {"shutdown/acquire", "ab ab", .run = "acquire 0 | soon 1 | shutdown"},
    {"shutdown/release", "a ab a", .begin = "hold 0, soon 1, soon 2",
	.run = "release 0 | shutdown | fire"},
    {"shutdown/pause", "a a a", .begin = "hold 0",
	.run = "pause-shutdown, release 0 | shutdown"},
    {"counts/carry", "ab ab", .begin = "many-grants",
	.run = "acquire 0 | acquire 1", .end = "check-two-more"},
    /* Request 1 expires, which releases what request 2 waits for and keeps. */
    {"destroy/granted", "a a a", .begin = "hold 0, soon 1, hold 2",
	.run = "fire | await-flag 1, refuse-destroy", .end = "release 2",
	.granted = 1, .in_granted = "release 0, flag 1"},
    {"wait/two", "a a a", .run = "wait 0 | wait-soon 1 | fire"},
    {"wait/cross", "ab ab", .run = "wait 0 | acquire 1"},
    {"wait/woken", "a a a", .begin = "hold 0",
	.run = "release 0 | wait-cancelled 1 | wait 2"},
    {"wait/overtaken", "a a a", .begin = "hold 0",
	.run = "release 0 | wait-cancelled 1 | acquire 2"},
    {"wait/cancel", "a a a", .begin = "hold 0",
	.run = "release 0 | wait-cancelled 1 | cancel 1"},
    {"wait/expire", "a a a", .begin = "hold 0",
	.run = "release 0 | wait-soon 1 | fire"},
    {"wait/baton", "a ab b", .begin = "hold 0",
	.run = "release 0 | wait-cancelled 1 | wait 2 | cancel 1"},
    {"wait/pause", "a a a", .begin = "hold 0",
	.run = "release 0 | wait-cancelled 1 | pause"},
    {"wait/retire", "a a a", .begin = "hold 0",
	.run = "await-waiter, retire 0 | wait-retired 1"},
    {"wait/found", "a a a", .begin = "keep 0",
	.run = "hide, wait 0, retire 0 | find 1"},
    {"wait/found-in-time", "a a a", .begin = "keep 0",
	.run = "hide, wait 0, retire 0 | find-soon 1 | fire"},
    {"wait/found-pair", "a ab a b", .begin = "keep 0",
	.run = "hide, wait 0, retire 0 | find 1 | find 2"},
    {"wait/found-granted", "b ab a", .begin = "hold 0",
	.run = "release 0 | find 1 | acquire 2", .granted = 2,
	.in_granted = "lock"},
    {"wait/found-behind", "a ab a b", .begin = "keep 0",
	.run = "hide, wait 0, retire 0 | find 1 | acquire 3"},
    {"wait/shutdown", "a a a", .begin = "hold 0",
	.run = "release 0 | wait-shutdown 1 | shutdown"},
    {"hold/two", "ab b a", .run = "acquire 0 | acquire 1 | acquire 2",
	.hold_after = 1},
    {"hold/ring", "ab bc ac", .run = "acquire 0 | acquire 1 | acquire 2",
	.hold_after = 1},
    {"hold/expire", "ab b a", .run = "soon 0 | acquire 1 | fire",
	.hold_after = 1},
    {"hold/pause", "ab b a", .run = "acquire 0 | acquire 1 | pause",
	.hold_after = 1},
    {"hold/shutdown", "ab bc ac", .run = "acquire 0 | acquire 1 | shutdown",
	.hold_after = 1},
    {"order/newcomer", "a a a a", .begin = "hold 0, acquire 1, acquire 2",
	.run = "release 0 | acquire 3", .end = "check-order", .hold_after = 1},
    {"order/cancel", "a a a a", .begin = "hold 0, acquire 1, acquire 2",
	.run = "release 0 | cancel 1 | acquire 3", .end = "check-order",
	.hold_after = 1},
    {"order/expire", "a a a a", .begin = "hold 0, soon 1, soon 2",
	.run = "release 0 | fire | acquire 3", .end = "check-order",
	.hold_after = 1},
    /* A pause may change the order of those that it delays: not checked. */
    {"order/pause", "a a a a", .begin = "hold 0, acquire 1, acquire 2",
	.run = "release 0 | pause", .hold_after = 1},
    {"order/wait", "a a a", .begin = "hold 0, acquire 1",
	.run = "release 0 | wait 2", .end = "check-order", .hold_after = 1},
    {"order/set", "b bc ab a", .begin = "hold 0, acquire 1, acquire 2",
	.run = "release 0 | acquire 3 | cancel 1", .end = "check-order",
	.hold_after = 1},
    {"order/group", "g g g g",
	.begin = "member 0, hold 0, acquire 1, acquire 2",
	.run = "release 0 | acquire 3", .end = "check-order", .hold_after = 1},
    {"order/group-cancel", "g g g g",
	.begin = "member 0, hold 0, acquire 1, acquire 2",
	.run = "release 0 | cancel 1 | acquire 3", .end = "check-order",
	.hold_after = 1},
    {"order/group-expire", "g g g g",
	.begin = "member 0, hold 0, soon 1, soon 2",
	.run = "release 0 | fire | acquire 3", .end = "check-order",
	.hold_after = 1},
    {"order/group-pause", "g g g g",
	.begin = "member 0, hold 0, acquire 1, acquire 2",
	.run = "release 0 | pause", .hold_after = 1},
    {"order/group-set", "g gb g gb",
	.begin = "member 0, hold 0, acquire 1, acquire 2",
	.run = "release 0 | acquire 3", .end = "check-order", .hold_after = 1},
    /* Request 1 is the first that waits, and not served in order yet; request
     * 2 is, and keeps another object. */
    {"order/hand-on", "c c bc c b",
	.begin = "hold 0, hold 4, acquire 2, acquire 1, release 4",
	.run = "release 0 | cancel 1 | acquire 3", .hold_after = 2},
    {"order/hand-on-pause", "c c bc c b",
	.begin = "hold 0, hold 4, acquire 2, acquire 1, release 4",
	.run = "release 0 | cancel 1 | pause", .hold_after = 2},
    {"order/hand-on-group", "g g bg g b",
	.begin = "member 0, hold 0, hold 4, acquire 2, acquire 1, release 4",
	.run = "release 0 | cancel 1 | acquire 3", .hold_after = 2},
    {"order/hand-on-group-pause", "g g bg g b",
	.begin = "member 0, hold 0, hold 4, acquire 2, acquire 1, release 4",
	.run = "release 0 | cancel 1 | pause", .hold_after = 2},
    {"group/one", "g g g", .begin = "member 0",
	.run = "acquire 0 | acquire 1 | acquire 2"},
    {"group/two", "g g g", .begin = "member 0, member 1",
	.run = "acquire 0 | acquire 1 | acquire 2"},
    {"group/set", "gc g gc", .begin = "member 0",
	.run = "acquire 0 | acquire 1 | acquire 2"},
    {"group/set-in-order", "gc g gc", .begin = "member 0",
	.run = "acquire 0 | acquire 1 | acquire 2", .hold_after = 1},
    {"group/expire", "g g g", .begin = "member 0",
	.run = "soon 0 | soon 1 | fire"},
    {"group/wait", "g g g", .begin = "member 0",
	.run = "wait 0 | wait 2 | acquire 1"},
    {"group/pause", "g g g", .begin = "member 0, member 1",
	.run = "acquire 0 | acquire 1 | pause"},
    {"group/add", "g g", .run = "acquire 0 | acquire 1 | member 1",
	.hold_after = 1},
    {"group/add-pause", "g g", .run = "acquire 0 | member 1 | pause",
	.hold_after = 1},
    {"group/replace", "g g g", .begin = "member 0, hold 0, acquire 1",
	.run = "replace-member | acquire 2", .hold_after = 1},
    {"group/replace-cancel", "g g g", .begin = "member 0, hold 0, acquire 1",
	.run = "replace-member | cancel 1", .hold_after = 1},
    {"read/two", "A A a", .run = "acquire 0 | acquire 1 | acquire 2"},
    {"read/sets", "Ab aB AB", .run = "acquire 0 | acquire 1 | acquire 2"},
    {"read/sets-in-order", "Ab aB AB",
	.run = "acquire 0 | acquire 1 | acquire 2", .hold_after = 1},
    {"read/ring", "Ab Bc aC", .run = "acquire 0 | acquire 1 | acquire 2",
	.hold_after = 1},
    {"read/last", "A A a A", .begin = "hold 0, hold 1, acquire 2",
	.run = "release 0 | release 1 | acquire 3"},
    {"read/last-in-order", "A A a A", .begin = "hold 0, hold 1, acquire 2",
	.run = "release 0 | release 1 | acquire 3", .hold_after = 1},
    {"read/share-cancel", "A a A A", .begin = "hold 0, soon 1, acquire 2",
	.run = "cancel 1 | acquire 3", .end = "check-shared, release 0"},
    {"read/share-expire", "A a A A", .begin = "hold 0, soon 1, acquire 2",
	.run = "fire | acquire 3 | cancel 1", .end = "check-shared, release 0"},
    {"read/share-in-order", "A a A A", .begin = "hold 0, soon 1, acquire 2",
	.run = "cancel 1 | acquire 3", .end = "check-shared, release 0",
	.hold_after = 1},
    {"read/share-two", "A a AB A bC",
	.begin = "hold 0, soon 1, acquire 2, acquire 3",
	.run = "cancel 1 | acquire 4", .end = "check-shared, release 0"},
    {"read/share-two-in-order", "A a AB A bC",
	.begin = "hold 0, soon 1, acquire 2, acquire 3",
	.run = "fire | cancel 1 | acquire 4", .end = "check-shared, release 0",
	.hold_after = 1},
    {"read/mixed", "a A a A A", .begin = "hold 0, soon 1, acquire 2, acquire 3",
	.run = "release 0 | cancel 1 | acquire 4"},
    {"read/mixed-in-order", "a A a A A",
	.begin = "hold 0, soon 1, acquire 2, acquire 3",
	.run = "release 0 | cancel 1 | acquire 4", .hold_after = 1},
    {"read/held", "a A A Ab ab",
	.begin = "hold 0, soon 1, acquire 2, acquire 3",
	.run = "release 0 | fire | acquire 4"},
    {"read/held-in-order", "a A A Ab ab",
	.begin = "hold 0, soon 1, acquire 2, acquire 3",
	.run = "release 0 | fire | acquire 4", .hold_after = 1},
    {"read/retire", "a A A Ab ab",
	.begin = "hold 0, soon 1, acquire 2, acquire 3",
	.run = "retire 0 | cancel 1"},
    {"read/shutdown", "a A A Ab ab",
	.begin = "hold 0, soon 1, acquire 2, acquire 3",
	.run = "release 0 | shutdown"},
    {"read/pause", "A A a", .run = "acquire 0 | acquire 2 | pause"},
    {"read/pause-held", "a A A Ab ab",
	.begin = "hold 0, soon 1, acquire 2, acquire 3",
	.run = "release 0 | pause"},
    {"read/wait", "A a A", .begin = "hold 0",
	.run = "release 0 | wait-cancelled 1 | wait 2 | cancel 1"},
    {"read/wait-joins", "a A A", .begin = "hold 0",
	.run = "release 0 | acquire 1 | wait 2"},
    /* Of two readers that share a one releases it, while the writer between
     * them and a third one gives up. */
    {"read/share-leave", "A a A A",
	.begin = "hold 0, hold 3, acquire 1, acquire 2",
	.run = "release 3 | cancel 1", .end = "check-shared, release 0"},
    /* Request 1 is woken for b; if request 0 is quicker, it keeps a, and waits
     * for b again, as the first: but a pause that has begun makes it leave. */
    {"read/pause-leaves", "B ab B b",
	.begin = "keep 0, hold 3, acquire 1, acquire 2",
	.run = "release 3 | acquire 0, pause-within 0",
	.end = "check-not-first 2, release 0", .hold_after = 2},
    {"read/group", "Bg bg B", .begin = "member 0",
	.run = "acquire 0 | acquire 1 | acquire 2"},
    {"read/group-in-order", "Bg bg B", .begin = "member 0",
	.run = "acquire 0 | acquire 1 | acquire 2", .hold_after = 1},
    {"pause/told", "ab ab !", .run = "acquire 0 | acquire 1 | acquire 2"},
    {"pause/told-try", "! ! a", .run = "acquire 0 | try 1 | acquire 2"},
    {"pause/told-two", "! ! a", .run = "acquire 0 | acquire 1 | acquire 2"},
    {"pause/told-waited", "a ab a ! !", .begin = "hold 0, acquire 1, acquire 2",
	.run = "release 0 | acquire 3"},
    /* The pause waits for request 0. Request 1 waits for a member of the
     * group, in order: it is counted when it is handed one, and meets the
     * gate. */
    {"pause/told-declared", "a g !", .begin = "hold 0, acquire 1, acquire 2",
	.run = "release 0 | member 1", .hold_after = 1},
    {"pause/told-and-pause", "a ab a ! !",
	.begin = "hold 0, acquire 1, acquire 2",
	.run = "release 0 | acquire 3 | pause-or-not"},
    {"pause/told-cancel", "a ! a", .begin = "hold 0",
	.run = "release 0 | soon 1, cancel 1 | acquire 2"},
    {"pause/told-expire", "a ! a", .begin = "hold 0, soon 1",
	.run = "release 0 | fire | acquire 2"},
    {"pause/told-shutdown", "a ! a", .begin = "hold 0, soon 1",
	.run = "release 0 | shutdown | fire"},
    {"pause/told-wait", "a ! a", .begin = "hold 0",
	.run = "release 0 | wait-cancelled 1 | cancel 1"},
    {"pause/told-ring", "ab bc ac !",
	.run = "acquire 0 | acquire 1 | acquire 2 | acquire 3",
	.hold_after = 1},
    {"pause/told-set", "a a !a ab", .begin = "hold 0, acquire 1, acquire 2",
	.run = "release 0 | acquire 3", .end = "check-second 2"},
    {"pause/told-readers", "A a !a A", .begin = "hold 0, acquire 1, acquire 2",
	.run = "release 0 | acquire 3", .end = "check-second 2"},
    {"pause/keep", "ag a !", .run = "acquire 0 | pause", .end = "cancel 0",
	.hold_after = 1},
    {"pause/keep-told", "ag a !", .run = "acquire 0 | acquire 1 | acquire 2",
	.end = "cancel 0", .hold_after = 1},
    {"pause/keep-cancel", "ag a !", .run = "acquire 0 | pause | cancel 0",
	.end = "cancel 0", .hold_after = 1},
    {"pause/keep-add", "ag a !", .run = "acquire 0 | pause | member 1",
	.end = "cancel 0", .hold_after = 1},
    {"pause/keep-ring", "ab bc ac",
	.run = "acquire 0 | acquire 1 | acquire 2 | pause", .hold_after = 1},
    {"executor/release", "a a ab",
	.begin = "executor, hold 0, soon 1, acquire 2",
	.run = "release 0 | run, run"},
    {"executor/expire", "a a ab",
	.begin = "executor, hold 0, soon 1, acquire 2",
	.run = "release 0 | fire | run, run"},
    {"executor/cancel", "a a ab",
	.begin = "executor, hold 0, soon 1, acquire 2",
	.run = "release 0 | cancel 1 | run, run"},
    {"executor/destroy", "a a", .begin = "executor, hold 0, soon 1",
	.run = "release 0 | await-handed, refuse-destroy | fire", .end = "run"},
    {"executor/refuse", "a a ab", .begin = "refuser, hold 0, soon 1, acquire 2",
	.run = "release 0 | fire"},
    {"group/retire", "g g", .run = "acquire-retired 0 | retire-group",
	.hold_after = 1},
    {"group/retire-retire", "g g", .run = "retire-group | retire-group",
	.end = "check-slots", .hold_after = 1},
    {"group/retire-make", "g g",
	.run = "acquire-retired 0 | retire-group, next-group",
	.end = "check-next-group", .hold_after = 1},
};

/* The running program. */
static const struct family *family;

static void
begin(void)
{
	family->make(running);
	script_run(running->begin, family->verbs);
}

#define THREAD(i)                                                        \
	static void thread_##i(void)                                     \
	{                                                                \
		script_run(script_part(running->run, i), family->verbs); \
	}
THREAD(0)
THREAD(1)
THREAD(2)
THREAD(3)

static void
end(void)
{
	script_run(running->end, family->verbs);
	family->check();
}

static uint64_t
run_search(const struct explore_program *program,
    const struct explore_limits *limits, const char *kind, bool *complete)
{
	struct explore_result result;

	explore_run(program, limits, &result);
	*complete = result.complete;
	if (result.failed) {
		(void)fprintf(stderr, "%s: %s: %s\nschedule: %s\n",
		    program->name, kind, result.message, result.schedule);
		exit(1);
	}
	return result.schedules;
}

/* Whether it runs with many shards, too. */
static bool
is_sharded(const char *name)
{
	static const char *const families[] = {"baton/", "cancel/", "retire/",
	    "pause/", "hold/", "order/", "group/", "read/"};
	size_t i;

	for (i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
		if (strncmp(name, families[i], strlen(families[i])) == 0)
			return true;
	}
	return false;
}

static void
run_program(const char *name, uint64_t schedules_max, const char *replay)
{
	static void (*const threads[])(void) = {
	    thread_0, thread_1, thread_2, thread_3};
	struct explore_program explored = {
	    .name = name, .begin = begin, .end = end};
	struct explore_limits limits = {.search = EXPLORE_REDUCED,
	    .memory = EXPLORE_SC,
	    .schedules_max = schedules_max,
	    .replay = replay,
	    .trace = replay != NULL,
	    .seed = 20240229,
	    .preemptions = 2,
	    .depth = 4};
	uint64_t schedules;
	bool complete;
	unsigned i;

	for (i = 0; script_part(running->run, i) != NULL; i++)
		explored.thread[i] = threads[i];
	schedules = run_search(&explored, &limits, "all", &complete);
	if (!complete) {
		limits.search = EXPLORE_BOUNDED;
		schedules +=
		    run_search(&explored, &limits, "bounded", &complete);
		limits.search = EXPLORE_RANDOM;
		limits.memory = EXPLORE_TSO;
		limits.schedules_max = schedules_max / 4 + 1;
		schedules +=
		    run_search(&explored, &limits, "random", &(bool){false});
		printf("%-24s %8llu, %s\n", name, (unsigned long long)schedules,
		    complete ? "all with two preemptions" : "a part");
		return;
	}
	printf("%-24s %8llu, all\n", name, (unsigned long long)schedules);
}

static unsigned
run_family(const struct family *of, uint64_t schedules, const char *name,
    const char *replay)
{
	unsigned ran = 0;
	char full[64];
	size_t i;

	family = of;
	for (i = 0; i < of->count; i++) {
		running = &of->programs[i];
		for (shards = 1; shards <= 16; shards += 15) {
			(void)snprintf(full, sizeof(full), "%s%s",
			    running->name, shards > 1 ? "/16" : "");
			if (strstr(full, name) == NULL ||
			    (shards > 1 && !is_sharded(full)))
				continue;
			run_program(full, schedules, replay);
			ran++;
		}
	}
	return ran;
}

int
main(int argc, char **argv)
{
	static const struct family checkout_family = {programs,
	    sizeof(programs) / sizeof(programs[0]), verbs, world_make,
	    world_end};
	uint64_t schedules = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000;
	const char *name = argc > 2 ? argv[2] : "";
	const char *replay = argc > 3 ? argv[3] : NULL;
	unsigned ran;

	explore_add_local(&queue_of_thread, sizeof(queue_of_thread));
	sim_watch = watch_memory;
	ran = run_family(&checkout_family, schedules, name, replay);
	ran += run_family(&store_family, schedules, name, replay);
	return ran == 0;
}
