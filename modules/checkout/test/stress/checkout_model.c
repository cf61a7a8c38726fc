/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random calls of checkout and store in one thread, each held against a plain
 * account: an array of all objects and keys with who holds or reads each, and
 * an array of all requests, which are searched. The account says what a call
 * may answer, which waits end by it and how, which loads and unloads may begin,
 * and the counts. Time moves by hand.
 *
 * After each step, but in a pause, nobody waits whose objects are all free, or
 * read while nobody waits to write them; of a group, one that is free is
 * enough; a key that is wanted is there, or is being loaded or unloaded; and
 * what is beyond the store's limit is in use.
 *
 * Which of those that wait is granted is the checkout's to choose; the account
 * checks that it may be. With hold_after a waiting request may hold objects,
 * which shows from outside only in what is refused: in those rounds less is
 * known beforehand.
 */
#include "modules/checkout/test/stress/wish.h"

enum {
	OBJECTS = 6,
	MEMBERS = 3, /* of the group at most */
	KEYS = 5, /* of the store */
	/* Places of the account: objects, members, keys. */
	FIRST_MEMBER = OBJECTS,
	FIRST_KEY = FIRST_MEMBER + MEMBERS,
	PLACES = FIRST_KEY + KEYS,
	ANY = PLACES, /* among a request's members: one of the group */
	OF_OBJECTS = 10, /* requests */
	OF_KEYS = 6,
	REQUESTS = OF_OBJECTS + OF_KEYS,
	STEPS = 2000, /* of a round, on a checkout and a store of its own */
	ROUNDS = 500,
	TICK = 1000000,
	LIMIT = 3, /* of the store, where it has one */
	IDLE_TICKS = 20
};

enum state {
	IDLE,
	WAITING,
	OUT
};

static struct subject {
	struct wish wish;
	const struct hwt_item *any; /* of its items, the group's */
	uint32_t members, reads; /* bits of places; reads are among members */
	enum state state;
	uint64_t due_ns;
	int ends_by; /* in this step, as its end says; 0: it does not */
	bool releases; /* in granted */
	bool acquires; /* in granted, another one */
	bool in_call; /* its acquire or release has not returned */
} subject[REQUESTS];

enum there {
	ABSENT,
	LOADING,
	THERE,
	UNLOADING
};

static struct place {
	const struct subject *holder; /* that writes */
	unsigned readers;
	struct hwt_object object; /* not of a key */
	bool is_member;
	/* Of a key. */
	enum there there;
	struct hwt_store_job *job; /* that answers later */
	uint64_t used_ns; /* when it was released, or loaded */
	char name;
} place[PLACES];

static struct hwt_group group;
static uint64_t now_ns, rng;
static uint64_t granted, expired, cancelled; /* of this round */
static uint64_t loads, unloads, failures;
static uint64_t grants, ends, all_loads, all_unloads; /* of all */
static uint32_t hold_after;
static uint32_t retiring; /* bits: no call may begin to use them */
static bool paused, destroying;
static uint64_t limit, idle_ns; /* of the store */
static uint64_t
    disturbed_ns; /* of the last pause, or unload that was refused */
static bool over_limit; /* it may be, until the next release of a key */
static uint64_t timeouts_of_store;

static uint64_t
hand_moved(void *ctx)
{
	(void)ctx;
	return now_ns;
}

static unsigned
draw(unsigned bound)
{
	return (unsigned)random_below(&rng, bound);
}

static bool
has(uint32_t bits, unsigned i)
{
	return bits >> i & 1;
}

static struct hwt_checkout_stats
stats_now(void)
{
	struct hwt_checkout_stats stats;

	stress_must(hwt_checkout_read_stats(checkout, &stats) == 0, "stats");
	return stats;
}

/* The account. */

static bool
is_there(unsigned i)
{
	return i < FIRST_KEY || place[i].there == THERE;
}

