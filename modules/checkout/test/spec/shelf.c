/* SPDX-License-Identifier: Apache-2.0 */
/* What shelf.h describes. */
#include "modules/checkout/test/spec/shelf.h"

static int
shelf_load(void *ctx, struct hwt_store_job *job, const void *key, size_t size,
    struct hwt_loaded *loaded)
{
	struct shelf *shelf = ctx;
	struct thing *thing = &shelf->thing[*(const unsigned char *)key];

	assert_u64(size, 1);
	cr_assert(!thing->there && !thing->out);
	assert_u64(loaded->weight, 1);
	if (shelf->weight != 0)
		loaded->weight = shelf->weight;
	thing->loads++;
	if (shelf->again)
		assert_rc(hwt_store_run(shelf->store, job), -ENOENT);
	if (shelf->later) {
		thing->job = job;
		return HWT_STORE_LATER;
	}
	thing->there = shelf->result == 0;
	loaded->value = thing;
	return shelf->result;
}

static int
shelf_unload(void *ctx, struct hwt_store_job *job, const void *key, size_t size,
    void *value)
{
	struct shelf *shelf = ctx;
	struct thing *thing = &shelf->thing[*(const unsigned char *)key];

	assert_u64(size, 1);
	cr_assert(thing->there && !thing->out && value == thing);
	if (shelf->later) {
		thing->job = job;
		return HWT_STORE_LATER;
	}
	if (shelf->result != 0)
		return shelf->result;
	thing->there = false;
	thing->unloads++;
	shelf->unloaded[strlen(shelf->unloaded)] = *(const char *)key;
	return 0;
}

int
shelf_complete(struct shelf *shelf, char letter, int result)
{
	struct thing *thing = &shelf->thing[(unsigned char)letter];
	struct hwt_store_job *job = thing->job;
	const struct hwt_loaded loaded = {thing, 1};
	bool loads = !thing->there;

	thing->job = NULL;
	if (loads)
		thing->there = result == 0;
	else
		thing->there = result != 0;
	return hwt_store_complete(
	    shelf->store, job, result, loads ? &loaded : NULL);
}

static void
open_on(struct shelf *shelf, struct hwt *timer,
    const struct hwt_store_options *options)
{
	shelf->timer = timer;
	assert_rc(hwt_checkout_create(&shelf->checkout, timer, NULL), 0);
	assert_rc(hwt_store_create(&shelf->store, shelf->checkout, options), 0);
}

static struct hwt_store_options
shelf_options(struct shelf *shelf, const struct hwt_store_options *options)
{
	struct hwt_store_options all = {0};

	if (options != NULL)
		all = *options;
	all.load = shelf_load;
	all.unload = shelf_unload;
	all.ctx = shelf;
	if (all.shards == 0)
		all.shards = 1;
	return all;
}

void
shelf_open(struct shelf *shelf, const struct hwt_store_options *options)
{
	struct hwt_store_options all = shelf_options(shelf, options);

	shelf_open_with(shelf, &all);
}

void
shelf_open_with(struct shelf *shelf, const struct hwt_store_options *options)
{
	fixture_open(&shelf->fixture, NULL);
	open_on(shelf, shelf->fixture.timer, options);
}

void
shelf_open_on(struct shelf *shelf, struct hwt *timer,
    const struct hwt_store_options *options)
{
	struct hwt_store_options all = shelf_options(shelf, options);

	open_on(shelf, timer, &all);
}

void
shelf_open_real(struct shelf *shelf, const struct hwt_store_options *options)
{
	shelf_open_on(shelf, worker_timer_open(HWT_MS(1)), options);
}

static void
close_both(struct shelf *shelf)
{
	unsigned i;

	shelf->later = false;
	shelf->result = 0;
	assert_rc(hwt_store_destroy(shelf->store), 0);
	assert_rc(hwt_checkout_destroy(shelf->checkout), 0);
	for (i = 0; i < LETTERS; i++)
		cr_assert(!shelf->thing[i].there);
	assert_u64(hwt_pending_timeouts(shelf->timer), 0);
}

void
shelf_close(struct shelf *shelf)
{
	close_both(shelf);
	fixture_close(&shelf->fixture);
}

void
shelf_close_real(struct shelf *shelf)
{
	close_both(shelf);
	worker_timer_close(shelf->timer);
}

struct hwt_store_stats
shelf_stats(struct shelf *shelf)
{
	struct hwt_store_stats stats;

	assert_rc(hwt_store_read_stats(shelf->store, &stats), 0);
	return stats;
}

static void
note_out(struct claim *claim)
{
	struct thing *thing;
	const char *key;

	for (key = claim->keys; *key != 0; key++) {
		thing = &claim->shelf->thing[(unsigned char)*key];
		cr_assert(!thing->out);
		thing->out = true;
	}
}

static void
note_granted(struct hwt_store_request *request, void *arg, int result)
{
	struct claim *claim = arg;

	cr_assert(request == &claim->request);
	if (result == 0)
		note_out(claim);
	claim->result = result;
	if (claim->in_granted != NULL)
		claim->in_granted(claim);
	if (result == 0 && claim->releases)
		claim_release(claim);
	claim->calls++;
}

void
claim_init(struct claim *claim, struct shelf *shelf, const char *letters)
{
	size_t i, count = strlen(letters);

	claim->shelf = shelf;
	claim->calls = 0;
	memcpy(claim->keys, letters, count + 1);
	for (i = 0; i < count; i++)
		claim->item[i] = (struct hwt_store_item){
		    &claim->keys[i], 1, claim, HWT_WRITE};
	assert_rc(hwt_store_request_init(shelf->store, &claim->request,
		      claim->item, count, note_granted, claim),
	    0);
}

int
claim_acquire(struct claim *claim, uint64_t delay_ns)
{
	int result;

	claim->calls = 0;
	result =
	    hwt_store_acquire(claim->shelf->store, &claim->request, delay_ns);
	if (result == 0)
		note_out(claim);
	return result;
}

int
claim_wait(struct claim *claim, uint64_t delay_ns)
{
	int result = hwt_store_acquire_wait(
	    claim->shelf->store, &claim->request, delay_ns);

	if (result == 0)
		note_out(claim);
	return result;
}

void
claim_release(struct claim *claim)
{
	const char *key;

	for (key = claim->keys; *key != 0; key++)
		claim->shelf->thing[(unsigned char)*key].out = false;
	assert_rc(hwt_store_release(claim->shelf->store, &claim->request), 0);
}

void
claim_once(struct shelf *shelf, const char *letters)
{
	struct claim claim = {0};

	claim_init(&claim, shelf, letters);
	assert_rc(claim_wait(&claim, HWT_NEVER), 0);
	claim_release(&claim);
}
