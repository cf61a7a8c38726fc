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
 *
 * What belongs to the core alone is in library.c: so a module can have these
 * models without it.
 */
#include "test/sim/sim.h"

#include <errno.h>

#include "test/explore/explore.h"
#include "sys/system.h"
#include "core/timer.h"

#define ARENA (UINT32_C(1) << 18)
#define LINE 64u
#define GRAIN 16u
#define LINES (ARENA / LINE)
#define PIECES_MAX 64u
#define FILES 4u
#define THREADS (EXPLORE_THREADS_MAX + 1) /* the last: begin and end */

enum line {
	NEVER_USED,
	GIVEN_OUT,
	GIVEN_BACK
};

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
	uint32_t ended;
	bool joined;
	const void *specific;
};

static struct state {
	size_t used; /* of the arena */
	unsigned held;
	struct piece piece[PIECES_MAX];
	unsigned pieces;
	struct sleeper sleeper[THREADS];
	uint64_t turns;
	struct thread thread[THREADS];
	struct start start[THREADS];
	unsigned starts;
	unsigned wakes[THREADS]; /* calls of futex_wake for one */
	unsigned calls[SIM_CALLS];
	uint64_t file[FILES];
	bool open[FILES];
} sim;

struct sim_settings sim_settings;
struct sim_failure sim_failures[SIM_CALLS];
uint64_t sim_now_ns;

static _Alignas(4096) char arena[ARENA];
static unsigned char lines[LINES];
static unsigned char touched[ARENA / GRAIN];
/* Lines that system_release took: a record each, and only who commits its page
 * may change them. What is in a slab's header is no record. */
static bool released[LINES];
static void (*destructor)(void *);

/* What else begins anew; NULL: nothing. */
static void (*core_reset)(void);

void
sim_on_reset(void (*function)(void))
{
	core_reset = function;
}

void
sim_reset(void)
{
	memset(arena, 0, sim.used);
	memset(lines, NEVER_USED, sim.used / LINE);
	memset(touched, 0, sim.used / GRAIN);
	memset(released, 0, sim.used / LINE);
	memset(&sim, 0, sizeof(sim));
	sim_settings = (struct sim_settings){0};
	memset(sim_failures, 0, sizeof(sim_failures));
	sim_now_ns = 1000000000;
	if (core_reset != NULL)
		core_reset();
}

static unsigned
self(void)
{
	unsigned thread = explore_self();

	return thread < THREADS ? thread : THREADS - 1;
}

/* Whether this call is one of those that fail. */
static bool
fails(enum sim_call call)
{
	const struct sim_failure *failure = &sim_failures[call];
	unsigned number = sim.calls[call]++;

	return number >= failure->after &&
	    number - failure->after < failure->count;
}

/* Memory. */

static bool
in_arena(const void *at)
{
	uintptr_t address = (uintptr_t)at;

	return address - (uintptr_t)arena < ARENA;
}

static size_t
line_of(const void *at)
{
	return ((uintptr_t)at - (uintptr_t)arena) / LINE;
}

static size_t
grain_of(const void *at)
{
	return ((uintptr_t)at - (uintptr_t)arena) / GRAIN;
}

static bool
is_nonzero(const void *word)
{
	return *(const uint32_t *)word != 0;
}

/* Where sim_settings says so, a thread waits. */
static void
stop_at(const void *at, bool changes)
{
	struct sim_stop *stop = &sim_settings.stop;

	if (at == NULL || at != stop->at || self() != stop->thread ||
	    (stop->changes && !changes))
		return;
	stop->at = NULL;
	explore_modify(&stop->stopped, 4);
	stop->stopped = 1;
	explore_await(&stop->go_on, 4, is_nonzero, &stop->go_on);
}

void (*sim_watch)(const void *at);

void
sim_touch(const void *at)
{
	if (sim_watch != NULL)
		sim_watch(at);
	stop_at(at, false);
	if (!in_arena(at))
		return;
	touched[grain_of(at)] = 1;
	if (lines[line_of(at)] != GIVEN_OUT)
		explore_fail("memory is used that was released: arena + %zu",
		    (size_t)((uintptr_t)at - (uintptr_t)arena));
}

