/* SPDX-License-Identifier: Apache-2.0 */
/* Implements support.h, in its order. */
#include "test/spec/support.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#if WITH_ASAN
#include <sanitizer/lsan_interface.h>

const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

/* An error must end the process by a signal. */
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

static void
log_recorder_write(void *ctx, int level, const char *message)
{
	struct log_recorder *log = ctx;
	uint64_t line = log->count++;

	if (line >= LOG_LINES)
		return;
	log->lines[line].level = level;
	snprintf(log->lines[line].message, sizeof(log->lines[0].message), "%s",
	    message);
}

struct hwt_log
log_recorder_hook(struct log_recorder *log)
{
	return (struct hwt_log){.write = log_recorder_write, .ctx = log};
}

/* The manual timer. */

struct fixture manual;

static uint64_t
fixture_clock(void *ctx)
{
	struct fixture *fixture = ctx;

	fixture->clock_reads++;
	return fixture->now_ns;
}

static void
fixture_wake(void *ctx)
{
	((struct fixture *)ctx)->wakes++;
}

void
fixture_open(struct fixture *fixture, const struct hwt_options *options)
{
	struct hwt_options filled = {
	    .tick_ns = FIXTURE_TICK, .ticks_per_wheel = FIXTURE_WHEEL};
	const struct hwt_clock clock = {fixture_clock, fixture};
	const struct hwt_wake wake = {fixture_wake, fixture};
	const struct hwt_log log = log_recorder_hook(&fixture->log);

	if (options != NULL)
		filled = *options;
	memset(&fixture->log, 0, sizeof(fixture->log));
	fixture->now_ns = FIXTURE_START;
	fixture->wakes = fixture->clock_reads = fixture->runs = 0;
	fixture->tick_ns = filled.tick_ns != 0 ? filled.tick_ns : HWT_MS(100);
	filled.flags |= HWT_MANUAL;
	filled.clock = filled.clock != NULL ? filled.clock : &clock;
	filled.wake = filled.wake != NULL ? filled.wake : &wake;
	filled.log = filled.log != NULL ? filled.log : &log;
	assert_ok(hwt_create(&fixture->timer, &filled));
}

void
fixture_close(struct fixture *fixture)
{
	worker_timer_close(fixture->timer);
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
	uint64_t boundary_ns = FIXTURE_START + index * fixture->tick_ns;

	cr_assert(fixture->now_ns <= boundary_ns, "the clock never goes back");
	return fixture_step(fixture, boundary_ns - fixture->now_ns);
}

struct hwt_stats
fixture_stats(struct fixture *fixture)
{
	struct hwt_stats stats;

	memset(&stats, 0xff, sizeof(stats));
	assert_ok(hwt_read_stats(fixture->timer, &stats));
	return stats;
}

uint64_t
manual_wait(void)
{
	uint64_t wait_ns = UINT64_MAX - 1;

	assert_ok(hwt_next_wakeup(manual.timer, &wait_ns));
	return wait_ns;
}

int64_t
manual_remaining(hwt_timeout timeout)
{
	int64_t remaining_ns = INT64_MIN;

	assert_ok(hwt_remaining(manual.timer, timeout, &remaining_ns));
	return remaining_ns;
}

