/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loaded-once: while an object is there, or its load has begun, no other load
 * of its key begins.
 * load-failure: goes to all requests that want the object.
 * load-leaves: what ends a wait does not end the load; a pause does not wait
 * for it.
 * unload-alone: nobody has what is unloaded, nor wants it when it is chosen.
 * unload-when: it was idle for long enough, or there are too many.
 */
#include "modules/checkout/test/spec/checkout.h"

SUITE(loaded_once);
SUITE(load_failure);
SUITE(load_leaves);
SUITE(unload_alone);
SUITE(unload_when);
SUITE(store_answers);

#define CLAIMS 5
#define KEYS_MAX 4

static struct hwt_store *store;

/* What loads make of the keys "a", "b", ... */
static struct value {
	unsigned loads, unloads;
	bool there, out;
	struct hwt_store_job *job; /* that answers later */
} value[26];

/* How jobs end that begin now. */
static int job_answer;
static char unloaded[64]; /* the keys, in order */
static const char *while_unloading; /* is played once */

static struct value *
value_of(const void *key, size_t size)
{
	cr_assert(size == 1);
	return &value[*(const char *)key - 'a'];
}

static int
load(void *ctx, struct hwt_store_job *job, const void *key, size_t size,
    struct hwt_loaded *loaded)
{
	struct value *of = value_of(key, size);

	cr_assert(ctx == value && !of->there && !of->out);
	of->loads++;
	if (job_answer == HWT_STORE_LATER)
		of->job = job;
	of->there = job_answer == 0;
	loaded->value = of;
	return job_answer;
}

static int
unload(void *ctx, struct hwt_store_job *job, const void *key, size_t size,
    void *loaded)
{
	struct value *of = value_of(key, size);

	cr_assert(ctx == value && of->there && !of->out && loaded == of);
	/* It would wait for this one. */
	assert_rc(hwt_checkout_pause(checkout, 0), -EDEADLK);
	if (while_unloading != NULL) {
		const char *steps = while_unloading;

		while_unloading = NULL;
		job_answer = HWT_STORE_LATER;
		play(steps);
		job_answer = 0;
	}
	if (job_answer == HWT_STORE_LATER)
		of->job = job;
	if (job_answer != 0)
		return job_answer;
	of->there = false;
	of->unloads++;
	unloaded[strlen(unloaded)] = *(const char *)key;
	return 0;
}

/* Of the job of that key. */
static int
complete(char key, int result)
{
	struct value *of = &value[key - 'a'];
	const struct hwt_loaded loaded = {of};
	struct hwt_store_job *job = of->job;

	of->job = NULL;
	of->unloads += of->there && result == 0;
	of->there = of->there != (result == 0);
	return hwt_store_complete(store, job, result, &loaded);
}

static void
store_open(const struct hwt_store_options *options)
{
	struct hwt_store_options all = {.shards = 1};

	if (options != NULL)
		all = *options;
	all.shards = 1;
	all.load = load;
	all.unload = unload;
	all.ctx = value;
	checkout_open(NULL);
	assert_ok(hwt_store_create(&store, checkout, &all));
}

static void
store_close(void)
{
	unsigned i;

	job_answer = 0;
	assert_ok(hwt_store_destroy(store));
	for (i = 0; i < 26; i++)
		cr_assert(!value[i].there, "not unloaded");
	checkout_close();
}

#define StoreTest(suite, name) \
	TestBetween(store_open(NULL), store_close(), suite, name)
#define StoreOptionTest(suite, name, ...)                                 \
	TestBetween(store_open(&(struct hwt_store_options){__VA_ARGS__}), \
	    store_close(), suite, name)

static struct hwt_store_stats
store_stats(void)
{
	struct hwt_store_stats stats;

	assert_ok(hwt_store_read_stats(store, &stats));
	return stats;
}

/* A request, and what became of it. */
static struct claim {
	struct hwt_store_request request;
	struct hwt_store_item item[KEYS_MAX];
	char keys[KEYS_MAX + 1];
	int result;
	_Atomic uint64_t calls;
} claim[CLAIMS];