static bool
member_is_free(void)
{
	unsigned i;

	for (i = FIRST_MEMBER; i < FIRST_KEY; i++) {
		if (place[i].is_member && place[i].holder == NULL)
			return true;
	}
	return false;
}

/* It may be granted. */
static bool
may_have(const struct subject *s)
{
	unsigned i;

	if (paused || (has(s->members, ANY) && !member_is_free()))
		return false;
	for (i = 0; i < PLACES; i++) {
		if (!has(s->members, i))
			continue;
		if (!is_there(i) || place[i].holder != NULL ||
		    (place[i].readers > 0 && !has(s->reads, i)))
			return false;
	}
	return true;
}

static bool
writer_waits(unsigned i)
{
	const struct subject *s;

	for (s = subject; s < subject + REQUESTS; s++) {
		if (s->state == WAITING && has(s->members & ~s->reads, i))
			return true;
	}
	return false;
}

/* And must be: it may have to let writers go first. */
static bool
must_have(const struct subject *s)
{
	unsigned i;

	for (i = 0; i < PLACES; i++) {
		if (has(s->reads, i) && place[i].readers > 0 && writer_waits(i))
			return false;
	}
	return may_have(s);
}

static void
take_member(const struct subject *s)
{
	unsigned i;

	for (i = FIRST_MEMBER; i < FIRST_KEY; i++) {
		if (s->any->granted == &place[i].object && place[i].is_member &&
		    place[i].holder == NULL) {
			place[i].holder = s;
			return;
		}
	}
	stress_must(false, "it has no member of its own");
}

static void
take(struct subject *s)
{
	unsigned i;

	stress_must(!paused, "granted in a pause");
	stress_must(may_have(s), "an object has two holders, or is not there");
	if (has(s->members, ANY))
		take_member(s);
	for (i = 0; i < PLACES; i++) {
		if (has(s->reads, i))
			place[i].readers++;
		else if (has(s->members, i))
			place[i].holder = s;
	}
	s->state = OUT;
	granted++;
}

static void
note_used(const struct subject *s)
{
	unsigned i;

	for (i = FIRST_KEY; i < PLACES; i++) {
		if (has(s->members, i))
			place[i].used_ns = now_ns;
	}
	over_limit = over_limit || s->wish.wants_keys;
}

static void
release(struct subject *s)
{
	unsigned i;
	int rc;

	for (i = 0; i < PLACES; i++) {
		if (place[i].holder == s)
			place[i].holder = NULL;
		if (has(s->reads, i))
			place[i].readers--;
	}
	s->state = IDLE;
	note_used(s);
	over_limit = over_limit && !s->wish.wants_keys;
	s->in_call = true;
	rc = wish_release(&s->wish);
	s->in_call = false;
	stress_must(rc == 0, "release: %d", rc);
}

/* What a wait that ended says; with hold_after, or readers, what one end frees
 * may be granted to another before it is told of its own. */
static void
note_end(struct subject *s, int result)
{
	if (result == 0)
		stress_must(hold_after != HWT_CHECKOUT_NEVER || s->reads != 0 ||
			s->ends_by == 0,
		    "granted, and should have ended by %d", s->ends_by);
	else
		stress_must(result == s->ends_by, "ended by %d, not by %d",
		    result, s->ends_by);
	s->ends_by = 0;
	note_used(s);
	expired += result == -ETIMEDOUT;
	cancelled += result == -ECANCELED;
	ends += result != 0;
}

static void acquire(struct subject *s, bool in_granted);

static void
end_wait(struct wish *wish, int result)
{
	struct subject *s = (struct subject *)wish;
	struct subject *other = &subject[draw(REQUESTS)];

	stress_must(s->state == WAITING, "granted without a wait");
	s->state = IDLE;
	if (result == 0)
		take(s);
	note_end(s, result);
	if (s->acquires && other->state == IDLE && !other->in_call &&
	    other->members != 0 && !(other->members & retiring))
		acquire(other, true);
	if (s->releases && result == 0)
		release(s);
}

/* Loads and unloads. */

