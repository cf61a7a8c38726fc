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
#define ARENA 16384
#define BLOCKS 32

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
	bool keeps; /* granted does not release */
	void (*in_granted)(void); /* what it does first */
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
	uint32_t flag;
	bool paused;
	size_t used;
	struct {
		char *at;
		size_t bytes;
		bool freed;
	} block[BLOCKS];
	unsigned blocks;
	uint64_t mutex[(sizeof(pthread_mutex_t) + 7) / 8];
	bool hidden; /* under it: object a is not found any more */
	void (*ending)(void); /* what is done before the last checks */
} world;
struct hwt_checkout *checkout;
uint32_t shards; /* of the checkouts that are made */
static _Alignas(64) char arena[ARENA];

/* The system. */

int
model_forget(void *memory, size_t bytes)
{
	memset(memory, 0, bytes);
	return 0;
}

void *
model_alloc(size_t bytes)
{
	char *memory = arena + world.used;

	world.used += (bytes + 63) / 64 * 64;
	explore_check(world.used <= ARENA && world.blocks < BLOCKS);
	world.block[world.blocks].at = memory;
	world.block[world.blocks].bytes = bytes;
	world.blocks++;
	return memset(memory, 0, bytes);
}

/* What it had is no valid state of anything. A point at each line, so that
 * orders are tried in which others come to it later. */
void
model_free(void *memory)
{
	size_t at;
	unsigned i;

	for (i = 0; i < world.blocks; i++) {
		if (world.block[i].at != memory)
			continue;
		explore_check(!world.block[i].freed);
		for (at = 0; at + 8 <= world.block[i].bytes; at += 64)
			explore_modify((char *)memory + at, 8);
		world.block[i].freed = true;
		memset(memory, 0xa5, world.block[i].bytes);
	}
}

static bool
is_zero(const void *word)
{
	return *(const uint32_t *)word == 0;
}

int
model_lock(pthread_mutex_t *mutex)
{
	explore_await(mutex, 4, is_zero, mutex);
	*(uint32_t *)mutex = 1;
	return 0;
}

int
model_unlock(pthread_mutex_t *mutex)
{
	explore_modify(mutex, 4);
	*(uint32_t *)mutex = 0;
	return 0;
}

struct seen {
	const uint32_t *word;
	uint32_t value;
};

static bool
has_changed(const void *context)
{
	const struct seen *seen = context;

	return *seen->word != seen->value;
}

int
model_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	struct seen seen = {(uint32_t *)cond, *(uint32_t *)cond};

	(void)model_unlock(mutex);
	explore_await(cond, 4, has_changed, &seen);
	return model_lock(mutex);
}

int
model_signal(pthread_cond_t *cond)
{
	explore_modify(cond, 4);
	++*(uint32_t *)cond;
	return 0;
}

static bool
lies_in(const void *at, const void *memory, size_t bytes)
{
	return (uintptr_t)at - (uintptr_t)memory < bytes;
}

void
model_touch(const void *at)
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
	for (i = 0; i < world.blocks; i++) {
		if (world.block[i].freed &&
		    lies_in(at, world.block[i].at, world.block[i].bytes))
			explore_fail("block %u is used after its end", i);
	}
}

void
model_begin_change(const void *at)
{
	(void)at;
}

void
model_change(const void *at)
{
	(void)at;
}

