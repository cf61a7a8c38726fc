/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system as the library sees it here: its object is linked with each
 * import of the first table under another name, faulty_..., which is below.
 * Tests and the C library itself call what they always do.
 *
 * Both tables together are all that the library imports; test/faults/imports
 * compares them with what nm says, so that no import comes without a decision.
 */
#include "test/faults/faults.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/*
 * The calls that fail, and with what. No errors: only counted.
 *
 * futex_wake fails once at a time. When it fails for good while a thread
 * sleeps, nothing helps: the C library's own locks end the process then.
 * pthread_join fails where two threads join each other, which one of them has
 * to give up.
 */
const struct swept swept[CALLS] = {
    [CALL_ABORT] = {"abort", "abort", {0}},
    [CALL_ALIGNED_ALLOC] = {"aligned_alloc", "aligned_alloc", {ENOMEM}},
    [CALL_CALLOC] = {"calloc", "calloc", {ENOMEM}},
    [CALL_CLOCK_GETTIME] = {"clock_gettime", "clock_gettime", {EINVAL}},
    [CALL_CLOCK_REALTIME] = {"clock_gettime", "clock_realtime", {EINVAL},
	CALL_GETRANDOM, EAGAIN},
    [CALL_CLOSE] = {"close", "close", {EINTR, EIO}},
    [CALL_DPRINTF] = {"dprintf", "dprintf", {EBADF}},
    [CALL_EVENTFD] = {"eventfd", "eventfd", {EMFILE, ENFILE, ENOMEM, ENODEV}},
    [CALL_EVENTFD_READ] = {"eventfd_read", "eventfd_read", {EAGAIN, EINTR}},
    [CALL_EVENTFD_WRITE] = {"eventfd_write", "eventfd_write", {EINTR, EIO}},
    [CALL_FFLUSH] = {"fflush", "fflush", {ENOSPC}},
    [CALL_FREE] = {"free", "free", {0}},
    [CALL_FUTEX_WAIT] = {"syscall", "futex_wait",
	{SPURIOUS, EINTR, EAGAIN, ETIMEDOUT, ENOSYS}},
    [CALL_FUTEX_WAKE] = {"syscall", "futex_wake", {ENOSYS}, .passing = true},
    [CALL_GETRANDOM] = {"getrandom", "getrandom", {SHORT, EAGAIN, ENOSYS}},
    [CALL_MADVISE] = {"madvise", "madvise", {EINVAL, ENOMEM}},
    [CALL_MMAP] = {"mmap", "mmap", {ENOMEM, EAGAIN}},
    [CALL_MUNMAP] = {"munmap", "munmap", {ENOMEM}},
    [CALL_NANOSLEEP] = {"nanosleep", "nanosleep", {EINTR}, CALL_FUTEX_WAIT,
	ENOSYS},
    [CALL_OPEN] = {"open", "open", {EMFILE, EACCES}},
    [CALL_PTHREAD_ATFORK] = {"pthread_atfork", "pthread_atfork", {ENOMEM},
	CALL_MADVISE, EINVAL},
    [CALL_PTHREAD_ATTR_GETDETACHSTATE] = {"pthread_attr_getdetachstate",
	"pthread_attr_getdetachstate", {EINVAL}},
    [CALL_PTHREAD_COND_INIT] = {"pthread_cond_init", "pthread_cond_init",
	{EAGAIN, ENOMEM}},
    [CALL_PTHREAD_COND_TIMEDWAIT] = {"pthread_cond_timedwait",
	"pthread_cond_timedwait", {SPURIOUS, ETIMEDOUT}},
    [CALL_PTHREAD_COND_WAIT] = {"pthread_cond_wait", "pthread_cond_wait",
	{SPURIOUS}},
    [CALL_PTHREAD_CONDATTR_INIT] = {"pthread_condattr_init",
	"pthread_condattr_init", {ENOMEM}},
    [CALL_PTHREAD_CONDATTR_SETCLOCK] = {"pthread_condattr_setclock",
	"pthread_condattr_setclock", {EINVAL}},
    [CALL_PTHREAD_CREATE] = {"pthread_create", "pthread_create",
	{EAGAIN, ENOMEM, EPERM, EINVAL}},
    [CALL_PTHREAD_JOIN] = {"pthread_join", "pthread_join", {EDEADLK},
	.passing = true},
    [CALL_PTHREAD_KEY_CREATE] = {"pthread_key_create", "pthread_key_create",
	{EAGAIN, ENOMEM}},
    [CALL_PTHREAD_SETNAME_NP] = {"pthread_setname_np", "pthread_setname_np",
	{EIO}},
    [CALL_PTHREAD_SETSPECIFIC] = {"pthread_setspecific", "pthread_setspecific",
	{ENOMEM}},
    [CALL_PTHREAD_TRYJOIN_NP] = {"pthread_tryjoin_np", "pthread_tryjoin_np",
	{EBUSY}},
    [CALL_READ] = {"read", "read", {SHORT, EIO, EINTR}},
    [CALL_SYSCONF] = {"sysconf", "sysconf", {EINVAL}},
    [CALL_VFPRINTF] = {"vfprintf", "vfprintf", {EIO}},
};

