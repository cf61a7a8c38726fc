/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random calls in one thread, each held against a plain account of who has
 * which object, and who reads it: what it answers, which waits have ended by it
 * and how, and the counts. Time moves by hand. After each step, but in a pause,
 * nobody waits whose objects are all free, or read while nobody waits to write
 * them; of a group, one that is free is enough.
 *
 * Which of those that wait is granted is the checkout's to choose; the account
 * checks that it may be. With hold_after a waiting request may have some of its
 * objects, which shows from outside only in what is refused: there, less is
 * known beforehand.
 */
#include "test/stress/stress.h"

#include "modules/checkout/hwt_checkout.h"

enum {
	OBJECTS = 6,
	MEMBERS = 3, /* of the group at most, behind the objects */
	ALL = OBJECTS + MEMBERS,
	ANY = OBJECTS, /* among a subject's members: one of the group */
	SUBJECTS = 12,
	STEPS = 2000, /* of a round, on a checkout of its own */
	ROUNDS = 500,
	TICK = 1000000
};

enum state {
	IDLE,
	WAITING,
	OUT
};

static struct subject {
	struct hwt_request request;
	struct hwt_item set[OBJECTS + 1];
	const struct hwt_item *any; /* of these, of the group */
	unsigned members, reads; /* bits; reads are among the members */
	enum state state;
	uint64_t due_ns;
	enum hwt_grant ends_by; /* this step; 0: none */
	bool releases; /* in granted */
	bool acquires; /* in granted, another one */
} subject[SUBJECTS];

static struct hwt *timer;
static struct hwt_checkout *checkout;
static struct hwt_group group;
static struct hwt_object object[ALL];
static bool is_member[ALL]; /* of the group */
static const struct subject *holder[ALL]; /* that writes */
static unsigned readers[OBJECTS];
static uint64_t now_ns, rng;
static uint64_t granted, expired, cancelled, retired; /* of this round */
static uint64_t grants, ends; /* of all */
static uint32_t hold_after;
static unsigned retiring; /* bits: no call may begin to use them */
static bool paused, told; /* by pauser */
static struct hwt_request pauser;

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

static struct hwt_checkout_stats
stats_now(void)
{
	struct hwt_checkout_stats stats;

	stress_must(hwt_checkout_read_stats(checkout, &stats) == 0, "stats");
	return stats;
}

/* The account. */

static bool
has(unsigned bits, unsigned i)
{
	return bits >> i & 1;
}

static bool
member_is_free(void)
{
	unsigned i;

	for (i = OBJECTS; i < ALL; i++) {
		if (is_member[i] && holder[i] == NULL)
			return true;
	}
	return false;
}

/* It may be granted. */
static bool
may_have(const struct subject *s)
{
	unsigned i;

	if (has(s->members, ANY) && !member_is_free())
		return false;
	for (i = 0; i < OBJECTS; i++) {
		if (has(s->members, i) &&
		    (holder[i] != NULL ||
			(readers[i] > 0 && !has(s->reads, i))))
			return false;
	}
	return true;
}

static bool
writer_waits(unsigned i)
{
	const struct subject *s;

	for (s = subject; s < subject + SUBJECTS; s++) {
		if (s->state == WAITING && has(s->members & ~s->reads, i))
			return true;
	}
	return false;
}

/* And must be: it may have to let writers go first. */
static bool
must_have(const struct subject *s)
{
	unsigned i;

	for (i = 0; i < OBJECTS; i++) {
		if (has(s->reads, i) && readers[i] > 0 && writer_waits(i))
			return false;
	}
	return may_have(s);
}

static void
take_member(const struct subject *s)
{
	unsigned i;

	for (i = OBJECTS; i < ALL; i++) {
		if (s->any->granted == &object[i] && is_member[i] &&
		    holder[i] == NULL) {
			holder[i] = s;
			return;
		}
	}
	stress_must(false, "it has no member of its own");
}

static void
take(struct subject *s)
{
	unsigned i;

	stress_must(!paused, "granted in a pause");
	stress_must(may_have(s), "an object has two holders");
	if (has(s->members, ANY))
		take_member(s);
	for (i = 0; i < OBJECTS; i++) {
		if (has(s->reads, i))
			readers[i]++;
		else if (has(s->members, i))
			holder[i] = s;
	}
	s->state = OUT;
	granted++;
}

static void
release(struct subject *s)
{
	unsigned i;

	for (i = 0; i < ALL; i++) {
		if (holder[i] == s)
			holder[i] = NULL;
	}
	for (i = 0; i < OBJECTS; i++)
		readers[i] -= has(s->reads, i);
	s->state = IDLE;
	stress_must(
	    hwt_checkout_release(checkout, &s->request) == 0, "release");
}

