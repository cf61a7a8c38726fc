/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the suites share; support.h says what each part is for. In this order:
 * guards against failures that the runner swallows, fixture, probes,
 * executors, threads and real time, fault injection.
 */
#include "test/spec/support.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if WITH_ASAN
#include <sanitizer/lsan_interface.h>

const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

/* An error must end the process by a signal: the runner takes a process that
 * exits for one that passed. Leaks are asked for by suite_fini. */
const char *
__asan_default_options(void)
{
	return "abort_on_error=1:leak_check_at_exit=0:"
	       "detect_stack_use_after_return=1";
}

const char *
__ubsan_default_options(void)
{
	return "halt_on_error=1:abort_on_error=1:print_stacktrace=1";
}
#endif

/* Criterion takes a --filter that matches no test for a success. */
ReportHook(POST_ALL)(struct criterion_global_stats *stats)
{
	if (stats->nb_tests > stats->tests_skipped)
		return;
	fputs("no test was run: does the --filter match one?\n", stderr);
	exit(EXIT_FAILURE);
}

/* The calls of the C library, past the injection. */
int __real_pthread_create(
    pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __real_pthread_key_create(pthread_key_t *, void (*)(void *));
void *__real_mmap(void *, size_t, int, int, int, off_t);
int __real_eventfd(unsigned, int);
int __real_clock_gettime(clockid_t, struct timespec *);
ssize_t __real_getrandom(void *, size_t, unsigned);
void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
void *__real_aligned_alloc(size_t, size_t);
int __real_posix_memalign(void **, size_t, size_t);

/* Set while a test runs: a process that ends then has left by exit. */
static pid_t test_pid;

static void
abort_if_inside_test(void)
{
	if (test_pid != getpid())
		return;
	fprintf(stderr, "a test left by exit\n");
	abort();
}

void
suite_init(void)
{
	test_pid = getpid();
	atexit(abort_if_inside_test);
}

void
suite_fini(void)
{
	test_pid = 0;
	fault_disarm();
}

void
assert_no_leaks(void)
{
#if WITH_ASAN
	cr_assert(__lsan_do_recoverable_leak_check() == 0, "memory leaked");
#endif
}

#ifndef __GLIBC__
/* A number has to do. */
#define strerrorname_np(error) ((void)(error), (const char *)NULL)
#endif

const char *
rc_name(int rc)
{
	static _Thread_local char names[4][32];
	static _Thread_local unsigned turn;
	char *name = names[turn++ % 4];
	const char *symbol = rc < 0 ? strerrorname_np(-rc) : NULL;

	if (symbol != NULL)
		snprintf(name, sizeof(names[0]), "-%s", symbol);
	else
		snprintf(name, sizeof(names[0]), "%d", rc);
	return name;
}

/* The log. */

void
log_recorder_init(struct log_recorder *log)
{
	memset(log, 0, sizeof(*log));
	pthread_mutex_init(&log->lock, NULL);
}

static void
log_recorder_write(void *ctx, int level, const char *message)
{
	struct log_recorder *log = ctx;

	pthread_mutex_lock(&log->lock);
	if (log->count < LOG_LINES) {
		log->lines[log->count].level = level;
		snprintf(log->lines[log->count].message,
		    sizeof(log->lines[0].message), "%s", message);
	}
	log->count++;
	pthread_mutex_unlock(&log->lock);
}

struct hwt_log
log_recorder_hook(struct log_recorder *log)
{
	return (struct hwt_log){.write = log_recorder_write, .ctx = log};
}

uint64_t
log_recorder_count(struct log_recorder *log)
{
	uint64_t count;

	pthread_mutex_lock(&log->lock);
	count = log->count;
	pthread_mutex_unlock(&log->lock);
	return count;
}

/* The manual timer. */

static uint64_t
fixture_clock(void *ctx)
{
	struct fixture *fixture = ctx;

	fixture->clock_reads++;
	fixture->now_ns += fixture->reading_ns;
	return fixture->now_ns;
}

static void
fixture_wake(void *ctx)
{
	struct fixture *fixture = ctx;

	fixture->wakes++;
}

int
fixture_try_open(struct fixture *fixture, const struct hwt_options *options)
{
	const struct hwt_options defaults = {
	    .tick_ns = FIXTURE_TICK, .ticks_per_wheel = FIXTURE_WHEEL};
	struct hwt_options filled = options != NULL ? *options : defaults;
	struct hwt_clock clock = {.now_ns = fixture_clock, .ctx = fixture};
	struct hwt_wake wake = {.wake = fixture_wake, .ctx = fixture};
	struct hwt_log log = log_recorder_hook(&fixture->log);

	if (fixture->start_ns == 0)
		fixture->start_ns = FIXTURE_START;
	log_recorder_init(&fixture->log);
	fixture->now_ns = fixture->start_ns;
	fixture->wakes = 0;
	fixture->clock_reads = 0;
	fixture->runs = 0;
	fixture->tick_ns = filled.tick_ns != 0 ? filled.tick_ns : HWT_MS(100);
	filled.flags |= HWT_MANUAL;
	if (filled.clock == NULL)
		filled.clock = &clock;
	if (filled.wake == NULL)
		filled.wake = &wake;
	if (filled.log == NULL)
		filled.log = &log;
	return hwt_create(&fixture->timer, &filled);
}

void
fixture_open(struct fixture *fixture, const struct hwt_options *options)
{
	assert_ok(fixture_try_open(fixture, options));
	cr_assert(fixture->timer != NULL);
}

void
fixture_close(struct fixture *fixture)
{
	assert_ok(hwt_stop(fixture->timer, NULL));
	assert_ok(hwt_destroy(fixture->timer));
	fixture->timer = NULL;
}

uint64_t
fixture_step(struct fixture *fixture, uint64_t ns)
{
	uint64_t tasks_started = UINT64_MAX;

	fixture->now_ns += ns;
	assert_ok(hwt_advance(fixture->timer, &tasks_started));
	return tasks_started;
}

uint64_t
fixture_tick(struct fixture *fixture, uint64_t index)
{
	uint64_t boundary_ns = fixture->start_ns + index * fixture->tick_ns;

	cr_assert(fixture->now_ns <= boundary_ns, "the clock never goes back");
	return fixture_step(fixture, boundary_ns - fixture->now_ns);
}

static unsigned writes_left;

static ssize_t
write_while_left(void *cookie, const char *text, size_t size)
{
	(void)cookie;
	(void)text;
	errno = 0;
	if (writes_left == 0)
		return 0;
	writes_left--;
	return (ssize_t)size;
}

FILE *
file_that_takes(unsigned writes)
{
	FILE *file = fopencookie(
	    NULL, "w", (cookie_io_functions_t){.write = write_while_left});

	cr_assert(file != NULL);
	writes_left = writes;
	return file;
}

uint64_t
tick_of_run(struct probe *probe, uint64_t first, uint64_t last)
{
	uint64_t tick = 0;

	for (uint64_t index = first; index <= last; index++) {
		manual_tick(index);
		if (tick == 0 && probe->runs > 0)
			tick = index;
	}
	cr_assert(probe->runs <= 1, "it ran more than once");
	return tick;
}

uint64_t
fixture_wait(struct fixture *fixture)
{
	uint64_t wait_ns = UINT64_MAX - 1;

	assert_ok(hwt_next_wakeup(fixture->timer, &wait_ns));
	return wait_ns;
}

struct hwt_stats
fixture_stats(struct fixture *fixture)
{
	struct hwt_stats stats;

	memset(&stats, 0xff, sizeof(stats));
	assert_ok(hwt_read_stats(fixture->timer, &stats));
	return stats;
}

int64_t
fixture_remaining(struct fixture *fixture, hwt_timeout timeout)
{
	int64_t remaining_ns = INT64_MIN;

	assert_ok(hwt_remaining(fixture->timer, timeout, &remaining_ns));
	return remaining_ns;
}

struct fixture manual;

struct hwt *
worker_timer_open(uint64_t tick_ns)
{
	struct hwt_options options = {.tick_ns = tick_ns};
	struct hwt *timer = NULL;

	assert_ok(hwt_create(&timer, &options));
	cr_assert(timer != NULL);
	return timer;
}

void
worker_timer_close(struct hwt *timer)
{
	assert_ok(hwt_stop(timer, NULL));
	assert_ok(hwt_destroy(timer));
}

/* Tasks. */

static struct fixture *
probe_fixture(struct probe *probe)
{
	if (probe->fixture == NULL)
		probe->fixture = &manual;
	return probe->fixture;
}

void
probe_task(hwt_timeout timeout, void *arg)
{
	struct probe *probe = arg;

	probe->timeout = timeout;
	probe->thread = pthread_self();
	probe->started_ns = probe_fixture(probe)->now_ns;
	probe->order = ++probe_fixture(probe)->runs;
	if (probe->then != NULL)
		probe->then(probe);
	probe->runs++;
}

hwt_timeout
probe_schedule(struct probe *probe, uint64_t delay_ns)
{
	assert_ok(hwt_new_timeout(probe_fixture(probe)->timer, &probe->handle,
	    probe_task, probe, delay_ns));
	return probe->handle;
}

hwt_timeout
probe_schedule_periodic(
    struct probe *probe, uint64_t delay_ns, uint64_t period_ns)
{
	struct hwt_spec spec = {.task = probe_task,
	    .arg = probe,
	    .delay_ns = delay_ns,
	    .period_ns = period_ns};

	assert_ok(hwt_new_timeouts(
	    probe_fixture(probe)->timer, 1, &spec, &probe->handle));
	return probe->handle;
}

void
forbidden_task(hwt_timeout timeout, void *arg)
{
	fprintf(stderr, "forbidden task ran: handle %" PRIx64 ", arg %p\n",
	    timeout.id, arg);
	abort();
}

void
idle_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
}

