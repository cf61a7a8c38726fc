/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt for C++17 and later: header only, and optional. hwt.h has the promises;
 * what is not here takes timer.get() or timeout.handle().
 *
 *   hwt::timer timer;
 *   hwt::timeout idle = timer.schedule(30s, [&] { connection.close(); }, box);
 *   ...
 *   if (!idle.touch(30s))
 *           return; (close() is running, or has run)
 *
 * where box is the hwt::mailbox of the event loop that owns the connection.
 *
 * A timeout owns what was scheduled, the callable too. Its destructor calls
 * hwt_cancel_wait: do not destroy it while holding a lock that the callable
 * takes. In the callable itself it does not wait: the callable runs to its end,
 * for the last time. A callable is destroyed when it has run (unless it is
 * periodic), or by its timeout, but not by stop. A timer must outlive its
 * timeouts, and pools and mailboxes the timers that they serve. A forked child
 * leaves callables of its parent's timeouts alone.
 *
 * One thread at a time may use a timeout, where the callable counts as a
 * thread. A callable may begin before schedule has returned: one that needs its
 * handle takes an argument of type hwt_timeout.
 *
 * Errors are thrown as std::system_error, with errno values; without exceptions
 * they end in std::terminate. So does an exception that leaves a callable.
 */
#ifndef HWT_HPP
#define HWT_HPP

#if __cplusplus < 201703L
#error "hwt.hpp needs C++17"
#endif

#include "hwt.h"

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <ratio>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

namespace hwt_cxx {

namespace detail {

[[noreturn]] inline void
fatal(const char *what)
{
	std::fprintf(stderr, "hwt: %s\n", what);
	std::terminate();
}

/* Until it does not answer -EBUSY any more. */
template <class Destroy>
int
destroy_when_idle(Destroy &&destroy, const char *waiting) noexcept
{
	int result = destroy();

	for (int waits = 1; result == -EBUSY; waits++) {
		if (waits == 1000)
			std::fprintf(
			    stderr, "hwt: the destructor of a %s\n", waiting);
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
		result = destroy();
	}
	return result;
}

} /* namespace detail */

inline std::error_code
make_error(int result) noexcept
{
	return result < 0 ? std::error_code(-result, std::generic_category())
			  : std::error_code();
}

inline void
check(const std::error_code &error, const char *what)
{
	if (!error)
		return;
#ifdef __cpp_exceptions
	throw std::system_error(
	    error, std::string(what) + ": " + hwt_strerror(error.value()));
#else
	detail::fatal(what);
#endif
}

/* A duration as hwt.h takes it: of std::chrono, with fractions of a nanosecond
 * rounded up, or hwt::never. One that is negative, no number, or of 2^63 ns and
 * more is refused by functions of hwt.h. */
class delay {
public:
	constexpr delay() noexcept = default;

	template <class Rep, class Period>
	constexpr delay(std::chrono::duration<Rep, Period> duration) noexcept
	    : ns_(convert<std::ratio_divide<Period, std::nano>>(
		  duration.count()))
	{
	}

	static constexpr delay
	from_ns(std::uint64_t ns) noexcept
	{
		delay made;

		made.ns_ = ns;
		return made;
	}

	constexpr std::uint64_t
	ns() const noexcept
	{
		return ns_;
	}

	friend constexpr bool
	operator==(delay a, delay b) noexcept
	{
		return a.ns_ == b.ns_;
	}

private:
	/* A long double has 64 bits of mantissa at least where hwt runs. */
	template <class Scale, class Rep>
	static constexpr std::uint64_t
	convert(Rep count) noexcept
	{
		const long double ns =
		    static_cast<long double>(count) * Scale::num / Scale::den;
		std::uint64_t whole = 0;

		if (!(ns >= 0 && ns < 9223372036854775808.0L))
			return HWT_NEVER - 1;
		whole = static_cast<std::uint64_t>(ns);
		return whole + (static_cast<long double>(whole) < ns ? 1 : 0);
	}

