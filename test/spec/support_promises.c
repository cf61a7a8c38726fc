/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the suites of the promises share; support_promises.h says what each
 * part is for. In this order: live timers, children, threads, numbers.
 */
#include "test/spec/support_promises.h"

#include <dirent.h>
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/timer.h"

/* Live timers. */

struct live live;

void
live_open(const struct hwt_options *options)
{
	const struct hwt_options defaults = {
	    .tick_ns = HWT_MS(1), .ticks_per_wheel = 64};
	struct hwt_options filled = options != NULL ? *options : defaults;
	struct hwt_log log = log_recorder_hook(&live.log);

	log_recorder_init(&live.log);
	filled.log = &log;
	live.tick_ns = filled.tick_ns != 0 ? filled.tick_ns : HWT_MS(100);
	assert_ok(hwt_create(&live.timer, &filled));
}

void
live_close(void)
{
	assert_ok(hwt_stop(live.timer, NULL));
	assert_ok(hwt_destroy(live.timer));
	live.timer = NULL;
}

struct hwt_stats
live_stats(void)
{
	struct hwt_stats stats;

	assert_ok(hwt_read_stats(live.timer, &stats));
	return stats;
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
	struct hwt_spec spec = {
	    .task = probe_task, .arg = &running.probe, .period_ns = period_ns};

	live_open(NULL);
	running_init();
	assert_ok(
	    hwt_new_timeouts(live.timer, 1, &spec, &running.probe.handle));
	gate_await(&running.gate);
}

void
live_pass_tick(void)
{
	struct probe probe = {0};

	assert_ok(hwt_new_timeout(live.timer, NULL, probe_task, &probe, 0));
	wait_for(&probe.runs, 1);
}

void
live_settle(pid_t worker)
{
	uint64_t limit_ns = monotonic_ns() + HWT_SEC(30);
	/* A worker that only waits for the next boundary is seen to run, or to
	 * have run, by one of these looks at least, if its processor runs. */
	uint64_t looks = 50 + 3 * live.tick_ns / HWT_MS(1);
	uint64_t wakeups = 0;
	uint64_t look = 0;

	while (look < looks) {
		uint64_t now = live_stats().wakeups;

		if (now == wakeups && thread_letter(worker) == 'S')
			look++;
		else
			look = 0;
		wakeups = now;
		cr_assert(monotonic_ns() < limit_ns, "it never falls asleep");
		sleep_ns(HWT_MS(1));
	}
}

/* Children. */

static void
child_say(const char *file, int line, const char *text, const char *answer)
{
	char message[512];
	int length = snprintf(message, sizeof(message),
	    "%s:%d: in a child: %s%s\n", file, line, text, answer);

	if (length > 0 && write(STDERR_FILENO, message, (size_t)length) < 0)
		abort();
}

void
child_require(bool holds, const char *file, int line, const char *text)
{
	if (holds)
		return;
	child_say(file, line, text, " does not hold");
	_exit(1);
}

void
child_require_rc(
    int rc, int expected, const char *file, int line, const char *text)
{
	char answer[64];

	if (rc == expected)
		return;
	snprintf(answer, sizeof(answer), " is %s, not %s", rc_name(rc),
	    rc_name(expected));
	child_say(file, line, text, answer);
	_exit(1);
}

/* The child of a worker inherits its mask. */
static void
child_set_alarm(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	(void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	(void)signal(SIGALRM, SIG_DFL);
	(void)alarm(60);
}

static bool
other_threads_sleep(void)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	bool sleep = true;

	if (tasks == NULL)
		abort();
	while ((task = readdir(tasks)) != NULL) {
		pid_t thread = (pid_t)strtol(task->d_name, NULL, 10);

		if (thread != 0 && thread != gettid())
			sleep = sleep && thread_letter(thread) != 'R';
	}
	closedir(tasks);
	return sleep;
}

/* AddressSanitizer's allocator does not survive a fork that finds its locks
 * taken: gives threads that have just been made time to get through their
 * first instructions, where they free something. */
static void
let_others_fall_asleep(void)
{
	unsigned looks = 0;

	for (unsigned turn = 0; turn < 100 && looks < 5; turn++) {
		looks = other_threads_sleep() ? looks + 1 : 0;
		sleep_ns(HWT_MS(1));
	}
}

