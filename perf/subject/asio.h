/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boost.Asio, steady_timer in an io_context that a thread runs: expires_after
 * and async_wait, the destructor to cancel, expires_after and async_wait once
 * more to reschedule. The C++ is in asio.cc.
 *
 * Who would call it unfair: who has the timer in a session, which saves new and
 * delete, some 5 ns of a pair; what it takes is the heap, its mutex, and the
 * cancelled handler, which runs in the io_context's thread.
 */
#define SUBJECT_NAME "asio"
#define SUBJECT_TELLS 1

#include "perf/foreign.h"
#include "perf/peer.h"

static inline void
subject_cancel(struct subject *subject, subject_handle timeout)
{
	(void)subject;
	if (!foreign_cancel(timeout))
		subject_refused++;
}

static inline uint64_t
subject_wakeups(struct subject *subject)
{
	peer_thread thread = foreign_thread(subject);

	return peer_thread_switches(&thread);
}
