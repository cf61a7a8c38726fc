/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boost.Asio's timers for C: see asio_calls.h.
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
#include <memory>
#include <new>
#include <thread>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/version.hpp>
#include <sys/syscall.h>
#include <unistd.h>

#include "perf/subject/asio_calls.h"

namespace asio = boost::asio;

/* A steady_timer that knows its executor's type: nothing is looked up when it
 * is used. */
using steady_timer = asio::basic_waitable_timer<std::chrono::steady_clock,
    asio::wait_traits<std::chrono::steady_clock>,
    asio::io_context::executor_type>;

/* A hint of 1: one thread runs it. Calls from others are safe all the same. */
struct asio_loop {
	asio::io_context context{1};
	asio::executor_work_guard<asio::io_context::executor_type> work{
	    context.get_executor()};
	std::atomic<pid_t> number{0};
	std::thread thread;
};

struct asio_timeout {
	explicit asio_timeout(asio::io_context &context) : timer(context)
	{
	}

	steady_timer timer;
	bool held;
};

namespace {

/* A wait that is dropped with its io_context takes its timeout along. */
class wait {
      public:
	wait(asio_timeout *timeout, void (*task)(void *arg), void *arg)
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
		asio_timeout *timeout = std::exchange(timeout_, nullptr);

		if (error)
			return;
		task_(arg_);
		if (!held_)
			delete timeout;
	}

      private:
	asio_timeout *timeout_;
	bool held_;
	void (*task_)(void *arg);
	void *arg_;
};

/* When there is no memory for it, the wait frees the timeout. */
void
start(asio_timeout *timeout, void (*task)(void *arg), void *arg)
{
	timeout->timer.async_wait(wait(timeout, task, arg));
}

} // namespace

const char *
asio_version(void)
{
	return BOOST_LIB_VERSION;
}

asio_loop *
asio_create(void)
{
	try {
		auto loop = std::make_unique<asio_loop>();
		asio_loop *running = loop.get();

		loop->thread = std::thread([running] {
			running->number = (pid_t)syscall(SYS_gettid);
			running->context.run();
		});
		return loop.release();
	} catch (...) {
		return nullptr;
	}
}

/* The stop comes after the waits that were cancelled before, by a task that is
 * still running, too: those that then remain are pending, and are dropped. */
void
asio_destroy(asio_loop *loop)
{
	asio::io_context &context = loop->context;

	asio::post(context, [&context] {
		asio::post(context, [&context] { context.stop(); });
	});
	loop->thread.join();
	delete loop;
}

pid_t
asio_thread(const asio_loop *loop)
{
	return loop->number;
}

bool
asio_schedule(asio_loop *loop, asio_timeout **handle, void (*task)(void *arg),
    void *arg, uint64_t delay_ns)
{
	try {
		auto timeout = std::make_unique<asio_timeout>(loop->context);

		timeout->held = handle;
		timeout->timer.expires_after(
		    std::chrono::nanoseconds(delay_ns));
		if (handle)
			*handle = timeout.get();
		start(timeout.release(), task, arg);
		return true;
	} catch (...) {
		return false;
	}
}

bool
asio_cancel(asio_timeout *timeout)
{
	bool pending = timeout->timer.cancel();

	delete timeout;
	return pending;
}

bool
asio_reschedule(asio_timeout *timeout, void (*task)(void *arg), void *arg,
    uint64_t delay_ns)
{
	if (!timeout->timer.expires_after(std::chrono::nanoseconds(delay_ns))) {
		delete timeout;
		return false;
	}
	try {
		start(timeout, task, arg);
		return true;
	} catch (...) {
		return false;
	}
}