	std::uint64_t ns_ = 0;
};

inline constexpr delay never = delay::from_ns(HWT_NEVER);

namespace detail {

/* Pointed to by a timeout's arg. */
struct node {
	std::function<void(hwt_timeout)> callable;
	bool periodic;
	const hwt_executor *executor;
	/* Nobody owns it: who runs it deletes it. */
	bool abandoned = false;
};

/* std::function wants copies, and callables may be of those that only move. */
template <class F>
std::function<void(hwt_timeout)>
keep(F &&callable)
{
	using kept = std::decay_t<F>;

	return [own = std::make_shared<kept>(std::forward<F>(callable))](
		   hwt_timeout timeout) {
		if constexpr (std::is_invocable_v<kept &, hwt_timeout>)
			static_cast<void>((*own)(timeout));
		else
			static_cast<void>((*own)());
	};
}

inline void
run(hwt_timeout timeout, void *arg) noexcept
{
	node *own = static_cast<node *>(arg);

	own->callable(timeout);
	/* This may destroy the owner of the timeout. */
	if (!own->periodic)
		own->callable = nullptr;
	if (own->abandoned)
		delete own;
}

template <class F>
inline constexpr bool is_nothrow_kept =
    std::is_nothrow_constructible_v<std::decay_t<F>, F>;

template <auto Destroy> struct destroyer {
	template <class T>
	void
	operator()(T *object) const noexcept
	{
		Destroy(object);
	}
};

inline void
destroy_pool(hwt_pool *pool) noexcept
{
	if (hwt_pool_destroy(pool) == -EDEADLK)
		fatal("a pool was destroyed in its own task");
}

/* Runs what it holds. */
inline void
destroy_mailbox(hwt_mailbox *mailbox) noexcept
{
	bool idle = false;

	while (hwt_mailbox_destroy(mailbox) == -EBUSY) {
		std::size_t started = 0;

		if (idle)
			fatal("a mailbox was destroyed in its own task");
		static_cast<void>(hwt_mailbox_run(mailbox, 0, &started));
		idle = started == 0;
	}
}

inline void
destroy_timer(::hwt *timer) noexcept
{
	if (hwt_stop(timer, nullptr) == -EDEADLK)
		fatal("a timer was destroyed in its own task");
	static_cast<void>(destroy_when_idle([=] { return hwt_destroy(timer); },
	    "timer waits for an executor that holds timeouts"));
}

} /* namespace detail */

/* Empty by default. */
class timeout {
public:
	timeout() noexcept = default;

	timeout(timeout &&other) noexcept
	{
		swap(other);
	}

	timeout &
	operator=(timeout &&other) noexcept
	{
		timeout taken(std::move(other));

		swap(taken);
		return *this;
	}

	~timeout()
	{
		if (node_ == nullptr)
			return;
		switch (hwt_cancel_wait(timer_, handle_)) {
		case -EDEADLK:
			/* A periodic one would continue otherwise. */
			static_cast<void>(hwt_cancel(timer_, handle_));
			node_->abandoned = true;
			break;
		case -EOWNERDEAD:
			break;
		default:
			delete node_;
		}
	}

	/* hwt_cancel. True: the callable is destroyed and will not run. False:
	 * it is running, for the last time, or has ended. */
	bool
	cancel() noexcept
	{
		if (node_ == nullptr || hwt_cancel(timer_, handle_) != 0)
			return false;
		handle_ = {};
		/* The callable may own what *this is a part of. */
		delete std::exchange(node_, nullptr);
		return true;
	}

	/* hwt_reschedule. False: handed over, running, or ended. */
	bool
	reschedule(delay after)
	{
		int result = node_ == nullptr
		    ? -ENOENT
		    : hwt_reschedule(timer_, handle_, after.ns());

		check(make_error(result == -EINVAL ? result : 0), "reschedule");
		return result == 0;
	}

	/*
	 * In place of hwt_touch: reschedule, but what an executor holds and has
	 * not begun is cancelled and scheduled again: the same callable, on the
	 * same executor, with another handle(). False: too late, as for
	 * reschedule; a periodic timeout is only rescheduled. With an error of
	 * hwt_new_timeout_on it has ended.
	 */
	bool
	touch(delay after)
	{
		int result = 0;

		if (reschedule(after))
			return true;
		if (node_ == nullptr || node_->periodic ||
		    hwt_cancel(timer_, handle_) != 0)
			return false;
		result = hwt_new_timeout_on(timer_, node_->executor, &handle_,
		    detail::run, node_, after.ns());
		/* It may have run, and *this may be gone. */
		if (result == 0)
			return true;
		delete std::exchange(node_, nullptr);
		check(make_error(result), "touch");
		return false;
	}