/* What one end returns with hold_after, or leaves to readers, may be a grant
 * for another. */
static void
note_end(struct subject *s, enum hwt_grant grant)
{
	if (grant == HWT_GRANTED)
		stress_must(hold_after != HWT_CHECKOUT_NEVER || s->reads != 0 ||
			s->ends_by == 0,
		    "granted too late");
	else
		stress_must(grant == s->ends_by, "ended by %d, not by %d",
		    (int)grant, (int)s->ends_by);
	s->ends_by = (enum hwt_grant)0;
	expired += grant == HWT_GRANT_EXPIRED;
	cancelled += grant == HWT_GRANT_CANCELLED;
	retired += grant == HWT_GRANT_RETIRED;
	ends += grant != HWT_GRANTED;
}

static void acquire(struct subject *s, bool in_granted);

static void
note_granted(struct hwt_request *request, void *arg, enum hwt_grant grant)
{
	struct subject *s = arg;
	struct subject *other = &subject[draw(SUBJECTS)];

	stress_must(request == &s->request && s->state == WAITING,
	    "told what it did not wait for");
	s->state = IDLE;
	if (grant == HWT_GRANTED)
		take(s);
	note_end(s, grant);
	if (s->acquires && other->state == IDLE && other->members != 0 &&
	    !(other->members & retiring))
		acquire(other, true);
	if (s->releases && grant == HWT_GRANTED)
		release(s);
}

/* After each step. */

static void
check_subject(const struct subject *s)
{
	stress_must(s->ends_by == 0, "not ended by %d", (int)s->ends_by);
	if (s->state == WAITING && !paused && hold_after == HWT_CHECKOUT_NEVER)
		stress_must(!must_have(s), "it waits for nothing");
}

static void
check_all(void)
{
	struct hwt_checkout_stats stats = stats_now();
	uint64_t out = 0, waiting = 0, timeouts = 0;
	unsigned i;

	for (i = 0; i < SUBJECTS; i++) {
		check_subject(&subject[i]);
		out += subject[i].state == OUT;
		waiting += subject[i].state == WAITING;
		timeouts += subject[i].state == WAITING &&
		    subject[i].due_ns != HWT_NEVER;
	}
	stress_must(stats.waiting == waiting, "%" PRIu64 " wait, not %" PRIu64,
	    stats.waiting, waiting);
	if (hold_after == HWT_CHECKOUT_NEVER) {
		stress_must(stats.out == out, "%" PRIu64 " are out", stats.out);
		stress_must(stats.granted == granted, "granted");
	}
	stress_must(out + paused > 0 || waiting == 0, "all wait");
	stress_must(stats.expired == expired && stats.cancelled == cancelled &&
		stats.retired == retired,
	    "counts of ends");
	stress_must(hwt_pending_timeouts(timer) == timeouts, "timeouts");
}

/* Steps. */

static void
make_request(struct subject *s)
{
	unsigned count = 0;
	unsigned i, k, first = draw(OBJECTS + 1);

	for (k = 0; k <= OBJECTS; k++) {
		i = (first + k) % (OBJECTS + 1);
		if (!has(s->members, i))
			continue;
		s->set[count].wanted = i == ANY ? &group.any : &object[i];
		s->any = i == ANY ? &s->set[count] : s->any;
		s->set[count++].use = has(s->reads, i) ? HWT_READ : HWT_WRITE;
	}
	stress_must(hwt_request_init_items(
			&s->request, s->set, count, note_granted, s) == 0,
	    "request");
}

static void
prepare(struct subject *s)
{
	if (s->members == 0 || draw(4) == 0) {
		/* Small sets are more likely. */
		s->members = 1u << draw(OBJECTS + 1) | 1u << draw(OBJECTS + 1);
		if (draw(4) == 0)
			s->members |= 1u << draw(OBJECTS) | 1u << draw(OBJECTS);
		s->reads = draw(2) == 0 ? s->members & draw(1u << OBJECTS) : 0;
		make_request(s);
	}
	s->releases = draw(3) == 0;
	s->acquires = draw(6) == 0;
}

/* In granted, others may have been granted already that are told later. */
static void
acquire(struct subject *s, bool in_granted)
{
	uint64_t delay_ns = draw(2) == 0 ? HWT_NEVER : (1 + draw(40)) * TICK;
	bool may = !paused && may_have(s), must = !paused && must_have(s);
	bool unsure = in_granted || hold_after != HWT_CHECKOUT_NEVER;
	int rc;

	s->state = WAITING;
	s->due_ns = delay_ns == HWT_NEVER ? HWT_NEVER : now_ns + delay_ns;
	if (must && !unsure && draw(3) == 0)
		rc = hwt_checkout_acquire_wait(checkout, &s->request, delay_ns);
	else
		rc = hwt_checkout_acquire(checkout, &s->request, delay_ns);
	stress_must(rc == 0 || rc == 1, "acquire: %d", rc);
	stress_must(unsure || (rc == 0 ? may : !must), "acquire: %d", rc);
	if (rc == 0)
		take(s);
}

