/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fork, thread exit and the list of live timers.
 *
 * FORK. A page that the kernel wipes in every child (MADV_WIPEONFORK) holds
 * the epoch, where there is such a page. Timers carry the epoch of their
 * making, so that one load tells whether they are this process's own; a child
 * reads 0 and finds all of them foreign, without having run a line of code.
 * That also covers a bare clone and a fork in the middle of anything. Where the
 * kernel has no such page, an atfork handler clears the word; where that could
 * not be registered for want of memory, nothing is made. The first call in
 * a child that needs an epoch takes a new one, with an empty registry and a
 * fresh lock: whoever held the lock at the moment of the fork does not exist
 * there.
 *
 * THREADS. Each thread remembers the caches of the timers that it used first;
 * taking one into an empty slot needs no lock, and emptying one, now and then,
 * is left for another time by who may not wait for the lock. The cache belongs
 * to the timer (see record.c); the thread only holds it, and gives it back when
 * it exits. At that time the timer may be gone. The registry answers that: it
 * knows the live ones by address and serial, and hwt_destroy takes the timer
 * out of it, under the same lock, before anything is freed.
 *
 * EDGES
 *
 *   E:epoch     renewing the registry and the shared timer's word, release
 *               by the store of the epoch, acquired by whoever finds it set:
 *               process_renew and process_epoch.
 *
 * Everything else here is under the registry's lock or the thread's own.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include "core/record.h"
#include "core/timer.h"

#define EPOCH_NONE 0
#define EPOCH_RENEWING 1
#define MANY_TIMERS 64

/* Without the model here, too, gcc forgets it for this file. */
_Thread_local struct thread_state thread_state THREAD_STATE_MODEL;

static a64_t epoch_fallback;
a64_t *process_epoch_word = &epoch_fallback;

