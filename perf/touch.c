/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does it cost to push out the idle limit of a connection, one at random
 * of so many, by the thread that made them all or by several at once?
 *
 * One connection of a hundred has fallen silent, is never touched, and must be
 * told of; a task of another one that starts is a stray. The floor is the same
 * table and random numbers, and one atomic addition to a line of memory.
 *
 *   touch [connections=100000] [limit_ms=60000] [tick_ms=100] [threads=1]
 *         [touches=4000000] [fire=1] [seed=1]
 *
 * touches are those of each thread in the window that is timed; a fourth of
 * them before it warm up. Windows end early where a third of the limit would go
 * by. fire=0 does not wait for the silent ones. Pages are small for all
 * subjects.
 */
#define _GNU_SOURCE
#include <sys/prctl.h>

#include "perf/loads.h"

enum {
	SILENT_OF = 100,
	THREADS_MAX = 64,
	/* A prime above all numbers of connections: neighbours in the table are
	 * none in the library's memory. */
	STRIDE_PRIME = 1000000007
};

typedef uint64_t __attribute__((may_alias)) handle_word;

struct toucher {
	_Alignas(64) uint64_t random;
	uint64_t touches; /* to do, then done */
	uint64_t until_ns;
	pthread_t thread;
	unsigned number;
};

static struct {
	struct subject *subject;
	subject_handle *handles;
	struct loads_timeout *silent;
	uint64_t connections, live, limit_ns, tick_ns;
	unsigned threads;
	uint64_t filled_ns;
	pthread_barrier_t begun, ended;
	struct toucher touchers[THREADS_MAX];
} run;

/* The last ones of the table are silent. */
static void
fill(void)
{
	uint64_t place, i;
	struct loads_timeout *silent;

	run.filled_ns = perf_now_ns();
	for (i = 0; i < run.connections; i++) {
		place = i * STRIDE_PRIME % run.connections;
		if (place < run.live) {
			subject_schedule(run.subject, &run.handles[place],
			    loads_stray, NULL, run.limit_ns);
		} else {
			silent = &run.silent[place - run.live];
			silent->due_ns = perf_now_ns() + run.limit_ns;
			subject_schedule(run.subject, &run.handles[place],
			    loads_task, silent, run.limit_ns);
		}
		loads_turn_seldom(run.subject, i);
	}
}

/* While another thread has the handle, it is touching the connection. */
static inline void
/* NOLINTNEXTLINE(readability-non-const-parameter): a builtin writes there */
touch_taken(handle_word *word)
{
	uint64_t taken = __atomic_exchange_n(word, 0, __ATOMIC_ACQUIRE);
	subject_handle handle;

	if (!taken)
		return;
	memcpy(&handle, &taken, sizeof(taken));
	subject_reschedule(run.subject, &handle, run.limit_ns);
	memcpy(&taken, &handle, sizeof(taken));
	__atomic_store_n(word, taken, __ATOMIC_RELEASE);
}

static inline void
touch(uint64_t place)
{
	subject_handle *handle = &run.handles[place];

	if (!SUBJECT_KEEPS_HANDLE && run.threads > 1)
		touch_taken((handle_word *)(void *)handle);
	else
		subject_reschedule(run.subject, handle, run.limit_ns);
}

static void
touch_at_random(struct toucher *toucher, uint64_t count)
{
	uint64_t random = toucher->random, live = run.live;

	while (count--)
		touch(perf_random_below(&random, live));
	toucher->random = random;
}

static void
touch_window(struct toucher *toucher)
{
	uint64_t done = 0, now_ns;

	while (done < toucher->touches &&
	    (now_ns = perf_now_ns()) < toucher->until_ns) {
		subject_turn_begins(now_ns);
		touch_at_random(toucher, LOADS_TURN_CALLS);
		done += LOADS_TURN_CALLS;
		subject_turn(run.subject);
	}
	subject_turn_begins(0);
	toucher->touches = done;
}

/* One alone goes where the kernel wants it. */
static void
pin(unsigned number)
{
	if (run.threads > 1)
		perf_pin(number, run.threads);
}

static void *
touch_thread(void *arg)
{
	struct toucher *toucher = arg;

	pin(toucher->number);
	pthread_barrier_wait(&run.begun);
	touch_window(toucher);
	pthread_barrier_wait(&run.ended);
	return NULL;
}

/* A window of all threads; the first is this one, which made the timeouts. */
static uint64_t
touch_together(
    uint64_t touches, uint64_t until_ns, uint64_t *cpu_ns, uint64_t *wall_ns)
{
	struct toucher *toucher;
	uint64_t done = 0;
	unsigned i;

	for (i = 0; i < run.threads; i++) {
		toucher = &run.touchers[i];
		toucher->touches = touches;
		toucher->until_ns = until_ns;
		if (i)
			perf_start(&toucher->thread, touch_thread, toucher);
	}
	pthread_barrier_wait(&run.begun);
	*wall_ns = perf_now_ns();
	*cpu_ns = perf_cpu_ns();
	touch_window(&run.touchers[0]);
	pthread_barrier_wait(&run.ended);
	*cpu_ns = perf_cpu_ns() - *cpu_ns;
	*wall_ns = perf_now_ns() - *wall_ns;
	for (i = 0; i < run.threads; i++) {
		if (i)
			pthread_join(run.touchers[i].thread, NULL);
		done += run.touchers[i].touches;
	}
	perf_must(done, "a window: limit_ms is too short; touching");
	return done;
}

