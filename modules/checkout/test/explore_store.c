/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs on a store, for the explorer of the checkout: see
 * explore_checkout.c. At every moment:
 *
 *   loaded-once   no load runs for an object that is there, or is being loaded
 *                 or unloaded
 *   one-holder    a granted object is there, and nobody else has it, but
 *                 readers beside readers
 *   unload-alone  nobody has what is unloaded
 *   pause         nothing is granted, and no unload runs, during a pause
 *   once          each wait is told once
 *
 * and at its end nothing is left: all is unloaded, and store and checkout can
 * be destroyed.
 */
#include <errno.h>

#include "explore_shim.h"
#include "modules/checkout/store.h"

#include "explore_programs.h"

#define KEYS 2
#define CLAIMS 4

static struct thing {
	bool there, out; /* out: to a writer */
	unsigned readers;
	uint32_t uses; /* of those that have it */
	bool busy; /* a job runs */
	uint32_t steps; /* of its jobs */
	struct hwt_store_job *job; /* that was put off */
} * thing;

struct claim {
	struct hwt_store_request request;
	struct hwt_store_item item[KEYS];
	const char *keys;
	unsigned accepted, told;
	int result;
	bool keeps;
};

static struct world {
	struct thing thing[KEYS];
	struct claim claim[CLAIMS];
	bool paused;
	uint32_t put_off; /* jobs, so far */
	uint32_t ended; /* of these */
	struct hwt_store_job *job[8];
	bool later; /* jobs are put off */
	bool uses; /* who has an object does so for a step */
	int result; /* of jobs */
	bool gone; /* the store was destroyed */
	struct hwt_request pause; /* that is told */
	unsigned pauses, pauses_told;
} world;
static struct hwt_store *store;

/* Jobs. */

static struct thing *
thing_of(const void *key)
{
	return &world.thing[*(const char *)key - 'a'];
}

/* True: it is put off. */
static bool
job_begins(struct thing *of, struct hwt_store_job *job, bool there)
{
	explore_check(
	    !of->busy && !of->out && of->readers == 0 && of->there == there);
	of->busy = true;
	if (!world.later)
		return false;
	explore_modify(&world.put_off, 4);
	world.job[world.put_off++] = job;
	return true;
}

static void
job_ends(struct thing *of, bool there)
{
	explore_check(of->busy && !of->out && of->readers == 0);
	of->busy = false;
	of->there = there;
}

static int
load(void *ctx, struct hwt_store_job *job, const void *key, size_t size,
    struct hwt_loaded *loaded)
{
	struct thing *of = thing_of(key);

	(void)ctx;
	(void)size;
	if (job_begins(of, job, false))
		return HWT_STORE_LATER;
	explore_modify(&of->steps, 4);
	job_ends(of, world.result == 0);
	loaded->value = of;
	return world.result;
}

static int
unload(void *ctx, struct hwt_store_job *job, const void *key, size_t size,
    void *value)
{
	struct thing *of = thing_of(key);
	int result = world.result;

	(void)ctx;
	(void)size;
	explore_check(value == of && !world.paused);
	if (job_begins(of, job, true))
		return HWT_STORE_LATER;
	explore_modify(&of->steps, 4);
	explore_check(!world.paused);
	job_ends(of, result != 0);
	return result;
}

static bool
something_is_put_off(const void *count)
{
	return *(const uint32_t *)count > world.ended;
}

/* The job that was put off first, of the object a. Those that begin from then
 * on end at once, with after. */
static void
end_job(int result, int after)
{
	struct thing *of = &world.thing[0];
	const struct hwt_loaded loaded = {of, 1};

	explore_await(&world.put_off, 4, something_is_put_off, &world.put_off);
	world.later = false;
	world.result = after;
	job_ends(of, of->there ? result != 0 : result == 0);
	explore_check(hwt_store_complete(store, world.job[world.ended++],
			  result, &loaded) == 0);
}

static void
load_well(void)
{
	end_job(0, 0);
}

static void
load_badly(void)
{
	end_job(-EIO, 0);
}

static void
load_well_then_badly(void)
{
	end_job(0, -EIO);
}

/* Requests. */

static void
release(struct claim *c)
{
	struct thing *of;
	unsigned i;

	for (i = 0; c->keys[i] > ' '; i++) {
		of = thing_of(c->item[i].key);
		if (c->item[i].use == HWT_READ)
			of->readers--;
		else
			of->out = false;
	}
	explore_check(hwt_store_release(store, &c->request) == 0);
}

