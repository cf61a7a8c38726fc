/* SPDX-License-Identifier: Apache-2.0 */
/* The system with a plan of failures: see plan.h. */
#define _GNU_SOURCE
#include "test/sim/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* <linux/futex.h> is not everywhere. FUTEX_PRIVATE_FLAG is in both. */
#define FUTEX_WAIT_BITSET_PRIVATE (9 | 128)
#define FUTEX_WAKE_PRIVATE (1 | 128)

#define KIND(call, ...) [PLAN_##call] = {__VA_ARGS__},
const struct plan_kind plan_kinds[PLAN_CALLS] = {PLAN_KINDS(KIND)};

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

static struct plan current;
static uint64_t planned_at; /* calls of the kind before the plan */
static bool environment_read;
static _Atomic bool armed;
static _Atomic uint64_t failures, ended_ns;
static _Atomic uint64_t counts[PLAN_CALLS];
static _Atomic int64_t held_bytes, held_blocks, held_fds, held_threads;
void (*plan_aborts)(void);

/* The plan. */

void
plan_begin(const struct plan *new)
{
	environment_read = true;
	current = *new;
	planned_at = counts[current.call];
	armed = current.nth != 0;
}

/* Before main there is one thread, and the library's constructor comes here. */
static void
read_environment(void)
{
	const char *words = getenv("HWT_PLAN");
	unsigned call, lasting;
	struct plan given;

	environment_read = true;
	if (words == NULL ||
	    sscanf(words, "%u %d %" SCNu64 " %u", &call, &given.error,
		&given.nth, &lasting) != 4)
		return;
	given.call = (enum plan_call)call;
	given.lasting = lasting != 0;
	plan_begin(&given);
}

const struct plan *
plan_now(void)
{
	return &current;
}

void
plan_end(void)
{
	struct timespec now;

	if (!armed)
		return;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	ended_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	armed = false;
}

uint64_t
plan_ended_ns(void)
{
	return ended_ns;
}

uint64_t
plan_failures(void)
{
	return failures;
}

uint64_t
plan_count(enum plan_call call)
{
	return counts[call];
}

int
plan_answer(void)
{
	unsigned i;

	for (i = 0; i < PLAN_ERRORS_MAX; i++) {
		if (plan_kinds[current.call].errors[i].error == current.error)
			return plan_kinds[current.call].errors[i].answer;
	}
	return 0;
}

struct plan_held
plan_held(void)
{
	return (struct plan_held){
	    held_bytes, held_blocks, held_fds, held_threads};
}

/* The error with which this call fails; 0: it does not. */
static int
error_of(enum plan_call call)
{
	uint64_t nth;

	if (!environment_read)
		read_environment();
	nth = ++counts[call];
	if (!armed)
		return 0;
	if (plan_kinds[current.call].with == call &&
	    plan_kinds[current.call].with_error != 0)
		return plan_kinds[current.call].with_error;
	if (current.call != call)
		return 0;
	nth -= planned_at;
	if (nth < current.nth || (nth > current.nth && !current.lasting))
		return 0;
	failures++;
	return current.error;
}

/* For those that set errno. */
static bool
fails(enum plan_call call)
{
	int error = error_of(call);

	if (error == 0)
		return false;
	errno = error;
	return true;
}

/* The library's calls, by what objcopy makes of their names. PLANNED ones do
 * what they always do, or fail; held notes what the library has then. */
#define PLANNED(call, type, function, parameters, failed, arguments, held) \
	type planned_##function parameters                                 \
	{                                                                  \
		type result;                                               \
                                                                           \
		if (fails(call))                                           \
			return failed;                                     \
		result = function arguments;                               \
		held;                                                      \
		return result;                                             \
	}
/* Of threads: it returns its error. */
#define PLANNED_THREAD(call, function, parameters, arguments, held) \
	int planned_##function parameters                           \
	{                                                           \
		int error = error_of(call);                         \
                                                                    \
		if (error == 0)                                     \
			error = function arguments;                 \
		if (error == 0)                                     \
			held;                                       \
		return error;                                       \
	}
#define NOTHING (void)0

PLANNED(PLAN_ALIGNED_ALLOC, void *, aligned_alloc,
    (size_t alignment, size_t size), NULL, (alignment, size), held_blocks++)
PLANNED(PLAN_CALLOC, void *, calloc, (size_t count, size_t size), NULL,
    (count, size), held_blocks++)
PLANNED(PLAN_MMAP, void *, mmap,
    (void *address, size_t length, int prot, int flags, int fd, off_t offset),
    MAP_FAILED, (address, length, prot, flags, fd, offset),
    held_bytes += (int64_t)length)
PLANNED(PLAN_MADVISE, int, madvise, (void *address, size_t length, int advice),
    -1, (address, length, advice), NOTHING)
PLANNED(PLAN_SYSCONF, long, sysconf, (int name), -1, (name), NOTHING)
PLANNED(PLAN_OPEN, int, open, (const char *path, int flags), -1, (path, flags),
    held_fds += result >= 0)
PLANNED(PLAN_EVENTFD, int, eventfd, (unsigned count, int flags), -1,
    (count, flags), held_fds += result >= 0)
PLANNED(PLAN_EVENTFD_READ, int, eventfd_read, (int fd, eventfd_t *value), -1,
    (fd, value), NOTHING)
PLANNED(PLAN_EVENTFD_WRITE, int, eventfd_write, (int fd, eventfd_t value), -1,
    (fd, value), NOTHING)
