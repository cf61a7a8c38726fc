/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random calls of a store in one thread, each held against a plain account of
 * what is loaded, what it weighs, who has it, who reads it, and who waits. Time
 * moves by hand. Loads and unloads answer at once, later, or that they cannot.
 * After each step nobody waits whose objects are all there and free, or read
 * while nobody waits to write them, but in a pause; what is waited for is there
 * or has a job; and the counts agree. What is unloaded may be: it was idle for
 * its time, or too much. What is above the limit after a release, or after
 * trim, could not be.
 *
 * With hold_after a waiting request may have some of its objects, which shows
 * from outside only in who waits: there, somebody is granted when nothing else
 * is out.
 */
#include "test/stress/stress.h"

#include "modules/checkout/hwt_checkout.h"

enum {
	KEYS = 6,
	CLAIMS = 8,
	STEPS = 2000, /* of a round, on a store of its own */
	ROUNDS = 300,
	LIMIT = 5,
	WEIGHTS = 4, /* 0 to 3 */
	TICK = 1000000
};

static struct key {
	enum {
		ABSENT,
		LOADING,
		LOADED,
		UNLOADING
	} state;
	struct hwt_store_job *job; /* it has answered later */
	const struct claim *holder; /* that writes */
	unsigned readers;
	uint32_t weight;
	bool pinned;
	uint64_t since_ns; /* nobody has wanted it, if nobody does */
	uint64_t retry_ns; /* no load begins before */
	bool failed; /* a load, in this step */
} key[KEYS];

static struct claim {
	struct hwt_store_request request;
	struct hwt_store_item item[KEYS];
	unsigned members, reads; /* bits; reads are among the members */
	enum {
		IDLE,
		WAITING,
		OUT
	} state;
	uint64_t due_ns;
	bool cancelled; /* in this step */
} claim[CLAIMS];

static const unsigned char names[KEYS] = "abcdef";
static struct hwt *timer;
static struct hwt_checkout *checkout;
static struct hwt_store *store;
static uint64_t now_ns, rng;
static uint64_t grants, ends, loads, unloads, pauses;
static struct hwt_store_options kept; /* of the store */
static bool closing, keeps; /* hold_after: who waits may keep objects */
static bool refused; /* an unload, in this step */
static uint64_t trim_to; /* in hwt_store_trim, otherwise UINT64_MAX */

static struct hwt_request pauser;
static enum pausing {
	OPEN,
	PAUSED, /* by hwt_checkout_pause */
	TOLD, /* pauser is granted */
	TOLD_WAITS /* and not yet, but nothing else is */
} pausing;

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
has(unsigned bits, unsigned k)
{
	return bits >> k & 1;
}

static bool
is_wanted(unsigned k)
{
	unsigned i;

	for (i = 0; i < CLAIMS; i++) {
		if (claim[i].state != IDLE && has(claim[i].members, k))
			return true;
	}
	return false;
}

static uint64_t
weight_now(void)
{
	uint64_t weight = 0;
	unsigned k;

	for (k = 0; k < KEYS; k++)
		weight += key[k].state == LOADED ? key[k].weight : 0;
	return weight;
}

static unsigned
key_of(const void *name)
{
	return *(const unsigned char *)name - (unsigned)'a';
}

static void
note_failure(struct key *of)
{
	of->failed = true;
	of->state = ABSENT;
	of->retry_ns = now_ns + kept.backoff_ns;
}

static int
load(void *ctx, struct hwt_store_job *job, const void *name, size_t size,
    struct hwt_loaded *loaded)
{
	struct key *of = &key[key_of(name)];
	unsigned how = draw(6);