/* The calls that cannot fail, and why. */
const struct sound {
	const char *import, *reason;
} sound[] = {
    {"_GLOBAL_OFFSET_TABLE_", "no function"},
    {"__errno_location", "an address"},
    {"__assert_fail", "does not return"},
    {"__popcountdi2", "pure"},
    {"dladdr", "0 if it knows nothing: then the address is the name"},
    {"fclose", "of what was read; its answer is of no use"},
    {"fgets", "NULL at the end: then the address is the name"},
    {"fopen", "NULL: then the address is the name"},
    {"memmove", "pure"},
    {"memset", "pure"},
    {"pthread_cond_broadcast", "no error in POSIX for a valid condition"},
    {"pthread_cond_destroy", "nobody waits; its answer is of no use"},
    {"pthread_condattr_destroy", "frees nothing; its answer is of no use"},
    {"pthread_mutex_destroy", "nobody holds it; its answer is of no use"},
    {"pthread_mutex_lock", "default type, not robust, never locked twice"},
    {"pthread_mutex_trylock", "no error; caches.c has it find a holder"},
    {"pthread_mutex_unlock", "as pthread_mutex_lock, by its holder"},
    {"pthread_self", "no error in POSIX"},
    {"pthread_sigmask", "EINVAL for an unknown operation alone"},
    {"qsort", "sorts in place if there is no memory"},
    {"sched_yield", "its answer is of no use: who calls it looks again"},
    {"secure_getenv", "NULL if the variable is not set"},
    {"sigdelset", "EINVAL for an unknown signal alone"},
    {"sigfillset", "pure"},
    {"snprintf", "whole numbers and strings, cut off at the size"},
    {"strchr", "pure"},
    {"strcmp", "pure"},
    {"strcspn", "pure"},
    {"strlen", "pure"},
    {"strncpy", "pure"},
    {"strnlen", "pure"},
    {"strtoul", "0 for what is no number: then no line has the address"},
};

static struct fault fault = {.call = CALL_NONE};
static bool fault_read;
static _Atomic bool fault_armed;
static _Atomic uint64_t injected, off_ns;
static _Atomic uint64_t calls[CALLS];
static _Atomic int64_t held_bytes, held_blocks, held_fds, held_threads;

/* HWT_FAULT is "CALL ERROR NTH PERMANENT" in numbers. Before main there is one
 * thread only, and the library's own constructor is the first to come here. */
const struct fault *
fault_here(void)
{
	const char *words;
	unsigned call, permanent;

	if (fault_read)
		return &fault;
	fault_read = true;
	words = getenv("HWT_FAULT");
	if (words != NULL &&
	    sscanf(words, "%u %d %" SCNu64 " %u", &call, &fault.error,
		&fault.nth, &permanent) == 4 &&
	    call < CALLS) {
		fault.call = (enum call)call;
		fault.permanent = permanent != 0;
		fault_armed = true;
	}
	return &fault;
}

void
fault_off(void)
{
	if (fault_armed)
		off_ns = now_ns();
	fault_armed = false;
}

uint64_t
fault_off_ns(void)
{
	return off_ns;
}

