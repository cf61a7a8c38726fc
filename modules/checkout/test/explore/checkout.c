/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checkout's programs for the explorer of interleavings, on the timer's own
 * code. What must hold in each execution:
 *
 *   holders     an object is out to one request that writes it, or to several
 *               that read it
 *   once        granted is called once for each wait that began, and not again
 *               after the last that may come
 *   lost        at the end, a request that waits wants an object that is out,
 *               or there is a pause
 *   early       no deadline ends a wait before its time
 *   pause       nothing is out, and nothing is granted, while there is one
 *   memory      requests and retired objects are freed as soon as they may be,
 *               and not used after that; nothing is left
 *
 * Objects are 0, 1 and 2, in this order; 3 is a group of up to two members.
 * Sets are bits of these.
 */
#include "test/explore/program.h"

#include <errno.h>

#include "modules/checkout/test/explore/checkout.h"

/* As in modules/checkout/checkout.h. */
struct queue {
	void *first, *last;
	bool runs, calls;
};
extern _Thread_local struct queue checkout_queue;

struct checkout_ledger checkout_ledger;

static struct checkout_ledger *const at = &checkout_ledger;

void
checkout_programs_init(void)
{
	explore_add_local(&checkout_queue, sizeof(checkout_queue));
}

/* The ledger. */

static bool
reads(const struct request_ledger *r, unsigned i)
{
	return r->reads >> i & 1;
}

/* Each order of two that get or give back an object is explored. */
static void
mark_out(struct request_ledger *r, int by)
{
	unsigned i;

	explore_modify(&at->paused, 4);
	explore_check(!at->paused);
	at->out += (unsigned)by;
	for (i = 0; i < OBJECTS; i++) {
		if (!(r->wants >> i & 1))
			continue;
		explore_modify(&at->holders[i], 8);
		if (by > 0 && i < GROUP_NUMBER)
			explore_check(at->holders[i].writers == 0 &&
			    (reads(r, i) || at->holders[i].readers == 0));
		if (reads(r, i))
			at->holders[i].readers += (unsigned)by;
		else
			at->holders[i].writers += (unsigned)by;
	}
	explore_check(at->holders[GROUP_NUMBER].writers <= at->members);
}

static void
set_granted(struct request_ledger *r)
{
	unsigned i;

	for (i = 0; i < r->count; i++)
		explore_check(r->items[i].granted != NULL);
	mark_out(r, 1);
	r->granted = true;
}

static void
free_request(struct request_ledger *r)
{
	simulated_free(r->request);
	r->request = NULL;
}

static void
end_request(struct request_ledger *r, enum hwt_grant grant)
{
	r->grant = grant;
	explore_check(
	    grant != HWT_GRANT_EXPIRED || sim_now_ns >= r->not_before_ns);
	if (grant == HWT_GRANTED)
		set_granted(r);
	else if (r->frees)
		free_request(r);
	explore_modify(&r->decided, 4);
	r->decided = 1;
}

static void
release_of(struct request_ledger *r)
{
	r->granted = false;
	mark_out(r, -1);
	explore_check(hwt_checkout_release(at->checkout, r->request) == 0);
	at->released++;
	if (r->frees)
		free_request(r);
}

static int acquire_of(struct request_ledger *r, uint64_t delay_ns);

static void
was_granted(struct hwt_request *request, void *arg, enum hwt_grant grant)
{
	struct request_ledger *r = arg;

	explore_check(request == r->request && r->waits && !r->decided);
	r->waits = false;
	end_request(r, grant);
	if (r->releases && grant == HWT_GRANTED)
		release_of(r);
	if (r->then > 0)
		(void)acquire_of(&at->request[r->then - 1], HWT_NEVER);
}

static void
begin_wait(struct request_ledger *r, uint64_t delay_ns)
{
	r->decided = 0;
	r->waits = true;
	r->not_before_ns =
	    delay_ns == HWT_NEVER ? HWT_NEVER : sim_now_ns + delay_ns;
}

