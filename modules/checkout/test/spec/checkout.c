/* SPDX-License-Identifier: Apache-2.0 */
/* What checkout.h describes. */
#include "modules/checkout/test/spec/checkout.h"

#include "test/spec/verbs.h"

struct hwt_checkout *checkout;
struct thing thing[OBJECTS];
struct hwt_group group;
struct client client[CLIENTS];

static _Atomic uint64_t turns;

void
checkout_open_on(const struct hwt_checkout_options *options)
{
	unsigned i;

	assert_ok(hwt_checkout_create(&checkout, manual.timer, options));
	assert_ok(hwt_group_init(checkout, &group, OBJECTS));
	memset(thing, 0, sizeof(thing));
	for (i = 0; i < OBJECTS; i++)
		assert_ok(hwt_object_init(checkout, &thing[i].object, i));
}

void
checkout_open(const struct hwt_checkout_options *options)
{
	manual_open(NULL);
	checkout_open_on(options);
}

void
checkout_close(void)
{
	play("out 0 0, timeouts 0");
	assert_ok(hwt_checkout_destroy(checkout));
	manual_close();
}

struct hwt_checkout_stats
checkout_stats(void)
{
	struct hwt_checkout_stats stats;

	assert_ok(hwt_checkout_read_stats(checkout, &stats));
	return stats;
}

/* Clients. */

struct thing *
client_holds(const struct client *of, unsigned i)
{
	return (struct thing *)of->item[i].granted;
}

static void
note_grant(struct client *of)
{
	struct thing *held;
	unsigned i;

	for (i = 0; i < of->count; i++) {
		held = client_holds(of, i);
		cr_assert(held != NULL, "granted without one of its objects");
		cr_assert(held->writer == NULL, "an object has two holders");
		if (of->item[i].use == HWT_READ) {
			held->readers++;
			continue;
		}
		cr_assert(held->readers == 0, "written while others read it");
		held->writer = of;
	}
}

static void
note_release(struct client *of)
{
	struct thing *held;
	unsigned i;

	for (i = 0; i < of->count; i++) {
		held = client_holds(of, i);
		if (held == NULL)
			continue; /* retired */
		if (of->item[i].use == HWT_READ) {
			held->readers--;
			continue;
		}
		cr_assert(held->writer == of, "an object has two holders");
		held->writer = NULL;
	}
}

static void
on_granted(struct hwt_request *request, void *arg, enum hwt_grant grant)
{
	struct client *of = arg;

	cr_assert(request == &of->request, "granted of another request");
	of->grant = grant;
	of->turn = ++turns;
	if (grant == HWT_GRANTED)
		note_grant(of);
	if (of->script != NULL)
		play(of->script);
	if (of->then != NULL)
		of->then(of);
	of->calls++;
}

void
client_init(struct client *of, const char *set)
{
	struct hwt_item *item = of->item;

	memset(of, 0, sizeof(*of));
	for (; *set != '\0'; set++, item++) {
		item->use = HWT_WRITE;
		if (*set == '*') {
			item->wanted = &group.any;
		} else {
			item->use = *set < 'a' ? HWT_READ : HWT_WRITE;
			item->wanted = &thing[(*set | 0x20) - 'a'].object;
		}
		of->count++;
	}
	assert_ok(hwt_request_init_items(
	    &of->request, of->item, of->count, on_granted, of));
}

void
clients(const char *sets)
{
	char words[256], *word, *rest;
	unsigned count = 0;

	cr_assert(strlen(sets) < sizeof(words));
	strcpy(words, sets);
	for (word = strtok_r(words, " ", &rest); word != NULL;
	     word = strtok_r(NULL, " ", &rest)) {
		cr_assert(count < CLIENTS);
		client_init(&client[count++], word);
	}
}

static int
noted(struct client *of, int rc)
{
	if (rc == 0)
		note_grant(of);
	return rc;
}

int
client_try(struct client *of)
{
	return noted(of, hwt_checkout_try(checkout, &of->request));
}

int
client_acquire(struct client *of, uint64_t delay_ns)
{
	of->calls = 0;
	return noted(
	    of, hwt_checkout_acquire(checkout, &of->request, delay_ns));
}

int
client_wait(struct client *of, uint64_t delay_ns)
{
	return noted(
	    of, hwt_checkout_acquire_wait(checkout, &of->request, delay_ns));
}

int
client_release(struct client *of)
{
	note_release(of);
	return hwt_checkout_release(checkout, &of->request);
}

int
client_cancel(struct client *of)
{
	return hwt_checkout_cancel(checkout, &of->request);
}