bool
fault_is_on(void)
{
	return fault_armed;
}

uint64_t
fault_injected(void)
{
	return injected;
}

uint64_t
fault_calls(enum call call)
{
	return calls[call];
}

const char *
error_name(int error, char *buffer)
{
	const char *name = strerrorname_np(error);

	if (error == SPURIOUS)
		name = "spurious";
	else if (error == SHORT)
		name = "short";
	sprintf(buffer, "%.15s", name != NULL ? name : "?");
	return buffer;
}

/* The error with which this call fails; 0: it does not. */
static int
strike(enum call call)
{
	const struct fault *here = fault_here();
	uint64_t n = ++calls[call];

	if (!fault_armed)
		return 0;
	if (here->call < CALLS && swept[here->call].with == call &&
	    swept[here->call].with_error != 0)
		return swept[here->call].with_error;
	if (here->call != call || n < here->nth ||
	    (n > here->nth && !here->permanent))
		return 0;
	injected++;
	return here->error;
}

/* As strike, for those that answer -1 and set errno. */
static bool
fails(enum call call)
{
	int error = strike(call);

	if (error == 0)
		return false;
	errno = error;
	return true;
}

struct balance
balance_now(void)
{
	return (struct balance){
	    held_bytes, held_blocks, held_fds, held_threads};
}

/* Memory. */

void *faulty_aligned_alloc(size_t alignment, size_t size);
void *faulty_calloc(size_t count, size_t size);
void faulty_free(void *block);
void *faulty_mmap(
    void *address, size_t length, int prot, int flags, int fd, off_t offset);
int faulty_munmap(void *address, size_t length);
int faulty_madvise(void *address, size_t length, int advice);

void *
faulty_aligned_alloc(size_t alignment, size_t size)
{
	if (fails(CALL_ALIGNED_ALLOC))
		return NULL;
	held_blocks++;
	return aligned_alloc(alignment, size);
}

void *
faulty_calloc(size_t count, size_t size)
{
	if (fails(CALL_CALLOC))
		return NULL;
	held_blocks++;
	return calloc(count, size);
}

void
faulty_free(void *block)
{
	(void)strike(CALL_FREE);
	if (block != NULL)
		held_blocks--;
	free(block);
}

void *
faulty_mmap(
    void *address, size_t length, int prot, int flags, int fd, off_t offset)
{
	if (fails(CALL_MMAP))
		return MAP_FAILED;
	held_bytes += (int64_t)length;
	return mmap(address, length, prot, flags, fd, offset);
}

/* What cannot be unmapped is nobody's fault. */
int
faulty_munmap(void *address, size_t length)
{
	held_bytes -= (int64_t)length;
	return fails(CALL_MUNMAP) ? -1 : munmap(address, length);
}

int
faulty_madvise(void *address, size_t length, int advice)
{
	return fails(CALL_MADVISE) ? -1 : madvise(address, length, advice);
}

/* The end. */

_Noreturn void faulty_abort(void);

/* A clock that cannot be read any more ends the process, with a message. */
_Noreturn void
faulty_abort(void)
{
	(void)strike(CALL_ABORT);
	if (fault_here()->call != CALL_CLOCK_GETTIME || injected == 0 ||
	    calls[CALL_DPRINTF] == 0)
		abort();
	section_abort();
}

/* Time, and sleeping. */

int faulty_clock_gettime(clockid_t clock, struct timespec *now);
int faulty_nanosleep(const struct timespec *time, struct timespec *left);
long faulty_syscall(long number, const void *word, int operation,
    uint32_t value, const struct timespec *until, void *other, uint32_t mask);

/* What is not to be used looks like a time at which all is due. */
int
faulty_clock_gettime(clockid_t clock, struct timespec *now)
{
	if (!fails(clock == CLOCK_MONOTONIC ? CALL_CLOCK_GETTIME
					    : CALL_CLOCK_REALTIME))
		return clock_gettime(clock, now);
	*now = (struct timespec){.tv_sec = (time_t)1 << 31};
	return -1;
}

int
faulty_nanosleep(const struct timespec *time, struct timespec *left)
{
	return fails(CALL_NANOSLEEP) ? -1 : nanosleep(time, left);
}