static void
end_load(unsigned i, bool works)
{
	struct subject *s;

	place[i].there = works ? THERE : ABSENT;
	place[i].used_ns = now_ns;
	over_limit = true;
	loads++;
	failures += !works;
	for (s = subject; !works && s < subject + REQUESTS; s++) {
		if (s->state == WAITING && has(s->members, i) &&
		    s->ends_by == 0)
			s->ends_by = -EIO;
	}
}

static int
load(void *ctx, struct hwt_store_job *job, const void *key, size_t size,
    struct hwt_loaded *loaded)
{
	unsigned i = FIRST_KEY + (unsigned)(*(const char *)key - 'a');
	unsigned how = draw(6);

	stress_must(ctx == place && size == 1 && i < PLACES, "load's key");
	stress_must(place[i].there == ABSENT, "loaded twice");
	if (how < 2) {
		place[i].there = LOADING;
		place[i].job = job;
		return HWT_STORE_LATER;
	}
	loaded->value = &place[i];
	end_load(i, how > 2);
	return how > 2 ? 0 : -EIO;
}

static bool
is_wanted(unsigned i)
{
	const struct subject *s;

	for (s = subject; s < subject + REQUESTS; s++) {
		if (s->state != IDLE && !s->in_call && s->ends_by == 0 &&
		    has(s->members, i))
			return true;
	}
	return false;
}

static uint64_t
count_there(void)
{
	uint64_t count = 0;
	unsigned i;

	for (i = FIRST_KEY; i < PLACES; i++)
		count += place[i].there == THERE;
	return count;
}

static uint64_t
count_jobs(void)
{
	uint64_t count = 0;
	unsigned i;

	for (i = FIRST_KEY; i < PLACES; i++)
		count += place[i].job != NULL;
	return count;
}

static void
check_unload(unsigned i)
{
	bool too_many = limit > 0 && count_there() > limit;

	stress_must(!is_wanted(i), "unloaded while it is wanted");
	stress_must(destroying || too_many ||
		(idle_ns > 0 && now_ns - place[i].used_ns >= idle_ns),
	    "unloaded after %" PRIu64 " ns, of %" PRIu64,
	    now_ns - place[i].used_ns, count_there());
}

static int
unload(void *ctx, struct hwt_store_job *job, const void *key, size_t size,
    void *value)
{
	unsigned i = FIRST_KEY + (unsigned)(*(const char *)key - 'a');
	unsigned how = destroying ? 5 : draw(6);

	stress_must(ctx == place && size == 1 && i < PLACES, "unload's key");
	stress_must(value == &place[i], "another value");
	stress_must(place[i].there == THERE, "it is not there");
	stress_must(place[i].holder == NULL && place[i].readers == 0,
	    "unloaded while it is held");
	stress_must(!paused || destroying, "an unload in a pause");
	check_unload(i);
	if (how == 0) {
		place[i].there = UNLOADING;
		place[i].job = job;
		return HWT_STORE_LATER;
	}
	if (how == 1) {
		disturbed_ns = now_ns;
		over_limit = true;
		return -EBUSY;
	}
	place[i].there = ABSENT;
	unloads++;
	return 0;
}

static void
step_complete(unsigned i)
{
	const struct hwt_loaded loaded = {.value = &place[i]};
	struct hwt_store_job *job = place[i].job;
	bool works = destroying || draw(4) > 0;
	int rc;

	if (job == NULL)
		return;
	place[i].job = NULL;
	if (place[i].there == LOADING) {
		end_load(i, works);
	} else {
		place[i].there = works ? ABSENT : THERE;
		unloads += works;
		if (!works) {
			disturbed_ns = now_ns;
			over_limit = true;
		}
	}
	rc = hwt_store_complete(store, job, works ? 0 : -EIO, &loaded);
	stress_must(rc == 0, "complete: %d", rc);
}

/* After each step. */