static void
note_out(struct claim *of, bool out)
{
	const char *key;

	for (key = of->keys; *key != '\0'; key++) {
		cr_assert(value[*key - 'a'].out != out, "it has two holders");
		value[*key - 'a'].out = out;
	}
}

static void
on_granted(struct hwt_store_request *request, void *arg, int result)
{
	struct claim *of = arg;

	cr_assert(request == &of->request, "granted of another request");
	of->result = result;
	if (result == 0)
		note_out(of, true);
	of->calls++;
}

/* One for each word. */
static void
claims(const char *words)
{
	unsigned i = 0, count;

	for (; *words != '\0'; words += *words == ' ', i++) {
		cr_assert(i < CLAIMS);
		memset(&claim[i], 0, sizeof(claim[i]));
		for (count = 0; *words > ' '; words++, count++) {
			claim[i].keys[count] = *words;
			claim[i].item[count] = (struct hwt_store_item){
			    .key = &claim[i].keys[count], .size = 1};
		}
		assert_ok(hwt_store_request_init(store, &claim[i].request,
		    claim[i].item, count, on_granted, &claim[i]));
	}
}

static int
acquire_within(struct claim *of, uint64_t delay_ns)
{
	int rc;

	of->calls = 0;
	rc = hwt_store_acquire(store, &of->request, delay_ns);
	if (rc == 0)
		note_out(of, true);
	return rc;
}

#define acquire(i) acquire_within(&claim[i], HWT_NEVER)

static void
release(unsigned i)
{
	note_out(&claim[i], false);
	assert_ok(hwt_store_release(store, &claim[i].request));
}

/* Each key is loaded, and released. */
static void
use(const char *keys)
{
	char one[2] = "";

	for (; *keys != '\0'; keys++) {
		one[0] = *keys;
		claims(one);
		assert_ok(acquire(0));
		release(0);
	}
}

#define assert_ended(i, with)                     \
	do {                                      \
		assert_u64(claim[i].calls, 1);    \
		assert_rc(claim[i].result, with); \
	} while (0)

/* The fourth of rules.c, and Terracotta's: missing ones are loaded once. "For
 * the time it takes to fault from disk, this object is in-use for all other
 * requests and thus they go to blocked request queue automatically". */
StoreTest(rules, initiate_faulting_from_disk_once_and_only_once)
{
	job_answer = HWT_STORE_LATER;
	claims("a ab a");
	assert_rc(acquire(0), 1);
	assert_rc(acquire(1), 1);
	assert_rc(acquire(2), 1);
	assert_u64(value[0].loads + value[1].loads, 2);
	assert_u64(store_stats().jobs, 2);
	assert_u64(store_stats().joined, 2);
	assert_ok(complete('a', 0));
	assert_ended(0, 0);
	release(0);
	assert_u64(claim[1].calls, 0);
	assert_ended(2, 0);
	release(2);
	assert_ok(complete('b', 0));
	assert_ended(1, 0);
	release(1);
	assert_u64(value[0].loads + value[1].loads, 2);
}

CheckoutTest(loaded_once, a_key_is_its_bytes_and_their_number)
{
	static const char zeros[HWT_STORE_KEY_MAX];
	static const char one[16] = {[15] = 1};
	static const size_t size[] = {1, 7, 8, 9, 16, 17, HWT_STORE_KEY_MAX};
	struct hwt_store_item item[8];
	struct hwt_store_request request;
	unsigned i, turn;

	assert_ok(hwt_store_create(&store, checkout, NULL));
	for (i = 0; i < 7; i++)
		item[i] = (struct hwt_store_item){zeros, size[i], NULL, 0};
	item[7] = (struct hwt_store_item){one, 16, NULL, 0};
	assert_ok(hwt_store_request_init(store, &request, item, 8, NULL, NULL));
	for (turn = 0; turn < 2; turn++) {
		assert_ok(hwt_store_acquire_wait(store, &request, HWT_NEVER));
		assert_ok(hwt_store_release(store, &request));
		assert_u64(store_stats().misses, 8);
		assert_u64(store_stats().hits, 8 * turn);
	}
	assert_ok(hwt_store_destroy(store));
}