static void
take(struct claim *c)
{
	struct thing *of;
	bool reads;
	unsigned i;

	explore_check(!world.paused);
	for (i = 0; c->keys[i] > ' '; i++) {
		of = thing_of(c->item[i].key);
		reads = c->item[i].use == HWT_READ;
		explore_check(of->there && !of->busy && !of->out);
		explore_check(reads || of->readers == 0);
		explore_check(c->item[i].value == of);
		of->readers += reads;
		of->out = !reads;
		if (world.uses && reads)
			(void)explore_load(&of->uses, 4);
		else if (world.uses)
			explore_modify(&of->uses, 4);
	}
	if (!c->keeps)
		release(c);
}

static void
note_granted(struct hwt_store_request *request, void *arg, int result)
{
	struct claim *c = arg;

	explore_check(request == &c->request && c->told == 0);
	c->told++;
	c->result = result;
	if (result == 0)
		take(c);
}

static void
acquire(unsigned i, uint64_t delay_ns)
{
	struct claim *c = &world.claim[i];
	int result = hwt_store_acquire(store, &c->request, delay_ns);

	explore_check(result == 0 || result == 1 || result == -ESHUTDOWN ||
	    result == -EIO);
	c->accepted = result == 1;
	if (result == 0)
		take(c);
}

static void
acquire_wait(unsigned i, int other)
{
	struct claim *c = &world.claim[i];
	int result = hwt_store_acquire_wait(store, &c->request, HWT_NEVER);

	explore_check(result == 0 || result == other);
	if (result == 0)
		take(c);
}

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
	world.claim[i].keeps = true;
}

#define WAIT(name, other)               \
	static void name(unsigned i)    \
	{                               \
		acquire_wait(i, other); \
	}
WAIT(wait_granted, 0)
WAIT(wait_failed, -EIO)
WAIT(wait_shut_down, -ESHUTDOWN)

static void
cancel(unsigned i)
{
	int result = hwt_store_cancel(store, &world.claim[i].request);

	explore_check(
	    result == 0 || result == -EINPROGRESS || result == -ENOENT);
}

static void
shut_down(void)
{
	explore_check(hwt_checkout_shutdown(checkout) == 0);
}

static void
paused(void)
{
	unsigned i;

	world.paused = true;
	explore_modify(&world.put_off, 4);
	for (i = 0; i < KEYS; i++)
		explore_check(!world.thing[i].out &&
		    world.thing[i].readers == 0 &&
		    !(world.thing[i].busy && world.thing[i].there));
	world.paused = false;
}

static void
pause_once(void)
{
	explore_check(hwt_checkout_pause(checkout, HWT_NEVER) == 0);
	paused();
	explore_check(hwt_checkout_resume(checkout) == 0);
}

static void
pause_granted(struct hwt_request *request, void *arg, enum hwt_grant grant)
{
	(void)arg;
	explore_check(grant == HWT_GRANTED);
	world.pauses_told++;
	paused();
	explore_check(hwt_checkout_release(checkout, request) == 0);
}

static void
pause_told(void)
{
	int result;

	explore_check(hwt_request_init_pause(checkout, &world.pause, NULL, 0,
			  pause_granted, NULL) == 0);
	world.pauses++;
	result = hwt_checkout_acquire(checkout, &world.pause, HWT_NEVER);
	explore_check(result == 0 || result == 1);
	if (result == 0)
		pause_granted(&world.pause, NULL, HWT_GRANTED);
}

static void
trim(void)
{
	explore_check(hwt_store_trim(store, 0) == 0);
}

/* It answers 0 where no job is to end, and nobody waits. */
static void
destroy(void)
{
	struct hwt_store_stats stats;
	bool busy = false;
	int result;
	unsigned i;

	explore_check(hwt_store_read_stats(store, &stats) == 0);
	for (i = 0; i < CLAIMS; i++)
		busy |= world.claim[i].accepted != world.claim[i].told;
	busy |= stats.loaded + stats.jobs > 0;
	result = hwt_store_destroy(store);
	explore_check(result == 0 || (result == -EBUSY && busy));
	world.gone = result == 0;
	explore_check(!world.gone || !timeouts_pend());
}

/* What begins from now on. */

static void
later(void)
{
	world.later = true;
}

static void
kept(void)
{
	world.result = -EBUSY;
}

static void
used(void)
{
	world.uses = true;
}

static const struct verb verbs[] = {
    {"acquire", .of = never},
    {"soon", .of = soon}, /* acquire with a deadline */
    {"keep", .of = keep}, /* to the end */
    {"wait", .of = wait_granted},
    {"wait-failed", .of = wait_failed}, /* or granted; so is the next one */
    {"wait-shutdown", .of = wait_shut_down},
    {"cancel", .of = cancel},
    {"trim", .alone = trim},
    {"fire", .alone = fire}, /* what is pending comes due */
    {"fire-last", .alone = fire_last},
    {"pause", .alone = pause_once}, /* and resume */
    {"pause-told", .alone = pause_told},
    {"shutdown", .alone = shut_down},
    {"destroy", .alone = destroy},
    {"later", .alone = later}, /* jobs are put off */
    {"kept", .alone = kept}, /* unloads refuse */
    {"used", .alone = used}, /* who has an object uses it for a step */
    {"ends", .alone = load_well}, /* a job that was put off */
    {"fails", .alone = load_badly},
    {"ends-then-fails", .alone = load_well_then_badly}, /* the next one */
    {0},
};