static void
check_wait(const struct subject *s)
{
	unsigned i;

	for (i = FIRST_KEY; i < PLACES && !paused; i++)
		stress_must(!has(s->members, i) || place[i].there != ABSENT,
		    "it waits for what nobody loads");
	if (hold_after == HWT_CHECKOUT_NEVER)
		stress_must(!must_have(s), "it waits for nothing");
}

static void
check_keys(void)
{
	uint64_t there = count_there(), after_ns;
	struct hwt_store_stats stats;
	unsigned i;

	for (i = FIRST_KEY; i < PLACES; i++) {
		if (place[i].there != THERE || is_wanted(i))
			continue;
		stress_must(limit == 0 || there <= limit || over_limit,
		    "%" PRIu64 " are there, and %u is not wanted", there, i);
		after_ns = place[i].used_ns > disturbed_ns ? place[i].used_ns
							   : disturbed_ns;
		/* One more, since time moves by several ticks. */
		stress_must(idle_ns == 0 || paused ||
			now_ns - after_ns <= 3 * idle_ns + 6 * TICK,
		    "%u is idle for too long", i);
	}
	stress_must(hwt_store_read_stats(store, &stats) == 0, "stats");
	stress_must(stats.jobs == count_jobs(), "%" PRIu64 " jobs", stats.jobs);
	stress_must(stats.loads == loads && stats.failures == failures &&
		stats.unloads == unloads,
	    "%" PRIu64 " of %" PRIu64 " loads, %" PRIu64 " of %" PRIu64
	    " failures, %" PRIu64 " of %" PRIu64 " unloads",
	    stats.loads, loads, stats.failures, failures, stats.unloads,
	    unloads);
}

static void
check_all(void)
{
	struct hwt_checkout_stats stats = stats_now();
	uint64_t out = 0, waiting = 0, timeouts = timeouts_of_store;
	const struct subject *s;

	for (s = subject; s < subject + REQUESTS; s++) {
		stress_must(s->ends_by == 0, "not ended by %d", s->ends_by);
		out += s->state == OUT;
		if (s->state != WAITING)
			continue;
		waiting++;
		timeouts += s->due_ns != HWT_NEVER;
		check_wait(s);
	}
	check_keys();
	stress_must(stats.waiting == waiting, "%" PRIu64 " wait, not %" PRIu64,
	    stats.waiting, waiting);
	stress_must(
	    out > 0 || paused || waiting == 0 || count_jobs() > 0, "all wait");
	stress_must(stats.expired == expired && stats.cancelled == cancelled,
	    "counts of ends");
	stress_must(hwt_pending_timeouts(timer) == timeouts, "timeouts");
}

/* Steps. */

static void
make_request(struct subject *s)
{
	struct wish *wish = &s->wish;
	unsigned k, i, first = draw(PLACES + 1);
	enum hwt_use use;

	wish->count = 0;
	wish->ended = end_wait;
	for (k = 0; k <= PLACES; k++) {
		i = (first + k) % (PLACES + 1);
		use = has(s->reads, i) ? HWT_READ : HWT_WRITE;
		if (!has(s->members, i))
			continue;
		if (i == ANY)
			s->any = &wish->item[wish->count];
		if (wish->wants_keys)
			wish->key[wish->count++] = (struct hwt_store_item){
			    .key = &place[i].name, .size = 1, .use = use};
		else
			wish->item[wish->count++] = (struct hwt_item){
			    .wanted = i == ANY ? &group.any : &place[i].object,
			    .use = use};
	}
	wish_init(wish);
}

/* Small sets are more likely. */
static void
prepare(struct subject *s)
{
	unsigned first = s->wish.wants_keys ? FIRST_KEY : 0;
	unsigned count = s->wish.wants_keys ? KEYS : OBJECTS;

	if (s->members == 0 || draw(4) == 0) {
		s->members =
		    1u << (first + draw(count)) | 1u << (first + draw(count));
		if (draw(4) == 0)
			s->members |= 1u << (first + draw(count)) |
			    1u << (first + draw(count));
		s->reads =
		    draw(2) == 0 ? s->members & draw(1u << count) << first : 0;
		if (!s->wish.wants_keys && draw(4) == 0)
			s->members |= 1u << ANY;
		make_request(s);
	}
	s->releases = draw(3) == 0;
	s->acquires = draw(6) == 0;
}

