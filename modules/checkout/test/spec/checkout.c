/* SPDX-License-Identifier: Apache-2.0 */
/* What checkout.h describes. */
#include "modules/checkout/test/spec/checkout.h"

static uint64_t calls_in_all;

void
store_open(struct store *store, const struct hwt_checkout_options *options)
{
	unsigned i;

	fixture_open(&store->fixture, NULL);
	assert_rc(hwt_checkout_create(
		      &store->checkout, store->fixture.timer, options),
	    0);
	assert_rc(hwt_group_init(store->checkout, &store->group, OBJECTS), 0);
	for (i = 0; i < OBJECTS; i++) {
		store->thing[i].holder = NULL;
		store->thing[i].readers = 0;
		assert_rc(hwt_object_init(
			      store->checkout, &store->thing[i].object, i),
		    0);
	}
}

void
store_group(struct store *store, unsigned first, unsigned count)
{
	unsigned i;

	for (i = first; i < first + count; i++)
		assert_rc(hwt_group_add(store->checkout, &store->group,
			      &store->thing[i].object),
		    0);
}

void
store_close(struct store *store)
{
	assert_stats(store, 0, 0);
	assert_rc(hwt_checkout_destroy(store->checkout), 0);
	fixture_close(&store->fixture);
}

struct hwt_checkout_stats
store_stats(struct store *store)
{
	struct hwt_checkout_stats stats;

	assert_rc(hwt_checkout_read_stats(store->checkout, &stats), 0);
	return stats;
}

struct thing *
demand_got(const struct demand *demand, unsigned i)
{
	return (struct thing *)(demand->has_items ? demand->item[i].granted
						  : demand->set[i]);
}

static void
demand_take(struct demand *demand)
{
	unsigned i;

	for (i = 0; i < demand->count; i++) {
		struct thing *thing = demand_got(demand, i);

		cr_assert(thing != NULL, "granted, and nothing was got");
		cr_assert(thing->holder == NULL, "an object has two holders");
		if (demand->item[i].use == HWT_READ) {
			thing->readers++;
			continue;
		}
		cr_assert(thing->readers == 0, "written while others read");
		thing->holder = demand;
	}
}

void
demand_granted(struct hwt_request *request, void *arg, enum hwt_grant grant)
{
	struct demand *demand = arg;

	cr_assert(request == &demand->request, "a foreign request");
	demand->grant = grant;
	demand->order = ++calls_in_all;
	if (grant == HWT_GRANTED)
		demand_take(demand);
	demand->calls++;
	if (demand->in_granted != NULL)
		demand->in_granted(demand);
}

void
demand_init(struct demand *demand, struct store *store, const char *members)
{
	struct hwt_object *object;
	bool reads;

	demand->store = store;
	demand->has_items = false;
	for (demand->count = 0; *members != 0; members++) {
		reads = *members >= 'A' && *members <= 'Z';
		object = *members == '*'
		    ? &store->group.any
		    : &store->thing[*members - (reads ? 'A' : 'a')].object;
		if (reads || *members == '*')
			demand->has_items = true;
		demand->item[demand->count].use = reads ? HWT_READ : HWT_WRITE;
		demand->item[demand->count].wanted = object;
		demand->set[demand->count++] = object;
	}
	if (demand->has_items) {
		assert_rc(hwt_request_init_items(&demand->request, demand->item,
			      demand->count, demand_granted, demand),
		    0);
		return;
	}
	assert_rc(hwt_request_init(&demand->request, demand->set, demand->count,
		      demand_granted, demand),
	    0);
}

static int
demand_note(struct demand *demand, int result)
{
	if (result == 0)
		demand_take(demand);
	return result;
}

int
demand_try(struct demand *demand)
{
	return demand_note(demand,
	    hwt_checkout_try(demand->store->checkout, &demand->request));
}

int
demand_acquire(struct demand *demand, uint64_t delay_ns)
{
	demand->calls = 0;
	return demand_note(demand,
	    hwt_checkout_acquire(
		demand->store->checkout, &demand->request, delay_ns));
}

int
demand_wait(struct demand *demand, uint64_t delay_ns)
{
	return demand_note(demand,
	    hwt_checkout_acquire_wait(
		demand->store->checkout, &demand->request, delay_ns));
}

void
demand_release(struct demand *demand)
{
	unsigned i;

	for (i = 0; i < OBJECTS; i++) {
		if (demand->store->thing[i].holder == demand)
			demand->store->thing[i].holder = NULL;
	}
	for (i = 0; i < demand->count; i++) {
		if (demand->item[i].use == HWT_READ)
			demand_got(demand, i)->readers--;
	}
	assert_rc(
	    hwt_checkout_release(demand->store->checkout, &demand->request), 0);
}

int
demand_cancel(struct demand *demand)
{
	return hwt_checkout_cancel(demand->store->checkout, &demand->request);
}

void
release_in_granted(struct demand *demand)
{
	if (demand->grant == HWT_GRANTED)
		demand_release(demand);
}