void
sim_begin_change(const void *at)
{
	stop_at(at, true);
}

void
sim_change(const void *at)
{
	if (in_arena(at) && released[line_of(at)])
		explore_fail("a released record is changed: arena + %zu",
		    (size_t)((uintptr_t)at - (uintptr_t)arena));
}

void
sim_commit(const void *record)
{
	static const char zero[LINE];

	if (memcmp(record, zero, LINE) != 0)
		explore_fail("what is committed does not read as 0");
	released[line_of(record)] = false;
}

/* Changes all of it that anybody used. */
static void
touch_all(const void *memory, size_t bytes)
{
	size_t grain = grain_of(memory);
	size_t end = grain + bytes / GRAIN;

	for (; grain < end; grain++) {
		if (touched[grain])
			explore_modify(arena + grain * GRAIN, GRAIN);
	}
}

/* See explore_is_buffered. */
static void
release(const void *memory, size_t bytes)
{
	touch_all(memory, bytes);
	if (explore_is_buffered(memory, bytes))
		explore_fail("memory is released before a store to it");
}

void *
system_map(size_t bytes)
{
	size_t rounded = (bytes + LINE - 1) / LINE * LINE;
	char *memory = arena + sim.used;

	if (rounded > ARENA - sim.used)
		explore_fail("the model's memory is used up");
	memset(&lines[line_of(memory)], GIVEN_OUT, rounded / LINE);
	sim.used += rounded;
	sim.held += rounded / LINE;
	return memory;
}

void
system_unmap(void *memory, size_t bytes)
{
	size_t count = (bytes + LINE - 1) / LINE;
	size_t first = line_of(memory);
	size_t i;

	release(memory, count * LINE);
	for (i = first; i < first + count; i++) {
		if (!in_arena(memory) || lines[i] != GIVEN_OUT)
			explore_fail("memory is released twice");
		lines[i] = GIVEN_BACK;
	}
	memset(memory, 0xdb, bytes);
	sim.held -= count;
}

/* A fork is no matter of these programs. */
bool
system_wipe_in_children(void *memory, size_t bytes)
{
	(void)memory;
	(void)bytes;
	return false;
}

bool
system_release(void *memory, size_t bytes)
{
	if (fails(SIM_RELEASE))
		return false;
	release(memory, bytes);
	memset(memory, 0, bytes);
	if ((uintptr_t)memory % SLAB_BYTES != 0)
		memset(&released[line_of(memory)], true, bytes / LINE);
	return true;
}

/* A piece of that size that was freed; NULL: none. */
static void *
alloc_again(size_t bytes)
{
	size_t count = (bytes + LINE - 1) / LINE;
	unsigned i;

	for (i = 0; i < sim.pieces; i++) {
		struct piece *piece = &sim.piece[i];

		if (!piece->freed || piece->bytes != bytes)
			continue;
		piece->freed = false;
		memset(&lines[line_of(piece->memory)], GIVEN_OUT, count);
		sim.held += count;
		return piece->memory;
	}
	return NULL;
}

void *
sim_alloc(size_t bytes, int fill)
{
	struct piece *piece = &sim.piece[sim.pieces];
	void *memory = NULL;

	if (sim_settings.memory_recurs)
		memory = alloc_again(bytes);
	if (memory == NULL) {
		if (sim.pieces++ == PIECES_MAX)
			explore_fail("too many pieces of memory");
		memory = system_map(bytes);
		*piece = (struct piece){memory, bytes, false};
	}
	return memset(memory, fill, bytes);
}

void
sim_free(void *memory)
{
	unsigned i;

	if (memory == NULL)
		return;
	for (i = 0; i < sim.pieces; i++) {
		if (sim.piece[i].memory == memory)
			break;
	}
	if (i == sim.pieces)
		explore_fail("what was never allocated is freed");
	sim.piece[i].freed = true;
	system_unmap(memory, sim.piece[i].bytes);
}