/* Of a request that is in use. */
static int
error_of_use(const struct subject *s)
{
	return s->state == OUT && s->reads != 0 ? -ENOTSUP : -EBUSY;
}

static void
step_acquire(struct subject *s)
{
	int rc;

	if (s->state != IDLE) {
		rc = hwt_checkout_acquire(checkout, &s->request, HWT_NEVER);
		stress_must(rc == error_of_use(s), "acquire: %d", rc);
		return;
	}
	prepare(s);
	acquire(s, false);
}

static void
step_try(struct subject *s)
{
	bool may, must;
	int rc;

	if (s->state == IDLE)
		prepare(s);
	may = s->state == IDLE && !paused && may_have(s);
	must = may && must_have(s);
	rc = hwt_checkout_try(checkout, &s->request);
	if (s->state != IDLE)
		stress_must(rc == error_of_use(s), "try: %d", rc);
	else if (must && hold_after == HWT_CHECKOUT_NEVER)
		stress_must(rc == 0, "try: %d", rc);
	else
		stress_must(rc == -EAGAIN || (may && rc == 0), "try: %d", rc);
	if (rc == 0)
		take(s);
}

static void
step_release(struct subject *s)
{
	int rc;

	if (s->state == OUT) {
		release(s);
		return;
	}
	if (s->members == 0)
		return;
	rc = hwt_checkout_release(checkout, &s->request);
	stress_must(rc == -ENOENT, "release: %d", rc);
}

static void
step_cancel(struct subject *s)
{
	bool waits = s->state == WAITING;
	int rc;

	if (s->members == 0)
		return;
	if (waits)
		s->ends_by = HWT_GRANT_CANCELLED;
	rc = hwt_checkout_cancel(checkout, &s->request);
	stress_must(rc == (waits ? 0 : -ENOENT), "cancel: %d", rc);
}

static void
step_time(uint64_t ticks)
{
	unsigned i;

	now_ns += ticks * TICK;
	for (i = 0; i < SUBJECTS; i++) {
		if (subject[i].state == WAITING && subject[i].due_ns <= now_ns)
			subject[i].ends_by = HWT_GRANT_EXPIRED;
	}
	stress_must(hwt_advance(timer, NULL) == 0, "hwt_advance");
}

static void
step_pause_told(void)
{
	int expected = stats_now().out == 0 ? 0 : -EAGAIN;
	int rc = hwt_checkout_try(checkout, &pauser);

	if (told)
		expected = -EBUSY;
	else if (paused)
		expected = -EALREADY;
	stress_must(rc == expected, "pause: %d", rc);
	told = told || rc == 0;
	paused = paused || rc == 0;
}

static void
step_pause(void)
{
	int expected = stats_now().out == 0 ? 0 : -ETIMEDOUT;
	int rc = hwt_checkout_pause(checkout, 0);

	stress_must(rc == (paused ? -EALREADY : expected), "pause: %d", rc);
	paused = paused || rc == 0;
}

static void
step_resume(void)
{
	bool was = paused, was_told = told;
	int rc;

	if (told)
		stress_must(hwt_checkout_resume(checkout) == -EBUSY, "resume");
	paused = told = false;
	rc = was_told ? hwt_checkout_release(checkout, &pauser)
		      : hwt_checkout_resume(checkout);
	stress_must(rc == (was ? 0 : -EALREADY), "resume: %d", rc);
}

/* The requests that have it and are idle are made again, on the object that
 * its memory becomes. */
static void
renew(unsigned i)
{
	struct subject *s;
	int rc;

	for (s = subject; s < subject + SUBJECTS; s++) {
		if (s->state != IDLE || !(s->members >> i & 1) ||
		    hold_after != HWT_CHECKOUT_NEVER || paused || !must_have(s))
			continue;
		rc = hwt_checkout_try(checkout, &s->request);
		stress_must(rc == -EIDRM, "try of what is retired: %d", rc);
	}
	stress_must(
	    hwt_object_init(checkout, &object[i], draw(4)) == 0, "object");
	for (s = subject; s < subject + SUBJECTS; s++) {
		if (s->state == IDLE && (s->members >> i & 1))
			make_request(s);
	}
}

