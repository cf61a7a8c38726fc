/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The baseline: a hashed wheel behind a mutex, as one would write it in an
 * afternoon, written well. Doubly linked lists, so that start and cancel take
 * constant time; clock, malloc and free outside the lock; each lock on a cache
 * line of its own; no counters. What is due is unlinked under the lock, a few
 * at a time, and run without it while it is in the cache. Deadlines are kept as
 * ticks, so that passing over a later round is a comparison.
 *
 * A handle is the pointer. The owner of a handle cancels it once, whether the
 * timeout has ended or not, and so frees it; without a handle, the worker frees
 * it after its task.
 *
 * Who would call it unfair, and the variant that they would write (rules.mk):
 *
 *   "Each thread has a wheel of its own, and a timeout is embedded in its
 *    connection: no malloc."                  MUTEX_WHEEL_SHARDS
 *   "One notes the activity, and checks it when the timeout is due."
 *                                             MUTEX_WHEEL_LAZY
 *   "The loop has read the clock already."    SUBJECT_DEADLINES
 *   "CLOCK_MONOTONIC_COARSE is cheaper."      Timeouts would be early.
 *   "A loop's own timers need no lock."       subject/libuv.h
 */

/* 1: what is pushed out stays in its bucket. Its deadline is stored without the
 * lock, and checked when the bucket is due: the third way in libev's manual. */
#ifndef MUTEX_WHEEL_LAZY
#define MUTEX_WHEEL_LAZY 0
#endif

/* Above 1: each thread's timeouts are in a wheel with a lock of its own, and
 * what a thread cancels serves its next timeout. */
#ifndef MUTEX_WHEEL_SHARDS
#define MUTEX_WHEEL_SHARDS 1
#endif

enum {
	/* Of each shard; a power of two. */
	WHEEL_BUCKETS = 512,
	/* Timeouts examined while the lock is held. */
	WHEEL_CHUNK = 64
};

#define WHEEL_ENDED UINT64_MAX

/* The links come first: a bucket's head is the links alone. */
struct wheel_links {
	struct wheel_links *next, *previous;
};

struct wheel_timeout {
	struct wheel_links link;
	uint64_t tick;
	void (*task)(void *arg);
	void *arg;
#if MUTEX_WHEEL_SHARDS > 1
	struct wheel_shard *shard;
#endif
	/* The deadline, not before tick; WHEEL_ENDED: not in a bucket. Under
	 * the shard's lock, except where a lazy one is pushed out. */
	atomic_uint_fast64_t due;
	/* Who must still release it: the wheel, and the owner of a handle. */
	atomic_uint holders;
};

typedef struct wheel_timeout *subject_handle;

struct wheel_shard {
	_Alignas(64) pthread_mutex_t lock;
	uint64_t next_tick;
	struct wheel_links bucket[WHEEL_BUCKETS];
};

struct subject {
	struct wheel_shard shard[MUTEX_WHEEL_SHARDS];
	_Alignas(64) uint64_t origin_ns, tick_ns;
	atomic_bool stopping;
	pthread_t worker;
};

static inline const char *
subject_version(void)
{
	return "a hashed wheel behind a mutex, perf/subject/mutex_wheel.h";
}

/* Where the calling thread's timeouts go. */
static inline struct wheel_shard *
wheel_own_shard(struct subject *wheel)
{
	static _Thread_local unsigned number;
	static atomic_uint threads;

	if (MUTEX_WHEEL_SHARDS > 1 && !number)
		number = atomic_fetch_add(&threads, 1) + 1;
	return &wheel->shard[number % MUTEX_WHEEL_SHARDS];
}

static inline struct wheel_shard *
wheel_shard_of(struct subject *wheel, const struct wheel_timeout *timeout)
{
#if MUTEX_WHEEL_SHARDS > 1
	(void)wheel;
	return timeout->shard;
#else
	(void)timeout;
	return &wheel->shard[0];
#endif
}

/* With shards: instead of malloc. */
static _Thread_local struct wheel_timeout *wheel_spare;

static inline struct wheel_timeout *
wheel_make(void)
{
	struct wheel_timeout *made =
	    MUTEX_WHEEL_SHARDS > 1 ? wheel_spare : NULL;

	if (made)
		wheel_spare = NULL;
	else
		made = malloc(sizeof(*made));
	perf_must(made, "malloc");
	return made;
}

