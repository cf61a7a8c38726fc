/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models behind sim.h, in the place of the system, of system.c and of
 * system_*.c.
 *
 * MEMORY is carved from an arena whose addresses are the same in each
 * execution, and is never used twice in one. A map tells for each line of it
 * whether it is given out: atomic accesses to anything else fail, and what was
 * released is poisoned for all others. Releasing it is a step for each part
 * of it that was used, so that the search tries it before every such use.
 *
 * WAITING. Whatever waits is one awaited step that names the bytes by which it
 * is woken. A futex is its word: to compare it and to enter the queue is one
 * step, as under the kernel's lock.
 */
#define _GNU_SOURCE
#include "test/sim/sim.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <time.h>

#include "sys/system.h"
#include "core/timer.h"

/* simulated_... are called by what objcopy made of their names. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define ARENA (UINT32_C(1) << 18)
#define LINE 64u
#define GRAIN 16u
#define LINES (ARENA / LINE)
#define PIECES_MAX 64u
#define FILES 4u
#define THREADS (EXPLORE_THREADS_MAX + 1) /* the last: begin and end */

struct sleeper {
	const void *word; /* NULL: does not sleep */
	bool woken;
	uint64_t turn; /* who came first is woken first */
	uint64_t until_ns;
};

struct piece {
	void *memory;
	size_t bytes;
	bool freed;
};

struct start {
	void *(*function)(void *);
	void *argument;
};

struct thread {
	struct sleeper sleeper;
	uint32_t ended;
	bool joined;
	const void *specific;
	unsigned wakes; /* calls of futex_wake for one */
};

static struct {
	size_t used; /* of the arena */
	struct piece piece[PIECES_MAX];
	unsigned pieces;
	struct thread thread[THREADS];
	uint64_t turns;
	struct start start[THREADS];
	unsigned starts;
	unsigned releases; /* of pages */
	uint64_t file[FILES];
	bool open[FILES];
} sim;

struct sim_settings sim_settings;
uint64_t sim_now_ns;
unsigned sim_held;

static _Alignas(4096) char arena[ARENA];
static bool given_out[LINES];
static bool touched[ARENA / GRAIN];
/* Lines that system_release took: a record each, and only who commits its page
 * may change them. What is in a slab's header is no record. */
static bool released[LINES];
static void (*destructor)(void *);

/* The library's static data: a section of core.o. */
extern char __start_hwt_data[], __stop_hwt_data[];
static char *data_kept;

void
sim_init(void)
{
	size_t bytes = (size_t)(__stop_hwt_data - __start_hwt_data);

	data_kept = malloc(bytes);
	if (data_kept == NULL)
		abort();
	memcpy(data_kept, __start_hwt_data, bytes);
	explore_add_local(&thread_state, sizeof(thread_state));
}

void
sim_reset(void)
{
	memset(arena, 0, sim.used);
	memset(given_out, 0, sim.used / LINE);
	memset(touched, 0, sim.used / GRAIN);
	memset(released, 0, sim.used / LINE);
	memset(&sim, 0, sizeof(sim));
	memset(&sim_settings, 0, sizeof(sim_settings));
	memset(&thread_state, 0, sizeof(thread_state));
	memcpy(__start_hwt_data, data_kept,
	    (size_t)(__stop_hwt_data - __start_hwt_data));
	sim_settings.releases_max = UINT_MAX;
	sim_now_ns = 1000000000;
	sim_held = 0;
}

static struct thread *
self(void)
{
	return &sim.thread[explore_self()];
}

/* Conditions of awaits. */

static bool
is_set(const void *word)
{
	return *(const uint32_t *)word != 0;
}

static bool
is_zero(const void *word)
{
	return *(const uint32_t *)word == 0;
}

static bool
is_awake(const void *context)
{
	const struct sleeper *sleeper = context;

	return sleeper->woken || sim_now_ns >= sleeper->until_ns;
}

/* Memory. */

static bool
in_arena(const void *at)
{
	return (uintptr_t)at - (uintptr_t)arena < ARENA;
}

static size_t
line_of(const void *at)
{
	return ((uintptr_t)at - (uintptr_t)arena) / LINE;
}

static size_t
lines_in(size_t bytes)
{
	return (bytes + LINE - 1) / LINE;
}