	(void)ctx;
	(void)size;
	/* Perhaps nobody wants it any more: another load of the same call has
	 * failed. */
	stress_must(of->state == ABSENT && of->holder == NULL, "a second load");
	stress_must(now_ns >= of->retry_ns, "a load within the back-off");
	loads++;
	if (how == 0) {
		note_failure(of);
		return -EIO;
	}
	of->state = how < 4 ? LOADING : LOADED;
	of->job = job;
	of->since_ns = now_ns;
	of->weight = draw(WEIGHTS);
	*loaded = (struct hwt_loaded){of, of->weight};
	return how < 4 ? HWT_STORE_LATER : 0;
}

/* Too much, or not wanted for its time. */
static bool
may_unload(const struct key *of)
{
	return weight_now() > trim_to ||
	    (kept.limit != 0 && weight_now() > kept.limit) ||
	    (kept.idle_ns != 0 && now_ns >= of->since_ns + kept.idle_ns);
}

static int
unload(void *ctx, struct hwt_store_job *job, const void *name, size_t size,
    void *value)
{
	struct key *of = &key[key_of(name)];
	unsigned how = closing ? 3 : draw(4);

	(void)ctx;
	(void)size;
	stress_must(of->state == LOADED && value == of, "it is not there");
	stress_must(!is_wanted(key_of(name)), "it is wanted");
	stress_must(pausing == OPEN, "an unload in a pause");
	stress_must(closing || (!of->pinned && may_unload(of)), "it may stay");
	unloads++;
	refused |= how == 0;
	if (how == 0)
		return -EBUSY;
	of->state = how == 1 ? UNLOADING : ABSENT;
	of->job = job;
	return how == 1 ? HWT_STORE_LATER : 0;
}

/* Whether its objects are there, and nobody has them who would not share. */
static bool
may_have(const struct claim *c)
{
	unsigned k;

	for (k = 0; k < KEYS; k++) {
		if (has(c->members, k) &&
		    (key[k].state != LOADED || key[k].holder != NULL ||
			(key[k].readers > 0 && !has(c->reads, k))))
			return false;
	}
	return true;
}

/* And it need not let a writer go first. */
static bool
must_have(const struct claim *c)
{
	unsigned i, k;

	for (k = 0; k < KEYS; k++) {
		for (i = 0; i < CLAIMS; i++) {
			if (has(c->reads, k) && key[k].readers > 0 &&
			    claim[i].state == WAITING &&
			    has(claim[i].members & ~claim[i].reads, k))
				return false;
		}
	}
	return may_have(c);
}

static void
take(struct claim *c)
{
	struct hwt_store_item *item = c->item;
	unsigned k;

	stress_must(pausing == OPEN, "granted in a pause");
	stress_must(may_have(c), "it is not there, or has two holders");
	for (k = 0; k < KEYS; k++) {
		if (!has(c->members, k))
			continue;
		stress_must(item++->value == &key[k], "another value");
		if (has(c->reads, k))
			key[k].readers++;
		else
			key[k].holder = c;
	}
	c->state = OUT;
	grants++;
}

/* It wants nothing any more. */
static void
leave(struct claim *c)
{
	unsigned k;

	for (k = 0; k < KEYS; k++) {
		if (has(c->members, k))
			key[k].since_ns = now_ns;
	}
	c->state = IDLE;
}

static void
end(struct claim *c, int result)
{
	bool failed = false;
	unsigned k;

	for (k = 0; k < KEYS; k++)
		failed |= has(c->members, k) && key[k].failed;
	stress_must(result != -ETIMEDOUT || now_ns >= c->due_ns, "early");
	stress_must(result != -ECANCELED || c->cancelled, "not cancelled");
	stress_must(result != -EIO || failed, "no load has failed");
	stress_must(result == -ETIMEDOUT || result == -ECANCELED ||
		result == -EIO || result == -ESHUTDOWN,
	    "ended by %d", result);
	leave(c);
	ends++;
}

static void
note_granted(struct hwt_store_request *request, void *arg, int result)
{
	struct claim *c = arg;

	stress_must(request == &c->request && c->state == WAITING, "told");
	if (result == 0)
		take(c);
	else
		end(c, result);
}