hwt_timeout
schedule_task(struct hwt *timer, hwt_task *task, uint64_t delay_ns)
{
	hwt_timeout timeout;

	assert_ok(hwt_new_timeout(timer, &timeout, task, NULL, delay_ns));
	return timeout;
}

/* The executor. */

static int
executor_execute(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	struct recording_executor *executor = ctx;
	uint64_t index = executor->count;

	if (index >= EXECUTOR_PLACES)
		abort();
	executor->calls[index].timer = timer;
	executor->calls[index].timeout = timeout;
	executor->count++;
	if (executor->mode == EXECUTOR_REFUSES)
		return executor->refusal;
	if (executor->mode == EXECUTOR_RUNS)
		executor->run_rc = hwt_run(timer, timeout);
	return 0;
}

void
executor_init(struct recording_executor *executor, enum executor_mode mode)
{
	memset(executor, 0, sizeof(*executor));
	executor->hook.execute = executor_execute;
	executor->hook.ctx = executor;
	executor->mode = mode;
	executor->refusal = -EAGAIN;
}

void
executor_open(struct recording_executor *executor, enum executor_mode mode)
{
	executor_init(executor, mode);
	manual_open(&(struct hwt_options){.tick_ns = FIXTURE_TICK,
	    .ticks_per_wheel = FIXTURE_WHEEL,
	    .executor = &executor->hook});
}