struct hwt *
worker_timer_open(uint64_t tick_ns)
{
	struct hwt *timer = NULL;

	assert_ok(
	    hwt_create(&timer, &(struct hwt_options){.tick_ns = tick_ns}));
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
probe_periodic(struct probe *probe, uint64_t delay_ns, uint64_t period_ns)
{
	assert_ok(hwt_new_periodic(probe_fixture(probe)->timer, NULL,
	    &probe->handle, probe_task, probe, delay_ns, period_ns));
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

uint64_t
ticks_of_runs(struct probe *probe, unsigned first, unsigned last)
{
	uint64_t ticks = 0;

	for (unsigned tick = first; tick <= last; tick++) {
		uint64_t before = probe->runs;

		manual_tick(tick);
		cr_assert(probe->runs - before <= 1);
		ticks |= (probe->runs - before) << tick;
	}
	return ticks;
}

/* The executor. */

struct recording_executor recorder;

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

int
executor_run(struct recording_executor *executor, uint64_t index)
{
	cr_assert(index < executor->count, "there was no such hand-over");
	return hwt_run(
	    executor->calls[index].timer, executor->calls[index].timeout);
}

void
recorder_open(enum executor_mode mode)
{
	executor_init(&recorder, mode);
	manual_open(&(struct hwt_options){
	    .tick_ns = FIXTURE_TICK, .executor = &recorder.hook});
}

/* Gates and workers. */

void
semaphore_wait(sem_t *semaphore)
{
	while (sem_wait(semaphore) != 0)
		if (errno != EINTR)
			abort();
}

void
gate_init(struct gate *gate)
{
	sem_init(&gate->entered, 0, 0);
	sem_init(&gate->opened, 0, 0);
}

void
gate_pass(struct gate *gate)
{
	sem_post(&gate->entered);
	semaphore_wait(&gate->opened);
}

static void
probe_then_gate(struct probe *probe)
{
	gate_pass(probe->data);
}

struct live live;

void
live_open(const struct hwt_options *options)
{
	struct hwt_options filled = {.tick_ns = HWT_MS(1)};
	struct hwt_log log = log_recorder_hook(&live.log);

	memset(&live.log, 0, sizeof(live.log));
	if (options != NULL)
		filled = *options;
	filled.log = &log;
	assert_ok(hwt_create(&live.timer, &filled));
}

void
live_close(void)
{
	worker_timer_close(live.timer);
	live.timer = NULL;
}

struct hwt_stats
live_stats(void)
{
	struct hwt_stats stats;

	assert_ok(hwt_read_stats(live.timer, &stats));
	return stats;
}

void
live_pass_tick(void)
{
	struct probe probe = {0};

	assert_ok(hwt_new_timeout(live.timer, NULL, probe_task, &probe, 0));
	wait_for(&probe.runs, 1);
}

/* A worker that only waits for the next boundary is seen to run, or to have
 * run, by one of so many looks: for ticks of 100 ms at most. */
pid_t
live_settle(void)
{
	uint64_t limit_ns = monotonic_ns() + HWT_SEC(30);
	pid_t worker = thread_await("hwt-worker", 1);
	uint64_t wakeups = 0;

	for (unsigned looks = 0; looks < 120; looks++) {
		uint64_t now = live_stats().wakeups;

		if (now != wakeups || thread_letter(worker) != 'S')
			looks = 0;
		wakeups = now;
		cr_assert(monotonic_ns() < limit_ns, "it never falls asleep");
		sleep_ns(HWT_MS(1));
	}
	return worker;
}

struct running running;

void
running_init(void)
{
	gate_init(&running.gate);
	running.probe =
	    (struct probe){.then = probe_then_gate, .data = &running.gate};
}

void
running_open(uint64_t period_ns)
{
	struct probe *probe = &running.probe;

	live_open(NULL);
	running_init();
	if (period_ns != 0)
		assert_ok(hwt_new_periodic(live.timer, NULL, &probe->handle,
		    probe_task, probe, 0, period_ns));
	else
		assert_ok(hwt_new_timeout(
		    live.timer, &probe->handle, probe_task, probe, 0));
	gate_await(&running.gate);
}

/* Threads and real time. */

struct parallel {
	pthread_barrier_t start;
	void (*body)(unsigned index, void *arg);
	void *arg;
	_Atomic unsigned next;
};

static void *
parallel_main(void *arg)
{
	struct parallel *parallel = arg;
	unsigned index = parallel->next++;

	pthread_barrier_wait(&parallel->start);
	parallel->body(index, parallel->arg);
	return NULL;
}

int __real_pthread_create(
    pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

/* Its threads are not subject to fault injection. */
void
in_parallel(unsigned count, void (*body)(unsigned index, void *arg), void *arg)
{
	struct parallel parallel = {.body = body, .arg = arg};
	pthread_t threads[64];

	cr_assert(count <= 64);
	pthread_barrier_init(&parallel.start, NULL, count);
	for (unsigned index = 0; index < count; index++)
		if (__real_pthread_create(
			&threads[index], NULL, parallel_main, &parallel) != 0)
			abort();
	for (unsigned index = 0; index < count; index++)
		pthread_join(threads[index], NULL);
	pthread_barrier_destroy(&parallel.start);
}

uint64_t
monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
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
		    "waited too long for %" PRIu64 ", still %" PRIu64, value,
		    *word);
		sleep_ns(HWT_MS(1));
	}
}