static struct {
	pthread_mutex_t lock;
	struct hwt *timers;
	uint64_t count;
	bool warned;
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* These survive a fork, so that a child's values differ from its parent's. */
static uint64_t last_epoch = EPOCH_RENEWING;
static uint64_t last_serial;

/* Without it, threads have no caches. */
static pthread_key_t exit_key;
static bool exit_key_made;

/* Without it, a child would take its parent's timers for its own. */
static bool fork_goes_unseen;

static void thread_exits(void *state);

static void
process_forked(void)
{
	a64_store_relaxed(process_epoch_word, EPOCH_NONE);
}

/* Before constructors without a priority: one of those may make a timer. That
 * one keeps its epoch even so. When the page cannot be had, a handler must do;
 * it is not there otherwise, since it would undo what a handler of the user,
 * registered before it, has made in the child. */
__attribute__((constructor(101))) static void
process_init(void)
{
	a64_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	exit_key_made = pthread_key_create(&exit_key, thread_exits) == 0;

	if (page != MAP_FAILED && madvise(page, 4096, MADV_WIPEONFORK) == 0) {
		a64_store_relaxed(page, a64_load_relaxed(&epoch_fallback));
		process_epoch_word = page;
		return;
	}
	if (page != MAP_FAILED)
		(void)munmap(page, 4096);
	fork_goes_unseen = pthread_atfork(NULL, NULL, process_forked) != 0;
}

bool
process_sees_forks(void)
{
	return !fork_goes_unseen;
}

static void
process_renew(void)
{
	uint32_t tries = 0;

	if (!a64_cas_acq_rel(process_epoch_word, EPOCH_NONE, EPOCH_RENEWING)) {
		/* E:epoch acquire */
		while (a64_load_acquire(process_epoch_word) == EPOCH_RENEWING)
			system_yield(&tries);
		return;
	}
	registry.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	registry.timers = NULL;
	registry.count = 0;
	registry.warned = false;
	shared_forget();
	/* E:epoch release */
	a64_store_release(process_epoch_word, ++last_epoch);
}

uint64_t
process_epoch(void)
{
	uint64_t epoch = a64_load_acquire(process_epoch_word);

	while (epoch <= EPOCH_RENEWING) {
		process_renew();
		epoch = a64_load_acquire(process_epoch_word);
	}
	return epoch;
}

void
process_lock(void)
{
	(void)process_epoch();
	(void)pthread_mutex_lock(&registry.lock);
}

/* For those who wait for nobody. What calls this is about a timer of this
 * process, whose making has found the lock renewed. */
static bool
process_trylock(void)
{
	return pthread_mutex_trylock(&registry.lock) == 0;
}

void
process_unlock(void)
{
	(void)pthread_mutex_unlock(&registry.lock);
}

bool
process_add_timer(struct hwt *timer)
{
	bool warn;

	process_lock();
	timer->serial = ++last_serial;
	timer->registry_previous = NULL;
	timer->registry_next = registry.timers;
	if (registry.timers != NULL)
		registry.timers->registry_previous = timer;
	registry.timers = timer;
	registry.count++;
	warn = registry.count > MANY_TIMERS && !registry.warned;
	registry.warned = registry.warned || warn;
	process_unlock();
	return warn;
}

void
process_remove_timer(struct hwt *timer)
{
	process_lock();
	if (timer->registry_previous != NULL)
		timer->registry_previous->registry_next = timer->registry_next;
	else
		registry.timers = timer->registry_next;
	if (timer->registry_next != NULL)
		timer->registry_next->registry_previous =
		    timer->registry_previous;
	registry.count--;
	process_unlock();
}

static bool
is_handing_to(const struct hwt *timer, const struct hwt_executor *executor)
{
	/* E:handing acquire */
	const struct hwt_executor *handing = aptr_load_acquire(&timer->handing);

	return handing == executor ||
	    (handing == &timer->executor && handing->ctx == executor->ctx);
}

void
process_await_hand_overs(const struct hwt_executor *executor)
{
	const struct hwt *timer;
	uint32_t tries = 0;

	process_lock();
	for (timer = registry.timers; timer != NULL;
	     timer = timer->registry_next) {
		while (is_handing_to(timer, executor))
			system_yield(&tries);
	}
	process_unlock();
}

/* With the lock held: whether the slot's timer is a live one of this process.
 * The address alone is compared before anything behind it is read. */
static bool
slot_lives(const struct thread_slot *slot)
{
	const struct hwt *timer;

	for (timer = registry.timers; timer != NULL;
	     timer = timer->registry_next) {
		if (timer == slot->timer)
			return timer->serial == slot->serial;
	}
	return false;
}

static void
slot_release(struct thread_slot *slot)
{
	if (slot->timer != NULL && slot_lives(slot) &&
	    cache_release(slot->timer, slot->cache))
		timer_many_free(slot->timer);
	*slot = (struct thread_slot){0};
}

static void
thread_exits(void *state)
{
	struct thread_state *self = state;
	int i;

	process_lock();
	for (i = 0; i < THREAD_SLOTS; i++)
		slot_release(&self->slot[i]);
	self->watched = false;
	process_unlock();
}

/* Another destructor of the same thread may use a timer after thread_exits ran:
 * then it is called once more. */
static bool
watch_thread_exit(void)
{
	if (!thread_state.watched)
		thread_state.watched = exit_key_made &&
		    pthread_setspecific(exit_key, &thread_state) == 0;
	return thread_state.watched;
}

/* The slot of a timer, put first for the next time; or NULL. */
static struct thread_slot *
find_slot(const struct hwt *timer)
{
	struct thread_slot *first = &thread_state.slot[0];
	struct thread_slot found;
	int i;

	for (i = 0; i < THREAD_SLOTS; i++) {
		found = thread_state.slot[i];
		if (found.timer == timer && found.serial == timer->serial) {
			thread_state.slot[i] = *first;
			*first = found;
			return first;
		}
	}
	return NULL;
}

/* A slot that holds no cache. */
static struct thread_slot *
empty_slot(void)
{
	int i;

	for (i = 0; i < THREAD_SLOTS; i++) {
		if (thread_state.slot[i].timer == NULL)
			return &thread_state.slot[i];
	}
	return NULL;
}

/* With the lock held. The caches of timers that are gone went with them. */
static void
forget_dead(void)
{
	struct thread_slot *slot;
	int i;

	for (i = 0; i < THREAD_SLOTS; i++) {
		slot = &thread_state.slot[i];
		if (!slot_lives(slot))
			*slot = (struct thread_slot){0};
	}
}

/* Gives up the slots of timers that are gone; when there are none, any. Who may
 * not lock tries to, and gives up none that lives: to flush its cache takes
 * longer, and calls a worker maybe. */
static void
vacate_slot(bool may_lock)
{
	unsigned turn = thread_state.misses[true] / MISSES_PER_CHANGE;

	if (may_lock)
		process_lock();
	else if (!process_trylock())
		return;
	forget_dead();
	if (may_lock && empty_slot() == NULL)
		slot_release(&thread_state.slot[turn % THREAD_SLOTS]);
	process_unlock();
}

/* Threads that use more timers than they have slots do without a cache most of
 * the time, rather than take the lock most of the time; and so do those to whom
 * a timer had none to give, rather than look at all of its caches each time. */
struct cache *
process_attach_cache(struct hwt *timer, bool may_lock)
{
	struct thread_slot *slot = find_slot(timer);
	struct cache *cache;

	if (slot != NULL)
		return slot->cache;
	if (thread_state.passes > 0) {
		thread_state.passes--;
		return NULL;
	}
	slot = empty_slot();
	if (slot == NULL &&
	    thread_state.misses[may_lock]++ % MISSES_PER_CHANGE == 0) {
		vacate_slot(may_lock);
		slot = empty_slot();
	}
	if (slot == NULL || !watch_thread_exit())
		return NULL;
	cache = cache_claim(timer);
	if (cache == NULL) {
		thread_state.passes = MISSES_PER_CHANGE - 1;
		return NULL;
	}
	*slot = (struct thread_slot){timer, timer->serial, cache};
	return find_slot(timer)->cache;
}

bool
process_runs_task_of(const struct hwt *timer)
{
	const struct run_frame *frame;

	for (frame = thread_state.frames; frame != NULL; frame = frame->outer) {
		if (frame->serial == timer->serial)
			return true;
	}
	return false;
}

bool
process_runs_task(const struct hwt *timer, uint64_t id)
{
	const struct run_frame *frame;

	if (id == 0)
		return false;
	for (frame = thread_state.frames; frame != NULL; frame = frame->outer) {
		if (frame->serial == timer->serial && frame->id == id)
			return true;
	}
	return false;
}

void
process_block_signals(void *old)
{
	static const int open[] = {
	    SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGPROF};
	sigset_t set;
	size_t i;

	(void)sigfillset(&set);
	for (i = 0; i < sizeof(open) / sizeof(open[0]); i++)
		(void)sigdelset(&set, open[i]);
	(void)pthread_sigmask(SIG_SETMASK, &set, old);
}