/* Where sim_settings says so, a thread waits. */
void
sim_stop_at(const void *at, bool changes)
{
	if (at == NULL || at != sim_settings.stop.at ||
	    explore_self() != sim_settings.stop.thread ||
	    (sim_settings.stop.changes && !changes))
		return;
	sim_settings.stop.at = NULL;
	explore_modify(&sim_settings.stop.stopped, 4);
	sim_settings.stop.stopped = 1;
	explore_await(
	    &sim_settings.stop.go_on, 4, is_set, &sim_settings.stop.go_on);
}

static void
fail_at(const char *what, const void *at)
{
	explore_fail("%s: arena + %zu", what,
	    (size_t)((uintptr_t)at - (uintptr_t)arena));
}

void
sim_touch(const void *at)
{
	sim_stop_at(at, false);
	if (!in_arena(at))
		return;
	touched[((uintptr_t)at - (uintptr_t)arena) / GRAIN] = 1;
	if (!given_out[line_of(at)])
		fail_at("memory is used that was released", at);
}

void
sim_change(const void *at)
{
	if (in_arena(at) && released[line_of(at)])
		fail_at("a released record is changed", at);
}

void
sim_commit(const void *record)
{
	static const char zero[LINE];

	if (memcmp(record, zero, LINE) != 0)
		fail_at("what is committed does not read as 0", record);
	released[line_of(record)] = false;
}

/* Changes all of it that anybody used: see explore_is_buffered. */
static void
release(const char *memory, size_t bytes)
{
	const char *at;

	for (at = memory; at < memory + bytes; at += GRAIN) {
		if (touched[(at - arena) / GRAIN])
			explore_modify(at, GRAIN);
	}
	if (explore_is_buffered(memory, bytes))
		fail_at("memory is released before a store to it", memory);
}

static void
give_out(const void *memory, size_t bytes)
{
	memset(&given_out[line_of(memory)], true, lines_in(bytes));
	sim_held += lines_in(bytes);
}

void *
system_map(size_t bytes)
{
	char *memory = arena + sim.used;

	if (lines_in(bytes) * LINE > ARENA - sim.used)
		explore_fail("the model's memory is used up");
	sim.used += lines_in(bytes) * LINE;
	give_out(memory, bytes);
	return memory;
}

void
system_unmap(void *memory, size_t bytes)
{
	size_t count = lines_in(bytes);
	size_t first = line_of(memory);
	size_t i;

	release(memory, count * LINE);
	for (i = first; i < first + count; i++) {
		if (!in_arena(memory) || !given_out[i])
			fail_at("memory is released twice", memory);
		given_out[i] = false;
	}
	memset(memory, 0xdb, bytes);
	sim_held -= count;
}

bool
system_release(void *memory, size_t bytes)
{
	if (sim.releases == sim_settings.releases_max)
		return false;
	sim.releases++;
	release(memory, bytes);
	memset(memory, 0, bytes);
	if ((uintptr_t)memory % SLAB_BYTES != 0)
		memset(&released[line_of(memory)], true, bytes / LINE);
	return true;
}

/* That size freed before, if memory recurs, or a new one. */
static struct piece *
piece_take(size_t bytes)
{
	struct piece *piece = sim.piece;
	struct piece *end = piece + sim.pieces;

	while (piece < end &&
	    !(sim_settings.memory_recurs && piece->freed &&
		piece->bytes == bytes))
		piece++;
	if (piece < end) {
		give_out(piece->memory, bytes);
	} else {
		if (sim.pieces++ == PIECES_MAX)
			explore_fail("too many pieces of memory");
		piece->memory = system_map(bytes);
		piece->bytes = bytes;
	}
	piece->freed = false;
	return piece;
}

void *
simulated_malloc(size_t bytes)
{
	return memset(piece_take(bytes)->memory, 0xa5, bytes);
}

void *
simulated_aligned_alloc(size_t alignment, size_t bytes)
{
	return simulated_malloc(bytes);
}

void *
simulated_calloc(size_t count, size_t bytes)
{
	return memset(piece_take(count * bytes)->memory, 0, count * bytes);
}