static void
step_retire(unsigned i)
{
	struct subject *of = (struct subject *)(uintptr_t)holder[i];
	struct subject *s;
	int rc;

	holder[i] = NULL;
	if (of != NULL)
		of->members &= ~(1u << i);
	for (s = subject; of != NULL && s < subject + SUBJECTS; s++) {
		if (s->state == WAITING && (s->members >> i & 1))
			s->ends_by = HWT_GRANT_RETIRED;
	}
	retiring = 1u << i;
	rc = hwt_object_retire(checkout, &object[i]);
	retiring = 0;
	stress_must(rc == (of != NULL ? 0 : -EPERM), "retire: %d", rc);
	if (of != NULL)
		renew(i);
}

/* It leaves, if somebody has it, or comes. The first one stays. */
static void
step_member(unsigned i)
{
	const struct subject *of = holder[i];
	int rc;

	if (!is_member[i]) {
		is_member[i] = true;
		rc = hwt_group_add(checkout, &group, &object[i]);
		stress_must(rc == 0, "add a member: %d", rc);
		return;
	}
	rc = hwt_object_retire(checkout, &object[i]);
	stress_must(rc == (of != NULL ? 0 : -EPERM), "retire: %d", rc);
	if (of == NULL)
		return;
	holder[i] = NULL;
	is_member[i] = false;
	stress_must(of->any->granted == NULL, "it still has it");
}

static void
step(void)
{
	struct subject *s = &subject[draw(SUBJECTS)];
	unsigned what = draw(100);

	if (what < 40)
		step_acquire(s);
	else if (what < 50)
		step_try(s);
	else if (what < 75)
		step_release(s);
	else if (what < 82)
		step_cancel(s);
	else if (what < 90)
		step_time(draw(6));
	else if (what < 92)
		step_pause();
	else if (what < 93)
		step_pause_told();
	else if (what < 96)
		step_resume();
	else if (what < 98)
		step_member(OBJECTS + 1 + draw(MEMBERS - 1));
	else
		step_retire(draw(OBJECTS));
}

/* Rounds. */

static void
round_begin(void)
{
	struct hwt_checkout_options options = {
	    .shards = 1u << draw(3), .hold_after = hold_after};
	unsigned i;

	stress_must(
	    hwt_checkout_create(&checkout, timer, &options) == 0, "create");
	memset(subject, 0, sizeof(subject));
	memset(holder, 0, sizeof(holder));
	memset(readers, 0, sizeof(readers));
	memset(is_member, 0, sizeof(is_member));
	granted = expired = cancelled = retired = 0;
	paused = told = false;
	stress_must(
	    hwt_request_init_pause(checkout, &pauser, NULL, 0, NULL, NULL) == 0,
	    "request");
	for (i = 0; i < OBJECTS; i++)
		stress_must(hwt_object_init(checkout, &object[i], draw(4)) == 0,
		    "object");
	stress_must(hwt_group_init(checkout, &group, draw(4)) == 0, "group");
	step_member(OBJECTS);
	for (i = 0; i < SUBJECTS; i++)
		prepare(&subject[i]);
}

static void
round_end(void)
{
	uint64_t waiting = stats_now().waiting;
	unsigned i;
	int rc;

	for (i = 0; i < SUBJECTS; i++) {
		if (subject[i].state == WAITING)
			subject[i].ends_by = HWT_GRANT_SHUT_DOWN;
		subject[i].acquires = false;
	}
	stress_must(hwt_checkout_shutdown(checkout) == 0, "shutdown");
	check_all();
	stress_must(stats_now().shut_down == waiting, "shut down");
	for (i = 0; i < SUBJECTS; i++) {
		if (subject[i].state != OUT)
			continue;
		rc = hwt_checkout_destroy(checkout);
		stress_must(rc == -EBUSY, "destroy: %d", rc);
		release(&subject[i]);
	}
	check_all();
	if (told)
		step_resume();
	grants += granted;
	stress_must(hwt_checkout_destroy(checkout) == 0, "destroy");
}

int
main(int argc, char **argv)
{
	const struct hwt_clock clock = {.now_ns = hand_moved};
	const struct hwt_options options = {
	    .tick_ns = TICK, .flags = HWT_MANUAL, .clock = &clock};
	uint64_t rounds, round, steps;

	stress_begin("checkout_model", argc, argv);
	rounds = stress_scaled(ROUNDS);
	stress_must(hwt_create(&timer, &options) == 0, "hwt_create");
	for (round = 0; round < rounds; round++) {
		rng = random_seed(round);
		hold_after = round % 3 == 2 ? 1 + draw(3) : HWT_CHECKOUT_NEVER;
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
	stress_must(grants > rounds * STEPS / 20 && ends > rounds * STEPS / 50,
	    "%" PRIu64 " grants, %" PRIu64 " ends", grants, ends);
	return stress_end("%" PRIu64 " steps, %" PRIu64 " grants, %" PRIu64
			  " waits ended otherwise",
	    rounds * STEPS, grants, ends);
}
