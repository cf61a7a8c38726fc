/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each call of the system that fails must leave: see faults.c.
 *
 *   faults.c     runs each section with each fault in a process of its own
 *   system.c     what is made to fail, and what is held
 *   module.c     a timer, and calls of a module's header that are judged
 *
 * A module has beside these its own:
 *
 *   tables.c     what the module imports, and with what it fails
 *   sections.c   programs that together cover the interface
 */
#ifndef HWT_TEST_FAULTS_H
#define HWT_TEST_FAULTS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hwt.h"

/* What is made to fail, by whatever table. */
enum call {
	CALL_ABORT,
	CALL_ALIGNED_ALLOC,
	CALL_CALLOC,
	CALL_CLOCK_GETTIME,
	CALL_CLOCK_REALTIME,
	CALL_CLOSE,
	CALL_EVENTFD,
	CALL_EVENTFD_READ,
	CALL_EVENTFD_WRITE,
	CALL_FFLUSH,
	CALL_FREE,
	CALL_FUTEX_WAIT,
	CALL_FUTEX_WAKE,
	CALL_GETRANDOM,
	CALL_HWT_CANCEL,
	CALL_HWT_NEW_TIMEOUT,
	CALL_MADVISE,
	CALL_MALLOC,
	CALL_MMAP,
	CALL_MUNMAP,
	CALL_NANOSLEEP,
	CALL_OPEN,
	CALL_POLL,
	CALL_PTHREAD_ATFORK,
	CALL_PTHREAD_ATTR_GETDETACHSTATE,
	CALL_PTHREAD_COND_WAIT,
	CALL_PTHREAD_CREATE,
	CALL_PTHREAD_JOIN,
	CALL_PTHREAD_KEY_CREATE,
	CALL_PTHREAD_SETNAME_NP,
	CALL_PTHREAD_SETSPECIFIC,
	CALL_PTHREAD_TRYJOIN_NP,
	CALL_READ,
	CALL_SYSCONF,
	CALL_VFPRINTF,
	CALL_WRITE,
	CALLS,
	CALL_NONE = CALLS
};

#define ERRORS_MAX 6
/* As an error: the call does nothing and says that it has. */
#define SPURIOUS 9999
/* As an error: it answers less than was asked for. */
#define SHORT 9998

/* A call that is made to fail: the name by which it is imported (NULL: this
 * table has no such call), the name by which we tell it apart, and with what it
 * fails. */
struct swept {
	const char *import;
	const char *name;
	int errors[ERRORS_MAX];
	/* Only reached when that one fails, so that it does, always. */
	enum call with;
	int with_error;
	/* It cannot fail for good: see the table. */
	bool passing;
};

extern const struct swept swept[CALLS];

/* What fails in this process. */
struct fault {
	enum call call;
	int error;
	uint64_t nth;
	bool permanent; /* all calls from the nth on */
};

/* As the environment says, which also reaches what runs before main. */
const struct fault *fault_here(void);
void fault_off(void);
/* When that was; 0: not yet. */
uint64_t fault_off_ns(void);
bool fault_is_on(void);
/* How often it has struck; how many calls there were of a kind. */
uint64_t fault_injected(void);
uint64_t fault_calls(enum call call);
/* Called when a block has been freed; NULL: nothing is. */
extern void (*fault_freed)(void);
const char *error_name(int error, char *buffer);

/* What the library holds. */
struct balance {
	int64_t bytes; /* mapped; without what could not be unmapped */
	int64_t blocks; /* of the heap */
	int64_t fds;
	int64_t threads; /* made and not joined */
};

struct balance balance_now(void);

/* The clock as it is. */
uint64_t now_ns(void);
void pause_ns(uint64_t ns);

/* Ends the process as a failure. */
void fail(const char *format, ...)
    __attribute__((noreturn, format(printf, 1, 2)));
#define CHECK(condition)       \
	((condition) ? (void)0 \
		     : fail("%s:%d: %s", __FILE__, __LINE__, #condition))

struct section {
	const char *name;
	void (*run)(void);
};

extern const struct section sections[];

/* What a section leaves is as it should be: each timeout has ended once. */
void section_settle(void);
/* Ends this process as one that passed; as one that aborted as it should. */
_Noreturn void section_end(void);
_Noreturn void section_abort(void);

#endif
