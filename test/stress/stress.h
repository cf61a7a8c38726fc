/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the stress programs share.
 *
 * Each program is called as "program [scale [seed]]": scale in percent of the
 * default amount of work, seed of its random choices. A seed repeats the
 * choices, not the interleaving. Without one a fresh seed is taken; it is
 * printed in the summary and with each failure.
 *
 * stress_begin comes first and starts a watchdog, so that a hang is a failure
 * that says in which phase it happened. stress_check counts what broke and
 * goes on, stress_must ends the program, since nothing after it would mean
 * anything. stress_end prints the summary and gives main its exit status.
 *
 * The watchdog is a thread and not alarm(2): ThreadSanitizer holds back signal
 * handlers while a thread sits in a system call that it does not know, which
 * is where a lost wake-up leaves it.
 */
#ifndef STRESS_H
#define STRESS_H

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "hwt.h"

#if defined(__SANITIZE_THREAD__)
#define STRESS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define STRESS_TSAN 1
#endif
#endif
#ifndef STRESS_TSAN
#define STRESS_TSAN 0
#endif

#if defined(__SANITIZE_ADDRESS__)
#define STRESS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STRESS_ASAN 1
#endif
#endif
#ifndef STRESS_ASAN
#define STRESS_ASAN 0
#endif

#if STRESS_TSAN
/* The sanitizer looks for this name: a report must end the program, or its
 * exit status would tell nothing. */
const char *__tsan_default_options(void);

const char *
__tsan_default_options(void)
{
	return "halt_on_error=1";
}
#endif

enum {
	STRESS_MESSAGES_MAX = 20
};

static struct {
	const char *name;
	unsigned scale;
	unsigned watchdog_s;
	uint64_t seed;
	atomic_uint failures;
	/* Where the program is, for the watchdog's message. */
	const char *_Atomic phase;
	atomic_uint_fast64_t step;
} stress;

static inline uint64_t
stress_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void
stress_sleep_ns(uint64_t ns)
{
	struct timespec until;

	/* A flood of signals cannot stretch it. */
	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	ns += (uint64_t)until.tv_nsec;
	until.tv_sec += (time_t)(ns / 1000000000u);
	until.tv_nsec = (long)(ns % 1000000000u);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) ==
	    EINTR)
		continue;
}

/* Passes a few nanoseconds per step, to move two threads against each other
 * by less than a system call takes. */
static inline void
stress_spin(uint64_t steps)
{
	while (steps--)
		__asm__ volatile("" ::: "memory");
}

static inline void
stress_phase(const char *phase, uint64_t step)
{
	atomic_store_explicit(&stress.step, step, memory_order_relaxed);
	atomic_store_explicit(&stress.phase, phase, memory_order_relaxed);
}

static inline void *
stress_watchdog(void *unused)
{
	const char *phase;
	uint64_t step;

	(void)unused;
	stress_sleep_ns(HWT_SEC(stress.watchdog_s));
	phase = atomic_load(&stress.phase);
	step = atomic_load(&stress.step);
	fprintf(stderr,
	    "%s: no end after %u s, in phase \"%s\", step %" PRIu64
	    " (seed %" PRIu64 ")\n",
	    stress.name, stress.watchdog_s, phase, step, stress.seed);
	_exit(1);
}

__attribute__((format(printf, 1, 2))) static inline void
stress_fail(const char *format, ...)
{
	char message[256];
	va_list args;

	if (atomic_fetch_add(&stress.failures, 1) >= STRESS_MESSAGES_MAX)
		return;
	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	fprintf(stderr, "%s: %s (seed %" PRIu64 ")\n", stress.name, message,
	    stress.seed);
}

#define stress_check(condition, ...)              \
	do {                                      \
		if (!(condition))                 \
			stress_fail(__VA_ARGS__); \
	} while (0)

#define stress_must(condition, ...)               \
	do {                                      \
		if (!(condition)) {               \
			stress_fail(__VA_ARGS__); \
			_exit(1);                 \
		}                                 \
	} while (0)

static inline pthread_t
stress_thread(void *(*run)(void *), void *arg)
{
	pthread_t thread;
	int error = pthread_create(&thread, NULL, run, arg);

	stress_must(!error, "pthread_create: %s", strerror(error));
	return thread;
}

static inline void
stress_join(pthread_t thread)
{
	int error = pthread_join(thread, NULL);

	stress_must(!error, "pthread_join: %s", strerror(error));
}