static void
prepare(struct claim *c)
{
	unsigned k, count = 0;

	c->members = 1 + draw((1u << KEYS) - 1);
	c->reads = c->members & draw(1u << KEYS);
	for (k = 0; k < KEYS; k++) {
		if (has(c->members, k))
			c->item[count++] =
			    (struct hwt_store_item){.key = &names[k],
				.size = 1,
				.use = has(c->reads, k) ? HWT_READ : HWT_WRITE};
	}
	stress_must(hwt_store_request_init(store, &c->request, c->item, count,
			note_granted, c) == 0,
	    "request");
}

/* The load of a member has failed, and this is not its time yet. */
static bool
backs_off(const struct claim *c, uint64_t late_ns)
{
	unsigned k;

	for (k = 0; k < KEYS && kept.backoff_ns != 0; k++) {
		if (has(c->members, k) && now_ns < key[k].retry_ns + late_ns)
			return true;
	}
	return false;
}

static void
acquire(struct claim *c)
{
	uint64_t delay_ns = draw(2) == 0 ? HWT_NEVER : draw(5) * TICK;
	int rc;

	if (c->state != IDLE)
		return;
	prepare(c);
	if (backs_off(c, 0)) {
		rc = hwt_store_acquire(store, &c->request, delay_ns);
		stress_must(rc == -EIO, "acquire in a back-off: %d", rc);
		return;
	}
	/* It ends with a timeout, which may be late. */
	if (backs_off(c, 2 * TICK))
		return;
	c->state = WAITING;
	c->due_ns = delay_ns == HWT_NEVER ? UINT64_MAX : now_ns + delay_ns;
	rc = hwt_store_acquire(store, &c->request, delay_ns);
	if (rc == 0)
		take(c);
	else
		stress_must(rc == 1, "acquire: %d", rc);
}

/* After a call that unloads while all weighs more than that. */
static void
check_weight(uint64_t most)
{
	unsigned k;

	for (k = 0; k < KEYS && pausing == OPEN && !refused; k++)
		stress_must(weight_now() <= most || key[k].state != LOADED ||
			key[k].pinned || is_wanted(k),
		    "it is above the limit");
}

static void
release(struct claim *c)
{
	unsigned k;

	if (c->state != OUT)
		return;
	for (k = 0; k < KEYS; k++) {
		if (key[k].holder == c)
			key[k].holder = NULL;
		key[k].readers -= has(c->reads, k);
	}
	leave(c);
	stress_must(hwt_store_release(store, &c->request) == 0, "release");
	if (kept.limit != 0)
		check_weight(kept.limit);
}

static void
pin(struct claim *c)
{
	bool pinned = draw(3) == 0;
	int rc = hwt_store_pin(store, &c->request, 0, pinned);

	stress_must(rc == (c->state == OUT ? 0 : -EPERM), "pin: %d", rc);
	if (rc == 0)
		key[key_of(c->item[0].key)].pinned = pinned;
}

static void
trim(void)
{
	trim_to = draw(KEYS);
	stress_must(hwt_store_trim(store, trim_to) == 0, "trim");
	check_weight(trim_to);
	trim_to = UINT64_MAX;
}

static void
cancel(struct claim *c)
{
	bool waits = c->state == WAITING;
	int rc;

	c->cancelled = true;
	rc = hwt_store_cancel(store, &c->request);
	stress_must(rc == (waits ? 0 : -ENOENT), "cancel: %d", rc);
	stress_must(!waits || c->state == IDLE, "cancelled, and waits");
}

static void
complete(struct key *of)
{
	const struct hwt_loaded loaded = {of, of->weight};
	bool fails = !closing && draw(4) == 0;
	bool was_loading = of->state == LOADING;

	if (of->state != LOADING && of->state != UNLOADING)
		return;
	of->since_ns = now_ns;
	of->state = was_loading != fails ? LOADED : ABSENT;
	if (was_loading && fails)
		note_failure(of);
	stress_must(hwt_store_complete(store, of->job, fails ? -EIO : 0,
			was_loading ? &loaded : NULL) == 0,
	    "complete");
}