/* What is found does not load, and its value is gone when it is released. */
StoreTest(loaded_once, the_next_request_finds_it)
{
	use("a");
	claims("a");
	assert_ok(acquire(0));
	cr_assert(claim[0].item[0].value == &value[0]);
	release(0);
	cr_assert(claim[0].item[0].value == NULL);
	assert_u64(value[0].loads, 1);
	assert_u64(store_stats().hits, 1);
}

StoreTest(load_failure, goes_to_all_that_want_the_object)
{
	claims("a b d abd b");
	assert_ok(acquire(0));
	job_answer = HWT_STORE_LATER;
	assert_rc(acquire(1), 1);
	job_answer = 0;
	assert_ok(acquire(2));
	/* It waits where another one is out: before b, or behind it. */
	assert_rc(acquire_within(&claim[3], HWT_SEC(1)), 1);
	assert_rc(hwt_checkout_pause(checkout, 0), -ETIMEDOUT);
	assert_ok(complete('b', -EIO));
	assert_ended(1, -EIO);
	assert_ended(3, -EIO);
	assert_u64(store_stats().failures, 1);
	/* The next one loads again. */
	assert_ok(acquire(4));
	assert_u64(value[1].loads, 2);
	release(4);
	release(2);
	release(0);
}

StoreTest(load_failure, is_what_the_call_that_loads_answers)
{
	claims("ab");
	job_answer = -ENOENT;
	assert_rc(acquire(0), -ENOENT);
	assert_rc(hwt_store_acquire_wait(store, &claim[0].request, HWT_NEVER),
	    -ENOENT);
	job_answer = 7; /* no error */
	assert_rc(acquire(0), -EINVAL);
	assert_ok(hwt_checkout_pause(checkout, 0));
	job_answer = -EIO;
	assert_rc(acquire(0), -EIO);
	play("resume");
	assert_u64(claim[0].calls, 0);
	assert_u64(store_stats().loaded, 0);
}

StoreTest(load_leaves, a_deadline_and_a_cancel_end_the_wait_not_the_load)
{
	claims("a a a");
	job_answer = HWT_STORE_LATER;
	assert_rc(acquire_within(&claim[0], HWT_MS(2)), 1);
	assert_rc(acquire(1), 1);
	assert_ok(hwt_store_cancel(store, &claim[1].request));
	assert_ended(1, -ECANCELED);
	play("pass 4");
	assert_ended(0, -ETIMEDOUT);
	assert_rc(hwt_store_destroy(store), -EBUSY);
	assert_ok(complete('a', 0));
	assert_ok(acquire(2));
	release(2);
	assert_u64(value[0].loads, 1);
}

StoreTest(load_leaves, a_shutdown_ends_the_wait_and_later_ones_load_nothing)
{
	claims("a b");
	job_answer = HWT_STORE_LATER;
	assert_rc(acquire(0), 1);
	play("shutdown");
	assert_ended(0, -ESHUTDOWN);
	assert_rc(acquire(1), -ESHUTDOWN);
	assert_rc(hwt_store_acquire_wait(store, &claim[1].request, HWT_NEVER),
	    -ESHUTDOWN);
	assert_u64(value[1].loads, 0);
	assert_ok(complete('a', 0));
}

StoreOptionTest(unload_alone, a_pause_waits_for_it_and_none_begins_in_it,
    .idle_ns = HWT_MS(10))
{
	use("a");
	job_answer = HWT_STORE_LATER;
	play("pass 10, pass 10, pass 10, out 0 0, pause-late");
	assert_ok(complete('a', 0));
	play("pause");
	job_answer = 0;
	play("resume");
	use("b");
	play("pause, pass 10, pass 10, pass 10");
	assert_rc(hwt_store_destroy(store), -EBUSY);
	assert_u64(value[1].unloads, 0);
	play("resume, pass 10, pass 10");
	assert_u64(value[1].unloads, 1);
}