bool
readable(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

	return poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & POLLIN) != 0;
}

/* The shared library is built the plain way, beside the folder of this one. */
void *
library_open(void)
{
	const char *named = getenv("HWT_LIBRARY");
	char self[2048], path[4096];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	void *library;

	child_check(length > 0);
	self[length] = '\0';
	*strrchr(self, '/') = '\0';
	snprintf(path, sizeof(path), "%s/../plain/libhwt.so", self);
	library = dlopen(named != NULL ? named : path, RTLD_NOW | RTLD_LOCAL);
	child_require(library != NULL, __FILE__, __LINE__, "dlopen", path);
	return library;
}

const char *
thread_status(pid_t thread, const char *field)
{
	static _Thread_local char line[256];
	size_t length = strlen(field);
	bool found = false;
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/status", thread);
	file = fopen(path, "re");
	while (file != NULL && !found && fgets(line, sizeof(line), file))
		found =
		    strncmp(line, field, length) == 0 && line[length] == ':';
	if (file != NULL)
		fclose(file);
	line[strcspn(line, "\n")] = '\0';
	return found ? line + length + 2 : "gone";
}

static unsigned
thread_find(const char *name, pid_t *thread)
{
	DIR *tasks = opendir("/proc/self/task");
	unsigned count = 0;
	struct dirent *task;

	if (tasks == NULL)
		abort();
	while ((task = readdir(tasks)) != NULL) {
		pid_t id = (pid_t)strtol(task->d_name, NULL, 10);

		if (strcmp(thread_status(id, "Name"), name) != 0)
			continue;
		count++;
		*thread = id;
	}
	closedir(tasks);
	return count;
}

pid_t
thread_await(const char *name, unsigned count)
{
	uint64_t limit_ns = monotonic_ns() + HWT_SEC(30);
	pid_t thread = 0;

	while (thread_find(name, &thread) != count) {
		cr_assert(monotonic_ns() < limit_ns, "not %u threads named %s",
		    count, name);
		sleep_ns(HWT_MS(1));
	}
	return thread;
}

/* Children. */

void
child_require(bool holds, const char *file, int line, const char *text,
    const char *answer)
{
	if (holds)
		return;
	dprintf(STDERR_FILENO, "%s:%d: in a child: %s does not hold: %s\n",
	    file, line, text, answer);
	_exit(1);
}

/* AddressSanitizer's allocator does not survive a fork that finds its locks
 * taken: threads that have just been made get time for what they free first. */
pid_t
child_split(void)
{
	sigset_t set;
	pid_t child;

	if (WITH_ASAN)
		sleep_ns(HWT_MS(20));
	child = fork();
	if (child != 0)
		return child;
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	(void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	(void)signal(SIGALRM, SIG_DFL);
	(void)alarm(60);
	return 0;
}

pid_t
child_fork(void (*body)(void *arg), void *arg)
{
	pid_t child = child_split();

	if (child != 0)
		return child;
	body(arg);
	_exit(0);
}

int
child_wait(pid_t child)
{
	int status = 0;

	while (waitpid(child, &status, 0) != child)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

void
in_child(void (*body)(void *arg), void *arg)
{
	int status = child_wait(child_fork(body, arg));

	cr_assert(status == 0, "the child ended with %d", status);
}

#define ROLE "HWT_TEST_ROLE"

bool
role_is(const char *name)
{
	const char *role = getenv(ROLE);

	return role != NULL && strcmp(role, name) == 0;
}

void
role_play(const struct role *roles, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!role_is(roles[i].name))
			continue;
		roles[i].play();
		exit(LEFT_BY_EXIT);
	}
}