/* A call that says so has changed nothing. */
static bool
acquire_failed(struct subject *s, int rc)
{
	if (rc != -EIO || s->ends_by != -EIO)
		return false;
	s->state = IDLE;
	s->ends_by = 0;
	/* It may have used its keys, or not. */
	disturbed_ns = now_ns;
	over_limit = true;
	return true;
}

/* In granted, others may have been granted already that are told later. */
static void
acquire(struct subject *s, bool in_granted)
{
	uint64_t delay_ns = draw(2) == 0 ? HWT_NEVER : (1 + draw(40)) * TICK;
	bool may = may_have(s), must = must_have(s);
	bool unsure = in_granted || hold_after != HWT_CHECKOUT_NEVER;
	bool loads_some = false;
	unsigned i;
	int rc;

	for (i = FIRST_KEY; i < PLACES; i++)
		loads_some = loads_some || (has(s->members, i) && !is_there(i));
	s->state = WAITING;
	s->due_ns = delay_ns == HWT_NEVER ? HWT_NEVER : now_ns + delay_ns;
	s->in_call = true;
	if (must && !unsure && draw(3) == 0)
		rc = wish_wait(&s->wish, delay_ns);
	else
		rc = wish_acquire(&s->wish, delay_ns);
	s->in_call = false;
	if (acquire_failed(s, rc))
		return;
	stress_must(rc == 0 || rc == 1, "acquire: %d", rc);
	stress_must(
	    unsure || loads_some || (rc == 0 ? may : !must), "acquire: %d", rc);
	if (rc == 0)
		take(s);
}

static void
step_acquire(struct subject *s)
{
	int rc;

	if (s->state == IDLE) {
		prepare(s);
		acquire(s, false);
		return;
	}
	rc = wish_acquire(&s->wish, HWT_NEVER);
	stress_must(rc == -EBUSY, "acquire: %d", rc);
}

static void
step_try(struct subject *s)
{
	bool may, must;
	int rc;

	if (s->wish.wants_keys)
		return;
	if (s->state == IDLE)
		prepare(s);
	may = s->state == IDLE && may_have(s);
	must = may && must_have(s) && hold_after == HWT_CHECKOUT_NEVER;
	rc = hwt_checkout_try(checkout, &s->wish.request.of_objects);
	if (s->state != IDLE)
		stress_must(rc == -EBUSY, "try: %d", rc);
	else
		stress_must(
		    rc == 0 ? may : rc == -EAGAIN && !must, "try: %d", rc);
	if (rc == 0)
		take(s);
}

static void
step_release(struct subject *s)
{
	int rc;

	if (s->state == OUT) {
		release(s);
		return;
	}
	if (s->members == 0)
		return;
	rc = wish_release(&s->wish);
	stress_must(rc == -ENOENT, "release: %d", rc);
}

static void
step_cancel(struct subject *s)
{
	bool waits = s->state == WAITING;
	int rc;

	if (s->members == 0)
		return;
	if (waits)
		s->ends_by = -ECANCELED;
	rc = wish_cancel(&s->wish);
	stress_must(rc == (waits ? 0 : -ENOENT), "cancel: %d", rc);
}

static void
step_time(uint64_t ticks)
{
	struct subject *s;

	now_ns += ticks * TICK;
	for (s = subject; s < subject + REQUESTS; s++) {
		if (s->state == WAITING && s->due_ns <= now_ns)
			s->ends_by = -ETIMEDOUT;
	}
	stress_must(hwt_advance(timer, NULL) == 0, "hwt_advance");
}