int
executor_run(struct recording_executor *executor, uint64_t index)
{
	cr_assert(index < executor->count, "there was no such hand-over");
	return hwt_run(
	    executor->calls[index].timer, executor->calls[index].timeout);
}

/* Threads and real time. */

void
gate_init(struct gate *gate)
{
	sem_init(&gate->entered, 0, 0);
	sem_init(&gate->opened, 0, 0);
}

static void
sem_wait_through_signals(sem_t *semaphore)
{
	while (sem_wait(semaphore) != 0) {
		if (errno != EINTR)
			abort();
	}
}

void
gate_pass(struct gate *gate)
{
	sem_post(&gate->entered);
	sem_wait_through_signals(&gate->opened);
}

void
gate_await(struct gate *gate)
{
	sem_wait_through_signals(&gate->entered);
}

void
gate_open(struct gate *gate)
{
	sem_post(&gate->opened);
}

void
probe_then_gate(struct probe *probe)
{
	gate_pass(probe->data);
}

struct parallel {
	pthread_barrier_t start;
	void (*body)(unsigned index, void *arg);
	void *arg;
};

struct parallel_thread {
	struct parallel *parallel;
	unsigned index;
	pthread_t thread;
};

static void *
parallel_main(void *arg)
{
	struct parallel_thread *self = arg;

	pthread_barrier_wait(&self->parallel->start);
	self->parallel->body(self->index, self->parallel->arg);
	return NULL;
}

