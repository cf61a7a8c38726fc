/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run has covered: how often each call gave each answer, and how often
 * what is worth seeing happened. A long run in which something that must occur
 * did not occur fails.
 */
#ifndef HWT_TEST_MODEL_COVER_H
#define HWT_TEST_MODEL_COVER_H

#include <stdbool.h>
#include <stdint.h>

/* Calls, the answers that must occur, and those that a failure of the system
 * may cause. */
#define CALLS(X)                                                             \
	X(hwt_create, "0 EINVAL", "EAGAIN ENOMEM EINVAL")                    \
	X(hwt_start, "", "EAGAIN ENOMEM")                                    \
	X(hwt_stop, "0 EDEADLK EPERM", "EDEADLK")                            \
	X(hwt_stop_within, "0 EDEADLK EPERM", "EDEADLK ETIMEDOUT")           \
	X(hwt_destroy, "0 EBUSY EPERM", "")                                  \
	X(hwt_new_timeout, "0 EINVAL ENOBUFS ESHUTDOWN", "EAGAIN ENOMEM")    \
	X(hwt_new_timeout_on, "0 EINVAL ENOBUFS ESHUTDOWN", "EAGAIN ENOMEM") \
	X(hwt_new_timeout_at, "0 ENOBUFS ESHUTDOWN", "EAGAIN ENOMEM")        \
	X(hwt_new_periodic, "0 EINVAL ENOBUFS ESHUTDOWN", "EAGAIN ENOMEM")   \
	X(hwt_cancel, "0 EINPROGRESS ENOENT", "")                            \
	X(hwt_cancel_wait, "0 EDEADLK ENOENT", "")                           \
	X(hwt_reschedule, "0 EINPROGRESS ENOENT EINVAL", "")                 \
	X(hwt_reschedule_at, "0 EINPROGRESS ENOENT", "")                     \
	X(hwt_touch, "0 EINPROGRESS EINVAL ENOBUFS ESHUTDOWN ECANCELED",     \
	    "EAGAIN ENOMEM")                                                 \
	X(hwt_remaining, "0 EINPROGRESS ENOENT", "")                         \
	X(hwt_state, "PENDING HANDED_OVER RUNNING ENOENT", "")               \
	X(hwt_now, "0", "")                                                  \
	X(hwt_read_stats, "0", "")                                           \
	X(hwt_run, "0 ENOENT", "")                                           \
	X(hwt_advance, "0 EDEADLK ESHUTDOWN EINVAL", "")                     \
	X(hwt_next_wakeup, "0", "")                                          \
	X(hwt_shared, "0", "EAGAIN ENOMEM")                                  \
	X(hwt_mailbox_create, "0", "EMFILE ENFILE ENOMEM")                   \
	X(hwt_mailbox_run, "0", "")                                          \
	X(hwt_mailbox_post, "0", "")                                         \
	X(hwt_pool_post, "", "")                                             \
	X(hwt_mailbox_destroy, "0 EBUSY", "")                                \
	X(hwt_pool_create, "", "EAGAIN ENOMEM")                              \
	X(hwt_pool_destroy, "", "")                                          \
	X(hwt_shared_shutdown, "", "EDEADLK")                                \
	X(hwt_stats_write, "", "EIO ENOSPC")                                 \
	X(hwt_dump, "", "EIO ENOMEM ENOSPC")

enum call {
#define X(name, required, failing) CALL_##name,
	CALLS(X)
#undef X
	CALL_COUNT
};

void cover_call(enum call call, int rc);
/* Whether hwt.h lists rc as what a failure of the system may cause. */
bool cover_may_fail(enum call call, int rc);
uint64_t cover_calls(void);
const char *cover_rc_name(int rc);

/* Something to be seen: a place in the code that must be reached. The linker
 * puts all of them into one section. */
struct cover_event {
	const char *text;
	uint64_t count;
};

#define COVER(text)                                                           \
	do {                                                                  \
		static struct cover_event event __attribute__((               \
		    section("cover_events"), used, aligned(16))) = {text, 0}; \
		event.count++;                                                \
	} while (0)

/* Prints the tables; true when everything has occurred that must. */
bool cover_report(bool quiet);

#endif