/* The library's only use of it. */
long
faulty_syscall(long number, const void *word, int operation, uint32_t value,
    const struct timespec *until, void *other, uint32_t mask)
{
	bool wake = operation == FUTEX_WAKE_PRIVATE;
	int error;

	CHECK(number == SYS_futex);
	CHECK(wake || operation == FUTEX_WAIT_BITSET_PRIVATE);
	error = strike(wake ? CALL_FUTEX_WAKE : CALL_FUTEX_WAIT);
	if (error == SPURIOUS)
		return 0;
	if (error != 0) {
		errno = error;
		return -1;
	}
	return syscall(number, word, operation, value, until, other, mask);
}

/* Descriptors. */

int faulty_open(const char *path, int flags);
ssize_t faulty_read(int fd, void *buffer, size_t size);
int faulty_close(int fd);
int faulty_eventfd(unsigned count, int flags);
int faulty_eventfd_read(int fd, eventfd_t *value);
int faulty_eventfd_write(int fd, eventfd_t value);
int faulty_dprintf(int fd, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

int
faulty_open(const char *path, int flags)
{
	int fd = fails(CALL_OPEN) ? -1 : open(path, flags);

	if (fd >= 0)
		held_fds++;
	return fd;
}

ssize_t
faulty_read(int fd, void *buffer, size_t size)
{
	int error = strike(CALL_READ);

	if (error == 0 || error == SHORT)
		return read(fd, buffer, error == 0 ? size : 1);
	errno = error;
	return -1;
}

/* Linux closes it, whatever it answers. */
int
faulty_close(int fd)
{
	int result = close(fd);

	held_fds--;
	return fails(CALL_CLOSE) ? -1 : result;
}

int
faulty_eventfd(unsigned count, int flags)
{
	int fd = fails(CALL_EVENTFD) ? -1 : eventfd(count, flags);

	if (fd >= 0)
		held_fds++;
	return fd;
}

int
faulty_eventfd_read(int fd, eventfd_t *value)
{
	return fails(CALL_EVENTFD_READ) ? -1 : eventfd_read(fd, value);
}

int
faulty_eventfd_write(int fd, eventfd_t value)
{
	return fails(CALL_EVENTFD_WRITE) ? -1 : eventfd_write(fd, value);
}

int faulty_fflush(FILE *file);
int faulty_vfprintf(FILE *file, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

int
faulty_fflush(FILE *file)
{
	return fails(CALL_FFLUSH) ? EOF : fflush(file);
}

int
faulty_vfprintf(FILE *file, const char *format, va_list arguments)
{
	return fails(CALL_VFPRINTF) ? -1 : vfprintf(file, format, arguments);
}

/* Warnings are provoked here by the dozen: nobody wants to read them. */
int
faulty_dprintf(int fd, const char *format, ...)
{
	CHECK(fd == STDERR_FILENO && strncmp(format, "hwt: ", 5) == 0);
	return fails(CALL_DPRINTF) ? -1 : 1;
}

/* Threads. */

int faulty_pthread_atfork(
    void (*prepare)(void), void (*parent)(void), void (*child)(void));
int faulty_pthread_attr_getdetachstate(const pthread_attr_t *attr, int *state);
int faulty_pthread_cond_init(
    pthread_cond_t *condition, const pthread_condattr_t *attr);
int faulty_pthread_cond_timedwait(pthread_cond_t *condition,
    pthread_mutex_t *lock, const struct timespec *until);
int faulty_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock);
int faulty_pthread_condattr_init(pthread_condattr_t *attr);
int faulty_pthread_condattr_setclock(pthread_condattr_t *attr, clockid_t clock);
int faulty_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
    void *(*start)(void *), void *argument);
int faulty_pthread_join(pthread_t thread, void **result);
int faulty_pthread_key_create(pthread_key_t *key, void (*destroy)(void *));
int faulty_pthread_setname_np(pthread_t thread, const char *name);
int faulty_pthread_setspecific(pthread_key_t key, const void *value);
int faulty_pthread_tryjoin_np(pthread_t thread, void **result);
long faulty_sysconf(int name);
ssize_t faulty_getrandom(void *buffer, size_t size, unsigned flags);