PLANNED(PLAN_FFLUSH, int, fflush, (FILE * file), EOF, (file), NOTHING)

PLANNED_THREAD(PLAN_PTHREAD_CREATE, pthread_create,
    (pthread_t * thread, const pthread_attr_t *attr, void *(*start)(void *),
	void *argument),
    (thread, attr, start, argument), held_threads++)
PLANNED_THREAD(PLAN_PTHREAD_JOIN, pthread_join,
    (pthread_t thread, void **result), (thread, result), held_threads--)
PLANNED_THREAD(PLAN_PTHREAD_TRYJOIN_NP, pthread_tryjoin_np,
    (pthread_t thread, void **result), (thread, result), held_threads--)
PLANNED_THREAD(PLAN_PTHREAD_ATFORK, pthread_atfork,
    (void (*prepare)(void), void (*parent)(void), void (*child)(void)),
    (prepare, parent, child), NOTHING)
PLANNED_THREAD(PLAN_PTHREAD_ATTR_GETDETACHSTATE, pthread_attr_getdetachstate,
    (const pthread_attr_t *attr, int *state), (attr, state), NOTHING)
PLANNED_THREAD(PLAN_PTHREAD_KEY_CREATE, pthread_key_create,
    (pthread_key_t * key, void (*destroy)(void *)), (key, destroy), NOTHING)
PLANNED_THREAD(PLAN_PTHREAD_SETSPECIFIC, pthread_setspecific,
    (pthread_key_t key, const void *value), (key, value), NOTHING)
PLANNED_THREAD(PLAN_PTHREAD_SETNAME_NP, pthread_setname_np,
    (pthread_t thread, const char *name), (thread, name), NOTHING)

/* The others. */

__attribute__((format(printf, 2, 0))) int
planned_vfprintf(FILE *file, const char *format, va_list arguments)
{
	return fails(PLAN_VFPRINTF) ? -1 : vfprintf(file, format, arguments);
}

/* Mappings that cannot be unmapped do not count. */
int
planned_munmap(void *address, size_t length)
{
	held_bytes -= (int64_t)length;
	return fails(PLAN_MUNMAP) ? -1 : munmap(address, length);
}

/* Linux closes it, whatever it returns. */
int
planned_close(int fd)
{
	int result = close(fd);

	held_fds--;
	return fails(PLAN_CLOSE) ? -1 : result;
}

/* This thread was refused a wait, and has not paused since. */
static _Thread_local bool is_refused;

int
planned_nanosleep(const struct timespec *time, struct timespec *left)
{
	is_refused = false;
	return fails(PLAN_NANOSLEEP) ? -1 : nanosleep(time, left);
}

void
planned_free(void *block)
{
	held_blocks -= block != NULL;
	free(block);
}

/* If the time were used all the same, everything would be due. */
int
planned_clock_gettime(clockid_t clock, struct timespec *now)
{
	if (!fails(clock == CLOCK_MONOTONIC ? PLAN_CLOCK_GETTIME
					    : PLAN_CLOCK_REALTIME))
		return clock_gettime(clock, now);
	*now = (struct timespec){.tv_sec = (time_t)1 << 31};
	return -1;
}

/* The library calls syscall for futex, and for the priority of its threads, as
 * one that has not the right to. A loop that repeats a refused wait without a
 * pause would be a busy one. */
long
planned_syscall(long number, const void *word, int operation, uint32_t value,
    const struct timespec *until, void *other, uint32_t mask)
{
	bool wake = operation == FUTEX_WAKE_PRIVATE;
	int error;

	if (number == SYS_sched_getattr || number == SYS_sched_setattr) {
		errno = ENOSYS;
		return -1;
	}
	if (number != SYS_futex ||
	    (!wake && (operation != FUTEX_WAIT_BITSET_PRIVATE || is_refused))) {
		fprintf(stderr, "no such call, or a busy loop\n");
		abort();
	}
	error = wake ? 0 : error_of(PLAN_FUTEX_WAIT);
	if (error == PLAN_SPURIOUS)
		return 0;
	is_refused = error == ENOSYS;
	if (error == 0)
		return syscall(
		    number, word, operation, value, until, other, mask);
	errno = error;
	return -1;
}

_Noreturn void
planned_abort(void)
{
	if (plan_aborts != NULL && current.call == PLAN_CLOCK_GETTIME &&
	    failures > 0 && counts[PLAN_WRITE] > 0)
		plan_aborts();
	abort();
}

ssize_t
planned_getrandom(void *buffer, size_t size, unsigned flags)
{
	int error = error_of(PLAN_GETRANDOM);

	if (error == 0 || error == PLAN_SHORT)
		return getrandom(buffer, error == 0 ? size : 3, flags);
	errno = error;
	return -1;
}

ssize_t
planned_read(int fd, void *buffer, size_t size)
{
	int error = error_of(PLAN_READ);

	if (error == 0 || error == PLAN_SHORT)
		return read(fd, buffer, error == 0 ? size : 1);
	errno = error;
	return -1;
}

/* Messages on stderr: failures provoke them by the dozen, and they are not
 * shown. */
int
planned_poll(struct pollfd *fds, nfds_t count, int wait_ms)
{
	(void)count;
	(void)wait_ms;
	fds->revents = POLLOUT;
	return fails(PLAN_POLL) ? -1 : 1;
}

ssize_t
planned_write(int fd, const void *buffer, size_t size)
{
	(void)fd;
	(void)buffer;
	return fails(PLAN_WRITE) ? -1 : (ssize_t)size;
}