/* Beginnings and the end. */

static void
claim_make(struct claim *c, const char *keys)
{
	static const char names[] = "abAB";
	const char *name;
	size_t k;

	c->keys = keys;
	for (k = 0; keys[k] > ' '; k++) {
		name = strchr(names, keys[k]);
		c->item[k] = (struct hwt_store_item){
		    .key = name < names + KEYS ? name : name - KEYS,
		    .size = 1,
		    .use = name < names + KEYS ? HWT_WRITE : HWT_READ};
	}
	explore_check(hwt_store_request_init(store, &c->request, c->item, k,
			  note_granted, c) == 0);
}

static void
world_make(const struct program *program)
{
	struct hwt_store_options options = program->store;
	const char *keys = program->requests;
	unsigned i;

	memset(&world, 0, sizeof(world));
	checkout_make(0);
	options.load = load;
	options.unload = unload;
	options.shards = 1;
	explore_check(hwt_store_create(&store, checkout, &options) == 0);
	for (i = 0; *keys != 0; i++) {
		claim_make(&world.claim[i], keys);
		keys += strcspn(keys, " ");
		keys += strspn(keys, " ");
	}
}

/* What waits at another object has not failed to hear of a failure. */
static void
check_waits(struct claim *c)
{
	const struct store_request *request =
	    (const struct store_request *)&c->request;
	uint32_t i;

	for (i = 0; i < request->count && c->accepted && !c->told; i++)
		explore_check(entry_at(request, i)->state != ENTRY_FAILED);
}

static void
world_end(void)
{
	struct hwt_checkout_stats stats;
	unsigned i;

	world.later = false;
	world.result = 0;
	for (i = 0; i < CLAIMS; i++)
		check_waits(&world.claim[i]);
	for (i = 0; i < CLAIMS; i++) {
		if (!world.claim[i].keeps)
			continue;
		if (world.claim[i].accepted != world.claim[i].told)
			explore_fail("request %u waits, and may read", i);
		release(&world.claim[i]);
	}
	for (i = 0; i < CLAIMS; i++) {
		if (world.claim[i].accepted != world.claim[i].told)
			explore_fail("request %u was not told", i);
	}
	explore_check(world.pauses_told == world.pauses);
	if (!world.gone)
		explore_check(hwt_store_destroy(store) == 0);
	for (i = 0; i < KEYS; i++) {
		thing = &world.thing[i];
		explore_check(!thing->there && !thing->out && !thing->busy &&
		    thing->readers == 0);
	}
	explore_check(hwt_checkout_read_stats(checkout, &stats) == 0);
	explore_check(stats.out == 0 && stats.waiting == 0);
	explore_check(hwt_checkout_destroy(checkout) == 0);
}

/*
 * Names: there: a is loaded. read: some requests read it. fail: of two that
 * wait for a load, one waits at b, which is out. idle/fail: the timeout of
 * before is far, and one waits that has a deadline.
 */
