/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the checkout imports, the timer's functions among it; as
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
    [CALL_MALLOC] = {"malloc", "malloc", {ENOMEM}},
    [CALL_PTHREAD_COND_WAIT] = {"pthread_cond_wait", "pthread_cond_wait",
	{SPURIOUS}},
    [CALL_VFPRINTF] = {"vfprintf", "vfprintf", {EIO}},
};

/* The calls that cannot fail, and why. */
const struct sound {
	const char *import, *reason;
} sound[] = {
    {"_GLOBAL_OFFSET_TABLE_", "no function"},
    {"__errno_location", "an address"},
    {"__tls_get_addr", "an address"},
    {"clock_gettime", "a clock that the kernel has"},
    {"dladdr", "0 if it knows nothing: then the address is the name"},
    {"getauxval", "0 where it has nothing, which is looked at"},
    {"getpid", "no error in POSIX"},
    {"hwt_cancel_wait", "whatever it answers, the task does not run any more"},
    {"hwt_now", "of a timer that is there: no error but in a forked child"},
    {"hwt_reschedule", "of a timeout that is pending, or its task runs"},
    {"hwt_state", "in a forked child alone: the suite answers"},
    {"memcmp", "pure"},
    {"memcpy", "pure"},
    {"memmove", "pure"},
    {"memset", "pure"},
    {"pthread_cond_destroy", "nobody waits; its answer is of no use"},
    {"pthread_cond_signal", "no error in POSIX for a valid condition"},
    {"pthread_mutex_destroy", "nobody holds it; its answer is of no use"},
    {"pthread_mutex_lock", "default type, not robust, never locked twice"},
    {"pthread_mutex_trylock", "in a forked child: it leaves what is locked"},
    {"pthread_mutex_unlock", "as pthread_mutex_lock, by its holder"},
    {"snprintf", "whole numbers and strings, cut off at the size"},
    {"strnlen", "pure"},
    {"nanosleep", "its answer is of no use: who calls it looks again"},
    {"sched_yield", "its answer is of no use: who calls it looks again"},
};