static inline void
stress_begin(const char *name, int argc, char **argv)
{
	stress.name = name;
	stress.scale = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 100;
	if (!stress.scale)
		stress.scale = 1;
	stress.seed = argc > 2 ? strtoull(argv[2], NULL, 10)
			       : stress_now_ns() % 1000000007u;
	stress.watchdog_s = 120 * (1 + stress.scale / 200);
	if (STRESS_TSAN || STRESS_ASAN)
		stress.watchdog_s *= 3;
	/* What is resident is then what was touched, page by page: a huge page
	 * is more than what memory may grow by. */
	(void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	stress_phase("begin", 0);
	pthread_detach(stress_thread(stress_watchdog, NULL));
}

/* The share of count that the scale asks for, at least one. */
static inline uint64_t
stress_scaled(uint64_t count)
{
	uint64_t scaled = count * stress.scale / 100;

	return scaled ? scaled : 1;
}

__attribute__((format(printf, 1, 2))) static inline int
stress_end(const char *format, ...)
{
	unsigned failures = atomic_load(&stress.failures);
	char message[512];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	printf("%s: %s: %s (seed %" PRIu64 ")\n", stress.name,
	    failures ? "FAILED" : "ok", message, stress.seed);
	return failures ? 1 : 0;
}

/* splitmix64: any seed is a good one. */
static inline uint64_t
random_next(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static inline uint64_t
random_below(uint64_t *state, uint64_t bound)
{
	return random_next(state) % bound;
}

/* A stream of its own for each thread, told apart by salt. */
static inline uint64_t
random_seed(uint64_t salt)
{
	uint64_t state = stress.seed ^ salt * UINT64_C(0xd6e8feb86659fd93);

	return random_next(&state);
}

/* Under an emulator, what is resident is the emulator's own memory: constant,
 * so that nothing is judged by it. */
static inline uint64_t
rss_bytes(void)
{
#ifdef HWT_EMULATED
	return 0;
#else
	unsigned long long size = 0, resident = 0;
	FILE *statm = fopen("/proc/self/statm", "r");
	int fields;

	stress_must(statm, "/proc/self/statm: %s", strerror(errno));
	fields = fscanf(statm, "%llu %llu", &size, &resident);
	fclose(statm);
	stress_must(fields == 2, "/proc/self/statm cannot be read");
	return resident * (uint64_t)sysconf(_SC_PAGESIZE);
#endif
}

/* Entries of a /proc folder: threads in /proc/self/task, descriptors in
 * /proc/self/fd (that of the folder itself included). */
static inline unsigned
folder_entries(const char *path)
{
	DIR *folder = opendir(path);
	struct dirent *entry;
	unsigned entries = 0;

	stress_must(folder, "%s: %s", path, strerror(errno));
	while ((entry = readdir(folder)))
		entries += entry->d_name[0] != '.';
	closedir(folder);
	return entries;
}

static inline unsigned
maps_entries(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned lines = 0;
	int c;

	stress_must(maps, "/proc/self/maps: %s", strerror(errno));
	while ((c = getc(maps)) != EOF)
		lines += c == '\n';
	fclose(maps);
	return lines;
}

/* Runs rounds, as many as the scale says, and up to 50 more until they have
 * seen every kind of end. Returns their number. */
static inline uint64_t
stress_rounds(uint64_t count,
    void (*round_run)(uint64_t *random, uint64_t round),
    bool (*saw_every_end)(void))
{
	uint64_t random = random_seed(0);
	uint64_t rounds = stress_scaled(count);
	uint64_t i;

	for (i = 0; i < rounds || (i < rounds + 50 && !saw_every_end()); i++)
		round_run(&random, i);
	stress_check(
	    saw_every_end(), "the rounds did not see every kind of end");
	return i;
}

/* The task of a timeout that is far away. */
static inline void
never_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	stress_fail("a timeout of an hour has started");
}

/* Threads of this process. A join returns a moment before the kernel has taken
 * the thread out of the list: what still falls is looked at again. */
static inline unsigned
threads_now(void)
{
	const struct timespec pause = {.tv_nsec = 5000000};
	unsigned now = folder_entries("/proc/self/task");
	unsigned before, turn;

	for (turn = 0; turn < 3; turn++) {
		before = now;
		(void)nanosleep(&pause, NULL);
		now = folder_entries("/proc/self/task");
		if (now < before)
			turn = 0;
	}
	return now;
}

static inline void
log_nothing(void *ctx, int level, const char *message)
{
	(void)ctx;
	(void)level;
	(void)message;
}

/* For programs that provoke warnings on purpose. */
static const struct hwt_log quiet_log = {log_nothing, NULL};

static inline struct hwt *
timer_create_ns(uint64_t tick_ns, uint32_t ticks_per_wheel, uint32_t flags)
{
	struct hwt_options options = {.tick_ns = tick_ns,
	    .ticks_per_wheel = ticks_per_wheel,
	    .flags = flags,
	    .log = &quiet_log};
	struct hwt *timer = NULL;
	int error = hwt_create(&timer, &options);

	stress_must(!error, "hwt_create: %d", error);
	return timer;
}

static inline struct hwt_stats
timer_stats(const struct hwt *timer)
{
	struct hwt_stats stats;
	int error = hwt_read_stats(timer, &stats);

	stress_must(!error, "hwt_read_stats: %d", error);
	return stats;
}

/* Memory at one moment, as the system and as the timer counts it. */
struct memory {
	uint64_t rss_bytes, timer_bytes;
};

static inline struct memory
memory_now(const struct hwt *timer)
{
	struct memory memory = {rss_bytes(), timer_stats(timer).memory_bytes};

	return memory;
}

/* False under a sanitizer or valgrind, whose own memory grows with what the
 * program does. */
static inline bool
memory_is_ours(void)
{
	const char *preload = getenv("LD_PRELOAD");

	return !STRESS_TSAN && !STRESS_ASAN &&
	    !(preload && strstr(preload, "vgpreload"));
}

/* Where memory is not all ours, only the timer's count is looked at. */
static inline void
memory_check(const char *what, struct memory before, struct memory after,
    uint64_t growth_max)
{
	stress_check(after.timer_bytes <= before.timer_bytes + growth_max,
	    "%s: memory_bytes grew from %" PRIu64 " to %" PRIu64, what,
	    before.timer_bytes, after.timer_bytes);
	stress_check(!memory_is_ours() ||
		after.rss_bytes <= before.rss_bytes + growth_max,
	    "%s: RSS grew from %" PRIu64 " to %" PRIu64, what, before.rss_bytes,
	    after.rss_bytes);
}

/* A task that tells that the worker has come by. arg: an atomic_bool. */
static inline void
probe_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	atomic_store((atomic_bool *)arg, true);
}

