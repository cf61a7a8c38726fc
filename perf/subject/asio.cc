/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boost.Asio's timers for C: see asio.h.
 *
 * new per timeout, with the steady_timer inside; Asio allocates the wait
 * itself. Distinct timers of one io_context may be used by distinct threads at
 * the same time, and one timer by one thread after another, which is all that
 * is asked for here. So nothing is posted, and there is no lock but Asio's own.
 *
 * The wait carries all that is to run, and only looks at the timer when nobody
 * holds a handle of it: a cancel can free the timer while its wait is on its
 * way. What is pending at the end is not freed.
 */
#include <chrono>
#include <cstdlib>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/version.hpp>

#include "perf/foreign.h"

namespace asio = boost::asio;

/* A steady_timer that knows its executor's type: nothing is looked up when it
 * is used. */
using steady_timer = asio::basic_waitable_timer<std::chrono::steady_clock,
    asio::wait_traits<std::chrono::steady_clock>,
    asio::io_context::executor_type>;

/* A hint of 1: one thread runs it. Calls from others are safe all the same. */
struct subject {
	asio::io_context context{1};
	asio::executor_work_guard<asio::io_context::executor_type> work{
	    context.get_executor()};
	std::thread thread;
};

struct foreign_timeout {
	steady_timer timer;
	bool held;
	void (*task)(void *arg);
	void *arg;
};

static void
start(foreign_timeout *timeout)
{
	timeout->timer.async_wait(
	    [timeout, held = timeout->held, task = timeout->task,
		arg = timeout->arg](const boost::system::error_code &error) {
		    /* It was cancelled, or it waits anew. */
		    if (error)
			    return;
		    task(arg);
		    if (!held)
			    delete timeout;
	    });
}

const char *
subject_version(void)
{
	return "Boost.Asio of Boost " BOOST_LIB_VERSION;
}

subject *
subject_create(uint64_t /* tick_ns */, uint64_t /* capacity */)
{
	auto subject = new struct subject;

	subject->thread = std::thread([subject] { subject->context.run(); });
	return subject;
}

void
subject_destroy(struct subject *subject)
{
	subject->context.stop();
	subject->thread.join();
	delete subject;
}

void
subject_schedule(struct subject *subject, foreign_timeout **handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	auto timeout = new foreign_timeout{
	    steady_timer(subject->context), handle != nullptr, task, arg};

	timeout->timer.expires_after(std::chrono::nanoseconds(delay_ns));
	if (handle)
		*handle = timeout;
	start(timeout);
}

bool
foreign_cancel(foreign_timeout *timeout)
{
	bool pending = timeout->timer.cancel();

	delete timeout;
	return pending;
}

void
subject_reschedule(struct subject * /* subject */, foreign_timeout **handle,
    uint64_t delay_ns)
{
	if (!(*handle)->timer.expires_after(
		std::chrono::nanoseconds(delay_ns)))
		std::abort();
	start(*handle);
}
