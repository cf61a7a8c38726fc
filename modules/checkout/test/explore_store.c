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
end_well(void)
{
	end_job(0, 0);
}

static void
end_badly(void)
{
	end_job(-EIO, 0);
}

static void
end_well_then_fail(void)
{
	end_job(0, -EIO);
}

/* Requests. */

static void
release(struct claim *c)
{
	struct thing *of;
	unsigned i;

	for (i = 0; c->keys[i] != 0; i++) {
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
	for (i = 0; c->keys[i] != 0; i++) {
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

#define NEVER(i)                       \
	static void never_##i(void)    \
	{                              \
		acquire(i, HWT_NEVER); \
	}
NEVER(0)
NEVER(1)
NEVER(2)

static void
soon_0(void)
{
	acquire(0, 1);
}

static void
wait_0(void)
{
	acquire_wait(0, 0);
}

static void
wait_1(void)
{
	acquire_wait(1, 0);
}

static void
wait_0_fails(void)
{
	acquire_wait(0, -EIO);
}

static void
wait_1_shut_down(void)
{
	acquire_wait(1, -ESHUTDOWN);
}

static void
cancel_0(void)
{
	int result = hwt_store_cancel(store, &world.claim[0].request);

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

/* As a program ends: a load may end meanwhile. */
static void
shut_down_and_destroy(void)
{
	shut_down();
	destroy();
}

/* Beginnings and the end. */

/* keys: "ab" is a set of two objects to write; "A" is a, to read. */
static void
claim_make(struct claim *c, const char *keys)
{
	static const char names[] = "abAB";
	const char *name;
	size_t k;

	c->keys = keys;
	for (k = 0; keys[k] != 0; k++) {
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
world_make(const char *const *keys, const struct hwt_store_options *with)
{
	struct hwt_store_options options = *with;
	unsigned i;

	memset(&world, 0, sizeof(world));
	checkout_make(0);
	options.load = load;
	options.unload = unload;
	options.shards = 1;
	explore_check(hwt_store_create(&store, checkout, &options) == 0);
	for (i = 0; keys[i] != NULL; i++)
		claim_make(&world.claim[i], keys[i]);
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

void
store_program_end(void)
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

#define OPTIONS(...) (&(const struct hwt_store_options){__VA_ARGS__})
#define BEGIN(name, options, ...)                                      \
	static void begin_##name(void)                                 \
	{                                                              \
		static const char *const keys[] = {__VA_ARGS__, NULL}; \
		world_make(keys, options);                             \
	}
/* Jobs are put off. */
#define LATER(name, options, ...)                                      \
	static void begin_##name(void)                                 \
	{                                                              \
		static const char *const keys[] = {__VA_ARGS__, NULL}; \
		world_make(keys, options);                             \
		world.later = true;                                    \
	}
/* The object a is there. */
#define THERE(name, options, is_later, is_result, ...)                 \
	static void begin_##name(void)                                 \
	{                                                              \
		static const char *const keys[] = {__VA_ARGS__, NULL}; \
		world_make(keys, options);                             \
		acquire(3, HWT_NEVER);                                 \
		world.claim[3].told = world.claim[3].accepted = 0;     \
		world.later = is_later;                                \
		world.result = is_result;                              \
	}
BEGIN(two, OPTIONS(.limit = 0), "a", "a", "a")
BEGIN(sets, OPTIONS(.limit = 0), "ab", "ba")
BEGIN(limit, OPTIONS(.limit = 1), "a", "b", "a")
LATER(later, OPTIONS(.limit = 0), "a", "a", "a")
LATER(later_limit, OPTIONS(.limit = 1), "a", "a", "a")
LATER(back_off, OPTIONS(.backoff_ns = 1), "a", "a", "a")
THERE(there, OPTIONS(.limit = 0), false, 0, "a", "a", "a", "a")
THERE(there_set, OPTIONS(.limit = 0), false, 0, "ab", "a", "a", "a")
THERE(there_later, OPTIONS(.limit = 0), true, 0, "a", "a", "a", "a")
THERE(there_kept, OPTIONS(.limit = 0), false, -EBUSY, "a", "a", "a", "a")
THERE(idle, OPTIONS(.idle_ns = 1), false, 0, "a", "a", "a", "a")
THERE(idle_later, OPTIONS(.idle_ns = 1000), true, 0, "a", "a", "a", "a")
THERE(
    idle_limit, OPTIONS(.idle_ns = 1, .limit = 1), false, 0, "b", "a", "a", "a")

/* Request 2 waits for a load. */
static void
begin_loading(void)
{
	begin_later_limit();
	acquire(2, HWT_NEVER);
}

static const char *const readers[] = {"A", "a", "A", "a", NULL};

static void
begin_read_later(void)
{
	world_make(readers, OPTIONS(.limit = 0));
	world.later = true;
	world.uses = true;
}

/* Two that read a keep it to the end. */
static void
begin_read_shared(void)
{
	begin_read_later();
	world.claim[0].keeps = world.claim[2].keeps = true;
}

/* The object a is there. */
static void
begin_read_there(void)
{
	world_make(readers, OPTIONS(.limit = 0));
	acquire(3, HWT_NEVER);
	world.claim[3].told = world.claim[3].accepted = 0;
	world.uses = true;
}

static void
begin_trimmed(void)
{
	begin_there_later();
	trim();
}

/* The same; its timeout of before is far, and one waits who has a deadline. */
static void
begin_idle_trimmed(void)
{
	begin_idle_later();
	trim();
	acquire(0, 1);
}

/* A load has failed, and the back-off is not over. */
static void
begin_backed_off(void)
{
	begin_back_off();
	acquire(0, HWT_NEVER);
	end_badly();
}

/* Two wait for a that is loaded, one of them at b, which is out. */
static void
begin_failing(void)
{
	static const char *const keys[] = {"ab", "a", "ab", "b", NULL};

	world_make(keys, OPTIONS(.limit = 0));
	world.claim[3].keeps = true;
	acquire(3, HWT_NEVER);
	world.later = true;
	acquire(0, HWT_NEVER);
}

const struct program store_programs[] = {
    {"store/load/two", begin_two, {never_0, never_1}},
    {"store/load/three", begin_two, {never_0, never_1, never_2}},
    {"store/load/sets", begin_sets, {never_0, never_1}},
    {"store/load/wait", begin_two, {wait_0, wait_1}},
    {"store/load/later", begin_later, {never_0, never_1, end_well}},
    {"store/load/later-wait", begin_later, {wait_0, never_1, end_well}},
    {"store/load/cancel", begin_later, {never_0, cancel_0, end_well}},
    {"store/load/expire", begin_later, {soon_0, fire, end_well}},
    {"store/load/pause", begin_later, {never_0, pause_once, end_well}},
    {"store/load/pause-two", begin_two, {never_0, never_1, pause_once}},
    {"store/load/shutdown", begin_two, {never_0, never_1, shut_down}},
    {"store/load/shutdown-later", begin_loading,
	{never_0, end_well, shut_down}},
    {"store/load/shutdown-wait", begin_loading,
	{wait_1_shut_down, end_well, shut_down}},
    {"store/load/shutdown-destroy", begin_loading,
	{end_well, shut_down_and_destroy}},
    {"store/read/later", begin_read_later, {never_0, never_1, end_well}},
    {"store/read/shared", begin_read_shared, {never_0, never_2, end_well}},
    {"store/read/unload", begin_read_there, {trim, never_0, never_1}},
    {"store/fail/acquire", begin_failing, {never_1, never_2, end_badly}},
    {"store/fail/cancel", begin_failing, {never_1, cancel_0, end_badly}},
    {"store/fail/wait", begin_later, {wait_0_fails, end_badly}},
    {"store/fail/pause", begin_later, {never_0, pause_once, end_badly}},
    {"store/fail/back-off", begin_back_off, {wait_0_fails, end_badly, fire}},
    {"store/fail/back-off-destroy", begin_backed_off, {fire, destroy}},
    {"store/unload/acquire", begin_there, {trim, never_0}},
    {"store/unload/wait", begin_there, {trim, wait_0, never_1}},
    {"store/unload/two", begin_there, {trim, trim, never_0}},
    {"store/unload/set", begin_there_set, {trim, never_0, never_1}},
    {"store/unload/refuse", begin_there_kept, {trim, never_0}},
    {"store/unload/later", begin_trimmed, {never_0, never_1, end_well}},
    {"store/unload/fail", begin_trimmed, {wait_0_fails, end_well_then_fail}},
    {"store/unload/refuse-later", begin_trimmed, {never_0, end_badly}},
    {"store/unload/pause", begin_there, {trim, pause_once}},
    {"store/unload/pause-acquire", begin_there, {trim, never_0, pause_once}},
    {"store/unload/pause-told", begin_there, {trim, never_0, pause_told}},
    {"store/unload/pause-told-later", begin_trimmed,
	{never_0, pause_told, end_well}},
    {"store/unload/shutdown", begin_there, {trim, never_0, shut_down}},
    {"store/unload/limit", begin_limit, {never_0, never_1, never_2}},
    {"store/idle/acquire", begin_idle, {fire, never_0}},
    {"store/idle/trim", begin_idle, {fire, trim, never_0}},
    {"store/idle/limit", begin_idle_limit, {fire, never_0}},
    {"store/idle/pause", begin_idle, {fire, pause_once}},
    {"store/idle/pause-told", begin_idle, {fire, pause_told}},
    {"store/idle/destroy", begin_idle, {fire, destroy}},
    {"store/idle/fail-destroy", begin_idle_trimmed,
	{fire_last, end_well_then_fail, destroy}},
};

const size_t store_program_count =
    sizeof(store_programs) / sizeof(store_programs[0]);