static void
step_pause(void)
{
	uint64_t out = stats_now().out;
	unsigned i;
	int rc;

	for (i = FIRST_KEY; i < PLACES; i++)
		out += place[i].job != NULL && place[i].there == UNLOADING;
	rc = hwt_checkout_pause(checkout, 0);
	if (paused)
		stress_must(rc == -EALREADY, "pause: %d", rc);
	else
		stress_must(rc == (out == 0 ? 0 : -ETIMEDOUT), "pause: %d", rc);
	paused = paused || rc == 0;
	over_limit = over_limit || paused;
}

static void
step_resume(void)
{
	bool was = paused;
	int rc;

	disturbed_ns = paused ? now_ns : disturbed_ns;
	paused = false;
	rc = hwt_checkout_resume(checkout);
	stress_must(rc == (was ? 0 : -EALREADY), "resume: %d", rc);
}

/* The requests that have it and are idle are made again, on the object that
 * its memory becomes. */
static void
renew(unsigned i)
{
	struct subject *s;

	stress_must(hwt_object_init(checkout, &place[i].object, draw(4)) == 0,
	    "object");
	for (s = subject; s < subject + REQUESTS; s++) {
		if (s->state == IDLE && has(s->members, i))
			make_request(s);
	}
}

static void
step_retire(unsigned i)
{
	struct subject *of = (struct subject *)(uintptr_t)place[i].holder;
	struct subject *s;
	int rc;

	place[i].holder = NULL;
	if (of != NULL)
		of->members &= ~(1u << i);
	for (s = subject; of != NULL && s < subject + REQUESTS; s++) {
		if (s->state == WAITING && has(s->members, i))
			s->ends_by = -EIDRM;
	}
	retiring = 1u << i;
	rc = hwt_object_retire(checkout, &place[i].object);
	retiring = 0;
	stress_must(rc == (of != NULL ? 0 : -EPERM), "retire: %d", rc);
	if (of != NULL)
		renew(i);
}

/* It leaves, if somebody has it, or comes. The first one stays. */
static void
step_member(unsigned i)
{
	const struct subject *of = place[i].holder;
	int rc;

	if (!place[i].is_member) {
		place[i].is_member = true;
		rc = hwt_group_add(checkout, &group, &place[i].object);
		stress_must(rc == 0, "add a member: %d", rc);
		return;
	}
	rc = hwt_object_retire(checkout, &place[i].object);
	stress_must(rc == (of != NULL ? 0 : -EPERM), "retire: %d", rc);
	if (of == NULL)
		return;
	place[i].holder = NULL;
	place[i].is_member = false;
	stress_must(of->any->granted == NULL, "it still has it");
}

static void
step(void)
{
	struct subject *s = &subject[draw(REQUESTS)];
	unsigned what = draw(100);

	if (what < 32)
		step_acquire(s);
	else if (what < 38)
		step_try(s);
	else if (what < 68)
		step_release(s);
	else if (what < 72)
		step_cancel(s);
	else if (what < 80)
		step_time(draw(6));
	else if (what < 82)
		step_pause();
	else if (what < 86)
		step_resume();
	else if (what < 95)
		step_complete(FIRST_KEY + draw(KEYS));
	else if (what < 97)
		step_member(FIRST_MEMBER + 1 + draw(MEMBERS - 1));
	else
		step_retire(draw(OBJECTS));
}

/* Rounds. */

static void
open_store(void)
{
	struct hwt_store_options options = {
	    .load = load, .unload = unload, .ctx = place, .shards = 1};

	limit = draw(2) == 0 ? LIMIT : 0;
	idle_ns = draw(2) == 0 ? IDLE_TICKS * TICK : 0;
	options.limit = limit;
	options.idle_ns = idle_ns;
	stress_must(hwt_store_create(&store, checkout, &options) == 0, "store");
	timeouts_of_store = hwt_pending_timeouts(timer);
	over_limit = false;
	disturbed_ns = 0;
}