void
simulated_free(void *memory)
{
	unsigned i = 0;

	if (memory == NULL)
		return;
	while (i < sim.pieces && sim.piece[i].memory != memory)
		i++;
	if (i == sim.pieces)
		fail_at("what was never allocated is freed", memory);
	sim.piece[i].freed = true;
	system_unmap(memory, sim.piece[i].bytes);
}

ssize_t
simulated_getrandom(void *to, size_t bytes, unsigned flags)
{
	memset(to, 0x35, bytes);
	return (ssize_t)bytes;
}

/* Time. */

static uint64_t
now_ns(void)
{
	return sim_settings.clock_moves ? explore_load(&sim_now_ns, 8)
					: sim_now_ns;
}

int
simulated_clock_gettime(clockid_t clock, struct timespec *now)
{
	*now = system_timespec(now_ns());
	return 0;
}

void
sim_clock_add(uint64_t ns)
{
	if (sim_settings.clock_moves)
		explore_modify(&sim_now_ns, 8);
	sim_now_ns += ns;
}

bool
sim_idle(void)
{
	uint64_t until_ns = HWT_NEVER;
	unsigned i;

	for (i = 0; i < THREADS; i++) {
		const struct sleeper *sleeper = &sim.thread[i].sleeper;

		if (sleeper->word != NULL && sleeper->until_ns < until_ns)
			until_ns = sleeper->until_ns;
	}
	if (until_ns == HWT_NEVER)
		return false;
	sim_now_ns = until_ns;
	return true;
}

/* Sleeping. */

/* It has its place: what wakes it now ends its wait. */
static struct sleeper *
lie_down(const void *word, uint64_t until_ns)
{
	struct sleeper *sleeper = &self()->sleeper;

	*sleeper = (struct sleeper){
	    .word = word, .turn = ++sim.turns, .until_ns = until_ns};
	return sleeper;
}

static void
sleep_on(const void *word, struct sleeper *sleeper)
{
	explore_await(word, 4, is_awake, sleeper);
	sleeper->word = NULL;
}

void
futex_wait(const void *word, uint32_t value, uint64_t until_ns)
{
	sim_touch(word);
	explore_modify(word, 4);
	if (*(const uint32_t *)word == value)
		sleep_on(word, lie_down(word, until_ns));
}

/* Who sleeps there longest. */
static struct sleeper *
sleeper_on(const void *word)
{
	struct sleeper *first = NULL;
	unsigned i;

	for (i = 0; i < THREADS; i++) {
		struct sleeper *sleeper = &sim.thread[i].sleeper;

		if (sleeper->word == word && !sleeper->woken &&
		    (first == NULL || sleeper->turn < first->turn))
			first = sleeper;
	}
	return first;
}

bool
sim_sleeps_on(const void *word)
{
	return sleeper_on(word) != NULL;
}

/* A futex's word may be gone when it is woken: that is only an address. */
void
futex_wake(const void *word, int count)
{
	struct sleeper *sleeper;

	explore_modify(word, 4);
	self()->wakes += count == 1;
	while (count-- > 0 && (sleeper = sleeper_on(word)) != NULL)
		sleeper->woken = true;
}

unsigned
sim_wakes(void)
{
	return self()->wakes;
}

int
simulated_nanosleep(const struct timespec *pause, struct timespec *left)
{
	const void *word = &self()->sleeper;

	sleep_on(word, lie_down(word, now_ns() + (uint64_t)pause->tv_nsec));
	return 0;
}

int
simulated_sched_yield(void)
{
	explore_yield();
	return 0;
}

/* Locks: the first four bytes hold the owner + 1. */

int
simulated_pthread_mutex_destroy(pthread_mutex_t *mutex)
{
	sim_touch(mutex);
	explore_check(is_zero(mutex));
	return 0;
}

int
simulated_pthread_mutex_lock(pthread_mutex_t *mutex)
{
	sim_touch(mutex);
	explore_await(mutex, 4, is_zero, mutex);
	sim_touch(mutex);
	*(uint32_t *)mutex = explore_self() + 1;
	return 0;
}

int
simulated_pthread_mutex_trylock(pthread_mutex_t *mutex)
{
	sim_touch(mutex);
	explore_modify(mutex, 4);
	if (!is_zero(mutex))
		return EBUSY;
	*(uint32_t *)mutex = explore_self() + 1;
	return 0;
}