/* Returns when the worker has begun a tick after this call. */
static inline void
probe_wait(struct hwt *timer)
{
	atomic_bool started = false;
	int error = hwt_new_timeout(timer, NULL, probe_task, &started, 0);

	stress_must(!error, "hwt_new_timeout: %d", error);
	while (!atomic_load(&started))
		stress_sleep_ns(50000);
}

/* An event loop of its own thread, with a mailbox and nothing else to do. It
 * waits without a time limit, so that a due timeout of which the descriptor
 * does not tell ends as a hang. */
struct loop {
	struct hwt_mailbox *mailbox;
	size_t max_per_run;
	/* An eventfd that ends the loop, by write and read: sanitizers do not
	 * know the order that eventfd_write and poll give. */
	int quit_fd;
	pthread_t thread;
};

static inline void *
loop_thread(void *arg)
{
	struct loop *loop = arg;
	struct pollfd fds[2] = {
	    {.fd = hwt_mailbox_fd(loop->mailbox), .events = POLLIN},
	    {.fd = loop->quit_fd, .events = POLLIN},
	};
	uint64_t ignored;
	int error;

	while (!fds[1].revents) {
		if (poll(fds, 2, -1) < 0 || !fds[0].revents)
			continue;
		error = hwt_mailbox_run(loop->mailbox, loop->max_per_run, NULL);
		stress_check(!error, "hwt_mailbox_run: %d", error);
	}
	stress_must(read(loop->quit_fd, &ignored, 8) == 8, "read");
	while ((error = hwt_mailbox_destroy(loop->mailbox)) == -EBUSY)
		hwt_mailbox_run(loop->mailbox, 0, NULL);
	stress_check(!error, "hwt_mailbox_destroy: %d", error);
	return NULL;
}

static inline void
loop_start(struct loop *loop, size_t max_per_run)
{
	int error = hwt_mailbox_create(&loop->mailbox);

	stress_must(!error, "hwt_mailbox_create: %d", error);
	loop->max_per_run = max_per_run;
	loop->quit_fd = eventfd(0, EFD_CLOEXEC);
	stress_must(loop->quit_fd >= 0, "eventfd: %s", strerror(errno));
	loop->thread = stress_thread(loop_thread, loop);
}

/* Runs what the mailbox holds, then ends. Nothing may be handed over to it any
 * more. */
static inline void
loop_stop(struct loop *loop)
{
	uint64_t one = 1;

	stress_must(write(loop->quit_fd, &one, 8) == 8, "write");
	stress_join(loop->thread);
	close(loop->quit_fd);
}

#endif