/* How many a pause waits for. */
static unsigned
busy_now(void)
{
	unsigned i, busy = 0;

	for (i = 0; i < CLAIMS; i++)
		busy += claim[i].state == OUT;
	for (i = 0; i < KEYS; i++)
		busy += key[i].state == UNLOADING;
	return busy;
}

static void
note_pause(struct hwt_request *request, void *arg, enum hwt_grant grant)
{
	(void)arg;
	stress_must(request == &pauser, "told");
	if (grant == HWT_GRANT_CANCELLED) {
		stress_must(pausing == OPEN, "it was not cancelled");
		return;
	}
	stress_must(
	    grant == HWT_GRANTED && pausing == TOLD_WAITS && busy_now() == 0,
	    "a pause is told %d", (int)grant);
	pausing = TOLD;
}

static void
begin_pause(void)
{
	bool waits = busy_now() > 0;
	int rc;

	pauses++;
	if (draw(2) == 0) {
		rc = hwt_checkout_pause(checkout, 0);
		stress_must(rc == (waits ? -ETIMEDOUT : 0), "pause: %d", rc);
		pausing = waits ? OPEN : PAUSED;
		return;
	}
	pausing = TOLD_WAITS;
	rc = hwt_checkout_acquire(checkout, &pauser, HWT_NEVER);
	/* It may be told in the call, when it has others release what they
	 * keep. */
	stress_must(rc == waits || (keeps && pausing == TOLD), "pause: %d", rc);
	if (rc == 0)
		pausing = TOLD;
}

static void
end_pause(void)
{
	enum pausing was = pausing;
	int rc;

	stress_must(hwt_checkout_pause(checkout, 0) == -EALREADY, "pause");
	pausing = OPEN;
	if (was == PAUSED)
		rc = hwt_checkout_resume(checkout);
	else if (was == TOLD)
		rc = hwt_checkout_release(checkout, &pauser);
	else
		rc = hwt_checkout_cancel(checkout, &pauser);
	stress_must(rc == 0, "the end of a pause: %d", rc);
}

static void
advance(void)
{
	now_ns += (1 + draw(3)) * TICK;
	stress_must(hwt_advance(timer, NULL) == 0, "advance");
}

static void
step(void)
{
	unsigned k;

	refused = false;
	for (k = 0; k < KEYS; k++)
		key[k].failed = false;
	for (k = 0; k < CLAIMS; k++)
		claim[k].cancelled = false;
	switch (draw(13)) {
	case 0:
	case 1:
	case 2:
		acquire(&claim[draw(CLAIMS)]);
		break;
	case 3:
	case 4:
	case 5:
		release(&claim[draw(CLAIMS)]);
		break;
	case 6:
		cancel(&claim[draw(CLAIMS)]);
		break;
	case 7:
	case 8:
		complete(&key[draw(KEYS)]);
		break;
	case 9:
		if (pausing != OPEN)
			end_pause();
		else if (draw(4) == 0)
			begin_pause();
		break;
	case 10:
		trim();
		break;
	case 11:
		pin(&claim[draw(CLAIMS)]);
		break;
	default:
		advance();
	}
}

static void
check_claim(const struct claim *c)
{
	unsigned k;

	for (k = 0; k < KEYS && c->state == WAITING; k++)
		stress_must(!has(c->members, k) || key[k].state != ABSENT,
		    "nobody loads it");
	stress_must(
	    c->state != WAITING || pausing != OPEN || keeps || !must_have(c),
	    "it waits for nothing");
}

