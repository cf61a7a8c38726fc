/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the library imports. Both tables together are all of it;
 * test/faults/imports compares them with what nm says, so that no import comes
 * without a decision.
 */
#include "test/faults/faults.h"

/*
 * The calls that fail, and with what. No errors: only counted.
 *
 * futex_wake does not fail: the kernel refuses it only where it refuses
 * futex_wait too, and then nobody sleeps.
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
    [CALL_EVENTFD] = {"eventfd", "eventfd", {EMFILE, ENFILE, ENOMEM, ENODEV}},
    [CALL_EVENTFD_READ] = {"eventfd_read", "eventfd_read", {EAGAIN, EINTR}},
    [CALL_EVENTFD_WRITE] = {"eventfd_write", "eventfd_write", {EINTR, EIO}},
    [CALL_FFLUSH] = {"fflush", "fflush", {ENOSPC}},
    [CALL_FREE] = {"free", "free", {0}},
    [CALL_FUTEX_WAIT] = {"syscall", "futex_wait",
	{SPURIOUS, EINTR, EAGAIN, ETIMEDOUT, ENOSYS}},
    [CALL_FUTEX_WAKE] = {"syscall", "futex_wake", {0}},
    [CALL_GETRANDOM] = {"getrandom", "getrandom", {SHORT, EAGAIN, ENOSYS}},
    [CALL_MADVISE] = {"madvise", "madvise", {EINVAL, ENOMEM}},
    [CALL_MMAP] = {"mmap", "mmap", {ENOMEM, EAGAIN}},
    [CALL_MUNMAP] = {"munmap", "munmap", {ENOMEM}},
    [CALL_NANOSLEEP] = {"nanosleep", "nanosleep", {EINTR}, CALL_FUTEX_WAIT,
	ENOSYS},
    [CALL_OPEN] = {"open", "open", {EMFILE, EACCES}},
    [CALL_POLL] = {"poll", "poll", {EINTR, ENOSYS}},
    [CALL_PTHREAD_ATFORK] = {"pthread_atfork", "pthread_atfork", {ENOMEM},
	CALL_MADVISE, EINVAL},
    [CALL_PTHREAD_ATTR_GETDETACHSTATE] = {"pthread_attr_getdetachstate",
	"pthread_attr_getdetachstate", {EINVAL}},
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
    [CALL_WRITE] = {"write", "write", {EBADF, EAGAIN}},
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
    {"getauxval", "0 for what is not there: then time and address remain"},
    {"memmove", "pure"},
    {"memset", "pure"},
    {"pthread_key_delete", "EINVAL for a key that is none, alone"},
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
    {"strnlen", "pure"},
    {"strtoul", "0 for what is no number: then no line has the address"},
    {"vsnprintf", "as snprintf"},
};
