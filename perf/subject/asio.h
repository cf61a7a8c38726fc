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
#define SUBJECT_TELLS 1

#include "perf/foreign.h"