unsigned
sim_memory_held(void)
{
	return sim.held;
}

void
sim_forget(void)
{
	sim.held = 0;
}

ssize_t
sim_getrandom(void *to, size_t bytes)
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
sim_clock_gettime(struct timespec *now)
{
	uint64_t ns = now_ns();

	now->tv_sec = (time_t)(ns / 1000000000u);
	now->tv_nsec = (long)(ns % 1000000000u);
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
		if (sim.sleeper[i].word != NULL &&
		    sim.sleeper[i].until_ns < until_ns)
			until_ns = sim.sleeper[i].until_ns;
	}
	if (until_ns == HWT_NEVER)
		return false;
	sim_now_ns = until_ns;
	return true;
}

/* Sleeping. */

static bool
sleeper_ready(const void *context)
{
	const struct sleeper *sleeper = context;

	return sleeper->woken || sim_now_ns >= sleeper->until_ns;
}

static void
sleep_on(const void *word, uint64_t until_ns)
{
	struct sleeper *sleeper = &sim.sleeper[self()];

	*sleeper = (struct sleeper){
	    .word = word,
	    .turn = ++sim.turns,
	    .until_ns = until_ns,
	};
	explore_await(word, 4, sleeper_ready, sleeper);
	sleeper->word = NULL;
}

void
futex_wait(const void *word, uint32_t value, uint64_t until_ns)
{
	sim_touch(word);
	explore_modify(word, 4);
	if (*(const uint32_t *)word == value)
		sleep_on(word, until_ns);
}

bool
sim_sleeps_on(const void *word)
{
	unsigned i;

	for (i = 0; i < THREADS; i++) {
		if (sim.sleeper[i].word == word && !sim.sleeper[i].woken)
			return true;
	}
	return false;
}

static bool
wake_next(const void *word)
{
	struct sleeper *next = NULL;
	unsigned i;

	for (i = 0; i < THREADS; i++) {
		struct sleeper *sleeper = &sim.sleeper[i];

		if (sleeper->word == word && !sleeper->woken &&
		    (next == NULL || sleeper->turn < next->turn))
			next = sleeper;
	}
	if (next != NULL)
		next->woken = true;
	return next != NULL;
}

/* A futex's word may be gone when it is woken: that is only an address. */
void
futex_wake(const void *word, int count)
{
	explore_modify(word, 4);
	sim.wakes[self()] += count == 1;
	while (count > 0 && wake_next(word))
		count--;
}

unsigned
sim_wakes(void)
{
	return sim.wakes[self()];
}

static bool
time_has_come(const void *context)
{
	const struct sleeper *sleeper = context;

	return sim_now_ns >= sleeper->until_ns;
}

int
sim_nanosleep(const struct timespec *pause)
{
	struct sleeper *sleeper = &sim.sleeper[self()];

	*sleeper = (struct sleeper){
	    .word = sleeper,
	    .until_ns = now_ns() + (uint64_t)pause->tv_nsec,
	};
	explore_await(sleeper, 4, time_has_come, sleeper);
	sleeper->word = NULL;
	return 0;
}

/* Locks: the first four bytes hold the owner. */

static bool
lock_is_free(const void *mutex)
{
	return *(const uint32_t *)mutex == 0;
}

int
sim_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr)
{
	(void)attr;
	memset(mutex, 0, sizeof(*mutex));
	return 0;
}

int
sim_mutex_destroy(pthread_mutex_t *mutex)
{
	sim_touch(mutex);
	explore_check(lock_is_free(mutex));
	return 0;
}

int
sim_mutex_lock(pthread_mutex_t *mutex)
{
	sim_touch(mutex);
	explore_await(mutex, 4, lock_is_free, mutex);
	sim_touch(mutex);
	*(uint32_t *)mutex = self() + 1;
	return 0;
}

int
sim_mutex_trylock(pthread_mutex_t *mutex)
{
	sim_touch(mutex);
	explore_modify(mutex, 4);
	if (!lock_is_free(mutex))
		return EBUSY;
	*(uint32_t *)mutex = self() + 1;
	return 0;
}