static void
settle_call(struct request_ledger *r, int result)
{
	static const int results[] = {[HWT_GRANTED] = 0,
	    [HWT_GRANT_EXPIRED] = -ETIMEDOUT,
	    [HWT_GRANT_CANCELLED] = -ECANCELED,
	    [HWT_GRANT_RETIRED] = -EIDRM,
	    [HWT_GRANT_SHUT_DOWN] = -ESHUTDOWN};
	unsigned grant = HWT_GRANTED;

	while (results[grant] != result)
		explore_check(++grant <= HWT_GRANT_SHUT_DOWN);
	r->waits = false;
	end_request(r, (enum hwt_grant)grant);
}

static int
acquire_of(struct request_ledger *r, uint64_t delay_ns)
{
	int result;

	begin_wait(r, delay_ns);
	result = hwt_checkout_acquire(at->checkout, r->request, delay_ns);
	if (result != 1)
		settle_call(r, result);
	if (result == 0 && r->releases)
		release_of(r);
	return result;
}

/* Making. */

static void
make_on(uint32_t flags, const struct hwt_checkout_options *options)
{
	unsigned i;

	timer_make(&(struct hwt_options){.flags = flags});
	for (i = 0; i < 3; i++)
		thread_prepare(i, 2);
	memset(at, 0, sizeof(*at));
	memset(&checkout_queue, 0, sizeof(checkout_queue));
	explore_check(hwt_checkout_create(&at->checkout, timer, options) == 0);
	for (i = 0; i < GROUP_NUMBER; i++) {
		at->object[i] = simulated_calloc(1, sizeof(struct hwt_object));
		explore_check(
		    hwt_object_init(at->checkout, at->object[i], i) == 0);
	}
	explore_check(
	    hwt_group_init(at->checkout, &at->group, GROUP_NUMBER) == 0);
}

/* With so many shards. */
OF("make", shards,
    make_on(HWT_MANUAL, &(struct hwt_checkout_options){.shards = shards}))
/* Time moves when all wait. */
OF("make-worker", shards,
    make_on(0, &(struct hwt_checkout_options){.shards = shards}))
OF("make-in-order", hold_after,
    make_on(HWT_MANUAL,
	&(struct hwt_checkout_options){.shards = 1, .hold_after = hold_after}))

/* A member of group 3. */
VERB1("add", add, member)
{
	explore_modify(&at->holders[GROUP_NUMBER], 8);
	at->members++;
	explore_check(
	    hwt_group_add(at->checkout, &at->group, &at->member[member]) == 0);
}

/* Request i wants these to write, and those to read; prepared anew. */
static void
prepare(unsigned i, unsigned bits, unsigned reads_bits)
{
	struct request_ledger *r = &at->request[i];
	unsigned k;

	r->reads = reads_bits;
	r->wants = bits;
	r->count = 0;
	for (k = 0; k < OBJECTS; k++) {
		if (!(bits >> k & 1))
			continue;
		r->items[r->count].wanted =
		    k == GROUP_NUMBER ? &at->group.any : at->object[k];
		r->items[r->count++].use = reads(r, k) ? HWT_READ : HWT_WRITE;
	}
	if (r->request == NULL)
		r->request = simulated_calloc(1, sizeof(*r->request));
	explore_check(hwt_request_init_items(
			  r->request, r->items, r->count, was_granted, r) == 0);
}

/* Request, set to write. */
TWO("want", i, bits, prepare(i, bits, 0))
TWO("read", i, bits, prepare(i, bits, bits))

static void
releases(unsigned i)
{
	at->request[i].releases = true;
}

/* The request, as soon as it may. */
OF("frees", i, at->request[i].frees = true)
/* Its granted acquires that one. */
TWO("then", i, other, at->request[i].then = other + 1)

/* Calls. */

OF("acquire", i, (void)acquire_of(&at->request[i], HWT_NEVER))
/* Within a tick. */
OF("acquire-due", i, (void)acquire_of(&at->request[i], TICK_NS))

VERB1("try", try_once, i)
{
	struct request_ledger *r = &at->request[i];
	int result = hwt_checkout_try(at->checkout, r->request);

	explore_check(result == 0 || result == -EAGAIN);
	if (result == 0)
		set_granted(r);
	else if (r->frees)
		free_request(r);
}

static void
wait_of(unsigned i, uint64_t delay_ns)
{
	struct request_ledger *r = &at->request[i];

	begin_wait(r, delay_ns);
	settle_call(
	    r, hwt_checkout_acquire_wait(at->checkout, r->request, delay_ns));
}