pid_t
child_split(void)
{
	pid_t child;

	if (WITH_ASAN)
		let_others_fall_asleep();
	child = fork();
	if (child == 0)
		child_set_alarm();
	return child;
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
child_reap(pid_t child)
{
	int status = 0;

	while (waitpid(child, &status, 0) != child) {
		if (errno != EINTR)
			return -errno;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

int
child_wait(pid_t child)
{
	int status = child_reap(child);

	cr_assert(status >= 0, "no child: %s", rc_name(status));
	cr_assert(
	    status < 256, "the child was killed by signal %d", status - 256);
	return status;
}

void
in_child(void (*body)(void *arg), void *arg)
{
	cr_assert(child_wait(child_fork(body, arg)) == 0, "the child failed");
}

/* Threads. */

static bool
thread_has_name(const char *task, const char *name)
{
	char path[300];
	char comm[32] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task);
	file = fopen(path, "re");
	if (file == NULL)
		return false;
	if (fgets(comm, sizeof(comm), file) == NULL)
		comm[0] = '\0';
	fclose(file);
	comm[strcspn(comm, "\n")] = '\0';
	return strcmp(comm, name) == 0;
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
		if (!thread_has_name(task->d_name, name))
			continue;
		count++;
		*thread = (pid_t)strtol(task->d_name, NULL, 10);
	}
	closedir(tasks);
	return count;
}

unsigned
thread_count(const char *name)
{
	pid_t thread;

	return thread_find(name, &thread);
}

void
thread_await_count(const char *name, unsigned count)
{
	uint64_t limit_ns = monotonic_ns() + HWT_SEC(30);
	unsigned found;

	while ((found = thread_count(name)) != count) {
		cr_assert(monotonic_ns() < limit_ns,
		    "there are %u threads named %s, not %u", found, name,
		    count);
		sleep_ns(HWT_MS(1));
	}
}

pid_t
thread_await(const char *name)
{
	pid_t thread = 0;

	thread_await_count(name, 1);
	(void)thread_find(name, &thread);
	return thread;
}

uint64_t
thread_status(pid_t thread, const char *field, int base)
{
	char path[64];
	char line[256];
	size_t length = strlen(field);
	uint64_t value = UINT64_MAX;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/status", thread);
	file = fopen(path, "re");
	cr_assert(file != NULL, "no thread %d", thread);
	while (fgets(line, sizeof(line), file) != NULL) {
		if (strncmp(line, field, length) == 0 && line[length] == ':')
			value = strtoull(line + length + 1, NULL, base);
	}
	fclose(file);
	cr_assert(value != UINT64_MAX, "no field %s", field);
	return value;
}

char
thread_letter(pid_t thread)
{
	char path[64];
	char line[512] = "";
	const char *end;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
	file = fopen(path, "re");
	if (file == NULL)
		return 'X';
	if (fgets(line, sizeof(line), file) == NULL)
		line[0] = '\0';
	fclose(file);
	end = strrchr(line, ')');
	return end != NULL && end[1] == ' ' ? end[2] : 'X';
}

/* Numbers. */

uint64_t
grid_tick(uint64_t tick_ns, uint64_t offset_ns, uint64_t delay_ns)
{
	uint64_t deadline_ns = offset_ns + delay_ns;

	if (delay_ns == 0)
		return offset_ns / tick_ns + 1;
	return deadline_ns / tick_ns + (deadline_ns % tick_ns != 0);
}

uint64_t
queued_in(const struct hwt *timer)
{
	const struct record_store *store = &timer->store;
	uint32_t limit = store_limit(store);
	uint64_t count = 0;
	uint32_t number, page;

	for (number = 0; number < limit; number++) {
		for (page = 0; page < SLAB_PAGES; page++)
			count +=
			    (uint64_t)__builtin_popcountll(a64_load_acquire(
				&slab_at(store, number)->queued[page].bits));
	}
	return count;
}

bool
readable(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	int count;

	do {
		count = poll(&poll_fd, 1, 0);
	} while (count < 0 && errno == EINTR);
	cr_assert(count >= 0, "poll: %s", strerror(errno));
	return count == 1 && (poll_fd.revents & POLLIN) != 0;
}

/* The library. Every way of building keeps its binaries in a folder of its
 * own; the shared library is built the plain way only. */

static void
library_path(char *path, size_t size)
{
	const char *named = getenv("HWT_LIBRARY");
	char self[2048];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

	child_check(length > 0);
	self[length] = '\0';
	*strrchr(self, '/') = '\0';
	if (named != NULL)
		snprintf(path, size, "%s", named);
	else
		snprintf(path, size, "%s/../plain/libhwt.so", self);
}

void *
library_open(void)
{
	char path[4096];
	void *library;

	library_path(path, sizeof(path));
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL)
		fprintf(stderr, "%s\n", dlerror());
	child_check(library != NULL);
	return library;
}
