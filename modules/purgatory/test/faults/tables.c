/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the purgatory imports, the timer's functions among it; as
 * test/sim/plan.c has those of the library.
 */
#include "modules/checkout/test/faults/driver/faults.h"

/*
 * The calls that fail, and with what. No errors: only counted.
 *
 * hwt_cancel answers -ENOENT where the timer was stopped meanwhile. Its
 * -EINPROGRESS needs a task that runs at that moment: the explorer's programs
 * have it.
 */
const struct swept swept[CALLS] = {
    [CALL_ALIGNED_ALLOC] = {"aligned_alloc", "aligned_alloc", {ENOMEM}},
    [CALL_CALLOC] = {"calloc", "calloc", {ENOMEM}},
    [CALL_CLOCK_REALTIME] = {"clock_gettime", "clock_realtime", {EINVAL},
	CALL_GETRANDOM, EAGAIN},
    [CALL_CLOSE] = {"close", "close", {EINTR, EIO}},
    [CALL_EVENTFD] = {"eventfd", "eventfd", {EMFILE, ENFILE, ENOMEM, ENODEV}},
    [CALL_EVENTFD_READ] = {"eventfd_read", "eventfd_read", {EAGAIN, EINTR}},
    [CALL_EVENTFD_WRITE] = {"eventfd_write", "eventfd_write", {EINTR, EIO}},
    [CALL_FFLUSH] = {"fflush", "fflush", {ENOSPC}},
    [CALL_FREE] = {"free", "free", {0}},
    [CALL_GETRANDOM] = {"getrandom", "getrandom", {SHORT, EAGAIN, ENOSYS}},
    [CALL_HWT_CANCEL] = {"hwt_cancel", "hwt_cancel", {ENOENT}},
    [CALL_HWT_NEW_TIMEOUT] = {"hwt_new_timeout", "hwt_new_timeout",
	{ENOMEM, EAGAIN, ENOBUFS, ESHUTDOWN}},
    [CALL_MADVISE] = {"madvise", "madvise", {EINVAL, ENOMEM}},
    [CALL_MALLOC] = {"malloc", "malloc", {ENOMEM}},
    [CALL_MMAP] = {"mmap", "mmap", {ENOMEM, EAGAIN}},
    [CALL_MUNMAP] = {"munmap", "munmap", {EINVAL}},
    [CALL_NANOSLEEP] = {"nanosleep", "nanosleep", {EINTR}},
    [CALL_VFPRINTF] = {"vfprintf", "vfprintf", {EIO}},
};

/* The calls that cannot fail, and why. */
const struct sound {
	const char *import, *reason;
} sound[] = {
    {"_GLOBAL_OFFSET_TABLE_", "no function"},
    {"__errno_location", "an address"},
    {"__popcountdi2", "pure"},
    {"__tls_get_addr", "an address"},
    {"getauxval", "0 for what is not there: then time and address remain"},
    {"getpid", "no error in POSIX"},
    {"hwt_cancel_wait", "either way the timeout does not run any more"},
    {"hwt_reschedule", "takes no memory: the suite reschedule has its answers"},
    {"hwt_state", "in a forked child alone: the suite fork"},
    {"memcpy", "pure"},
    {"memset", "pure"},
    {"pthread_mutex_lock", "default type, not robust, never locked twice"},
    {"pthread_mutex_trylock", "in a forked child alone: the suite fork"},
    {"pthread_mutex_unlock", "as pthread_mutex_lock, by its holder"},
    {"qsort", "sorts in place if there is no memory"},
    {"strnlen", "pure"},
    {"syscall", "a futex: who waits looks again; a wake finds somebody or not"},
    {"sysconf", "the size of a page"},
};