static void
wait_for(unsigned i)
{
	wait_of(i, HWT_NEVER);
}

OF("wait-due", i, wait_of(i, TICK_NS))

/* If it is granted. */
VERB1("release", release, i)
{
	if (at->request[i].granted)
		release_of(&at->request[i]);
}

static bool
is_decided(const void *context)
{
	return ((const struct request_ledger *)context)->decided != 0;
}

static void
await_end(unsigned i)
{
	explore_await(&at->request[i].decided, 4, is_decided, &at->request[i]);
}

static bool
has_begun(const void *context)
{
	const struct request_ledger *r = context;

	return r->decided || r->request == NULL ||
	    (r->request->private_words[0] & 7) == 3 /* STATE_WAITING */;
}

/* Until it waits. */
OF("begun", i,
    explore_await(at->request[i].request, 8, has_begun, &at->request[i]))

static void
cancel_of(unsigned i)
{
	int result = hwt_checkout_cancel(at->checkout, at->request[i].request);

	explore_check(
	    result == 0 || result == -EINPROGRESS || result == -ENOENT);
}

/* The clock moves alone. */
OF("pass", ticks, sim_clock_add(ticks *TICK_NS))

static void
pause_within(uint64_t delay_ns)
{
	int result = hwt_checkout_pause(at->checkout, delay_ns);

	explore_check(result == 0 || result == -ETIMEDOUT ||
	    result == -ESHUTDOWN || result == -EALREADY);
	if (result != 0)
		return;
	explore_modify(&at->paused, 4);
	explore_check(at->out == 0);
	at->paused = 1;
	at->pauses++;
}

ALONE("pause", pause_within(HWT_NEVER))
ALONE("pause-now", pause_within(0))
ALONE("pause-due", pause_within(TICK_NS))

VERB0("resume", resume)
{
	if (!at->paused)
		return;
	explore_modify(&at->paused, 4);
	at->paused = 0;
	explore_check(hwt_checkout_resume(at->checkout) == 0);
}

/* Object k, which request i has, and its memory. */
VERB2("retire", retire, i, k)
{
	struct request_ledger *r = &at->request[i];

	if (!r->granted)
		return;
	explore_modify(&at->holders[k], 8);
	at->holders[k].writers--;
	r->wants &= ~(1u << k);
	if (k == GROUP_NUMBER) {
		at->members--;
		explore_check(hwt_object_retire(at->checkout,
				  r->items[r->count - 1].granted) == 0);
		return;
	}
	explore_check(hwt_object_retire(at->checkout, at->object[k]) == 0);
	simulated_free(at->object[k]);
	at->object[k] = NULL;
}

/* Nobody is granted it. */
OF("cannot-retire", k,
    explore_check(hwt_object_retire(at->checkout, at->object[k]) == -EPERM))

VERB0("shutdown", shut_down)
{
	explore_check(hwt_checkout_shutdown(at->checkout) == 0);
	at->shut_down = true;
}

/* What is returned is a deadline's. */
VERB0("stop-timer", stop_timer)
{
	struct hwt_timeout_info info;
	struct hwt_unprocessed list;

	explore_check(hwt_stop(timer, &list) == 0);
	while (hwt_unprocessed_next(&list, &info))
		;
}

/* Ends. */

OF("check-granted", i, explore_check(at->request[i].grant == HWT_GRANTED))
OF("check-ended", i, explore_check(at->request[i].grant > HWT_GRANTED))

static bool
is_free(const struct request_ledger *r, unsigned k)
{
	if (k == GROUP_NUMBER)
		return at->holders[k].writers < at->members;
	return at->holders[k].writers == 0 &&
	    (reads(r, k) || at->holders[k].readers == 0);
}

/* It waits although it could have all; other waits may come first, but then
 * that one has not been given what it waits for. */
static bool
is_lost(const struct request_ledger *r)
{
	unsigned k;

	if (!r->waits || at->paused)
		return false;
	for (k = 0; k < OBJECTS; k++) {
		if (r->wants >> k & 1 && !is_free(r, k))
			return false;
	}
	return true;
}

