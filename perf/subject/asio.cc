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
 * holds a handle of it, or when the io_context drops the wait: a cancel can
 * free the timer while its wait is on its way.
 */
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/version.hpp>
#include <sys/syscall.h>
#include <unistd.h>

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
	std::atomic<pid_t> number{0};
	std::thread thread;
};

struct foreign_timeout {
	explicit foreign_timeout(asio::io_context &context) : timer(context)
	{
	}

	steady_timer timer;
	bool held;
};

namespace {

/* A wait that is dropped with its io_context takes its timeout along. */
class wait {
      public:
	wait(foreign_timeout *timeout, void (*task)(void *arg), void *arg)
	    : timeout_(timeout), held_(timeout->held), task_(task), arg_(arg)
	{
	}
	wait(wait &&other) noexcept
	    : timeout_(std::exchange(other.timeout_, nullptr)),
	      held_(other.held_), task_(other.task_), arg_(other.arg_)
	{
	}
	wait(const wait &) = delete;
	wait &operator=(const wait &) = delete;
	wait &operator=(wait &&) = delete;
	~wait()
	{
		delete timeout_;
	}

	/* On an error it was cancelled, or it waits anew. */
	void
	operator()(const boost::system::error_code &error)
	{
		foreign_timeout *timeout = std::exchange(timeout_, nullptr);

		if (error)
			return;
		task_(arg_);
		if (!held_)
			delete timeout;
	}

      private:
	foreign_timeout *timeout_;
	bool held_;
	void (*task_)(void *arg);
	void *arg_;
};

void
start(foreign_timeout *timeout, void (*task)(void *arg), void *arg)
{
	timeout->timer.async_wait(wait(timeout, task, arg));
}

} // namespace

const char *
subject_version(void)
{
	return "Boost.Asio of Boost " BOOST_LIB_VERSION;
}

subject *
subject_create(uint64_t /* tick_ns */, uint64_t /* capacity */)
{
	auto subject = new struct subject;

	subject->thread = std::thread([subject] {
		subject->number = (pid_t)syscall(SYS_gettid);
		subject->context.run();
	});
	return subject;
}

/* The stop comes after the waits that were cancelled before, by a task that is
 * still running, too: those that then remain are pending, and are dropped. */
void
subject_destroy(struct subject *subject)
{
	asio::io_context &context = subject->context;

	asio::post(context, [&context] {
		asio::post(context, [&context] { context.stop(); });
	});
	subject->thread.join();
	delete subject;
}

pid_t
foreign_thread(const struct subject *subject)
{
	return subject->number;
}

bool
subject_schedule(struct subject *subject, foreign_timeout **handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	auto timeout = new foreign_timeout(subject->context);

	timeout->held = handle;
	timeout->timer.expires_after(std::chrono::nanoseconds(delay_ns));
	if (handle)
		*handle = timeout;
	start(timeout, task, arg);
	return true;
}

bool
foreign_cancel(foreign_timeout *timeout)
{
	bool pending = timeout->timer.cancel();

	delete timeout;
	return pending;
}

bool
subject_reschedule(struct subject * /* subject */, foreign_timeout **handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	if ((*handle)->timer.expires_after(
		std::chrono::nanoseconds(delay_ns))) {
		start(*handle, task, arg);
		return true;
	}
	delete *handle;
	*handle = nullptr;
	return false;
}