void
in_parallel(unsigned count, void (*body)(unsigned index, void *arg), void *arg)
{
	struct parallel parallel = {.body = body, .arg = arg};
	struct parallel_thread *threads =
	    __real_calloc(count, sizeof(*threads));

	cr_assert(threads != NULL);
	pthread_barrier_init(&parallel.start, NULL, count);
	for (unsigned index = 0; index < count; index++) {
		threads[index].parallel = &parallel;
		threads[index].index = index;
		if (__real_pthread_create(&threads[index].thread, NULL,
			parallel_main, &threads[index]) != 0)
			abort();
	}
	for (unsigned index = 0; index < count; index++)
		pthread_join(threads[index].thread, NULL);
	pthread_barrier_destroy(&parallel.start);
	free(threads);
}

uint64_t
monotonic_ns(void)
{
	struct timespec now;

	__real_clock_gettime(CLOCK_MONOTONIC, &now);
	return HWT_SEC(now.tv_sec) + (uint64_t)now.tv_nsec;
}

void
sleep_ns(uint64_t ns)
{
	uint64_t moment_ns = monotonic_ns() + ns;
	struct timespec moment = {.tv_sec = (time_t)(moment_ns / HWT_SEC(1)),
	    .tv_nsec = (long)(moment_ns % HWT_SEC(1))};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, NULL) ==
	    EINTR)
		;
}

void
wait_for(const _Atomic uint64_t *word, uint64_t value)
{
	uint64_t limit_ns = monotonic_ns() + HWT_SEC(30);

	while (*word < value) {
		cr_assert(monotonic_ns() < limit_ns,
		    "waited in vain for %" PRIu64 ", still %" PRIu64, value,
		    *word);
		sleep_ns(HWT_MS(1));
	}
}

/* Fault injection. */

static _Atomic unsigned fault_set;
static _Atomic uint64_t fault_nth;
static _Atomic uint64_t fault_calls;
static _Atomic int fault_eventfd_errno = EMFILE;
static _Atomic int fault_thread_error = EAGAIN;
static struct gate *_Atomic fault_thread_gate;
static struct gate *_Atomic fault_mmap_gate;

void
fault_arm(unsigned set, uint64_t nth)
{
	fault_calls = 0;
	fault_nth = nth;
	fault_set = set;
}

void
fault_arm_eventfd(int error)
{
	fault_eventfd_errno = error;
	fault_arm(FAULT_EVENTFD, FAULT_ALWAYS);
}

void
fault_arm_thread(int error)
{
	fault_thread_error = error;
	fault_arm(FAULT_THREAD, FAULT_ALWAYS);
}

void
fault_hold_thread(struct gate *gate, int error)
{
	fault_thread_gate = gate;
	fault_arm_thread(error);
}

void
fault_hold_mmap(struct gate *gate)
{
	fault_mmap_gate = gate;
}

uint64_t
fault_disarm(void)
{
	fault_set = 0;
	fault_eventfd_errno = EMFILE;
	fault_thread_error = EAGAIN;
	fault_thread_gate = NULL;
	return fault_calls;
}

