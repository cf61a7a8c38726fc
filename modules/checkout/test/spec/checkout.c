/* SPDX-License-Identifier: Apache-2.0 */
/* What checkout.h describes. */
#include "modules/checkout/test/spec/checkout.h"

#include "test/spec/verbs.h"

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
	if (demand->then != NULL)
		play(demand->then);
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

/* In words. */

struct demand party[PARTY];
static struct store *place;

static void
make_pause(struct demand *demand, const char *members)
{
	demand_init(demand, place, *members != 0 ? members : "z");
	demand->count = (unsigned)strlen(members);
	assert_rc(hwt_request_init_pause(place->checkout, &demand->request,
		      demand->count > 0 ? demand->set : NULL, demand->count,
		      demand_granted, demand),
	    0);
}

void
party_make(struct store *store, const char *members)
{
	char words[128], *word, *rest;
	struct demand *demand = party;

	memset(party, 0, sizeof(party));
	place = store;
	cr_assert(strlen(members) < sizeof(words));
	strcpy(words, members);
	for (word = strtok_r(words, " ", &rest); word != NULL;
	     word = strtok_r(NULL, " ", &rest), demand++) {
		cr_assert(demand < party + PARTY);
		if (*word == '!')
			make_pause(demand, word + 1);
		else
			demand_init(demand, store, word);
	}
}

OF(take, demand_acquire(&party[i], HWT_NEVER), 0)
OF(wait_granted, demand_acquire(&party[i], HWT_NEVER), 1)
OF(try, demand_try(&party[i]), 0)
OF(refused, demand_try(&party[i]), -EAGAIN)
OF(cancel, demand_cancel(&party[i]), 0)
OF(too_late, demand_cancel(&party[i]), -ENOENT)
OF(timeouts, (int)hwt_pending_timeouts(place->fixture.timer), (int)i)
OF(retire, hwt_object_retire(place->checkout, &place->thing[i].object), 0)
OF(cannot_retire, hwt_object_retire(place->checkout, &place->thing[i].object),
    -EPERM)
ALONE(pause_all, hwt_checkout_pause(place->checkout, 0), 0)
ALONE(pause_late, hwt_checkout_pause(place->checkout, 0), -ETIMEDOUT)
ALONE(resume, hwt_checkout_resume(place->checkout), 0)
ALONE(shutdown_all, hwt_checkout_shutdown(place->checkout), 0)
ALONE(cannot_destroy, hwt_checkout_destroy(place->checkout), -EBUSY)

static void
take_ms(unsigned i, unsigned delay_ms)
{
	expect(demand_acquire(&party[i], HWT_MS(delay_ms)), 0);
}

static void
wait_ms(unsigned i, unsigned delay_ms)
{
	expect(demand_acquire(&party[i], HWT_MS(delay_ms)), 1);
}

static void
release(unsigned i)
{
	demand_release(&party[i]);
}

static void
waits(unsigned i)
{
	cr_assert(party[i].calls == 0, "it was told, at: %s", script_at);
}

#define TOLD(name, with)                                                       \
	static void name(unsigned i)                                           \
	{                                                                      \
		cr_assert(party[i].calls == 1 && party[i].grant == (with),     \
		    "told %" PRIu64 " times, last %d, at: %s", party[i].calls, \
		    (int)party[i].grant, script_at);                           \
	}
TOLD(granted, HWT_GRANTED)
TOLD(expired, HWT_GRANT_EXPIRED)
TOLD(cancelled, HWT_GRANT_CANCELLED)
TOLD(retired, HWT_GRANT_RETIRED)
TOLD(shut_down, HWT_GRANT_SHUT_DOWN)

static void
releases(unsigned i)
{
	party[i].in_granted = release_in_granted;
}

static void
out(unsigned are_out, unsigned wait)
{
	struct hwt_checkout_stats stats = store_stats(place);

	cr_assert(stats.out == are_out && stats.waiting == wait,
	    "%" PRIu64 " are out, %" PRIu64 " wait, at: %s", stats.out,
	    stats.waiting, script_at);
}

static void
pass(unsigned ms)
{
	(void)fixture_step(&place->fixture, HWT_MS(ms));
}

static void
members(unsigned first, unsigned count)
{
	store_group(place, first, count);
}

static void
got(unsigned i, unsigned thing)
{
	cr_assert(demand_got(&party[i], 0) == &place->thing[thing],
	    "another thing, at: %s", script_at);
}

static void
got_nothing(unsigned i)
{
	cr_assert(demand_got(&party[i], 0) == NULL, "at: %s", script_at);
}

static void
forget(unsigned thing)
{
	place->thing[thing].holder = NULL;
}

void
play(const char *script)
{
	static const struct verb verbs[] = {
	    {"take", .of = take},
	    {"take-ms", .two = take_ms},
	    {"wait", .of = wait_granted},
	    {"wait-ms", .two = wait_ms},
	    {"try", .of = try},
	    {"refused", .of = refused},
	    {"release", .of = release},
	    {"cancel", .of = cancel},
	    {"too-late", .of = too_late},
	    {"waits", .of = waits},
	    {"granted", .of = granted},
	    {"expired", .of = expired},
	    {"cancelled", .of = cancelled},
	    {"retired", .of = retired},
	    {"shut-down", .of = shut_down},
	    {"releases", .of = releases},
	    {"out", .two = out},
	    {"timeouts", .of = timeouts},
	    {"pass", .of = pass},
	    {"members", .two = members},
	    {"got", .two = got},
	    {"got-nothing", .of = got_nothing},
	    {"retire", .of = retire},
	    {"cannot-retire", .of = cannot_retire},
	    {"forget", .of = forget},
	    {"pause", .alone = pause_all},
	    {"pause-late", .alone = pause_late},
	    {"resume", .alone = resume},
	    {"shutdown", .alone = shutdown_all},
	    {"cannot-destroy", .alone = cannot_destroy},
	    {0},
	};

	script_run(script, verbs);
}