int
sim_mutex_unlock(pthread_mutex_t *mutex)
{
	sim_touch(mutex);
	explore_modify(mutex, 4);
	explore_check(*(uint32_t *)mutex == self() + 1);
	*(uint32_t *)mutex = 0;
	return 0;
}

/* A condition: its first four bytes count the signals. Who waits has its place
 * with the lock still held; a signal, which wakes all, ends its wait after the
 * unlock, too. */

struct cond_wait {
	const uint32_t *signals;
	uint32_t seen;
};

static bool
was_signalled(const void *context)
{
	const struct cond_wait *wait = context;

	return *wait->signals != wait->seen;
}

int
sim_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	struct cond_wait wait = {.signals = (const void *)cond};

	sim_touch(cond);
	explore_modify(cond, 4);
	wait.seen = *wait.signals;
	(void)sim_mutex_unlock(mutex);
	explore_await(cond, 4, was_signalled, &wait);
	(void)sim_mutex_lock(mutex);
	return 0;
}

int
sim_cond_signal(pthread_cond_t *cond)
{
	sim_touch(cond);
	explore_modify(cond, 4);
	++*(uint32_t *)(void *)cond;
	return 0;
}

int
sim_cond_destroy(pthread_cond_t *cond)
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
sim_thread_create(pthread_t *thread, const pthread_attr_t *attr,
    void *(*start)(void *), void *argument)
{
	struct start *next = &sim.start[sim.starts++];

	(void)attr;
	if (fails(SIM_THREAD))
		return EAGAIN;
	*next = (struct start){start, argument};
	*thread = explore_spawn(thread_main, next) + 1;
	return 0;
}

void
sim_thread_ends(void)
{
	struct thread *thread = &sim.thread[self()];
	const void *value;

	while ((value = thread->specific) != NULL) {
		thread->specific = NULL;
		destructor((void *)(uintptr_t)value);
	}
	explore_modify(&thread->ended, 4);
	thread->ended = 1;
}

static bool
thread_has_ended(const void *context)
{
	return *(const uint32_t *)context != 0;
}

int
sim_thread_join(pthread_t thread, void **result)
{
	struct thread *joined = &sim.thread[thread - 1];

	(void)result;
	explore_check(!joined->joined);
	explore_await(&joined->ended, 4, thread_has_ended, &joined->ended);
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

void
system_schedule_as_main(void)
{
}

void
system_name_thread(const char *name)
{
	(void)name;
}

pthread_t
sim_thread_self(void)
{
	return self() + 1;
}

int
sim_key_create(pthread_key_t *key, void (*function)(void *))
{
	*key = 1;
	destructor = function;
	return 0;
}

int
sim_setspecific(pthread_key_t key, const void *value)
{
	(void)key;
	sim.thread[self()].specific = value;
	return 0;
}

int
sim_nothing(void)
{
	return 0;
}

/* Files: eventfds alone. */

int
sim_eventfd(void)
{
	int fd;

	for (fd = 0; sim.open[fd]; fd++)
		continue;
	sim.open[fd] = true;
	sim.file[fd] = 0;
	return fd;
}

int
sim_eventfd_read(int fd, eventfd_t *count)
{
	explore_check(sim.open[fd]);
	explore_modify(&sim.file[fd], 8);
	*count = sim.file[fd];
	sim.file[fd] = 0;
	return *count != 0 ? 0 : -1;
}

int
sim_eventfd_write(int fd, eventfd_t count)
{
	explore_check(sim.open[fd]);
	explore_modify(&sim.file[fd], 8);
	sim.file[fd] += count;
	return 0;
}

uint64_t
sim_eventfd_count(int fd)
{
	return explore_load(&sim.file[fd], 8);
}

int
sim_close(int fd)
{
	explore_check(sim.open[fd]);
	explore_modify(&sim.file[fd], 8);
	sim.open[fd] = false;
	return 0;
}