static bool
fault_hits(unsigned kind)
{
	uint64_t call;

	if ((fault_set & kind) == 0)
		return false;
	call = ++fault_calls;
	return fault_nth == FAULT_ALWAYS || fault_nth == call;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
    void *(*start)(void *), void *arg);
int __wrap_pthread_key_create(pthread_key_t *key, void (*destroy)(void *));
void *__wrap_mmap(
    void *address, size_t length, int prot, int flags, int fd, off_t offset);
int __wrap_eventfd(unsigned count, int flags);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t size);

int
__wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
    void *(*start)(void *), void *arg)
{
	int error = fault_hits(FAULT_THREAD) ? fault_thread_error : 0;

	if (fault_thread_gate != NULL)
		gate_pass(fault_thread_gate);
	if (error != 0)
		return error;
	return __real_pthread_create(thread, attr, start, arg);
}

int
__wrap_pthread_key_create(pthread_key_t *key, void (*destroy)(void *))
{
	if (fault_hits(FAULT_KEY))
		return EAGAIN;
	return __real_pthread_key_create(key, destroy);
}

void *
__wrap_mmap(
    void *address, size_t length, int prot, int flags, int fd, off_t offset)
{
	struct gate *gate = atomic_exchange(&fault_mmap_gate, NULL);

	if (gate != NULL)
		gate_pass(gate);
	if (fault_hits(FAULT_MMAP)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return __real_mmap(address, length, prot, flags, fd, offset);
}

int
__wrap_eventfd(unsigned count, int flags)
{
	if (fault_hits(FAULT_EVENTFD)) {
		errno = fault_eventfd_errno;
		return -1;
	}
	return __real_eventfd(count, flags);
}

static _Atomic uint64_t suspended_ns;

void
suspend(uint64_t ns)
{
	(void)atomic_fetch_add(&suspended_ns, ns);
}

static int
clock_read(clockid_t clock, struct timespec *now)
{
	int error = __real_clock_gettime(clock, now);
	uint64_t ns = atomic_load(&suspended_ns);

	if (error != 0 || clock != CLOCK_BOOTTIME)
		return error;
	ns += (uint64_t)now->tv_nsec;
	now->tv_sec += (time_t)(ns / HWT_SEC(1));
	now->tv_nsec = (long)(ns % HWT_SEC(1));
	return 0;
}

/* What it leaves is a time at which everything would be due. */
int
__wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	if (!fault_hits(FAULT_CLOCK))
		return clock_read(clock, now);
	*now = (struct timespec){.tv_sec = INT32_MAX};
	errno = EPERM;
	return -1;
}

static const char *random_bytes;
static size_t random_size;

void
random_give(const void *bytes, size_t size)
{
	random_bytes = bytes;
	random_size = size;
}

ssize_t
__wrap_getrandom(void *bytes, size_t size, unsigned flags)
{
	if (fault_hits(FAULT_RANDOM)) {
		errno = ENOSYS;
		return -1;
	}
	if (random_size < size)
		return __real_getrandom(bytes, size, flags);
	memcpy(bytes, random_bytes, size);
	random_bytes += size;
	random_size -= size;
	return (ssize_t)size;
}

static bool
heap_fails(void)
{
	if (!fault_hits(FAULT_HEAP))
		return false;
	errno = ENOMEM;
	return true;
}

void *
__wrap_malloc(size_t size)
{
	return heap_fails() ? NULL : __real_malloc(size);
}

void *
__wrap_calloc(size_t count, size_t size)
{
	return heap_fails() ? NULL : __real_calloc(count, size);
}

void *
__wrap_realloc(void *memory, size_t size)
{
	return heap_fails() ? NULL : __real_realloc(memory, size);
}

void *
__wrap_aligned_alloc(size_t alignment, size_t size)
{
	return heap_fails() ? NULL : __real_aligned_alloc(alignment, size);
}

int
__wrap_posix_memalign(void **memory, size_t alignment, size_t size)
{
	if (heap_fails())
		return ENOMEM;
	return __real_posix_memalign(memory, alignment, size);
}
