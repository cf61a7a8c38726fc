/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system as the library sees it, with a plan of failures.
 *
 * In an object of the library each import that can fail gets another name:
 * objcopy turns mmap into planned_mmap, which plan.c defines. The test itself
 * and the C library call what they always do. test/sim/imports makes the list
 * of names, and compares it with what the object imports: each import is either
 * planned for here or listed there with the reason why it cannot fail.
 *
 * A plan says that the nth call of one kind from now fails with an error, and
 * that it alone does or that all later ones do as well. PLAN_KINDS says with
 * which errors a kind of call fails and what a function of hwt.h may return for
 * each: 0, the library has to do without.
 *
 *   plan_begin(&(struct plan){PLAN_MMAP, ENOMEM, 1});
 *   rc = hwt_create(&timer, NULL);
 *   if (plan_failures() > before)
 *           check(-rc == plan_answer());
 *   plan_end();
 *
 * The library's resources (bytes mapped, blocks, descriptors, threads) is
 * counted, so that a test can tell that nothing is left.
 */
#ifndef HWT_TEST_SIM_PLAN_H
#define HWT_TEST_SIM_PLAN_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Which calls fail, with which errors, and what comes of it: see plan_kind.
 *
 * FUTEX_WAKE does not fail: the kernel refuses it only where it refuses
 * FUTEX_WAIT, and then nobody sleeps. pthread_join fails where two threads
 * join each other; one of them gives up. CLOCK_GETTIME is CLOCK_MONOTONIC's.
 */
/* clang-format off */
#define PLAN_KINDS(KIND) \
	KIND(ALIGNED_ALLOC, "aligned_alloc", {{ENOMEM, ENOMEM}}) \
	KIND(CALLOC, "calloc", {{ENOMEM, ENOMEM}}) \
	KIND(MMAP, "mmap", {{ENOMEM, ENOMEM}, {EAGAIN, ENOMEM}}) \
	KIND(MUNMAP, "munmap", {{ENOMEM, 0}}) \
	KIND(MADVISE, "madvise", {{EINVAL, 0}, {ENOMEM, 0}}) \
	KIND(SYSCONF, "sysconf", {{EINVAL, 0}}) \
	KIND(CLOCK_GETTIME, "clock_gettime", {{EINVAL, EAGAIN}}) \
	KIND(CLOCK_REALTIME, "clock_realtime", {{EINVAL, 0}}, \
	    PLAN_GETRANDOM, EAGAIN) \
	KIND(NANOSLEEP, "nanosleep", {{EINTR, 0}}, PLAN_FUTEX_WAIT, ENOSYS) \
	KIND(FUTEX_WAIT, "futex_wait", {{PLAN_SPURIOUS, 0}, {EINTR, 0}, \
	    {EAGAIN, 0}, {ETIMEDOUT, 0}, {ENOSYS, 0}}) \
	KIND(GETRANDOM, "getrandom", \
	    {{PLAN_SHORT, 0}, {EAGAIN, 0}, {ENOSYS, 0}}) \
	KIND(OPEN, "open", {{EMFILE, 0}, {EACCES, 0}}) \
	KIND(READ, "read", {{PLAN_SHORT, 0}, {EIO, 0}, {EINTR, 0}}) \
	KIND(CLOSE, "close", {{EINTR, 0}, {EIO, 0}}) \
	KIND(EVENTFD, "eventfd", {{EMFILE, EMFILE}, {ENFILE, ENFILE}, \
	    {ENOMEM, ENOMEM}, {ENODEV, ENOMEM}}) \
	KIND(EVENTFD_READ, "eventfd_read", {{EAGAIN, 0}, {EINTR, 0}}) \
	KIND(EVENTFD_WRITE, "eventfd_write", {{EINTR, 0}, {EIO, 0}}) \
	KIND(POLL, "poll", {{EINTR, 0}, {ENOSYS, 0}}) \
	KIND(WRITE, "write", {{EBADF, 0}, {EAGAIN, 0}}) \
	KIND(VFPRINTF, "vfprintf", {{EIO, EIO}}) \
	KIND(FFLUSH, "fflush", {{ENOSPC, ENOSPC}}) \
	KIND(PTHREAD_ATFORK, "pthread_atfork", {{ENOMEM, ENOMEM}}, \
	    PLAN_MADVISE, EINVAL) \
	KIND(PTHREAD_ATTR_GETDETACHSTATE, "pthread_attr_getdetachstate", \
	    {{EINVAL, EINVAL}}) \
	KIND(PTHREAD_CREATE, "pthread_create", \
	    {{EAGAIN, EAGAIN}, {ENOMEM, ENOMEM}, {EPERM, EAGAIN}}) \
	KIND(PTHREAD_JOIN, "pthread_join", {{EDEADLK, EDEADLK}}, \
	    .once_only = true) \
	KIND(PTHREAD_TRYJOIN_NP, "pthread_tryjoin_np", {{EBUSY, ETIMEDOUT}}) \
	KIND(PTHREAD_KEY_CREATE, "pthread_key_create", \
	    {{EAGAIN, 0}, {ENOMEM, 0}}) \
	KIND(PTHREAD_SETSPECIFIC, "pthread_setspecific", {{ENOMEM, 0}}) \
	KIND(PTHREAD_SETNAME_NP, "pthread_setname_np", {{EIO, 0}})
/* clang-format on */

#define PLAN_CALL(call, ...) PLAN_##call,
enum plan_call {
	PLAN_KINDS(PLAN_CALL) PLAN_CALLS
};

/* As an error: the call does nothing and returns success. */
#define PLAN_SPURIOUS 9999
/* As an error: it returns less than was asked for. */
#define PLAN_SHORT 9998

#define PLAN_ERRORS_MAX 5

struct plan_kind {
	const char *name;
	struct {
		int error, answer;
	} errors[PLAN_ERRORS_MAX];
	/* A call that is only made when another kind has failed: in a plan for
	 * this one, that one fails with with_error, always. */
	enum plan_call with;
	int with_error;
	/* It never fails for good: no lasting plan. */
	bool once_only;
};

extern const struct plan_kind plan_kinds[PLAN_CALLS];

struct plan {
	enum plan_call call;
	int error;
	uint64_t nth; /* from plan_begin on, the first is 1; 0: no failure */
	bool lasting; /* all later ones fail, too */
};

/* The environment's HWT_PLAN is in force from the first call on, which comes
 * before main: "CALL ERROR NTH LASTING", in numbers. */
void plan_begin(const struct plan *plan);
const struct plan *plan_now(void);
void plan_end(void);
/* When it ended, on CLOCK_MONOTONIC; 0: it has not. */
uint64_t plan_ended_ns(void);

/* Calls that have failed by plan, since the process began. */
uint64_t plan_failures(void);
/* Calls of a kind, since the process began. */
uint64_t plan_count(enum plan_call call);
/* The error of hwt.h for the planned failure, positive; 0: none. */
int plan_answer(void);

/* The library's resources. */
struct plan_held {
	int64_t bytes; /* mapped; without what could not be unmapped */
	int64_t blocks; /* of the heap */
	int64_t fds;
	int64_t threads; /* made and not joined */
};

struct plan_held plan_held(void);

/* Called instead of abort after a planned failure of CLOCK_MONOTONIC of which
 * the library has told; NULL: abort. */
extern void (*plan_aborts)(void);

#endif