static void
end_waits(void)
{
	struct request_ledger *r;

	for (r = at->request; r < at->request + REQUESTS; r++) {
		explore_check(!r->waits || !at->shut_down);
		if (is_lost(r))
			explore_fail("request %u waits for what is free",
			    (unsigned)(r - at->request));
	}
	for (r = at->request; r < at->request + REQUESTS; r++) {
		if (r->waits)
			explore_check(
			    hwt_checkout_cancel(at->checkout, r->request) == 0);
	}
}

void
checkout_end(void)
{
	struct hwt_checkout_stats stats;
	struct request_ledger *r;
	unsigned i;

	if (at->paused)
		resume();
	if (at->has_store)
		store_end();
	end_waits();
	for (r = at->request; r < at->request + REQUESTS; r++) {
		if (r->granted)
			release_of(r);
	}
	end_waits();
	for (r = at->request; r < at->request + REQUESTS; r++) {
		if (r->request != NULL)
			free_request(r);
	}
	explore_check(hwt_checkout_read_stats(at->checkout, &stats) == 0);
	explore_check(stats.out == 0 && stats.waiting == 0 && at->out == 0);
	explore_check(at->has_store || stats.released == at->released);
	explore_check(stats.pauses == at->pauses);
	explore_check(timer_stopped || hwt_pending_timeouts(timer) == 0);
	for (i = 0; i < GROUP_NUMBER; i++)
		simulated_free(at->object[i]);
	explore_check(hwt_checkout_destroy(at->checkout) == 0);
}

/* Words that the library's programs have, too. */
static const struct verb own_verbs[] = {
    {"releases", .of = releases}, /* in granted, or when it has it */
    {"wait", .of = wait_for},
    {"await", .of = await_end},
    {"cancel", .of = cancel_of},
    {.more = library_verbs},
};

#define PROGRAM(name_, first_, run_, ...)                          \
	{                                                          \
		.name = "checkout/" name_, .verbs = own_verbs,     \
		.first = first_, .run = run_, .end = checkout_end, \
		.last = __VA_ARGS__                                \
	}