int
faulty_pthread_atfork(
    void (*prepare)(void), void (*parent)(void), void (*child)(void))
{
	int error = strike(CALL_PTHREAD_ATFORK);

	return error != 0 ? error : pthread_atfork(prepare, parent, child);
}

int
faulty_pthread_attr_getdetachstate(const pthread_attr_t *attr, int *state)
{
	int error = strike(CALL_PTHREAD_ATTR_GETDETACHSTATE);

	return error != 0 ? error : pthread_attr_getdetachstate(attr, state);
}

int
faulty_pthread_cond_init(
    pthread_cond_t *condition, const pthread_condattr_t *attr)
{
	int error = strike(CALL_PTHREAD_COND_INIT);

	return error != 0 ? error : pthread_cond_init(condition, attr);
}

/* Others may take the lock meanwhile. */
static int
returns_early(pthread_mutex_t *lock, int error)
{
	pthread_mutex_unlock(lock);
	pause_ns(10000);
	pthread_mutex_lock(lock);
	return error == SPURIOUS ? 0 : error;
}

int
faulty_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock,
    const struct timespec *until)
{
	uint64_t until_ns = HWT_SEC(until->tv_sec) + (uint64_t)until->tv_nsec;
	int error = strike(CALL_PTHREAD_COND_TIMEDWAIT);

	if (now_ns() >= until_ns)
		error = 0;
	return error != 0 ? returns_early(lock, error)
			  : pthread_cond_timedwait(condition, lock, until);
}

int
faulty_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock)
{
	int error = strike(CALL_PTHREAD_COND_WAIT);

	return error != 0 ? returns_early(lock, error)
			  : pthread_cond_wait(condition, lock);
}

int
faulty_pthread_condattr_init(pthread_condattr_t *attr)
{
	int error = strike(CALL_PTHREAD_CONDATTR_INIT);

	return error != 0 ? error : pthread_condattr_init(attr);
}

int
faulty_pthread_condattr_setclock(pthread_condattr_t *attr, clockid_t clock)
{
	int error = strike(CALL_PTHREAD_CONDATTR_SETCLOCK);

	return error != 0 ? error : pthread_condattr_setclock(attr, clock);
}

int
faulty_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
    void *(*start)(void *), void *argument)
{
	int error = strike(CALL_PTHREAD_CREATE);

	if (error == 0)
		error = pthread_create(thread, attr, start, argument);
	if (error == 0)
		held_threads++;
	return error;
}

int
faulty_pthread_join(pthread_t thread, void **result)
{
	int error = strike(CALL_PTHREAD_JOIN);

	if (error == 0)
		error = pthread_join(thread, result);
	if (error == 0)
		held_threads--;
	return error;
}

int
faulty_pthread_tryjoin_np(pthread_t thread, void **result)
{
	int error = strike(CALL_PTHREAD_TRYJOIN_NP);

	if (error == 0)
		error = pthread_tryjoin_np(thread, result);
	if (error == 0)
		held_threads--;
	return error;
}

int
faulty_pthread_key_create(pthread_key_t *key, void (*destroy)(void *))
{
	int error = strike(CALL_PTHREAD_KEY_CREATE);

	return error != 0 ? error : pthread_key_create(key, destroy);
}

int
faulty_pthread_setname_np(pthread_t thread, const char *name)
{
	int error = strike(CALL_PTHREAD_SETNAME_NP);

	return error != 0 ? error : pthread_setname_np(thread, name);
}

int
faulty_pthread_setspecific(pthread_key_t key, const void *value)
{
	int error = strike(CALL_PTHREAD_SETSPECIFIC);

	return error != 0 ? error : pthread_setspecific(key, value);
}

long
faulty_sysconf(int name)
{
	return fails(CALL_SYSCONF) ? -1 : sysconf(name);
}

ssize_t
faulty_getrandom(void *buffer, size_t size, unsigned flags)
{
	int error = strike(CALL_GETRANDOM);

	if (error == 0 || error == SHORT)
		return getrandom(buffer, error == 0 ? size : 3, flags);
	errno = error;
	return -1;
}