StoreOptionTest(unload_alone, none_begins_beside_those_of_hwt_store_destroy,
    .idle_ns = HWT_MS(10))
{
	use("ab");
	while_unloading = "pass 10, pass 10, pass 10";
	assert_ok(hwt_store_destroy(store));
	store = NULL;
}

/* Second chance: a was used again. */
StoreOptionTest(unload_when, there_are_too_many_the_unused_first, .limit = 3)
{
	use("abc");
	use("d"); /* all had been touched, and one of them goes */
	assert_u64(store_stats().loaded, 3);
	unloaded[0] == 'a' ? use("b") : use("a");
	use("e");
	assert_u64(store_stats().loaded, 3);
	cr_assert(unloaded[1] != (unloaded[0] == 'a' ? 'b' : 'a'));
}

CheckoutTest(store_answers, hwt_store_create_EINVAL_and_its_memory)
{
	static const struct hwt_store_options wrong[] = {{.shards = 3},
	    {.shards = 1u << 17}, {.idle_ns = UINT64_C(1) << 63},
	    {.reserved_32 = 1}, {.reserved[6] = 1}};
	const struct hwt_store_options idle = {.idle_ns = 1, .shards = 2};
	uint64_t nth;
	size_t i;
	int rc;

	assert_rc(hwt_store_create(NULL, checkout, NULL), -EINVAL);
	assert_rc(hwt_store_create(&store, NULL, NULL), -EINVAL);
	for (i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_rc(
		    hwt_store_create(&store, checkout, &wrong[i]), -EINVAL);
	for (nth = 1; store == NULL; nth++) {
		fault_arm(FAULT_MEMORY, nth);
		rc = hwt_store_create(&store, checkout, &idle);
		(void)fault_disarm();
		assert_rc(rc, store == NULL ? -ENOMEM : 0);
	}
	cr_assert(nth > 1, "nothing was allocated");
	assert_ok(hwt_store_destroy(store));
	assert_ok(hwt_store_destroy(NULL));
	assert_ok(hwt_stop(manual.timer, NULL));
	assert_rc(hwt_store_create(&store, checkout, &idle), -ESHUTDOWN);
}

StoreTest(store_answers, hwt_store_request_init_EINVAL_and_E2BIG)
{
	struct hwt_store_request request;
	struct hwt_store_item item[HWT_STORE_ITEMS_MAX + 1];
	char keys[HWT_STORE_KEY_MAX + 1] = {0};
	const struct hwt_store_item wrong[] = {{keys, sizeof(keys), NULL, 0},
	    {keys, 0, NULL, 0}, {NULL, 1, NULL, 0},
	    {keys, 1, NULL, (enum hwt_use)7}};
	unsigned i;

#define INIT(count) \
	hwt_store_request_init(store, &request, item, count, NULL, NULL)
	for (i = 0; i <= HWT_STORE_ITEMS_MAX; i++) {
		keys[i] = (char)i;
		item[i] = (struct hwt_store_item){&keys[i], 1, NULL, HWT_WRITE};
	}
	assert_ok(INIT(HWT_STORE_ITEMS_MAX));
	assert_rc(INIT(HWT_STORE_ITEMS_MAX + 1), -E2BIG);
	assert_rc(INIT(0), -EINVAL);
	assert_rc(hwt_store_request_init(NULL, &request, item, 1, NULL, NULL),
	    -EINVAL);
	assert_rc(
	    hwt_store_request_init(store, NULL, item, 1, NULL, NULL), -EINVAL);
	assert_rc(hwt_store_request_init(store, &request, NULL, 1, NULL, NULL),
	    -EINVAL);
	for (i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		item[0] = wrong[i];
		assert_rc(INIT(1), -EINVAL);
	}
	item[0] = item[1];
	assert_rc(INIT(2), -EINVAL);
}

StoreTest(store_answers, EINVAL_EBUSY_ENOENT_and_EDEADLK_of_calls)
{
	struct hwt_store_request *mine = &claim[0].request;
	struct hwt_store_stats stats;
	struct hwt_store *other;
	struct hwt_store_job *job;

	claims("a a b");
	assert_ok(hwt_store_create(&other, checkout, NULL));
#define INVALID(call) assert_rc(call, -EINVAL)
	INVALID(hwt_store_acquire(NULL, mine, 0));
	INVALID(hwt_store_acquire(store, NULL, 0));
	INVALID(hwt_store_acquire(other, mine, 0));
	INVALID(hwt_store_acquire(store, mine, HWT_NEVER - 1));
	INVALID(hwt_store_acquire_wait(other, mine, 0));
	INVALID(hwt_store_acquire_wait(store, mine, HWT_NEVER - 1));
	INVALID(hwt_store_release(other, mine));
	INVALID(hwt_store_release(store, NULL));
	INVALID(hwt_store_cancel(other, mine));
	INVALID(hwt_store_cancel(store, NULL));
	INVALID(hwt_store_complete(store, NULL, 0, NULL));
	INVALID(hwt_store_read_stats(NULL, &stats));
	INVALID(hwt_store_read_stats(store, NULL));
	assert_ok(hwt_store_destroy(other));
	assert_rc(hwt_store_release(store, mine), -ENOENT);
	assert_rc(hwt_store_cancel(store, mine), -ENOENT);
	assert_ok(acquire(0));
	assert_rc(hwt_store_acquire(store, mine, 0), -EBUSY);
	assert_rc(hwt_store_acquire_wait(store, mine, 0), -EBUSY);
	assert_rc(acquire(1), 1);
	assert_rc(hwt_store_acquire(store, &claim[1].request, 0), -EBUSY);
	assert_rc(hwt_store_destroy(store), -EBUSY);
	release(0);
	release(1);
	job_answer = HWT_STORE_LATER;
	assert_rc(acquire(2), 1);
	job = value[1].job;
	INVALID(hwt_store_complete(store, job, 1, NULL));
	assert_ok(complete('b', 0));
	release(2);
}

StoreTest(store_answers, ENOENT_of_a_job_that_has_ended)
{
	struct hwt_store_job *ended;

	claims("a b");
	job_answer = HWT_STORE_LATER;
	assert_rc(acquire(0), 1);
	ended = value[0].job;
	assert_ok(complete('a', -EIO));
	/* In the same memory. */
	assert_rc(acquire(1), 1);
	assert_rc(hwt_store_complete(store, ended, 0, NULL), -ENOENT);
	assert_u64(claim[1].calls, 0);
	assert_ok(complete('b', 0));
	assert_ended(1, 0);
	release(1);
}

StoreTest(store_answers, ENOMEM_loads_nothing_more_and_the_next_one_works)
{
	claims("ab");
	fault_arm(FAULT_HEAP, 1);
	assert_rc(acquire(0), -ENOMEM);
	(void)fault_disarm();
	assert_u64(store_stats().loaded, 0);
	assert_ok(acquire(0));
	release(0);
}

static void
use_in_child(void *arg)
{
	struct hwt_store_request *mine = &claim[0].request;
	struct hwt_store_stats stats;
	struct hwt_store *made;

	(void)arg;
	child_rc(hwt_store_create(&made, checkout, NULL), -EOWNERDEAD);
	child_rc(
	    hwt_store_request_init(store, mine, claim[0].item, 1, NULL, NULL),
	    -EOWNERDEAD);
	child_rc(hwt_store_acquire(store, mine, 0), -EOWNERDEAD);
	child_rc(hwt_store_acquire_wait(store, mine, 0), -EOWNERDEAD);
	child_rc(hwt_store_release(store, mine), -EOWNERDEAD);
	child_rc(hwt_store_cancel(store, mine), -EOWNERDEAD);
	child_rc(hwt_store_complete(store, NULL, 0, NULL), -EOWNERDEAD);
	child_rc(hwt_store_read_stats(store, &stats), -EOWNERDEAD);
	child_ok(hwt_store_destroy(store));
	child_ok(hwt_checkout_destroy(checkout));
	child_ok(hwt_destroy(manual.timer));
}

StoreTest(store_answers, EOWNERDEAD_in_a_child)
{
	claims("a");
	assert_ok(acquire(0));
	in_child(use_in_child, NULL);
	release(0);
}
