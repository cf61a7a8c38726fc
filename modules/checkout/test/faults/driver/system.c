/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system as the library sees it here: its object is linked with each
 * import that a table makes fail (tables.c) under another name, faulty_...,
 * which is below. Tests and the C library itself call what they always do.
 */
#include "modules/checkout/test/faults/driver/faults.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct fault fault = {.call = CALL_NONE};
static bool fault_read;
static _Atomic bool fault_armed;
static _Atomic uint64_t injected, off_ns;
static _Atomic uint64_t calls[CALLS];
static _Atomic int64_t held_bytes, held_blocks, held_fds, held_threads;
void (*fault_freed)(void);

uint64_t
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return HWT_SEC(now.tv_sec) + (uint64_t)now.tv_nsec;
}

void
pause_ns(uint64_t ns)
{
	struct timespec pause = {
	    (time_t)(ns / HWT_SEC(1)), (long)(ns % HWT_SEC(1))};

	nanosleep(&pause, NULL);
}

void
fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, "\n");
	_exit(1);
}

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
void *faulty_malloc(size_t size);
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

void *
faulty_malloc(size_t size)
{
	if (fails(CALL_MALLOC))
		return NULL;
	held_blocks++;
	return malloc(size);
}

void
faulty_free(void *block)
{
	(void)strike(CALL_FREE);
	if (block == NULL)
		return;
	held_blocks--;
	free(block);
	if (fault_freed != NULL)
		fault_freed();
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
	    calls[CALL_WRITE] == 0)
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

/* This thread was refused a wait, and has not paused since. */
static _Thread_local bool is_refused;

int
faulty_nanosleep(const struct timespec *time, struct timespec *left)
{
	is_refused = false;
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
	/* A loop round it would be a busy one. */
	CHECK(wake || !is_refused);
	is_refused = error == ENOSYS;
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
int faulty_poll(struct pollfd *fds, nfds_t count, int wait_ms);
ssize_t faulty_write(int fd, const void *buffer, size_t size);

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
faulty_poll(struct pollfd *fds, nfds_t count, int wait_ms)
{
	CHECK(fds->fd == STDERR_FILENO && count == 1 && wait_ms == 0);
	fds->revents = POLLOUT;
	return fails(CALL_POLL) ? -1 : 1;
}

ssize_t
faulty_write(int fd, const void *buffer, size_t size)
{
	CHECK(fd == STDERR_FILENO && memcmp(buffer, "hwt: ", 5) == 0);
	return fails(CALL_WRITE) ? -1 : (ssize_t)size;
}

/* Threads. */

int faulty_pthread_atfork(
    void (*prepare)(void), void (*parent)(void), void (*child)(void));
int faulty_pthread_attr_getdetachstate(const pthread_attr_t *attr, int *state);
int faulty_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock);
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

/* Its one failure: it returns though nobody signalled. */
int
faulty_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock)
{
	if (strike(CALL_PTHREAD_COND_WAIT) == 0)
		return pthread_cond_wait(condition, lock);
	pthread_mutex_unlock(lock);
	pause_ns(10000); /* others may take the lock */
	pthread_mutex_lock(lock);
	return 0;
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

/* The timer, which a module calls as it does the system. */

int faulty_hwt_new_timeout(struct hwt *timer, hwt_timeout *timeout,
    hwt_task *task, void *arg, uint64_t delay_ns);
int faulty_hwt_cancel(struct hwt *timer, hwt_timeout timeout);

int
faulty_hwt_new_timeout(struct hwt *timer, hwt_timeout *timeout, hwt_task *task,
    void *arg, uint64_t delay_ns)
{
	int error = strike(CALL_HWT_NEW_TIMEOUT);

	if (error == 0)
		return hwt_new_timeout(timer, timeout, task, arg, delay_ns);
	*timeout = (hwt_timeout){0};
	return -error;
}

/* The timer was stopped meanwhile: the timeout is gone, and does not run. */
int
faulty_hwt_cancel(struct hwt *timer, hwt_timeout timeout)
{
	int error = strike(CALL_HWT_CANCEL);
	int result = hwt_cancel(timer, timeout);

	return error != 0 && result == 0 ? -error : result;
}