static inline void
wheel_free(struct wheel_timeout *timeout)
{
	if (MUTEX_WHEEL_SHARDS == 1 || wheel_spare)
		free(timeout);
	else
		wheel_spare = timeout;
}

static inline void
wheel_release(struct wheel_timeout *timeout)
{
	if (atomic_fetch_sub(&timeout->holders, 1) == 1)
		wheel_free(timeout);
}

static inline void
wheel_unlink(struct wheel_links *link)
{
	link->previous->next = link->next;
	link->next->previous = link->previous;
}

/* Before head, which makes it the list's last. */
static inline void
wheel_append(struct wheel_links *head, struct wheel_links *link)
{
	link->next = head;
	link->previous = head->previous;
	head->previous->next = link;
	head->previous = link;
}

static inline struct wheel_links *
wheel_bucket(struct wheel_shard *shard, uint64_t tick)
{
	return &shard->bucket[tick % WHEEL_BUCKETS];
}

static inline uint64_t
wheel_due_tick(const struct subject *wheel, uint64_t delay_ns)
{
	uint64_t now_ns = SUBJECT_DEADLINES && subject_turn_ns ? subject_turn_ns
							       : perf_now_ns();
	uint64_t since_ns = now_ns + delay_ns - wheel->origin_ns;

	return (since_ns + wheel->tick_ns - 1) / wheel->tick_ns;
}

/* Under the lock. */
static inline void
wheel_place(
    struct wheel_shard *shard, struct wheel_timeout *timeout, uint64_t tick)
{
	if (tick < shard->next_tick)
		tick = shard->next_tick;
	atomic_store_explicit(&timeout->due, tick, memory_order_relaxed);
	timeout->tick = tick;
	wheel_append(wheel_bucket(shard, tick), &timeout->link);
}

/* Under the lock. */
static inline bool
wheel_is_pending(const struct wheel_timeout *timeout)
{
	return atomic_load_explicit(&timeout->due, memory_order_relaxed) !=
	    WHEEL_ENDED;
}

static inline void
subject_schedule(struct subject *wheel, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	struct wheel_shard *shard = wheel_own_shard(wheel);
	struct wheel_timeout *timeout = wheel_make();
	uint64_t tick = wheel_due_tick(wheel, delay_ns);

	timeout->task = task;
	timeout->arg = arg;
#if MUTEX_WHEEL_SHARDS > 1
	timeout->shard = shard;
#endif
	atomic_init(&timeout->holders, handle ? 2 : 1);
	if (handle)
		*handle = timeout;
	pthread_mutex_lock(&shard->lock);
	wheel_place(shard, timeout, tick);
	pthread_mutex_unlock(&shard->lock);
}

static inline void
subject_cancel(struct subject *wheel, subject_handle timeout)
{
	struct wheel_shard *shard = wheel_shard_of(wheel, timeout);
	bool is_pending;

	pthread_mutex_lock(&shard->lock);
	is_pending = wheel_is_pending(timeout);
	if (is_pending)
		wheel_unlink(&timeout->link);
	pthread_mutex_unlock(&shard->lock);
	if (is_pending) {
		wheel_free(timeout);
		return;
	}
	subject_refused++;
	wheel_release(timeout);
}

/* Without the lock; false: it has ended, or is pulled in. */
static inline bool
wheel_put_off(struct wheel_timeout *timeout, uint64_t tick)
{
	uint64_t due =
	    atomic_load_explicit(&timeout->due, memory_order_relaxed);

	while (due <= tick)
		if (atomic_compare_exchange_weak(&timeout->due, &due, tick))
			return true;
	return false;
}

static inline void
subject_reschedule(
    struct subject *wheel, subject_handle *handle, uint64_t delay_ns)
{
	struct wheel_shard *shard = wheel_shard_of(wheel, *handle);
	uint64_t tick = wheel_due_tick(wheel, delay_ns);

	if (MUTEX_WHEEL_LAZY && wheel_put_off(*handle, tick))
		return;
	pthread_mutex_lock(&shard->lock);
	perf_must(wheel_is_pending(*handle), "rescheduling");
	wheel_unlink(&(*handle)->link);
	wheel_place(shard, *handle, tick);
	pthread_mutex_unlock(&shard->lock);
}