void
release_in_granted(struct client *of)
{
	if (of->grant == HWT_GRANTED)
		assert_ok(client_release(of));
}

/* Verbs. */

OF(take, client_acquire(&client[i], HWT_NEVER), 0)
OF(wait_begins, client_acquire(&client[i], HWT_NEVER), 1)
OF(try, client_try(&client[i]), 0)
OF(refused, client_try(&client[i]), -EAGAIN)
OF(release, client_release(&client[i]), 0)
OF(cancel, client_cancel(&client[i]), 0)
OF(too_late, client_cancel(&client[i]), -ENOENT)
OF(timeouts, (int)hwt_pending_timeouts(manual.timer), (int)i)
OF(member, hwt_group_add(checkout, &group, &thing[i].object), 0)
OF(retire, hwt_object_retire(checkout, &thing[i].object), 0)
OF(cannot_retire, hwt_object_retire(checkout, &thing[i].object), -EPERM)
ALONE(pause_all, hwt_checkout_pause(checkout, 0), 0)
ALONE(pause_late, hwt_checkout_pause(checkout, 0), -ETIMEDOUT)
ALONE(resume, hwt_checkout_resume(checkout), 0)
ALONE(shut_all_down, hwt_checkout_shutdown(checkout), 0)
ALONE(cannot_destroy, hwt_checkout_destroy(checkout), -EBUSY)

static void
take_ms(unsigned i, unsigned delay_ms)
{
	expect(client_acquire(&client[i], HWT_MS(delay_ms)), 0);
}

static void
wait_ms(unsigned i, unsigned delay_ms)
{
	expect(client_acquire(&client[i], HWT_MS(delay_ms)), 1);
}

static void
waits(unsigned i)
{
	cr_assert(client[i].calls == 0, "its wait ended by %d, at: %s",
	    (int)client[i].grant, script_at);
}

#define ENDED(name, by)                                             \
	static void name(unsigned i)                                \
	{                                                           \
		cr_assert(client[i].calls == 1,                     \
		    "granted called %" PRIu64 " times, at: %s",     \
		    client[i].calls, script_at);                    \
		cr_assert(client[i].grant == (by), "by %d, at: %s", \
		    (int)client[i].grant, script_at);               \
	}
ENDED(granted, HWT_GRANTED)
ENDED(expired, HWT_GRANT_EXPIRED)
ENDED(cancelled, HWT_GRANT_CANCELLED)
ENDED(retired, HWT_GRANT_RETIRED)
ENDED(shut_down, HWT_GRANT_SHUT_DOWN)

static void
before(unsigned first, unsigned second)
{
	cr_assert(client[first].turn < client[second].turn,
	    "the other order, at: %s", script_at);
}

static void
releases(unsigned i)
{
	client[i].then = release_in_granted;
}

static void
out(unsigned granted_are, unsigned waiting)
{
	struct hwt_checkout_stats stats = checkout_stats();

	cr_assert(stats.out == granted_are && stats.waiting == waiting,
	    "%" PRIu64 " are out, %" PRIu64 " wait, at: %s", stats.out,
	    stats.waiting, script_at);
}

static void
pass(unsigned ms)
{
	(void)manual_step(HWT_MS(ms));
}

static void
holds(unsigned i, unsigned which)
{
	cr_assert(client_holds(&client[i], 0) == &thing[which],
	    "another object, at: %s", script_at);
}

static void
holds_none(unsigned i)
{
	cr_assert(client_holds(&client[i], 0) == NULL, "at: %s", script_at);
}

void
play(const char *script)
{
	static const char *const letters[] = {"a", "b", "c", "d", "e", "f", "g",
	    "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t",
	    "u", "v", "w", "x", "y", "z", NULL};
	static const struct verb verbs[] = {
	    {"take", .of = take},
	    {"take-ms", .two = take_ms},
	    {"wait", .of = wait_begins},
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
	    {"before", .two = before},
	    {"releases", .of = releases},
	    {"out", .two = out},
	    {"timeouts", .of = timeouts},
	    {"pass", .of = pass},
	    {"member", .of = member},
	    {"holds", .two = holds},
	    {"holds-none", .of = holds_none},
	    {"retire", .of = retire},
	    {"cannot-retire", .of = cannot_retire},
	    {"pause", .alone = pause_all},
	    {"pause-late", .alone = pause_late},
	    {"resume", .alone = resume},
	    {"shutdown", .alone = shut_all_down},
	    {"cannot-destroy", .alone = cannot_destroy},
	    {0},
	};

	script_names = letters;
	script_run(script, verbs);
}