/* Of the time until the first is due, a sixteenth is to warm up, and a fourth
 * is the window's. */
static void
measure(uint64_t touches)
{
	uint64_t cpu_ns, wall_ns, done, begin_ns = perf_now_ns();
	uint64_t due_ns = run.filled_ns + run.limit_ns, part_ns;

	perf_must(begin_ns < due_ns, "filling within limit_ms");
	part_ns = (due_ns - begin_ns) / 16;
	touch_together(touches / 4, begin_ns + part_ns, &cpu_ns, &wall_ns);
	done =
	    touch_together(touches, begin_ns + 5 * part_ns, &cpu_ns, &wall_ns);
	perf_metric("cpu_ns", "ns", (double)cpu_ns / (double)done);
	perf_metric("wall_ns", "ns", (double)wall_ns / (double)done);
}

static void
sweep(void)
{
	uint64_t place;

	for (place = 0; place < run.live; place++) {
		touch(place);
		loads_turn_seldom(run.subject, place);
	}
}

/* Touches the live ones in time, again and again, until the silent ones have
 * been told of, or should have been for long. What the other threads of the
 * process take meanwhile is the subject's own work. */
static void
keep_alive(void)
{
	uint64_t end_ns =
	    perf_now_ns() + run.limit_ns + HWT_SEC(LOADS_PATIENCE_S);
	uint64_t silent = run.connections - run.live;
	uint64_t touched_ns = run.filled_ns, begun_ns = perf_now_ns(), now_ns;
	uint64_t wall_ns = begun_ns;
	uint64_t worker_ns = loads_others_cpu_ns();

	do {
		sweep();
		now_ns = perf_now_ns();
		perf_must(now_ns - touched_ns < run.limit_ns,
		    "touching all in time: limit_ms is too short; that");
		touched_ns = begun_ns;
		begun_ns += run.limit_ns / 4;
		loads_pass_until_ns(run.subject, begun_ns);
	} while (atomic_load(&loads_started) < silent && begun_ns < end_ns);
	now_ns = perf_now_ns();
	worker_ns = loads_others_cpu_ns() - worker_ns;
	if (!SUBJECT_SINGLE)
		perf_metric("worker_cpu_percent", "%",
		    100 * (double)worker_ns / (double)(now_ns - wall_ns));
}

/* Who held the handle of one that has ended lets go of it. */
static void
drop_silent(void)
{
	uint64_t place;

	for (place = run.live; place < run.connections; place++)
		subject_cancel(run.subject, run.handles[place]);
}

static void
tell_silent(void)
{
	static struct loads_starts starts;
	uint64_t silent = run.connections - run.live, i;

	for (i = 0; i < silent; i++)
		loads_judge(&starts, &run.silent[i]);
	loads_tell_starts(&starts);
}

static void
setup(uint64_t seed)
{
	unsigned i;

	run.connections = perf_option("connections", 100000);
	run.limit_ns = HWT_MS(perf_option("limit_ms", 60000));
	run.tick_ns = HWT_MS(perf_option("tick_ms", 100));
	run.threads = (unsigned)perf_option("threads", 1);
	perf_options_end();
	perf_must(run.connections >= SILENT_OF &&
		run.connections < STRIDE_PRIME && run.threads &&
		run.threads <= THREADS_MAX,
	    "options");
	if (run.threads > 1)
		loads_need_threads();
	if (!SUBJECT_KEEPS_HANDLE && run.threads > 1 &&
	    sizeof(subject_handle) != sizeof(handle_word))
		perf_skip(SUBJECT_NAME ": its handles are no words");
	loads_need_memory(run.connections, 256);
	run.live = run.connections - run.connections / SILENT_OF;
	run.handles = calloc(run.connections, sizeof(*run.handles));
	run.silent = calloc(run.connections - run.live, sizeof(*run.silent));
	perf_must(run.handles && run.silent, "calloc");
	for (i = 0; i < run.threads; i++)
		run.touchers[i] =
		    (struct toucher){.number = i, .random = seed * 1000 + i};
	pthread_barrier_init(&run.begun, NULL, run.threads);
	pthread_barrier_init(&run.ended, NULL, run.threads);
}

int
main(int argc, char **argv)
{
	uint64_t seed = perf_begin(argc, argv, subject_version()), touches;
	bool fire;

	touches = perf_option("touches", 4000000);
	fire = perf_option("fire", 1);
	(void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	setup(seed);
	run.subject = subject_create(run.tick_ns, run.connections);
	fill();
	/* A worker takes what is new over. */
	loads_pass_until_ns(
	    run.subject, perf_now_ns() + 2 * run.tick_ns + HWT_MS(10));
	pin(0);
	measure(touches);
	if (!SUBJECT_FLOOR && fire) {
		keep_alive();
		tell_silent();
		drop_silent();
	}
	loads_tell_strays(0);
	subject_destroy(run.subject);
	free(run.handles);
	free(run.silent);
	return 0;
}