static void
round_begin(void)
{
	struct hwt_checkout_options options = {
	    .shards = 1u << draw(3), .hold_after = hold_after};
	unsigned i;

	stress_must(
	    hwt_checkout_create(&checkout, timer, &options) == 0, "create");
	memset(subject, 0, sizeof(subject));
	memset(place, 0, sizeof(place));
	granted = expired = cancelled = 0;
	loads = unloads = failures = 0;
	paused = destroying = false;
	for (i = 0; i < OBJECTS; i++)
		stress_must(
		    hwt_object_init(checkout, &place[i].object, draw(4)) == 0,
		    "object");
	for (i = FIRST_KEY; i < PLACES; i++)
		place[i].name = (char)('a' + i - FIRST_KEY);
	stress_must(hwt_group_init(checkout, &group, draw(4)) == 0, "group");
	open_store();
	step_member(FIRST_MEMBER);
	for (i = 0; i < REQUESTS; i++) {
		subject[i].wish.wants_keys = i >= OF_OBJECTS;
		prepare(&subject[i]);
	}
}

static void
shut_down(void)
{
	uint64_t waiting = stats_now().waiting;
	struct subject *s;

	for (s = subject; s < subject + REQUESTS; s++) {
		if (s->state == WAITING)
			s->ends_by = -ESHUTDOWN;
		s->acquires = false;
	}
	stress_must(hwt_checkout_shutdown(checkout) == 0, "shutdown");
	check_all();
	stress_must(stats_now().shut_down == waiting, "shut down");
}

static void
round_end(void)
{
	struct subject *s;
	unsigned i;
	int rc;

	if (paused)
		step_resume();
	shut_down();
	for (s = subject; s < subject + REQUESTS; s++) {
		if (s->state != OUT)
			continue;
		rc = hwt_checkout_destroy(checkout);
		stress_must(rc == -EBUSY, "destroy: %d", rc);
		release(s);
	}
	destroying = true;
	for (i = FIRST_KEY; i < PLACES; i++) {
		if (place[i].job != NULL)
			stress_must(hwt_store_destroy(store) == -EBUSY,
			    "destroy with a job");
		step_complete(i);
	}
	check_all();
	stress_must(hwt_store_destroy(store) == 0, "destroy");
	stress_must(count_there() == 0, "not unloaded");
	stress_must(hwt_checkout_destroy(checkout) == 0, "destroy");
	stress_must(hwt_pending_timeouts(timer) == 0, "timeouts");
	grants += granted;
	all_loads += loads;
	all_unloads += unloads;
}

int
main(int argc, char **argv)
{
	const struct hwt_clock clock = {.now_ns = hand_moved};
	const struct hwt_options options = {
	    .tick_ns = TICK, .flags = HWT_MANUAL, .clock = &clock};
	uint64_t rounds, round, steps;

	stress_begin("checkout_model", argc, argv);
	rounds = stress_scaled(ROUNDS);
	stress_must(hwt_create(&timer, &options) == 0, "hwt_create");
	for (round = 0; round < rounds; round++) {
		rng = random_seed(round);
		hold_after = round % 3 == 2 ? 1 + draw(3) : HWT_CHECKOUT_NEVER;
		round_begin();
		for (steps = 0; steps < STEPS; steps++) {
			stress_phase("steps", round * STEPS + steps);
			step();
			check_all();
		}
		round_end();
	}
	stress_must(hwt_stop(timer, NULL) == 0, "hwt_stop");
	stress_must(hwt_destroy(timer) == 0, "hwt_destroy");
	steps = rounds * STEPS;
	stress_must(grants > steps / 20 && ends > steps / 50 &&
		all_loads > steps / 200 && all_unloads > steps / 400,
	    "%" PRIu64 " grants, %" PRIu64 " ends, %" PRIu64 " loads", grants,
	    ends, all_loads);
	return stress_end("%" PRIu64 " steps, %" PRIu64 " grants, %" PRIu64
			  " waits ended otherwise, %" PRIu64 " loads, %" PRIu64
			  " unloads",
	    steps, grants, ends, all_loads, all_unloads);
}