/* Under the lock. Unlinks it if it is due; one that was put off moves. */
static inline bool
wheel_end(
    struct wheel_shard *shard, struct wheel_timeout *timeout, uint64_t tick)
{
	uint64_t due = timeout->tick;

	if (due > tick)
		return false;
	wheel_unlink(&timeout->link);
	if (!MUTEX_WHEEL_LAZY) {
		atomic_store_explicit(
		    &timeout->due, WHEEL_ENDED, memory_order_relaxed);
		return true;
	}
	while (due <= tick)
		if (atomic_compare_exchange_weak(
			&timeout->due, &due, WHEEL_ENDED))
			return true;
	timeout->tick = due;
	wheel_append(wheel_bucket(shard, due), &timeout->link);
	return false;
}

/* Unlinks what is due at the tick, from the place that cursor has in the bucket
 * on, and moves the cursor behind it. Returns how many are in due. */
static inline unsigned
wheel_collect(struct wheel_shard *shard, struct wheel_links *cursor,
    uint64_t tick, struct wheel_timeout **due)
{
	const struct wheel_links *head = wheel_bucket(shard, tick);
	struct wheel_links *link = cursor->next;
	struct wheel_timeout *timeout;
	unsigned count = 0, seen;

	wheel_unlink(cursor);
	for (seen = 0; link != head && seen < WHEEL_CHUNK; seen++) {
		timeout = (struct wheel_timeout *)link;
		link = link->next;
		if (wheel_end(shard, timeout, tick))
			due[count++] = timeout;
	}
	wheel_append(link, cursor);
	return count;
}

/* Other threads unlink, and append at the end: the cursor stays where it is. */
static inline void
wheel_turn(struct wheel_shard *shard, uint64_t tick)
{
	struct wheel_links *head = wheel_bucket(shard, tick), cursor;
	struct wheel_timeout *due[WHEEL_CHUNK];
	unsigned count, i;

	pthread_mutex_lock(&shard->lock);
	shard->next_tick = tick + 1;
	wheel_append(head->next, &cursor);
	while (cursor.next != head) {
		count = wheel_collect(shard, &cursor, tick, due);
		pthread_mutex_unlock(&shard->lock);
		for (i = 0; i < count; i++) {
			due[i]->task(due[i]->arg);
			wheel_release(due[i]);
		}
		pthread_mutex_lock(&shard->lock);
	}
	wheel_unlink(&cursor);
	pthread_mutex_unlock(&shard->lock);
}

static inline void *
wheel_worker(void *arg)
{
	struct subject *wheel = arg;
	uint64_t tick;
	unsigned i;

	for (tick = 1; !atomic_load(&wheel->stopping); tick++) {
		perf_sleep_until_ns(wheel->origin_ns + tick * wheel->tick_ns);
		for (i = 0; i < MUTEX_WHEEL_SHARDS; i++)
			wheel_turn(&wheel->shard[i], tick);
	}
	return NULL;
}

static inline struct subject *
subject_create(uint64_t tick_ns, uint64_t capacity)
{
	struct subject *wheel = aligned_alloc(64, sizeof(*wheel));
	struct wheel_links *head;
	unsigned i, k;

	(void)capacity;
	perf_must(wheel, "aligned_alloc");
	for (i = 0; i < MUTEX_WHEEL_SHARDS; i++) {
		pthread_mutex_init(&wheel->shard[i].lock, NULL);
		wheel->shard[i].next_tick = 1;
		for (k = 0; k < WHEEL_BUCKETS; k++) {
			head = &wheel->shard[i].bucket[k];
			head->next = head->previous = head;
		}
	}
	wheel->tick_ns = tick_ns;
	wheel->origin_ns = perf_now_ns();
	atomic_init(&wheel->stopping, false);
	perf_start(&wheel->worker, wheel_worker, wheel);
	return wheel;
}

/* After the tick for which the worker sleeps. */
static inline void
subject_destroy(struct subject *wheel)
{
	struct wheel_links *head, *link, *next;
	unsigned i, k;

	atomic_store(&wheel->stopping, true);
	pthread_join(wheel->worker, NULL);
	for (i = 0; i < MUTEX_WHEEL_SHARDS; i++)
		for (k = 0; k < WHEEL_BUCKETS; k++) {
			head = &wheel->shard[i].bucket[k];
			for (link = head->next; link != head; link = next) {
				next = link->next;
				free(link);
			}
		}
	free(wheel);
}
