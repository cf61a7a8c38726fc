/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random calls of a store in one thread, each held against a plain account of
 * what is loaded, who has it, and who waits. Time moves by hand. Loads and
 * unloads answer at once, later, or that they cannot. After each step nobody
 * waits whose objects are all there and free, but in a pause; what is waited
 * for is there or has a job; and the counts agree.
 */
#include "test/stress/stress.h"

#include "modules/checkout/hwt_checkout.h"

enum {
	KEYS = 6,
	CLAIMS = 8,
	STEPS = 2000, /* of a round, on a store of its own */
	ROUNDS = 300,
	LIMIT = 3,
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
	const struct claim *holder;
	bool failed; /* a load, in this step */
} key[KEYS];

static struct claim {
	struct hwt_store_request request;
	struct hwt_store_item item[KEYS];
	unsigned members; /* bits */
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
static uint64_t grants, ends, loads, unloads;
static bool paused, closing;

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
is_wanted(unsigned k)
{
	unsigned i;

	for (i = 0; i < CLAIMS; i++) {
		if (claim[i].state != IDLE && claim[i].members >> k & 1)
			return true;
	}
	return false;
}

static unsigned
key_of(const void *name)
{
	return *(const unsigned char *)name - (unsigned)'a';
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
	loads++;
	if (how == 0) {
		of->failed = true;
		return -EIO;
	}
	of->state = how < 4 ? LOADING : LOADED;
	of->job = job;
	loaded->value = of;
	return how < 4 ? HWT_STORE_LATER : 0;
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
	stress_must(!paused, "an unload in a pause");
	unloads++;
	if (how == 0)
		return -EBUSY;
	of->state = how == 1 ? UNLOADING : ABSENT;
	of->job = job;
	return how == 1 ? HWT_STORE_LATER : 0;
}

static void
take(struct claim *c)
{
	unsigned k;

	stress_must(!paused, "granted in a pause");
	for (k = 0; k < KEYS; k++) {
		if (!(c->members >> k & 1))
			continue;
		stress_must(key[k].state == LOADED, "it is not there");
		stress_must(key[k].holder == NULL, "two holders");
		key[k].holder = c;
	}
	c->state = OUT;
	grants++;
}

static void
end(struct claim *c, int result)
{
	bool failed = false;
	unsigned k;

	for (k = 0; k < KEYS; k++)
		failed |= (c->members >> k & 1) && key[k].failed;
	stress_must(result != -ETIMEDOUT || now_ns >= c->due_ns, "early");
	stress_must(result != -ECANCELED || c->cancelled, "not cancelled");
	stress_must(result != -EIO || failed, "no load has failed");
	stress_must(result == -ETIMEDOUT || result == -ECANCELED ||
		result == -EIO || result == -ESHUTDOWN,
	    "ended by %d", result);
	c->state = IDLE;
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
acquire(struct claim *c)
{
	uint64_t delay_ns = draw(2) == 0 ? HWT_NEVER : draw(5) * TICK;
	unsigned k, count = 0;
	int rc;

	if (c->state != IDLE)
		return;
	c->members = 1 + draw((1u << KEYS) - 1);
	for (k = 0; k < KEYS; k++) {
		if (c->members >> k & 1)
			c->item[count++] = (struct hwt_store_item){
			    .key = &names[k], .size = 1};
	}
	stress_must(hwt_store_request_init(store, &c->request, c->item, count,
			note_granted, c) == 0,
	    "request");
	c->state = WAITING;
	c->due_ns = delay_ns == HWT_NEVER ? UINT64_MAX : now_ns + delay_ns;
	rc = hwt_store_acquire(store, &c->request, delay_ns);
	if (rc == 0)
		take(c);
	else
		stress_must(rc == 1, "acquire: %d", rc);
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
	}
	c->state = IDLE;
	stress_must(hwt_store_release(store, &c->request) == 0, "release");
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
	const struct hwt_loaded loaded = {of, 1};
	bool fails = !closing && draw(4) == 0;
	bool was_loading = of->state == LOADING;

	if (of->state != LOADING && of->state != UNLOADING)
		return;
	of->failed = was_loading && fails;
	of->state = was_loading != fails ? LOADED : ABSENT;
	stress_must(hwt_store_complete(store, of->job, fails ? -EIO : 0,
			was_loading ? &loaded : NULL) == 0,
	    "complete");
}

static void
pause_or_resume(void)
{
	unsigned i, busy = 0;
	int rc;

	if (paused) {
		paused = false;
		stress_must(hwt_checkout_resume(checkout) == 0, "resume");
		return;
	}
	for (i = 0; i < CLAIMS; i++)
		busy += claim[i].state == OUT;
	for (i = 0; i < KEYS; i++)
		busy += key[i].state == UNLOADING;
	rc = hwt_checkout_pause(checkout, 0);
	stress_must(rc == (busy > 0 ? -ETIMEDOUT : 0), "pause: %d", rc);
	paused = rc == 0;
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

	for (k = 0; k < KEYS; k++)
		key[k].failed = false;
	for (k = 0; k < CLAIMS; k++)
		claim[k].cancelled = false;
	switch (draw(12)) {
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
		pause_or_resume();
		break;
	case 10:
		stress_must(hwt_store_trim(store, draw(KEYS)) == 0, "trim");
		break;
	default:
		advance();
	}
}

static void
check_claim(const struct claim *c)
{
	bool free = true;
	unsigned k;

	if (c->state != WAITING)
		return;
	for (k = 0; k < KEYS; k++) {
		if (!(c->members >> k & 1))
			continue;
		stress_must(key[k].state != ABSENT, "nobody loads it");
		free &= key[k].state == LOADED && key[k].holder == NULL;
	}
	stress_must(paused || !free, "it waits for nothing");
}

static void
check_all(void)
{
	struct hwt_store_stats stats;
	uint64_t loaded = 0, jobs = 0;
	unsigned i;

	for (i = 0; i < CLAIMS; i++)
		check_claim(&claim[i]);
	for (i = 0; i < KEYS; i++) {
		loaded += key[i].state == LOADED;
		jobs += key[i].state == LOADING || key[i].state == UNLOADING;
	}
	stress_must(hwt_store_read_stats(store, &stats) == 0, "stats");
	stress_must(stats.loaded == loaded && stats.weight == loaded &&
		stats.jobs == jobs,
	    "%" PRIu64 " are loaded, not %" PRIu64, stats.loaded, loaded);
}

static void
round_begin(void)
{
	const struct hwt_checkout_options options = {
	    .hold_after = HWT_CHECKOUT_NEVER};
	const struct hwt_store_options kept = {.load = load,
	    .unload = unload,
	    .limit = draw(2) * LIMIT,
	    .idle_ns = draw(2) * 3 * TICK,
	    .shards = 1u << draw(3)};

	memset(key, 0, sizeof(key));
	memset(claim, 0, sizeof(claim));
	paused = false;
	closing = false;
	stress_must(
	    hwt_checkout_create(&checkout, timer, &options) == 0, "create");
	stress_must(hwt_store_create(&store, checkout, &kept) == 0, "store");
	for (unsigned i = 0; i < CLAIMS; i++) {
		claim[i].item[0] =
		    (struct hwt_store_item){.key = &names[0], .size = 1};
		stress_must(hwt_store_request_init(store, &claim[i].request,
				claim[i].item, 1, note_granted, &claim[i]) == 0,
		    "request");
	}
}

static void
round_end(void)
{
	unsigned i;

	closing = true;
	if (paused)
		pause_or_resume();
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
			  " unloads",
	    rounds * STEPS, grants, ends, loads, unloads);
}