static const struct program programs[] = {
    {"store/load/two", "a a a", .run = "acquire 0 | acquire 1"},
    {"store/load/three", "a a a", .run = "acquire 0 | acquire 1 | acquire 2"},
    {"store/load/sets", "ab ba", .run = "acquire 0 | acquire 1"},
    {"store/load/wait", "a a a", .run = "wait 0 | wait 1"},
    {"store/load/later", "a a a", .begin = "later",
	.run = "acquire 0 | acquire 1 | ends"},
    {"store/load/later-wait", "a a a", .begin = "later",
	.run = "wait 0 | acquire 1 | ends"},
    {"store/load/cancel", "a a a", .begin = "later",
	.run = "acquire 0 | cancel 0 | ends"},
    {"store/load/expire", "a a a", .begin = "later",
	.run = "soon 0 | fire | ends"},
    {"store/load/pause", "a a a", .begin = "later",
	.run = "acquire 0 | pause | ends"},
    {"store/load/pause-two", "a a a", .run = "acquire 0 | acquire 1 | pause"},
    {"store/load/shutdown", "a a a", .run = "acquire 0 | acquire 1 | shutdown"},
    {"store/load/shutdown-later", "a a a", .begin = "later, acquire 2",
	.run = "acquire 0 | ends | shutdown", .store.limit = 1},
    {"store/load/shutdown-wait", "a a a", .begin = "later, acquire 2",
	.run = "wait-shutdown 1 | ends | shutdown", .store.limit = 1},
    {"store/load/shutdown-destroy", "a a a", .begin = "later, acquire 2",
	.run = "ends | shutdown, destroy", .store.limit = 1},
    {"store/read/later", "A a A a", .begin = "later, used",
	.run = "acquire 0 | acquire 1 | ends"},
    {"store/read/shared", "A a A a", .begin = "later, used, keep 0, keep 2",
	.run = "acquire 0 | acquire 2 | ends"},
    {"store/read/unload", "A a A a", .begin = "acquire 3, used",
	.run = "trim | acquire 0 | acquire 1"},
    {"store/fail/acquire", "ab a ab b",
	.begin = "keep 3, acquire 3, later, acquire 0",
	.run = "acquire 1 | acquire 2 | fails"},
    {"store/fail/cancel", "ab a ab b",
	.begin = "keep 3, acquire 3, later, acquire 0",
	.run = "acquire 1 | cancel 0 | fails"},
    {"store/fail/wait", "a a a", .begin = "later",
	.run = "wait-failed 0 | fails"},
    {"store/fail/pause", "a a a", .begin = "later",
	.run = "acquire 0 | pause | fails"},
    {"store/fail/back-off", "a a a", .begin = "later",
	.run = "wait-failed 0 | fails | fire", .store.backoff_ns = 1},
    {"store/fail/back-off-destroy", "a a a", .begin = "later, acquire 0, fails",
	.run = "fire | destroy", .store.backoff_ns = 1},
    {"store/unload/acquire", "a a a a", .begin = "acquire 3",
	.run = "trim | acquire 0"},
    {"store/unload/wait", "a a a a", .begin = "acquire 3",
	.run = "trim | wait 0 | acquire 1"},
    {"store/unload/two", "a a a a", .begin = "acquire 3",
	.run = "trim | trim | acquire 0"},
    {"store/unload/set", "ab a a a", .begin = "acquire 3",
	.run = "trim | acquire 0 | acquire 1"},
    {"store/unload/refuse", "a a a a", .begin = "acquire 3, kept",
	.run = "trim | acquire 0"},
    {"store/unload/later", "a a a a", .begin = "acquire 3, later, trim",
	.run = "acquire 0 | acquire 1 | ends"},
    {"store/unload/fail", "a a a a", .begin = "acquire 3, later, trim",
	.run = "wait-failed 0 | ends-then-fails"},
    {"store/unload/refuse-later", "a a a a", .begin = "acquire 3, later, trim",
	.run = "acquire 0 | fails"},
    {"store/unload/pause", "a a a a", .begin = "acquire 3",
	.run = "trim | pause"},
    {"store/unload/pause-acquire", "a a a a", .begin = "acquire 3",
	.run = "trim | acquire 0 | pause"},
    {"store/unload/pause-told", "a a a a", .begin = "acquire 3",
	.run = "trim | acquire 0 | pause-told"},
    {"store/unload/pause-told-later", "a a a a",
	.begin = "acquire 3, later, trim",
	.run = "acquire 0 | pause-told | ends"},
    {"store/unload/shutdown", "a a a a", .begin = "acquire 3",
	.run = "trim | acquire 0 | shutdown"},
    {"store/unload/limit", "a b a", .run = "acquire 0 | acquire 1 | acquire 2",
	.store.limit = 1},
    {"store/idle/acquire", "a a a a", .begin = "acquire 3",
	.run = "fire | acquire 0", .store.idle_ns = 1},
    {"store/idle/trim", "a a a a", .begin = "acquire 3",
	.run = "fire | trim | acquire 0", .store.idle_ns = 1},
    {"store/idle/limit", "b a a a", .begin = "acquire 3",
	.run = "fire | acquire 0", .store.idle_ns = 1, .store.limit = 1},
    {"store/idle/pause", "a a a a", .begin = "acquire 3", .run = "fire | pause",
	.store.idle_ns = 1},
    {"store/idle/pause-told", "a a a a", .begin = "acquire 3",
	.run = "fire | pause-told", .store.idle_ns = 1},
    {"store/idle/destroy", "a a a a", .begin = "acquire 3",
	.run = "fire | destroy", .store.idle_ns = 1},
    {"store/idle/fail-destroy", "a a a a",
	.begin = "acquire 3, later, trim, soon 0",
	.run = "fire-last | ends-then-fails | destroy", .store.idle_ns = 1000},
};

const struct family store_family = {programs,
    sizeof(programs) / sizeof(programs[0]), verbs, world_make, world_end};
