/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs and rows of the store; those of checkout.c may be used, too. Beside
 * what must hold there: a key is loaded only when it is not there, and unloaded
 * only when it is, by one job at a time that has it alone; whoever is granted a
 * key finds what its load has made; in the end nothing is there.
 */
#include "test/explore/program.h"

#include <errno.h>

#include "modules/checkout/test/explore/checkout.h"

#define KEYS 3
#define WANTS 3

struct want_ledger {
	struct hwt_store_request *request;
	struct hwt_store_item items[KEYS];
	unsigned wants, count;
	bool waits, granted, releases;
	int result; /* the last; 1: none */
	uint32_t decided;
};

static struct {
	struct want_ledger want[WANTS];
	struct {
		_Alignas(8) uint32_t there, holders;
		struct hwt_store_job *job; /* to be answered */
	} of[KEYS];
	unsigned fails; /* so many loads */
	unsigned loads;
	bool later;
} store_at;

static const char *const names[KEYS] = {"a", "b", "c"};

static unsigned
key_of(const void *key)
{
	return (unsigned)(*(const char *)key - 'a');
}

static int
load(void *ctx, struct hwt_store_job *job, const void *key, size_t size,
    struct hwt_loaded *loaded)
{
	unsigned k = key_of(key);

	explore_check(ctx == &store_at && size == 1);
	explore_modify(&store_at.of[k], 8);
	explore_check(!store_at.of[k].there && store_at.of[k].holders == 0);
	store_at.loads++;
	if (store_at.fails > 0) {
		store_at.fails--;
		return -EIO;
	}
	store_at.of[k].there = 1;
	loaded->value = &store_at.of[k];
	if (!store_at.later)
		return 0;
	explore_modify(&store_at.of[k].job, 8);
	store_at.of[k].job = job;
	return HWT_STORE_LATER;
}

static int
unload(void *ctx, struct hwt_store_job *job, const void *key, size_t size,
    void *value)
{
	unsigned k = key_of(key);

	(void)job;
	explore_check(ctx == &store_at && size == 1);
	explore_modify(&store_at.of[k], 8);
	explore_check(value == &store_at.of[k] && store_at.of[k].there);
	explore_check(store_at.of[k].holders == 0);
	explore_check(!explore_load(&checkout_ledger.paused, 4));
	store_at.of[k].there = 0;
	return 0;
}

static void
mark_holders(struct want_ledger *w, unsigned by)
{
	unsigned i, k;

	explore_check(!explore_load(&checkout_ledger.paused, 4));
	for (i = 0; i < w->count; i++) {
		k = key_of(w->items[i].key);
		explore_modify(&store_at.of[k], 8);
		explore_check(store_at.of[k].there);
		explore_check(w->items[i].value == &store_at.of[k]);
		explore_check(by != 1 || store_at.of[k].holders == 0);
		store_at.of[k].holders += by;
	}
	w->granted = by == 1;
}

static void
release_keys(struct want_ledger *w)
{
	if (!w->granted)
		return;
	mark_holders(w, UINT32_MAX);
	explore_check(
	    hwt_store_release(checkout_ledger.store, w->request) == 0);
}

static void
keys_ended(struct want_ledger *w, int result)
{
	w->waits = false;
	w->result = result;
	if (result == 0)
		mark_holders(w, 1);
	if (w->releases)
		release_keys(w);
	explore_modify(&w->decided, 4);
	w->decided = 1;
}

static void
keys_granted(struct hwt_store_request *request, void *arg, int result)
{
	struct want_ledger *w = arg;

	explore_check(request == w->request && w->waits);
	keys_ended(w, result);
}

VERB1("store", make_store, limit)
{
	memset(&store_at, 0, sizeof(store_at));
	checkout_ledger.has_store = true;
	explore_check(
	    hwt_store_create(&checkout_ledger.store, checkout_ledger.checkout,
		&(struct hwt_store_options){.load = load,
		    .unload = unload,
		    .ctx = &store_at,
		    .limit = limit,
		    .shards = 1}) == 0);
}

VERB2("keys", want_keys, i, bits)
{
	struct want_ledger *w = &store_at.want[i];
	unsigned k;

	w->result = 1;
	for (k = 0; k < KEYS; k++) {
		if (bits >> k & 1)
			w->items[w->count++] =
			    (struct hwt_store_item){.key = names[k], .size = 1};
	}
	w->request = simulated_calloc(1, sizeof(*w->request));
	explore_check(hwt_store_request_init(checkout_ledger.store, w->request,
			  w->items, w->count, keys_granted, w) == 0);
}

static void
acquire_keys(unsigned i, uint64_t delay_ns)
{
	struct want_ledger *w = &store_at.want[i];
	int result;

	w->waits = true;
	result = hwt_store_acquire(checkout_ledger.store, w->request, delay_ns);
	if (result != 1)
		keys_ended(w, result);
}

VERB1("wait-get", wait_keys, i)
{
	struct want_ledger *w = &store_at.want[i];

	keys_ended(w,
	    hwt_store_acquire_wait(
		checkout_ledger.store, w->request, HWT_NEVER));
}

VERB1("drop", cancel_keys, i)
{
	int result =
	    hwt_store_cancel(checkout_ledger.store, store_at.want[i].request);

	explore_check(
	    result == 0 || result == -EINPROGRESS || result == -ENOENT);
}

static bool
has_job(const void *context)
{
	return *(struct hwt_store_job *const *)context != NULL;
}

/* The load of key k ends, when it has begun; 0: it fails. */
VERB2("answer", answer, k, well)
{
	struct hwt_loaded loaded = {&store_at.of[k]};

	explore_await(&store_at.of[k].job, 8, has_job, &store_at.of[k].job);
	explore_modify(&store_at.of[k], 8);
	store_at.of[k].there = well;
	explore_check(hwt_store_complete(checkout_ledger.store,
			  store_at.of[k].job, well ? 0 : -EIO, &loaded) == 0);
}

/* When it has them. */
OF("releases-keys", i, store_at.want[i].releases = true)
/* So many loads. */
OF("fails", count, store_at.fails = count)
/* Loads end by answer. */
ALONE("later", store_at.later = true)
OF("get", i, acquire_keys(i, HWT_NEVER))
/* Within a tick. */
OF("get-due", i, acquire_keys(i, TICK_NS))
OF("put", i, release_keys(&store_at.want[i]))
OF("check-loads", count, explore_check(store_at.loads == count))
OF("check-got", i, explore_check(store_at.want[i].result == 0))
OF("check-failed", i, explore_check(store_at.want[i].result == -EIO))

void
store_end(void)
{
	struct want_ledger *w;
	unsigned k;

	for (w = store_at.want; w < store_at.want + WANTS; w++) {
		release_keys(w);
		explore_check(!w->waits);
		if (w->request != NULL)
			simulated_free(w->request);
	}
	explore_check(hwt_store_destroy(checkout_ledger.store) == 0);
	for (k = 0; k < KEYS; k++)
		explore_check(store_at.of[k].there == 0);
}