static void
check_all(void)
{
	struct hwt_store_stats stats;
	uint64_t loaded = 0, jobs = 0, waiting = 0;
	unsigned i;

	for (i = 0; i < CLAIMS; i++) {
		check_claim(&claim[i]);
		waiting += claim[i].state == WAITING;
	}
	for (i = 0; i < KEYS; i++) {
		loaded += key[i].state == LOADED;
		jobs += key[i].state == LOADING || key[i].state == UNLOADING;
	}
	stress_must(hwt_store_read_stats(store, &stats) == 0, "stats");
	stress_must(stats.loaded == loaded && stats.weight == weight_now() &&
		stats.jobs == jobs,
	    "%" PRIu64 " are loaded, not %" PRIu64 ", and weigh %" PRIu64
	    ", not %" PRIu64,
	    stats.loaded, loaded, stats.weight, weight_now());
	stress_must(pausing != TOLD_WAITS || busy_now() > 0,
	    "a pause waits for nothing");
	stress_must(waiting == 0 || pausing != OPEN || jobs + busy_now() > 0,
	    "all wait");
}

static void
round_begin(void)
{
	const struct hwt_checkout_options options = {
	    .hold_after = draw(3) == 0 ? draw(3) : HWT_CHECKOUT_NEVER};

	keeps = options.hold_after != HWT_CHECKOUT_NEVER;
	kept = (struct hwt_store_options){.load = load,
	    .unload = unload,
	    .limit = draw(2) * LIMIT,
	    .idle_ns = draw(2) * 3 * TICK,
	    .backoff_ns = draw(2) * 3 * TICK,
	    .shards = 1u << draw(3)};
	memset(key, 0, sizeof(key));
	memset(claim, 0, sizeof(claim));
	pausing = OPEN;
	trim_to = UINT64_MAX;
	closing = false;
	stress_must(
	    hwt_checkout_create(&checkout, timer, &options) == 0, "create");
	stress_must(hwt_store_create(&store, checkout, &kept) == 0, "store");
	stress_must(hwt_request_init_pause(
			checkout, &pauser, NULL, 0, note_pause, NULL) == 0,
	    "request");
	for (unsigned i = 0; i < CLAIMS; i++)
		prepare(&claim[i]);
}

static void
round_end(void)
{
	unsigned i;

	closing = true;
	if (pausing != OPEN)
		end_pause();
	stress_must(hwt_checkout_shutdown(checkout) == 0, "shutdown");
	for (i = 0; i < CLAIMS; i++) {
		stress_must(claim[i].state != WAITING, "it still waits");
		release(&claim[i]);
	}
	for (i = 0; i < KEYS; i++)
		complete(&key[i]);
	stress_must(hwt_store_destroy(store) == 0, "destroy the store");
	for (i = 0; i < KEYS; i++)
		stress_must(key[i].state == ABSENT, "it is still there");
	stress_must(hwt_checkout_destroy(checkout) == 0, "destroy");
}

int
main(int argc, char **argv)
{
	const struct hwt_clock clock = {.now_ns = hand_moved};
	const struct hwt_options options = {
	    .tick_ns = TICK, .flags = HWT_MANUAL, .clock = &clock};
	uint64_t rounds, round, steps;

	stress_begin("checkout_store_model", argc, argv);
	rounds = stress_scaled(ROUNDS);
	stress_must(hwt_create(&timer, &options) == 0, "hwt_create");
	for (round = 0; round < rounds; round++) {
		rng = random_seed(round);
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
	stress_must(grants > rounds * STEPS / 40 && ends > rounds * STEPS / 50,
	    "%" PRIu64 " grants, %" PRIu64 " ends", grants, ends);
	return stress_end("%" PRIu64 " steps, %" PRIu64 " grants, %" PRIu64
			  " ended otherwise, %" PRIu64 " loads, %" PRIu64
			  " unloads, %" PRIu64 " pauses",
	    rounds * STEPS, grants, ends, loads, unloads, pauses);
}