	/* Owns nothing. One whose callable has run is not empty. */
	[[nodiscard]] bool
	empty() const noexcept
	{
		return node_ == nullptr;
	}

	hwt_timeout
	handle() const noexcept
	{
		return handle_;
	}

private:
	friend class timer;

	void
	swap(timeout &other) noexcept
	{
		std::swap(timer_, other.timer_);
		std::swap(handle_, other.handle_);
		std::swap(node_, other.node_);
	}

	::hwt *timer_ = nullptr;
	hwt_timeout handle_{};
	detail::node *node_ = nullptr;
};

/* Threads that run what is due. Its destructor runs what it holds. */
class pool {
public:
	explicit pool(unsigned threads, std::size_t queue_limit = 0)
	{
		hwt_pool *made = nullptr;

		check(make_error(hwt_pool_create(&made, threads, queue_limit)),
		    "pool");
		pool_.reset(made);
	}

	operator const hwt_executor *() const noexcept
	{
		return hwt_pool_executor(pool_.get());
	}

private:
	std::unique_ptr<hwt_pool, detail::destroyer<detail::destroy_pool>>
	    pool_;
};

/* Delivery to an event loop, on whose thread run and the destructor, which runs
 * what it holds, are called. */
class mailbox {
public:
	explicit mailbox()
	{
		hwt_mailbox *made = nullptr;

		check(make_error(hwt_mailbox_create(&made)), "mailbox");
		mailbox_.reset(made);
	}

	/* Readable while something is due; do not read it. */
	int
	fd() const noexcept
	{
		return hwt_mailbox_fd(mailbox_.get());
	}

	/* Runs at most max callables, 0: all that are there now; the number of
	 * timeouts among them. */
	std::size_t
	run(std::size_t max = 0) noexcept
	{
		std::size_t started = 0;

		static_cast<void>(
		    hwt_mailbox_run(mailbox_.get(), max, &started));
		return started;
	}

	operator const hwt_executor *() const noexcept
	{
		return hwt_mailbox_executor(mailbox_.get());
	}

private:
	std::unique_ptr<hwt_mailbox, detail::destroyer<detail::destroy_mailbox>>
	    mailbox_;
};

/* Its destructor stops it and waits for what executors hold: the thread that
 * runs a mailbox itself first calls stop(), and run() once more. */
class timer {
public:
	explicit timer(const hwt_options &options = {})
	{
		::hwt *made = nullptr;

		check(make_error(hwt_create(&made, &options)), "timer");
		timer_.reset(made);
	}

	/* For functions of hwt.h. */
	::hwt *
	get() const noexcept
	{
		return timer_.get();
	}

	/* hwt_new_timeout_on: runs callable once, after a delay; or, with a
	 * period, hwt_new_periodic. It is called without arguments, or with its
	 * handle if it takes a hwt_timeout. */
	template <class F>
	[[nodiscard]] timeout
	schedule(delay after, F &&callable,
	    const hwt_executor *executor = nullptr, delay period = {})
	{
		auto node = std::make_unique<detail::node>(
		    detail::node{detail::keep(std::forward<F>(callable)),
			period.ns() != 0, executor});
		timeout made;
		int result = node->periodic
		    ? hwt_new_periodic(get(), executor, &made.handle_,
			  detail::run, node.get(), after.ns(), period.ns())
		    : hwt_new_timeout_on(get(), executor, &made.handle_,
			  detail::run, node.get(), after.ns());

		check(make_error(result), "schedule");
		made.timer_ = get();
		made.node_ = node.release();
		return made;
	}

	/* hwt_stop: nothing runs in the worker any more; how many timeouts were
	 * still pending. Their callables stay until they are destroyed. */
	std::uint64_t
	stop()
	{
		hwt_unprocessed left{};

		check(make_error(hwt_stop(get(), &left)), "stop");
		return left.count;
	}

private:
	std::unique_ptr<::hwt, detail::destroyer<detail::destroy_timer>> timer_;
};

} /* namespace hwt_cxx */

/* hwt.h declares a structure of this name, so that no namespace can have it;
 * what its functions point to is another one. */
struct hwt {
	hwt() = delete;

	using delay = hwt_cxx::delay;
	using mailbox = hwt_cxx::mailbox;
	using pool = hwt_cxx::pool;
	using timeout = hwt_cxx::timeout;
	using timer = hwt_cxx::timer;

	static constexpr delay never = hwt_cxx::never;
};

#endif