struct casting {
	const char *name, *debug;
	int ends[2];
};

/* A report of leaks would be written to stderr. */
static void
become_role(void *arg)
{
	char *const arguments[] = {(char[]){"hwt-test"}, NULL};
	struct casting *casting = arg;

	child_ok(setenv(ROLE, casting->name, 1));
	child_ok(setenv("ASAN_OPTIONS", "detect_leaks=0", 1));
	if (casting->debug != NULL)
		child_ok(setenv("HWT_DEBUG", casting->debug, 1));
	if (casting->ends[1] >= 0)
		child_check(dup2(casting->ends[1], STDERR_FILENO) >= 0);
	(void)execv("/proc/self/exe", arguments);
}

int
role_run(const char *name, const char *debug, char said[4096])
{
	struct casting casting = {name, debug, {-1, -1}};
	size_t length = 0;
	ssize_t got;
	pid_t child;

	if (said == NULL)
		return child_wait(child_fork(become_role, &casting));
	cr_assert(pipe2(casting.ends, O_CLOEXEC) == 0);
	child = child_fork(become_role, &casting);
	(void)close(casting.ends[1]);
	while ((got = read(casting.ends[0], said + length, 4095 - length)) > 0)
		length += (size_t)got;
	said[length] = '\0';
	(void)close(casting.ends[0]);
	return child_wait(child);
}

/* Fault injection: the linker sends the library's calls and the tests' here,
 * not those of the C library itself. */

static _Atomic unsigned fault_set;
static _Atomic uint64_t fault_nth, fault_calls;
static _Atomic int fault_thread_error = EAGAIN;
static struct gate *_Atomic fault_gate;

void
fault_arm(unsigned set, uint64_t nth)
{
	fault_calls = 0;
	fault_nth = nth;
	fault_set = set;
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
	fault_gate = gate;
	fault_arm_thread(error);
}

uint64_t
fault_disarm(void)
{
	fault_set = 0;
	fault_thread_error = EAGAIN;
	fault_gate = NULL;
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

/* A function that fails with that result where a fault hits it. */
#define WRAP(type, name, parameters, arguments, kind, failed) \
	type __real_##name parameters;                        \
	type __wrap_##name parameters;                        \
	type __wrap_##name parameters                         \
	{                                                     \
		if (fault_hits(kind))                         \
			return failed;                        \
		return __real_##name arguments;               \
	}
#define NO_MEMORY (errno = ENOMEM, NULL)

WRAP(void *, malloc, (size_t size), (size), FAULT_HEAP, NO_MEMORY)
WRAP(void *, calloc, (size_t count, size_t size), (count, size), FAULT_HEAP,
    NO_MEMORY)
WRAP(void *, realloc, (void *memory, size_t size), (memory, size), FAULT_HEAP,
    NO_MEMORY)
WRAP(void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size),
    FAULT_HEAP, NO_MEMORY)
WRAP(void *, mmap,
    (void *address, size_t length, int prot, int flags, int fd, off_t offset),
    (address, length, prot, flags, fd, offset), FAULT_MMAP,
    (errno = ENOMEM, MAP_FAILED))
WRAP(int, clock_gettime, (clockid_t clock, struct timespec *now), (clock, now),
    FAULT_CLOCK, (errno = EINVAL, -1))

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
    void *(*start)(void *), void *arg);

int
__wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
    void *(*start)(void *), void *arg)
{
	int error = fault_hits(FAULT_THREAD) ? fault_thread_error : 0;

	if (fault_gate != NULL)
		gate_pass(fault_gate);
	return error != 0 ? error
			  : __real_pthread_create(thread, attr, start, arg);
}
