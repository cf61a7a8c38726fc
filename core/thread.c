/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State of a thread: its caches of timers, the tasks that it runs, signals.
 *
 * CACHES. A thread has a slot for each of the first THREAD_SLOTS timers that it
 * uses, with the cache of that timer which it owns. For every further timer it
 * uses that timer's shared cache. The thread returns its caches when it exits;
 * the registry knows which of their timers are still live (process.c). Other
 * destructors of the thread may use a timer after that. They get the shared
 * cache: the C library calls destructors again only so often, and a cache that
 * is claimed after the last time would never be returned.
 *
 * The slot of a destroyed timer is reused when the thread needs one: it asks
 * the registry, unless another thread holds its lock: no call waits here. After
 * a failed attempt to get a cache, it makes no other for ATTACH_SKIP calls:
 * this bounds the average cost of asking.
 *
 * A thread's slots are its own. There are no edges here: that of caches is in
 * record.c, and all else is under the registry's lock.
 */
#define _GNU_SOURCE
#include <signal.h>

#include "core/timer.h"

/* glibc has room for the values of so many keys in each thread, and allocates
 * memory for further ones. */
#define KEYS_IN_PLACE 32u

/* gcc ignores the model of the declaration, so it is repeated. */
_Thread_local struct thread_state thread_state THREAD_STATE_MODEL;

/* Without it, threads have no caches. */
static pthread_key_t exit_key;
static bool exit_key_made;

static void
thread_exits(void *state)
{
	struct thread_slot slot;
	struct hwt *timer;
	int i;

	(void)state;
	process_lock();
	for (i = 0; i < THREAD_SLOTS; i++) {
		slot = thread_state.slot[i];
		thread_state.slot[i] = (struct thread_slot){0};
		/* The cache of a destroyed timer was freed with it. */
		timer = process_find_timer(slot.serial);
		if (timer != NULL)
			cache_release(timer, slot.cache);
	}
	thread_state.exited = true;
	process_unlock();
}

/* As the library is loaded, before constructors that may create timers. glibc
 * can run this twice, if a thread calls dlopen while the process exits. */
__attribute__((constructor(101))) static void
thread_init(void)
{
	static bool done;

	if (!done)
		exit_key_made =
		    pthread_key_create(&exit_key, thread_exits) == 0;
	done = true;
}

static bool
timers_are_stopped(void)
{
	const struct hwt *timer = NULL;

	while ((timer = process_next_timer(timer)) != NULL) {
		if (a64_load_relaxed(&timer->phase) != PHASE_STOPPED)
			return false;
	}
	return true;
}

/* A plugin with this code in it is unloaded, or the process exits. Threads that
 * have used a timer may end later: thread_exits must not be called then. If a
 * timer runs, others may be using the key; then it stays, and so must the code:
 * hwt(7). In a child, no timer of its parent runs. Waits for no lock. After the
 * plugin's own destructors, which may end its timers. */
__attribute__((destructor(101))) static void
thread_unload(void)
{
	if (!process_trylock())
		return;
	if (exit_key_made && timers_are_stopped()) {
		exit_key_made = false;
		(void)pthread_key_delete(exit_key);
	}
	process_unlock();
}

static bool
watch_thread_exit(bool may_allocate)
{
	if (!thread_state.watched && exit_key_made &&
	    (may_allocate || (unsigned)exit_key < KEYS_IN_PLACE))
		thread_state.watched =
		    pthread_setspecific(exit_key, &thread_state) == 0;
	return thread_state.watched;
}

/* The slot of a timer, by its serial, or for 0 one that holds no cache. It is
 * put first for the next time. NULL: there is none. */
static struct thread_slot *
find_slot(uint64_t serial)
{
	struct thread_slot *first = &thread_state.slot[0];
	struct thread_slot found;
	int i;

	for (i = 0; i < THREAD_SLOTS; i++) {
		found = thread_state.slot[i];
		if (found.serial == serial) {
			thread_state.slot[i] = *first;
			*first = found;
			return first;
		}
	}
	return NULL;
}

/* An empty slot, also that of a destroyed timer; NULL: there is none, or the
 * registry was locked. */
static struct thread_slot *
vacant_slot(void)
{
	struct thread_slot *slot = find_slot(0);
	int i;

	if (slot != NULL || !process_trylock())
		return slot;
	for (i = 0; i < THREAD_SLOTS; i++) {
		if (process_find_timer(thread_state.slot[i].serial) == NULL) {
			slot = &thread_state.slot[i];
			*slot = (struct thread_slot){0};
		}
	}
	process_unlock();
	return slot;
}

struct cache *
thread_attach_cache(struct hwt *timer, bool may_allocate)
{
	struct thread_slot *slot = find_slot(timer->serial);
	struct cache *cache = NULL;

	if (slot != NULL)
		return slot->cache;
	if (thread_state.exited)
		return &timer->store.shared_cache;
	if (thread_state.attach_skip > 0) {
		thread_state.attach_skip--;
		return &timer->store.shared_cache;
	}
	slot = vacant_slot();
	if (slot != NULL && watch_thread_exit(may_allocate))
		cache = cache_claim(timer);
	if (cache == NULL) {
		thread_state.attach_skip = ATTACH_SKIP;
		return &timer->store.shared_cache;
	}
	*slot = (struct thread_slot){timer->serial, cache};
	return cache;
}

struct run_frame *
thread_frame_of(const struct hwt *timer, uint64_t id)
{
	struct run_frame *frame = thread_state.frames;

	while (frame != NULL &&
	    (frame->serial != timer->serial || (id != 0 && frame->id != id)))
		frame = frame->outer;
	return frame;
}

/* All but SIGPROF and those that a thread's own faults raise. */
static void
block_signals(sigset_t *old)
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

void
thread_begin(const char *name, const pthread_attr_t *attr)
{
	/* attr may have set a mask of its own. */
	block_signals(NULL);
	system_name_thread(name);
	/* The thread that has made it may be one of the background. */
	if (attr == NULL)
		system_schedule_as_main();
}

int
thread_create(pthread_t *thread, const pthread_attr_t *attr,
    void *(*begin)(void *argument), void *argument)
{
	sigset_t signals;
	int error;

	block_signals(&signals);
	error = pthread_create(thread, attr, begin, argument);
	(void)pthread_sigmask(SIG_SETMASK, &signals, NULL);
	if (error == 0)
		return 0;
	return error == ENOMEM ? -ENOMEM : -EAGAIN;
}