/* clang-format off */
const struct program checkout_programs[] = {
    /* E:wait, and sets */
    PROGRAM("sets-that-cross", "make 2, want 0 3, want 1 3, want 2 3, "
	"releases 0, releases 1, releases 2",
	"acquire 0 | acquire 1 | acquire 2",
	"check-granted 0, check-granted 1, check-granted 2"),
    PROGRAM("roll-back-wakes", "make 1, want 0 2, acquire 0, want 1 3, "
	"want 2 1, releases 1, releases 2",
	"acquire 1 | acquire 2 | release 0",
	"check-granted 1, check-granted 2"),
    PROGRAM("roll-back-wakes-deadline", "make 1, want 0 2, acquire 0, "
	"want 1 3, want 2 1, releases 2",
	"acquire-due 1 | acquire 2 | advance 2", "check-granted 2"),
    PROGRAM("two-release-sets", "make 1, want 0 1, acquire 0, want 1 2, "
	"acquire 1, want 2 3, acquire 2, want 3 3, acquire 3, releases 2",
	"release 0 | release 1 | cancel 2", "check-granted 3"),
    PROGRAM("try-beside", "make 1, want 0 3, want 1 2, acquire 1, want 2 1, "
	"releases 2", "try 0, release 0 | acquire 2 | release 1",
	"check-granted 2"),
    PROGRAM("granted-acquires", "make 1, want 0 1, acquire 0, want 1 1, "
	"acquire 1, releases 1, then 1 2, want 2 3, want 3 2, releases 2, "
	"releases 3",
	"release 0 | acquire 3", "check-granted 2, check-granted 3"),
    /* the end of a wait */
    PROGRAM("release-cancel", "make 1, want 0 1, acquire 0, want 1 1, "
	"frees 1, acquire 1, want 2 1, acquire 2", "release 0 | cancel 1", "")
	/* cancel: the memory stays until it returns */,
    PROGRAM("release-deadline", "make 1, want 0 1, acquire 0, want 1 1, "
	"frees 1, releases 1, acquire-due 1, want 2 1, acquire 2, pass 2",
	"release 0 | advance 0", "check-granted 2"),
    PROGRAM("acquire-deadline", "make 1, want 0 1, acquire 0, want 1 1",
	"acquire-due 1 | advance 2 | release 0", ""),
    PROGRAM("deadline-of-a-set", "make 1, want 0 1, acquire 0, want 1 2, "
	"acquire 1, want 2 3, acquire-due 2, want 3 2, acquire 3, pass 2",
	"release 0, release 1 | advance 0", "release 2, check-granted 3"),
    PROGRAM("deadline-timer-stopped", "make 1, want 0 1, acquire 0, "
	"want 1 1, acquire-due 1", "stop-timer | release 0",
	"check-granted 1"),
    PROGRAM("deadline-opens-readers", "make 1, read 0 1, acquire 0, want 1 1, "
	"acquire-due 1, read 2 1, acquire 2, pass 2", "advance 0 | cancel 1",
	"check-granted 2"),
    /* readers */
    PROGRAM("writer-readers", "make 1, want 0 1, acquire 0, read 1 1, "
	"read 2 1", "release 0 | acquire 1 | acquire 2",
	"check-granted 1, check-granted 2"),
    PROGRAM("reader-writer-reader", "make 1, read 0 1, want 1 1, read 2 1, "
	"releases 0, releases 1, releases 2",
	"acquire 0 | acquire 1 | acquire 2",
	"check-granted 0, check-granted 1, check-granted 2"),
    /* threads, with batons */
    PROGRAM("thread-and-thief", "make 1, want 0 1, acquire 0, want 1 1, "
	"want 2 1, releases 2", "release 0 | wait 1, release 1 | acquire 2",
	"check-granted 2"),
    PROGRAM("baton-elsewhere", "make 1, want 0 2, acquire 0, want 1 1, "
	"want 2 3, want 3 2, releases 3",
	"wait 2, release 2 | acquire 1, acquire 3 | "
	"release 0, await 3, await 1, release 1", "check-granted 3",
	.preemptions = 3),
    PROGRAM("baton-deadline", "make 1, want 0 1, acquire 0, want 1 1, "
	"want 2 1, releases 2",
	"wait-due 1, release 1 | advance 2, acquire 2 | release 0",
	"check-granted 2"),
    PROGRAM("baton-cancel-behind", "make 1, want 0 1, acquire 0, "
	"want 1 1, want 2 1, releases 2", "wait 1, release 1 | "
	"begun 1, acquire 2, release 0 | cancel 1", "check-granted 2"),
    PROGRAM("baton-readers", "make 1, want 0 1, acquire 0, read 1 1, "
	"read 2 1", "release 0 | wait 1, release 1 | wait 2, release 2", ""),
    PROGRAM("baton-reads-first", "make 1, want 0 1, acquire 0, "
	"read 1 1, read 2 1",
	"wait 1, await 2, release 1 | begun 1, acquire 2, release 0", ""),
    PROGRAM("thread-cancel", "make 1, want 0 1, acquire 0, want 1 1",
	"release 0 | wait 1, release 1 | cancel 1", ""),
    /* in order */
    PROGRAM("in-order", "make-in-order 1, want 0 1, acquire 0, want 1 1, "
	"want 2 1, releases 2", "release 0 | wait 1, release 1 | acquire 2",
	"check-granted 2"),
    PROGRAM("order-cancel", "make-in-order 1, want 0 2, acquire 0, want 1 3, "
	"releases 1, acquire 1, want 2 3, releases 2, acquire 2, want 3 1, "
	"releases 3", "cancel 1 | release 0 | acquire 3",
	"check-granted 2, check-granted 3"),
    PROGRAM("order-deadline", "make-in-order 1, want 0 2, acquire 0, want 1 3, "
	"acquire-due 1, want 2 1, releases 2, pass 2",
	"advance 0 | acquire 2 | release 0", "release 1, check-granted 2"),
    PROGRAM("order-of-three", "make-in-order 1, want 0 3, want 1 6, want 2 5, "
	"releases 0, releases 1, releases 2",
	"acquire 0 | acquire 1 | acquire 2",
	"check-granted 0, check-granted 1, check-granted 2"),
    PROGRAM("order-pause", "make-in-order 1, want 0 2, acquire 0, want 1 3, "
	"releases 1, acquire 1", "release 0 | pause, resume",
	"check-granted 1"),
    /* pause */
    PROGRAM("pause-two-shards", "make 2, want 0 1, want 1 2, releases 0, "
	"releases 1", "acquire 0 | acquire 1 | pause, resume",
	"check-granted 0, check-granted 1"),
    PROGRAM("pause-release-acquire", "make 1, want 0 1, acquire 0, want 1 1, "
	"releases 1", "release 0 | acquire 1 | pause, resume",
	"check-granted 1"),
    PROGRAM("pause-pool", "make 1, add 0, want 0 8, want 1 8, releases 0, "
	"releases 1", "acquire 0 | acquire 1 | pause, resume",
	"check-granted 0, check-granted 1"),
    PROGRAM("pause-now", "make 1, want 0 1, acquire 0, want 1 1, releases 1",
	"release 0, acquire 1 | pause-now, resume", "check-granted 1"),
    PROGRAM("pause-deadline", "make-worker 1, want 0 1, acquire 0, want 1 2, "
	"releases 1", "pause-due, resume, stop-timer | acquire 1", "release 0, "
	"check-granted 1"),
    PROGRAM("wait-deadline", "make-worker 1, want 0 1, acquire 0, want 1 1, "
	"frees 1", "wait-due 1, stop-timer | release 0", ""),
    PROGRAM("pause-wait-deadline", "make 1, want 0 1, pause",
	"wait-due 0, release 0 | resume | advance 2", ""),
    PROGRAM("pause-shutdown", "make 1, want 0 1, acquire 0",
	"pause | shutdown | release 0", ""),
    /* groups */
    PROGRAM("group-threads", "make 1, add 0, want 0 8, want 1 8, want 2 8",
	"wait 0, release 0 | wait 1, release 1 | wait 2, release 2", ""),
    PROGRAM("group-two-members", "make 1, add 0, add 1, want 0 8, acquire 0, "
	"want 1 8, acquire 1, want 2 8, want 3 8",
	"release 0 | release 1 | wait 2, release 2 | wait 3, release 3", ""),
    PROGRAM("group-add", "make 1, want 0 8, want 1 8",
	"add 0, add 1 | wait 0 | wait 1", ""),
    PROGRAM("group-deadline", "make 1, add 0, want 0 8, acquire 0, want 1 8, "
	"acquire-due 1, want 2 8, acquire 2, pass 2", "release 0 | advance 0",
	"release 1, check-granted 2"),
    PROGRAM("group-and-object", "make 1, add 0, want 0 9, want 1 9, want 2 8, "
	"releases 0, releases 1, releases 2",
	"acquire 0 | acquire 1 | acquire 2",
	"check-granted 0, check-granted 1, check-granted 2"),
    PROGRAM("group-retire-member", "make 1, add 0, add 1, want 0 8, "
	"acquire 0, want 1 8, acquire 1, want 2 8, acquire 2",
	"retire 0 3, release 0 | release 1", "check-granted 2"),
    /* retirements */
    PROGRAM("retire-cancel", "make 1, want 0 1, acquire 0, want 1 1, "
	"acquire 1, want 2 3, acquire 2", "retire 0 0 | cancel 1",
	"check-ended 1, check-ended 2"),
    PROGRAM("retire-waits-elsewhere", "make 1, want 0 2, acquire 0, want 1 1, "
	"acquire 1, want 2 3, acquire 2", "retire 0 1 | release 1",
	"check-ended 2"),
    PROGRAM("retire-two", "make 1, want 0 2, acquire 0, want 1 1, acquire 1, "
	"want 2 3, frees 2, acquire 2", "retire 0 1 | retire 1 0", ""),
    PROGRAM("retire-given-earlier", "make 1, want 0 4, acquire 0, want 1 3, "
	"acquire 1, want 2 5, acquire 2, want 3 6, acquire 3",
	"retire 0 2 | release 1", "check-ended 2, check-ended 3"),
    PROGRAM("retire-baton", "make 1, want 0 2, acquire 0, want 1 1, acquire 1, "
	"want 2 3, want 3 3", "begun 3, retire 0 1 | release 1 | wait 3",
	""),
    PROGRAM("retire-baton-elsewhere", "make 1, want 0 4, acquire 0, want 1 2, "
	"acquire 1, want 2 6, want 3 2, releases 3", "wait 2, release 2 | "
	"begun 2, acquire 3, release 1 | begun 2, retire 0 2, release 0",
	"check-granted 3"),
    PROGRAM("retire-thief", "make 1, want 0 1, acquire 0, want 1 1, want 2 1",
	"wait 1, release 1 | "
	"begun 1, release 0, try 2, retire 2 0, release 2", ""),
    PROGRAM("retire-woken", "make 4, want 0 1, acquire 0, want 1 1",
	"release 0 | wait 1, retire 1 0, release 1", ""),
    PROGRAM("retire-thread", "make 1, want 0 1, acquire 0, want 1 1",
	"begun 1, retire 0 0 | wait 1", "check-ended 1"),
    PROGRAM("retire-after-release", "make 1, want 0 1, acquire 0, want 1 1, "
	"want 2 1", "begun 1, begun 2, release 0 | wait 1, retire 1 0 | "
	"begun 1, wait 2", "check-ended 2"),
    PROGRAM("retire-handed-over", "make 1, want 0 1, acquire 0, want 1 1, "
	"acquire 1, want 2 1, acquire 2",
	"release 0 | await 1, retire 1 0, await 2",
	"check-ended 2"),
    PROGRAM("retire-by-a-stranger", "make 1, want 0 2, acquire 0, want 1 3, "
	"frees 1", "try 1 | cannot-retire 0", ""),
    /* shutdown */
    PROGRAM("shutdown-acquire", "make 1, want 0 1, acquire 0, want 1 1",
	"shutdown | acquire 1", ""),
    PROGRAM("shutdown-wait", "make 2, want 0 1, acquire 0, want 1 3",
	"shutdown | wait 1 | release 0", ""),
    PROGRAM("shutdown-deadline", "make 1, want 0 1, acquire 0, want 1 1, "
	"frees 1, acquire-due 1, pass 2", "shutdown | advance 0", ""),
    /* store: one load, its failure, who leaves it, and unloads */
    PROGRAM("load-once-threads", "make 1, store 0, keys 0 3, keys 1 6",
	"wait-get 0, put 0 | wait-get 1, put 1", "check-loads 3"),
    PROGRAM("load-fails-of-two", "make 1, store 0, fails 1, keys 0 1, "
	"keys 1 3, releases-keys 0, releases-keys 1",
	"wait-get 0 | wait-get 1", ""),
    PROGRAM("load-later", "make 1, store 0, later, keys 0 1, keys 1 1, "
	"releases-keys 0, releases-keys 1", "get 0 | get 1 | answer 0 1",
	"check-loads 1, check-got 0, check-got 1"),
    PROGRAM("load-later-fails", "make 1, store 0, later, keys 0 1, keys 1 3, "
	"get 0, get 1", "answer 0 0 | answer 1 1 | drop 1", "check-failed 0"),
    PROGRAM("load-fails-in-pause", "make 1, store 0, later, keys 0 1, pause",
	"get 0 | answer 0 0", "check-failed 0"),
    PROGRAM("load-cancel", "make 1, store 0, later, keys 0 1, keys 1 1, "
	"releases-keys 1, get 0, get 1", "answer 0 1 | drop 0",
	"put 0, check-got 1"),
    PROGRAM("load-deadline", "make 1, store 0, later, keys 0 1, "
	"releases-keys 0, get-due 0, pass 2", "answer 0 1 | advance 0", ""),
    PROGRAM("load-shutdown", "make 1, store 0, later, keys 0 1, "
	"releases-keys 0, get 0", "answer 0 1 | shutdown", ""),
    PROGRAM("unload-get", "make 1, store 1, keys 0 1, keys 1 2, keys 2 1, "
	"releases-keys 0, releases-keys 1, releases-keys 2, get 0",
	"get 1 | get 2", "check-got 1, check-got 2"),
    PROGRAM("unload-pause", "make 1, store 1, keys 0 1, keys 1 2, "
	"releases-keys 0, get 0, get 1", "put 1 | pause, resume", ""),
    {0},
};