int
simulated_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	sim_touch(mutex);
	explore_modify(mutex, 4);
	explore_check(*(uint32_t *)mutex == explore_self() + 1);
	*(uint32_t *)mutex = 0;
	return 0;
}

/* A condition: its first four bytes are slept on. Who waits has its place with
 * the lock still held; a signal wakes all, also before they sleep. */

int
simulated_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	struct sleeper *sleeper;

	sim_touch(cond);
	explore_modify(cond, 4);
	sleeper = lie_down(cond, HWT_NEVER);
	(void)simulated_pthread_mutex_unlock(mutex);
	sleep_on(cond, sleeper);
	return simulated_pthread_mutex_lock(mutex);
}

int
simulated_pthread_cond_signal(pthread_cond_t *cond)
{
	sim_touch(cond);
	futex_wake(cond, THREADS);
	return 0;
}

int
simulated_pthread_cond_destroy(pthread_cond_t *cond)
{
	sim_touch(cond);
	return 0;
}

/* Threads. */

static void
thread_main(void *argument)
{
	const struct start *start = argument;

	(void)start->function(start->argument);
	sim_thread_ends();
}

int
simulated_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
    void *(*function)(void *), void *argument)
{
	struct start *start = &sim.start[sim.starts++];

	if (start == sim.start && sim_settings.thread_fails)
		return EAGAIN;
	*start = (struct start){function, argument};
	*thread = explore_spawn(thread_main, start) + 1;
	return 0;
}

void
sim_thread_ends(void)
{
	struct thread *thread = self();
	const void *value;

	while ((value = thread->specific) != NULL) {
		thread->specific = NULL;
		destructor((void *)(uintptr_t)value);
	}
	explore_modify(&thread->ended, 4);
	thread->ended = 1;
}

int
simulated_pthread_join(pthread_t thread, void **result)
{
	struct thread *joined = &sim.thread[thread - 1];

	explore_await(&joined->ended, 4, is_set, &joined->ended);
	explore_check(!joined->joined);
	joined->joined = true;
	return 0;
}

bool
system_try_join(pthread_t thread)
{
	struct thread *joined = &sim.thread[thread - 1];

	explore_check(!joined->joined);
	if (explore_load(&joined->ended, 4) == 0)
		return false;
	joined->joined = true;
	return true;
}

int
simulated_pthread_key_create(pthread_key_t *key, void (*function)(void *))
{
	*key = 1;
	destructor = function;
	return 0;
}

int
simulated_pthread_setspecific(pthread_key_t key, const void *value)
{
	self()->specific = value;
	return 0;
}

/* Files: eventfds alone. */

int
simulated_eventfd(unsigned count, int flags)
{
	int fd;

	for (fd = 0; sim.open[fd]; fd++)
		continue;
	sim.open[fd] = true;
	sim.file[fd] = 0;
	return fd;
}

/* Its count, to be changed. */
static uint64_t *
file_use(int fd)
{
	explore_check(sim.open[fd]);
	explore_modify(&sim.file[fd], 8);
	return &sim.file[fd];
}

int
simulated_eventfd_read(int fd, eventfd_t *count)
{
	uint64_t *file = file_use(fd);

	*count = *file;
	*file = 0;
	return *count != 0 ? 0 : -1;
}

int
simulated_eventfd_write(int fd, eventfd_t count)
{
	*file_use(fd) += count;
	return 0;
}

uint64_t
sim_eventfd_count(int fd)
{
	return explore_load(&sim.file[fd], 8);
}

int
simulated_close(int fd)
{
	(void)file_use(fd);
	sim.open[fd] = false;
	return 0;
}

/* Of what these have no model. */
#define NOTHING(type, name, ...) \
	type name(__VA_ARGS__)   \
	{                        \
		return (type)0;  \
	}
NOTHING(bool, system_wipe_in_children, void *memory, size_t bytes)
NOTHING(void, system_schedule_as_main, void)
NOTHING(void, system_name_thread, const char *name)
NOTHING(int, simulated_pthread_atfork, void (*prepare)(void),
    void (*parent)(void), void (*child)(void))
NOTHING(
    int, simulated_pthread_sigmask, int how, const sigset_t *set, sigset_t *old)