void
model_commit(const void *record)
{
	(void)record;
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
release(struct subject *subject)
{
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

static void
note_granted(struct hwt_request *request, void *arg, enum hwt_grant grant)
{
	struct subject *subject = arg;

	explore_check(request == &subject->request && !subject->gone);
	explore_check(subject->granted + subject->ended == 0);
	if (subject->in_granted != NULL)
		subject->in_granted();
	if (grant != HWT_GRANTED) {
		subject->ended++;
		subject->gone = !subject->used;
		return;
	}
	subject->granted++;
	take(subject);
	if (!subject->keeps)
		release(subject);
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
	if (result != 0)
		return;
	take(subject);
	if (!subject->keeps)
		release(subject);
}

static void
acquire_wait(unsigned i, uint64_t delay_ns, int other)
{
	struct subject *subject = &world.subject[i];
	int result =
	    hwt_checkout_acquire_wait(checkout, &subject->request, delay_ns);

	explore_check(result == 0 || result == other);
	if (result == 0) {
		take(subject);
		release(subject);
	} else {
		subject->gone = !subject->used;
	}
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

/* members: "ag" is a set of the first object and any of the group; "A" of the
 * first object for reading. "!a" pauses the first object, "!" all. */
static void
subject_make(unsigned i, const char *members)
{
	struct subject *subject = &world.subject[i];
	struct hwt_item *item;

	if (*members == '!') {
		subject->pauses = true;
		members++;
	}
	subject->has_items = strpbrk(members, "gABC") != NULL;
	for (; *members != 0 && subject->has_items; members++) {
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
	for (; *members != 0; members++)
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
	memset(&options, 0, sizeof(options));
	memset(&queue_of_thread, 0, sizeof(queue_of_thread));
	options.shards = shards;
	options.hold_after = hold_after;
	explore_check(hwt_checkout_create(&checkout,
			  (struct hwt *)&world.timeouts, &options) == 0);
}

static void
world_make(const char *const *members, uint32_t hold_after)
{
	unsigned i;

	checkout_make(hold_after);
	for (i = 0; i < OBJECTS; i++)
		explore_check(
		    hwt_object_init(checkout, &world.object[i], i) == 0);
	explore_check(hwt_group_init(checkout, &world.group, OBJECTS) == 0);
	for (i = 0; members[i] != NULL; i++)
		subject_make(i, members[i]);
}

static void
world_end(void)
{
	struct hwt_checkout_stats stats;
	unsigned i;

	if (world.ending != NULL)
		world.ending();
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

/* The programs. Request i is acquired by thread i, if nothing else is said. */

#define BEGIN(name, hold_after, ...)                                   \
	static void begin_##name(void)                                 \
	{                                                              \
		static const char *const sets[] = {__VA_ARGS__, NULL}; \
		world_make(sets, hold_after);                          \
	}
#define NEVER(i)                       \
	static void never_##i(void)    \
	{                              \
		acquire(i, HWT_NEVER); \
	}
#define SOON(i)                    \
	static void soon_##i(void) \
	{                          \
		acquire(i, 1);     \
	}
NEVER(0)
NEVER(1)
NEVER(2)
NEVER(3)
NEVER(4)
SOON(0)
SOON(1)
SOON(2)

BEGIN(two, 0, "ab", "ab")
BEGIN(ring, 0, "ab", "bc", "ac")
BEGIN(crossed, 0, "abc", "ac")
BEGIN(four, 0, "ab", "bc", "a", "c")
BEGIN(baton, 0, "b", "ab", "a")
BEGIN(baton_late, 0, "a", "ab", "b")
BEGIN(same, 0, "a", "a", "a")
BEGIN(hold, 1, "ab", "b", "a")
BEGIN(found_pair, 0, "a", "ab", "a", "b")
BEGIN(hold_ring, 1, "ab", "bc", "ac")

/* Request 0 has its objects, the others may wait already. */
static void
begin_held(const char *const *sets, unsigned waiting, uint64_t delay_ns)
{
	unsigned i;

	world_make(sets, 0);
	world.subject[0].keeps = true;
	acquire(0, HWT_NEVER);
	for (i = 1; i <= waiting; i++)
		acquire(i, delay_ns);
}
#define HELD(name, waiting, delay, ...)                                \
	static void begin_##name(void)                                 \
	{                                                              \
		static const char *const sets[] = {__VA_ARGS__, NULL}; \
		begin_held(sets, waiting, delay);                      \
	}
HELD(held_one, 1, 1, "a", "a")
HELD(held_two, 2, 1, "a", "ab", "a")
HELD(held_two_never, 2, HWT_NEVER, "a", "ab", "a")
HELD(held_three, 3, HWT_NEVER, "a", "ab", "ab", "a")
HELD(held_pair, 2, HWT_NEVER, "ab", "b", "ab", "a")
HELD(held_wait, 0, HWT_NEVER, "a", "a", "a")
HELD(held_wait_pair, 0, HWT_NEVER, "a", "ab", "b")
HELD(held_retire, 2, HWT_NEVER, "a", "ab", "a", "b")

static void
release_first(void)
{
	release(&world.subject[0]);
}

static void
cancel_first(void)
{
	cancel(0);
}

static void
cancel_second(void)
{
	cancel(1);
}

static void
acquire_and_cancel(void)
{
	acquire(1, 1);
	cancel(1);
}

/* Whoever reads it without an atomic operation, which model_touch does not see,
 * finds no addresses; it stays RETIRED. */
static void
spoil(struct hwt_object *object)
{
	world.retired[index_of(object)] = true;
	memset(object, 0xff, sizeof(*object));
}

static void
retire_first(void)
{
	struct subject *holder = &world.subject[0];
	struct hwt_object *object = holder->set[0];

	explore_check(hwt_object_retire(checkout, object) == 0);
	world.holder[index_of(object)] = NULL;
	spoil(object);
	release(holder);
}

/* Nothing is written: the file is not one of the explorer's. */
static void
dump_once(void)
{
	static FILE *file;

	if (file == NULL)
		file = fopen("/dev/null", "we");
	explore_check(file != NULL);
	explore_check(hwt_checkout_dump(checkout, file) == 0);
}

static bool
somebody_waits(const void *waiting)
{
	return *(const uint64_t *)waiting != 0;
}

static void
retire_when_waited(void)
{
	explore_await(&checkout->busy, 8, somebody_waits, &checkout->busy);
	retire_first();
}

/* Request 2 waits for b, which request 1 has, when request 0 has got a. */
static void
begin_retire_woken(void)
{
	static const char *const sets[] = {"a", "b", "ab", "b", NULL};

	world_make(sets, 0);
	world.subject[1].keeps = true;
	acquire(1, HWT_NEVER);
	acquire(2, HWT_NEVER);
	world.subject[0].keeps = true;
	acquire(0, HWT_NEVER);
}

static void
set_flag(uint32_t value)
{
	explore_modify(&world.flag, 4);
	world.flag = value;
}

static bool
is_flag(const void *value)
{
	return world.flag >= *(const uint32_t *)value;
}

static void
await_flag(uint32_t value)
{
	explore_await(&world.flag, 4, is_flag, &value);
}

static bool
is_retired(const void *word)
{
	return *(const uint64_t *)word & RETIRED;
}

static void
release_second(void)
{
	release(&world.subject[1]);
}

/* Request 2 waits for a, which request 1 has; request 0 may overtake it. */
static void
begin_retire_baton(void)
{
	static const char *const sets[] = {"a", "a", "ab", "ab", NULL};

	world_make(sets, 0);
	world.subject[1].keeps = true;
	acquire(1, HWT_NEVER);
	acquire(2, HWT_NEVER);
}

static void
try_and_retire(void)
{
	struct subject *subject = &world.subject[0];

	if (hwt_checkout_try(checkout, &subject->request) != 0)
		return;
	take(subject);
	retire_first();
}

/* Object b's. */
static void
release_and_await_retirement(void)
{
	const void *word = &world.object[1];

	release(&world.subject[1]);
	set_flag(1);
	explore_await(word, 8, is_retired, word);
}

/* Request 2 waits for b, which request 1 has; request 3 has a. In granted of
 * request 5, request 2 is woken for b, and it is tried after that has returned,
 * when b is being retired. Then it waits for a, and is woken again. */
static void
begin_retire_again(void)
{
	static const char *const sets[] = {"b", "b", "ab", "a", "a", "a", NULL};

	world_make(sets, 0);
	world.subject[1].keeps = true;
	acquire(1, HWT_NEVER);
	acquire(2, HWT_NEVER);
	world.subject[3].keeps = true;
	acquire(3, HWT_NEVER);
	acquire(5, HWT_NEVER);
	world.subject[5].in_granted = release_and_await_retirement;
}

static void
cancel_and_acquire(void)
{
	cancel(5);
	acquire(4, HWT_NEVER);
	set_flag(2);
}

static void
retire_woken(void)
{
	await_flag(1);
	try_and_retire();
}

static void
release_fourth(void)
{
	await_flag(2);
	release(&world.subject[3]);
}

static void
shut_down(void)
{
	explore_check(hwt_checkout_shutdown(checkout) == 0);
}

#define GRANTS_BEFORE UINT64_C(0xffffffff)

static void
end_many_grants(void)
{
	struct hwt_checkout_stats stats;

	explore_check(hwt_checkout_read_stats(checkout, &stats) == 0);
	explore_check(stats.granted == GRANTS_BEFORE + 2);
}

/* As if each shard had had so many grants that all were released. */
static void
begin_many_grants(void)
{
	begin_two();
	checkout->shards[0].in_flight = GRANTS_BEFORE << 32;
	world.ending = end_many_grants;
}

/* Request 1 expires, which releases the object that request 2 waits for, and
 * that keeps it. */
static void
release_and_tell(void)
{
	release(&world.subject[0]);
	set_flag(1);
}

static void
end_destroy(void)
{
	release(&world.subject[2]);
}

static void
begin_destroy(void)
{
	static const char *const sets[] = {"a", "a", "a", NULL};

	world_make(sets, 0);
	world.subject[0].keeps = true;
	acquire(0, HWT_NEVER);
	acquire(1, 1);
	world.subject[1].in_granted = release_and_tell;
	acquire(2, HWT_NEVER);
	world.subject[2].keeps = true;
	world.ending = end_destroy;
}

static void
destroy_early(void)
{
	int result;

	await_flag(1);
	result = hwt_checkout_destroy(checkout);
	if (result == 0)
		explore_fail("destroyed, and request 2 waits or is out");
	explore_check(result == -EBUSY);
}

static void
pause_once(void)
{
	explore_check(hwt_checkout_pause(checkout, HWT_NEVER) == 0);
	check_paused();
	explore_modify(&world.flag, 4);
	world.paused = false;
	explore_check(hwt_checkout_resume(checkout) == 0);
}

static void
pause_within(uint64_t delay_ns)
{
	int result = hwt_checkout_pause(checkout, delay_ns);

	explore_check(result == 0 || result == -ETIMEDOUT);
	if (result == 0)
		explore_check(hwt_checkout_resume(checkout) == 0);
}

static void
pause_or_not(void)
{
	int result = hwt_checkout_pause(checkout, 0);

	explore_check(
	    result == 0 || result == -ETIMEDOUT || result == -EALREADY);
	if (result == 0)
		explore_check(hwt_checkout_resume(checkout) == 0);
}

/* What finds the gate closed is no reason for a pause to fail. */
static void
pause_and_stay(void)
{
	explore_check(hwt_checkout_pause(checkout, 0) == 0);
}

static bool
is_in_use(const void *word)
{
	return *(const uint64_t *)word & IN_USE;
}

static void
try_when_closed(void)
{
	void *gate = &checkout->gate.word;

	explore_await(gate, 8, is_in_use, gate);
	explore_check(
	    hwt_checkout_try(checkout, &world.subject[0].request) == -EAGAIN);
}

static void
end_pause(void)
{
	explore_check(hwt_checkout_resume(checkout) == 0);
}

static void
begin_closed(void)
{
	begin_two();
	world.ending = end_pause;
}

static void
pause_shortly(void)
{
	pause_within(1);
}

static void
pause_at_once(void)
{
	pause_within(0);
}

static void
pause_until_shutdown(void)
{
	int result = hwt_checkout_pause(checkout, HWT_NEVER);

	explore_check(result == -ESHUTDOWN);
	release(&world.subject[0]);
}

/* Another thread may end a pause before the call of the one that paused has
 * ended, and its timeout. The next pause has none. */
static void
begin_free(void)
{
	static const char *const sets[] = {"a", NULL};

	world_make(sets, 0);
	world.subject[0].keeps = true;
}

static void
pause_in_time(void)
{
	explore_check(hwt_checkout_pause(checkout, 1) == 0);
}

static void
resume_and_pause(void)
{
	int result;

	while ((result = hwt_checkout_resume(checkout)) != 0) {
		explore_check(result == -EALREADY || result == -EBUSY);
		explore_yield();
	}
	acquire(0, HWT_NEVER);
	set_flag(1);
	result = hwt_checkout_pause(checkout, HWT_NEVER);
	if (result != 0)
		explore_fail("a pause without a limit answers %d", result);
	explore_check(hwt_checkout_resume(checkout) == 0);
}

static void
fire_and_release(void)
{
	fire();
	await_flag(1);
	release(&world.subject[0]);
}

static void
wait_first(void)
{
	acquire_wait(0, HWT_NEVER, 0);
}

static void
wait_second(void)
{
	acquire_wait(1, 1, -ETIMEDOUT);
}

static void
wait_second_never(void)
{
	acquire_wait(1, HWT_NEVER, -ECANCELED);
}

static void
wait_second_retired(void)
{
	acquire_wait(1, 1, -EIDRM);
}

static void
wait_second_shut_down(void)
{
	acquire_wait(1, HWT_NEVER, -ESHUTDOWN);
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
	if (result == 0) {
		take(subject);
		release(subject);
	} else {
		subject->gone = true;
	}
}

static void
find_second(void)
{
	find_and_wait(1, HWT_NEVER);
}

static void
find_second_soon(void)
{
	find_and_wait(1, 1);
}

static void
find_third(void)
{
	find_and_wait(2, HWT_NEVER);
}

/* It may be called in the second one's call, but not under its mutex. */
static void
lock_in_granted(void)
{
	(void)pthread_mutex_lock(users_mutex());
	(void)pthread_mutex_unlock(users_mutex());
}

static void
begin_found_granted(void)
{
	static const char *const sets[] = {"b", "ab", "a", NULL};

	world_make(sets, 0);
	world.subject[0].keeps = true;
	acquire(0, HWT_NEVER);
	world.subject[2].in_granted = lock_in_granted;
}

/* Then its memory is freed. */
static void
hide_and_retire(void)
{
	struct subject *holder = &world.subject[0];

	(void)pthread_mutex_lock(users_mutex());
	world.hidden = true;
	(void)pthread_mutex_unlock(users_mutex());
	explore_check(hwt_checkout_acquire_wait(
			  checkout, &holder->request, HWT_NEVER) == 0);
	take(holder);
	retire_first();
}

static void
wait_third(void)
{
	acquire_wait(2, HWT_NEVER, 0);
}

static void
try_second(void)
{
	struct subject *subject = &world.subject[1];
	int result = hwt_checkout_try(checkout, &subject->request);

	explore_check(result == 0 || result == -EAGAIN ||
	    (result == -EALREADY && subject->pauses));
	if (result == 0) {
		take(subject);
		release(subject);
	}
}

/* Served in order, one waits for a after the other, then another comes. */
static void
end_order(void)
{
	unsigned i;

	for (i = 1; i < 4; i++)
		explore_check(world.subject[i].turn == 0 ||
		    world.subject[i].turn > world.subject[i - 1].turn);
}

static void
begin_order_of(const char *const *sets, unsigned waiting, uint64_t delay_ns)
{
	unsigned i;

	world_make(sets, 1);
	if (sets[0][0] == 'g')
		explore_check(hwt_group_add(checkout, &world.group,
				  &world.object[0]) == 0);
	world.subject[0].keeps = true;
	acquire(0, HWT_NEVER);
	for (i = 1; i <= waiting; i++)
		acquire(i, delay_ns);
	world.ending = end_order;
}
#define ORDER(name, waiting, delay, ...)                               \
	static void begin_##name(void)                                 \
	{                                                              \
		static const char *const sets[] = {__VA_ARGS__, NULL}; \
		begin_order_of(sets, waiting, delay);                  \
	}
ORDER(order, 2, HWT_NEVER, "a", "a", "a", "a")
ORDER(order_late, 2, 1, "a", "a", "a", "a")
ORDER(order_wait, 1, HWT_NEVER, "a", "a", "a")
ORDER(order_set, 2, HWT_NEVER, "b", "bc", "ab", "a")
ORDER(order_group, 2, HWT_NEVER, "g", "g", "g", "g")
ORDER(order_group_late, 2, 1, "g", "g", "g", "g")
ORDER(order_group_set, 2, HWT_NEVER, "g", "gb", "g", "gb")

/* A pause may change the order of those that it delays. */
static void
begin_order_pause(void)
{
	begin_order();
	world.ending = NULL;
}

static void
begin_order_group_pause(void)
{
	begin_order_group();
	world.ending = NULL;
}

/* Request 1 is the first that waits, and not served in order yet; request 2 is,
 * and keeps another object. */
static void
begin_hand_on_of(const char *const *sets)
{
	unsigned i;

	world_make(sets, 2);
	if (sets[0][0] == 'g')
		explore_check(hwt_group_add(checkout, &world.group,
				  &world.object[0]) == 0);
	world.subject[0].keeps = true;
	world.subject[4].keeps = true;
	acquire(0, HWT_NEVER);
	acquire(4, HWT_NEVER);
	for (i = 2; i > 0; i--)
		acquire(i, HWT_NEVER);
	release(&world.subject[4]);
}
#define HAND_ON(name, ...)                                             \
	static void begin_##name(void)                                 \
	{                                                              \
		static const char *const sets[] = {__VA_ARGS__, NULL}; \
		begin_hand_on_of(sets);                                \
	}
HAND_ON(hand_on, "c", "c", "bc", "c", "b")
HAND_ON(hand_on_group, "g", "g", "bg", "g", "b")

/* A group of the first so many objects. */
static void
begin_group_of(const char *const *sets, uint32_t hold_after, unsigned members)
{
	unsigned i;

	world_make(sets, hold_after);
	for (i = 0; i < members; i++)
		explore_check(hwt_group_add(checkout, &world.group,
				  &world.object[i]) == 0);
}
#define GROUP_OF(name, hold_after, members, ...)                       \
	static void begin_##name(void)                                 \
	{                                                              \
		static const char *const sets[] = {__VA_ARGS__, NULL}; \
		begin_group_of(sets, hold_after, members);             \
	}
GROUP_OF(group, 0, 1, "g", "g", "g")
GROUP_OF(group_two, 0, 2, "g", "g", "g")
GROUP_OF(group_set, 0, 1, "gc", "g", "gc")
GROUP_OF(group_set_order, 1, 1, "gc", "g", "gc")
GROUP_OF(group_empty, 1, 0, "g", "g")

static void
add_member(void)
{
	explore_check(
	    hwt_group_add(checkout, &world.group, &world.object[1]) == 0);
}

static void
begin_group_refilled(void)
{
	static const char *const sets[] = {"g", "g", "g", NULL};

	begin_group_of(sets, 1, 1);
	world.subject[0].keeps = true;
	acquire(0, HWT_NEVER);
	acquire(1, HWT_NEVER);
}

static void
replace_member(void)
{
	struct subject *holder = &world.subject[0];

	explore_check(hwt_object_retire(checkout, &world.object[0]) == 0);
	explore_check(got(holder, 0) == NULL);
	world.holder[0] = NULL;
	spoil(&world.object[0]);
	add_member();
	release(holder);
}

static void
never_0_retired(void)
{
	struct subject *subject = &world.subject[0];
	int result =
	    hwt_checkout_acquire(checkout, &subject->request, HWT_NEVER);

	explore_check(result == 1 || result == -EIDRM);
	subject->accepted = result == 1;
}

static void
retire_group(void)
{
	explore_check(hwt_group_retire(checkout, &world.group) == 0);
}

static void
retire_group_again(void)
{
	int error = hwt_group_retire(checkout, &world.group);

	explore_check(error == 0 || error == -EIDRM);
	world.flag += error == 0;
}

/* Two groups have slots of their own: each has its member back. */
static void
end_retired_once(void)
{
	struct hwt_group group[2];
	unsigned i;

	explore_check(world.flag == 1);
	for (i = 0; i < 2; i++)
		explore_check(hwt_group_init(checkout, &group[i], i) == 0);
	explore_check(group[0].private_words[2] != group[1].private_words[2]);
}

static void
begin_group_retired_twice(void)
{
	begin_group_empty();
	world.ending = end_retired_once;
}

/* Its member is free, and was granted to no request of the other group. */
static void
end_next(void)
{
	explore_check(hwt_checkout_try(checkout, &world.of_next) == 0);
	explore_check(hwt_checkout_release(checkout, &world.of_next) == 0);
}

static void
begin_group_empty_next(void)
{
	begin_group_empty();
	world.ending = end_next;
}

/* The next group may get the slots of the one that is retired. */
static void
retire_group_and_make_another(void)
{
	unsigned i;

	retire_group();
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

/* Readers. Request 0 holds until all others have ended: who waits could share
 * with it. */
static void
end_shared(void)
{
	unsigned i;

	for (i = 1; i < REQUESTS; i++) {
		if (world.subject[i].accepted >
		    world.subject[i].granted + world.subject[i].ended)
			explore_fail("request %u waits, and may read", i);
	}
	release(&world.subject[0]);
}

static void
begin_read_of(const char *const *sets, uint32_t hold_after, unsigned waiting)
{
	unsigned i;

	world_make(sets, hold_after);
	for (i = 0; i <= waiting; i++) {
		world.subject[i].keeps = i == 0;
		acquire(i, i == 1 ? 1 : HWT_NEVER);
	}
}
#define READ(name, hold_after, waiting, at_end, ...)                   \
	static void begin_##name(void)                                 \
	{                                                              \
		static const char *const sets[] = {__VA_ARGS__, NULL}; \
		begin_read_of(sets, hold_after, waiting);              \
		world.ending = at_end;                                 \
	}
READ(shared, 0, 2, end_shared, "A", "a", "A", "A")
READ(shared_order, 1, 2, end_shared, "A", "a", "A", "A")
READ(shared_two, 0, 3, end_shared, "A", "a", "AB", "A", "bC")
READ(shared_two_order, 1, 3, end_shared, "A", "a", "AB", "A", "bC")
READ(read_mixed, 0, 3, NULL, "a", "A", "a", "A", "A")
READ(read_mixed_order, 1, 3, NULL, "a", "A", "a", "A", "A")
READ(read_held, 0, 3, NULL, "a", "A", "A", "Ab", "ab")
READ(read_held_order, 1, 3, NULL, "a", "A", "A", "Ab", "ab")
READ(read_held_none, 0, 0, NULL, "A", "a", "A")
BEGIN(read, 0, "A", "A", "a")
BEGIN(read_sets, 0, "Ab", "aB", "AB")
BEGIN(read_sets_order, 1, "Ab", "aB", "AB")
BEGIN(read_ring, 1, "Ab", "Bc", "aC")
GROUP_OF(read_group, 0, 1, "Bg", "bg", "B")
GROUP_OF(read_group_order, 1, 1, "Bg", "bg", "B")

/* The last readers release at the same time, and a writer waits. */
static void
begin_read_last_of(uint32_t hold_after)
{
	static const char *const sets[] = {"A", "A", "a", "A", NULL};

	world_make(sets, hold_after);
	world.subject[0].keeps = world.subject[1].keeps = true;
	acquire(0, HWT_NEVER);
	acquire(1, HWT_NEVER);
	acquire(2, HWT_NEVER);
}

/* Of two readers that share a one releases it, while the writer between them
 * and a third one gives up. */
static void
begin_read_leave(void)
{
	static const char *const sets[] = {"A", "a", "A", "A", NULL};

	world_make(sets, 0);
	world.subject[0].keeps = world.subject[3].keeps = true;
	acquire(0, HWT_NEVER);
	acquire(3, HWT_NEVER);
	acquire(1, HWT_NEVER);
	acquire(2, HWT_NEVER);
	world.ending = end_shared;
}

static void
release_reader(void)
{
	release(&world.subject[3]);
}

/* Request 1 wants a and b, and waits for b, which request 3 has, before request
 * 2. It is woken for b; if request 0 is quicker, it keeps a, and waits for b
 * again, as the first: but a pause that has begun makes it leave. */
static void
end_left(void)
{
	const struct object *b = (struct object *)&world.object[1];

	if (b->first == (struct request *)&world.subject[2].request)
		explore_fail("request 2 waits, and may read");
	release(&world.subject[0]);
}

static void
begin_read_leaves(void)
{
	static const char *const sets[] = {"B", "ab", "B", "b", NULL};

	world_make(sets, 2);
	world.subject[0].keeps = world.subject[3].keeps = true;
	acquire(3, HWT_NEVER);
	acquire(1, HWT_NEVER);
	acquire(2, HWT_NEVER);
	world.ending = end_left;
}

static void
read_and_pause(void)
{
	never_0();
	pause_at_once();
}

static void
begin_read_last(void)
{
	begin_read_last_of(0);
}

static void
begin_read_last_order(void)
{
	begin_read_last_of(1);
}

/* Pauses that are told. */
BEGIN(told, 0, "ab", "ab", "!")
BEGIN(told_ring, 1, "ab", "bc", "ac", "!")
BEGIN(told_two, 0, "!", "!", "a")
BEGIN(told_group, 1, "ag", "a", "!")
HELD(read_joins, 0, HWT_NEVER, "a", "A", "A")
HELD(told_held, 2, HWT_NEVER, "a", "ab", "a", "!", "!")
HELD(told_held_none, 0, HWT_NEVER, "a", "!", "a")
HELD(told_late, 1, 1, "a", "!", "a")

/* The pause waits for request 0. Request 1 waits for a member of the group, in
 * order: it is counted when it is handed one, and meets the gate. */
static void
begin_told_counted(void)
{
	static const char *const sets[] = {"a", "g", "!", NULL};
	unsigned i;

	world_make(sets, 1);
	world.subject[0].keeps = true;
	for (i = 0; i < 3; i++)
		acquire(i, HWT_NEVER);
}

/* Request 0 keeps a, and waits for a group without members until the end. */
static void
end_group(void)
{
	cancel(0);
}

static void
begin_keep(void)
{
	begin_told_group();
	world.ending = end_group;
}

/* Request 2 pauses a: it is the next one that gets it. */
static void
end_told_set(void)
{
	explore_check(world.subject[2].turn == 2);
}

static void
begin_told_set(void)
{
	static const char *const sets[] = {"a", "a", "!a", "ab", NULL};

	begin_held(sets, 2, HWT_NEVER);
	world.ending = end_told_set;
}

static void
begin_told_readers(void)
{
	static const char *const sets[] = {"A", "a", "!a", "A", NULL};

	begin_held(sets, 2, HWT_NEVER);
	world.ending = end_told_set;
}

/* An executor: what it has accepted is run by another thread. */
static struct {
	struct hwt_request *request[REQUESTS];
	uint32_t count, run;
} handed;

static int
execute(void *ctx, struct hwt_checkout *of, struct hwt_request *request)
{
	(void)ctx;
	explore_check(of == checkout);
	explore_modify(&handed.count, 4);
	handed.request[handed.count++] = request;
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
begin_executor_of(const char *const *sets,
    int (*with)(void *, struct hwt_checkout *, struct hwt_request *))
{
	memset(&handed, 0, sizeof(handed));
	world_make(sets, 0);
	checkout->executor.execute = with;
	world.subject[0].keeps = true;
	acquire(0, HWT_NEVER);
	acquire(1, 1);
	acquire(2, HWT_NEVER);
}

static void
begin_executor(void)
{
	static const char *const sets[] = {"a", "a", "ab", NULL};

	begin_executor_of(sets, execute);
}

static void
begin_refuser(void)
{
	static const char *const sets[] = {"a", "a", "ab", NULL};

	begin_executor_of(sets, refuse);
}

static bool
something_is_handed(const void *count)
{
	return *(const uint32_t *)count > handed.run;
}

static void
run_one(void)
{
	explore_await(&handed.count, 4, something_is_handed, &handed.count);
	explore_check(
	    hwt_request_run(checkout, handed.request[handed.run++]) == 0);
}

static void
run_two(void)
{
	run_one();
	run_one();
}

/* Request 1 was granted or has expired; an executor has it until the end. */
static void
begin_handed(void)
{
	static const char *const sets[] = {"a", "a", NULL};

	memset(&handed, 0, sizeof(handed));
	world_make(sets, 0);
	checkout->executor.execute = execute;
	world.subject[0].keeps = true;
	acquire(0, HWT_NEVER);
	acquire(1, 1);
	world.ending = run_one;
}

static void
destroy_handed(void)
{
	explore_await(&handed.count, 4, something_is_handed, &handed.count);
	explore_check(hwt_checkout_destroy(checkout) == -EBUSY);
}

static const struct program programs[] = {
    {"acquire/two", begin_two, {never_0, never_1}},
    {"acquire/ring", begin_ring, {never_0, never_1, never_2}},
    {"acquire/crossed", begin_crossed, {never_0, never_1}},
    {"acquire/four", begin_four, {never_0, never_1, never_2, never_3}},
    {"acquire/try", begin_ring, {never_0, try_second, never_2}},
    {"release/waiters", begin_held_two_never,
	{release_first, cancel_second, fire}},
    {"release/three-wait", begin_held_three, {release_first, cancel_second}},
    {"baton/refused-before", begin_baton, {never_0, never_1, never_2}},
    {"baton/refused-behind", begin_baton_late, {never_0, never_1, never_2}},
    {"baton/cancel", begin_held_two_never, {release_first, cancel_second}},
    {"baton/expire", begin_held_two, {release_first, fire}},
    {"baton/pair", begin_held_pair, {release_first, never_3, cancel_second}},
    {"deadline/release", begin_held_one, {release_first, fire}},
    {"deadline/acquire", begin_same, {soon_0, soon_1, fire}},
    {"deadline/ring", begin_ring, {soon_0, soon_1, soon_2, fire}},
    {"deadline/cancel", begin_held_one, {release_first, fire, cancel_second}},
    {"cancel/acquire", begin_same, {never_0, acquire_and_cancel, never_2}},
    {"cancel/try", begin_same, {cancel_first, soon_0, try_second, fire}},
    {"retire/waiters", begin_held_retire, {retire_first, cancel_second}},
    {"retire/acquire", begin_held_retire, {retire_first, never_3}},
    {"retire/expire", begin_held_two, {retire_first, fire}},
    {"retire/shutdown", begin_held_retire, {retire_first, shut_down}},
    {"retire/woken", begin_retire_woken, {retire_first, release_second}},
    {"retire/woken-behind", begin_retire_woken,
	{retire_first, release_second, never_3}},
    {"retire/baton", begin_retire_baton, {try_and_retire, release_second}},
    {"retire/woken-again", begin_retire_again,
	{cancel_and_acquire, retire_woken, release_fourth}},
    {"dump/release", begin_held_two, {dump_once, release_first, fire}},
    {"dump/cancel", begin_held_two_never,
	{dump_once, release_first, cancel_second}},
    {"dump/retire", begin_held_retire, {dump_once, retire_first}},
    {"dump/retire-woken", begin_retire_woken,
	{dump_once, retire_first, release_second}},
    {"dump/shutdown", begin_held_two_never,
	{dump_once, release_first, shut_down}},
    {"dump/dump", begin_held_two_never, {dump_once, dump_once, release_first}},
    {"pause/acquire", begin_two, {never_0, never_1, pause_once}},
    {"pause/release", begin_held_two_never, {release_first, pause_once}},
    {"pause/ring", begin_ring, {never_0, never_1, never_2, pause_once}},
    {"pause/expire", begin_held_one, {release_first, pause_shortly, fire}},
    {"pause/at-once", begin_two, {never_0, never_1, pause_at_once}},
    {"pause/try", begin_closed, {pause_and_stay, try_when_closed}},
    {"pause/late-timeout", begin_free,
	{pause_in_time, resume_and_pause, fire_and_release}},
    {"pause/cancel", begin_same, {soon_0, pause_once, cancel_first}},
    {"shutdown/acquire", begin_two, {never_0, soon_1, shut_down}},
    {"shutdown/release", begin_held_two, {release_first, shut_down, fire}},
    {"shutdown/pause", begin_held_wait, {pause_until_shutdown, shut_down}},
    {"counts/carry", begin_many_grants, {never_0, never_1}},
    {"destroy/granted", begin_destroy, {fire, destroy_early}},
    {"wait/two", begin_same, {wait_first, wait_second, fire}},
    {"wait/cross", begin_two, {wait_first, never_1}},
    {"wait/woken", begin_held_wait,
	{release_first, wait_second_never, wait_third}},
    {"wait/overtaken", begin_held_wait,
	{release_first, wait_second_never, never_2}},
    {"wait/cancel", begin_held_wait,
	{release_first, wait_second_never, cancel_second}},
    {"wait/expire", begin_held_wait, {release_first, wait_second, fire}},
    {"wait/baton", begin_held_wait_pair,
	{release_first, wait_second_never, wait_third, cancel_second}},
    {"wait/pause", begin_held_wait,
	{release_first, wait_second_never, pause_once}},
    {"wait/retire", begin_held_wait, {retire_when_waited, wait_second_retired}},
    {"wait/found", begin_same, {hide_and_retire, find_second}},
    {"wait/found-in-time", begin_same,
	{hide_and_retire, find_second_soon, fire}},
    {"wait/found-pair", begin_found_pair,
	{hide_and_retire, find_second, find_third}},
    {"wait/found-granted", begin_found_granted,
	{release_first, find_second, never_2}},
    {"wait/found-behind", begin_found_pair,
	{hide_and_retire, find_second, never_3}},
    {"wait/shutdown", begin_held_wait,
	{release_first, wait_second_shut_down, shut_down}},
    {"hold/two", begin_hold, {never_0, never_1, never_2}},
    {"hold/ring", begin_hold_ring, {never_0, never_1, never_2}},
    {"hold/expire", begin_hold, {soon_0, never_1, fire}},
    {"hold/pause", begin_hold, {never_0, never_1, pause_once}},
    {"hold/shutdown", begin_hold_ring, {never_0, never_1, shut_down}},
    {"order/newcomer", begin_order, {release_first, never_3}},
    {"order/cancel", begin_order, {release_first, cancel_second, never_3}},
    {"order/expire", begin_order_late, {release_first, fire, never_3}},
    {"order/pause", begin_order_pause, {release_first, pause_once}},
    {"order/wait", begin_order_wait, {release_first, wait_third}},
    {"order/set", begin_order_set, {release_first, never_3, cancel_second}},
    {"order/group", begin_order_group, {release_first, never_3}},
    {"order/group-cancel", begin_order_group,
	{release_first, cancel_second, never_3}},
    {"order/group-expire", begin_order_group_late,
	{release_first, fire, never_3}},
    {"order/group-pause", begin_order_group_pause, {release_first, pause_once}},
    {"order/group-set", begin_order_group_set, {release_first, never_3}},
    {"order/hand-on", begin_hand_on, {release_first, cancel_second, never_3}},
    {"order/hand-on-pause", begin_hand_on,
	{release_first, cancel_second, pause_once}},
    {"order/hand-on-group", begin_hand_on_group,
	{release_first, cancel_second, never_3}},
    {"order/hand-on-group-pause", begin_hand_on_group,
	{release_first, cancel_second, pause_once}},
    {"group/one", begin_group, {never_0, never_1, never_2}},
    {"group/two", begin_group_two, {never_0, never_1, never_2}},
    {"group/set", begin_group_set, {never_0, never_1, never_2}},
    {"group/set-in-order", begin_group_set_order, {never_0, never_1, never_2}},
    {"group/expire", begin_group, {soon_0, soon_1, fire}},
    {"group/wait", begin_group, {wait_first, wait_third, never_1}},
    {"group/pause", begin_group_two, {never_0, never_1, pause_once}},
    {"group/add", begin_group_empty, {never_0, never_1, add_member}},
    {"group/add-pause", begin_group_empty, {never_0, add_member, pause_once}},
    {"group/replace", begin_group_refilled, {replace_member, never_2}},
    {"group/replace-cancel", begin_group_refilled,
	{replace_member, cancel_second}},
    {"read/two", begin_read, {never_0, never_1, never_2}},
    {"read/sets", begin_read_sets, {never_0, never_1, never_2}},
    {"read/sets-in-order", begin_read_sets_order, {never_0, never_1, never_2}},
    {"read/ring", begin_read_ring, {never_0, never_1, never_2}},
    {"read/last", begin_read_last, {release_first, release_second, never_3}},
    {"read/last-in-order", begin_read_last_order,
	{release_first, release_second, never_3}},
    {"read/share-cancel", begin_shared, {cancel_second, never_3}},
    {"read/share-expire", begin_shared, {fire, never_3, cancel_second}},
    {"read/share-in-order", begin_shared_order, {cancel_second, never_3}},
    {"read/share-two", begin_shared_two, {cancel_second, never_4}},
    {"read/share-two-in-order", begin_shared_two_order,
	{fire, cancel_second, never_4}},
    {"read/mixed", begin_read_mixed, {release_first, cancel_second, never_4}},
    {"read/mixed-in-order", begin_read_mixed_order,
	{release_first, cancel_second, never_4}},
    {"read/held", begin_read_held, {release_first, fire, never_4}},
    {"read/held-in-order", begin_read_held_order,
	{release_first, fire, never_4}},
    {"read/retire", begin_read_held, {retire_first, cancel_second}},
    {"read/shutdown", begin_read_held, {release_first, shut_down}},
    {"read/pause", begin_read, {never_0, never_2, pause_once}},
    {"read/pause-held", begin_read_held, {release_first, pause_once}},
    {"read/wait", begin_read_held_none,
	{release_first, wait_second_never, wait_third, cancel_second}},
    {"read/wait-joins", begin_read_joins, {release_first, never_1, wait_third}},
    {"read/share-leave", begin_read_leave, {release_reader, cancel_second}},
    {"read/pause-leaves", begin_read_leaves, {release_reader, read_and_pause}},
    {"read/group", begin_read_group, {never_0, never_1, never_2}},
    {"read/group-in-order", begin_read_group_order,
	{never_0, never_1, never_2}},
    {"pause/told", begin_told, {never_0, never_1, never_2}},
    {"pause/told-try", begin_told_two, {never_0, try_second, never_2}},
    {"pause/told-two", begin_told_two, {never_0, never_1, never_2}},
    {"pause/told-waited", begin_told_held, {release_first, never_3}},
    {"pause/told-declared", begin_told_counted, {release_first, add_member}},
    {"pause/told-and-pause", begin_told_held,
	{release_first, never_3, pause_or_not}},
    {"pause/told-cancel", begin_told_held_none,
	{release_first, acquire_and_cancel, never_2}},
    {"pause/told-expire", begin_told_late, {release_first, fire, never_2}},
    {"pause/told-shutdown", begin_told_late, {release_first, shut_down, fire}},
    {"pause/told-wait", begin_told_held_none,
	{release_first, wait_second_never, cancel_second}},
    {"pause/told-ring", begin_told_ring, {never_0, never_1, never_2, never_3}},
    {"pause/told-set", begin_told_set, {release_first, never_3}},
    {"pause/told-readers", begin_told_readers, {release_first, never_3}},
    {"pause/keep", begin_keep, {never_0, pause_once}},
    {"pause/keep-told", begin_keep, {never_0, never_1, never_2}},
    {"pause/keep-cancel", begin_keep, {never_0, pause_once, cancel_first}},
    {"pause/keep-add", begin_keep, {never_0, pause_once, add_member}},
    {"pause/keep-ring", begin_hold_ring,
	{never_0, never_1, never_2, pause_once}},
    {"executor/release", begin_executor, {release_first, run_two}},
    {"executor/expire", begin_executor, {release_first, fire, run_two}},
    {"executor/cancel", begin_executor,
	{release_first, cancel_second, run_two}},
    {"executor/destroy", begin_handed, {release_first, destroy_handed, fire}},
    {"executor/refuse", begin_refuser, {release_first, fire}},
    {"group/retire", begin_group_empty, {never_0_retired, retire_group}},
    {"group/retire-retire", begin_group_retired_twice,
	{retire_group_again, retire_group_again}},
    {"group/retire-make", begin_group_empty_next,
	{never_0_retired, retire_group_and_make_another}},
};

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
run_program(const struct program *program, void (*end)(void), const char *name,
    uint64_t schedules_max, const char *replay)
{
	struct explore_program explored = {
	    .name = name, .begin = program->begin, .end = end};
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

	memcpy(explored.thread, program->thread, sizeof(program->thread));
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
run_programs(const struct program *from, size_t count, void (*end)(void),
    uint64_t schedules, const char *name, const char *replay)
{
	const struct program *program;
	unsigned ran = 0;
	char full[64];

	for (program = from; program < from + count; program++) {
		for (shards = 1; shards <= 16; shards += 15) {
			(void)snprintf(full, sizeof(full), "%s%s",
			    program->name, shards > 1 ? "/16" : "");
			if (strstr(full, name) == NULL ||
			    (shards > 1 && !is_sharded(full)))
				continue;
			run_program(program, end, full, schedules, replay);
			ran++;
		}
	}
	return ran;
}

int
main(int argc, char **argv)
{
	uint64_t schedules = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000;
	const char *name = argc > 2 ? argv[2] : "";
	const char *replay = argc > 3 ? argv[3] : NULL;
	unsigned ran;

	explore_add_local(&queue_of_thread, sizeof(queue_of_thread));
	ran = run_programs(programs, sizeof(programs) / sizeof(programs[0]),
	    world_end, schedules, name, replay);
	ran += run_programs(store_programs, store_program_count,
	    store_program_end, schedules, name, replay);
	return ran == 0;
}
