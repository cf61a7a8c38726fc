/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt for C++17 and later: header only, and optional. It needs the library that
 * hwt.h belongs to, and nothing else. hwt.h has the promises; they hold here.
 *
 *   hwt::timer timer;
 *   hwt::timeout idle = timer.schedule(30s, [&] { connection.close(); }, box);
 *   ...
 *   if (!idle.touch(30s))
 *           return;
 *
 * where box is the hwt::mailbox of the event loop that owns the connection.
 * touch returns false when it is too late: close() is running, or has run.
 *
 * NOT HERE is hwt_stop_within: each stop waits for a callable that is running.
 * What hwt.h has besides, such as hwt_stats_write, takes timer.get().
 *
 * LIFETIMES
 *
 *   timeout    Owns what was scheduled. Its destructor calls hwt_cancel_wait:
 *              when it returns, the callable is not running, never will, and is
 *              destroyed (if stop is taking it back in that moment: by stop).
 *              So it waits while the callable runs on another thread: never
 *              destroy a timeout while holding a lock that its callable takes.
 *              In the callable itself (directly, or because that destroys the
 *              owner of the timeout) the destructor does not wait: the callable
 *              runs to its end, for the last time, and is destroyed then.
 *   callable   Moved or copied into memory that is allocated once per timeout.
 *              It is destroyed when it has run (unless it is periodic), on the
 *              thread that ran it; or when its timeout is cancelled or
 *              destroyed; or by stop. So a callable may own its timeout: that
 *              cycle ends with the run, or with stop.
 *   timer      Must outlive its timeouts: declare it before them. Stop it with
 *              its own functions, not with those of hwt.h. Its destructor stops
 *              it, and then waits until executors have finished what they hold.
 *              A mailbox does so when its loop's thread calls run(): a thread
 *              that destroys a timer whose mailbox it runs itself first calls
 *              stop(), and run() once more.
 *   executors  Must outlive the timers that they serve: declare them before.
 *
 * A forked child does not destroy callables of timeouts from before the fork,
 * since another thread of the parent may have been running them.
 *
 * THREADS. A timer may be used by any thread at any time, as in hwt.h. A
 * timeout is an object like any other: one thread at a time, where the callable
 * counts as a thread. A callable may begin before schedule has returned. Hence
 * one that needs its own handle takes it as an argument of type hwt_timeout.
 * Threads that race to cancel a timeout use hwt_cancel with its handle(), which
 * touch can change.
 *
 * ERRORS. Functions that can fail throw std::system_error of hwt::category().
 * It has the errno values of hwt.h, positive, and compares with std::errc. Each
 * has a form that starts with try_ and stores the error instead. Both forms
 * report want of memory as ENOMEM. Without exceptions (-fno-exceptions), the
 * first form writes the error to stderr and calls std::terminate. An exception
 * that leaves a callable calls std::terminate.
 *
 * DURATIONS are those of std::chrono; fractions of a nanosecond are rounded up.
 * A negative one, not a number, or one of 2^63 ns and more is EINVAL.
 */
#ifndef HWT_HPP
#define HWT_HPP

#if __cplusplus < 201703L
#error "hwt.hpp needs C++17"
#endif

#include "hwt.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <ratio>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

namespace hwt_cxx {

namespace detail {

class errno_category final : public std::error_category {
public:
	const char *
	name() const noexcept override
	{
		return "hwt";
	}

	std::string
	message(int error) const override
	{
		return hwt_strerror(error);
	}

	std::error_condition
	default_error_condition(int error) const noexcept override
	{
		return std::generic_category().default_error_condition(error);
	}
};

[[noreturn]] inline void
fatal(const char *what)
{
	std::fprintf(stderr, "hwt: %s\n", what);
	std::terminate();
}

/* Calls destroy until it does not answer -EBUSY any more: what it waits for
 * ends elsewhere. */
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

inline const std::error_category &
category() noexcept
{
	static const detail::errno_category instance;
	return instance;
}

/* What a function of hwt.h has returned. */
inline std::error_code
make_error(int result) noexcept
{
	return result < 0 ? std::error_code(-result, category())
			  : std::error_code();
}

/* Throws what a function of hwt.h has returned, if that is an error. */
inline void
check(const std::error_code &error, const char *what)
{
	if (!error)
		return;
#ifdef __cpp_exceptions
	throw std::system_error(error, what);
#else
	std::fprintf(stderr, "hwt: %s: %s\n", what, error.message().c_str());
	std::terminate();
#endif
}

namespace detail {

/* What the library refuses. */
inline constexpr std::uint64_t invalid_ns = HWT_NEVER - 1;
inline constexpr std::uint64_t limit_ns = std::uint64_t{1} << 63;

/* In double at least: a float has too few digits for nanoseconds. */
template <class Scale, class Rep>
constexpr std::uint64_t
fraction_to_ns(Rep count) noexcept
{
	using real = std::common_type_t<Rep, double>;
	real ns = static_cast<real>(count) * static_cast<real>(Scale::num) /
	    static_cast<real>(Scale::den);
	std::uint64_t whole = 0;

	/* True of what is not a number, too. */
	if (!(ns >= 0 && ns < static_cast<real>(limit_ns)))
		return invalid_ns;
	whole = static_cast<std::uint64_t>(ns);
	return whole + (static_cast<real>(whole) < ns ? 1 : 0);
}

/* Scale is the number of nanoseconds in a unit. */
template <class Scale, class Rep>
constexpr std::uint64_t
whole_to_ns(Rep count) noexcept
{
	constexpr auto num = static_cast<std::uint64_t>(Scale::num);
	constexpr auto den = static_cast<std::uint64_t>(Scale::den);
	std::uint64_t units = 0;
	std::uint64_t rest = 0;

	static_assert(sizeof(Rep) <= sizeof(units), "a count of 64 bits");
	static_assert(num <= limit_ns / den, "a period of sensible length");
	if constexpr (std::is_signed_v<Rep>)
		if (count < 0)
			return invalid_ns;
	units = static_cast<std::uint64_t>(count) / den;
	rest = (static_cast<std::uint64_t>(count) % den * num + den - 1) / den;
	if (units > (limit_ns - 1 - rest) / num)
		return invalid_ns;
	return units * num + rest;
}

} /* namespace detail */

/* A duration as hwt.h takes it: made from any of std::chrono, or from
 * hwt::never. */
class delay {
public:
	constexpr delay() noexcept = default;

	template <class Rep, class Period>
	constexpr delay(std::chrono::duration<Rep, Period> duration) noexcept
	    : ns_(convert<Period>(duration.count()))
	{
	}

	static constexpr delay
	from_ns(std::uint64_t ns) noexcept
	{
		delay made;

		made.ns_ = ns;
		return made;
	}

	/* For functions of hwt.h. They refuse what was out of range. */
	constexpr std::uint64_t
	ns() const noexcept
	{
		return ns_;
	}

private:
	template <class Period, class Rep>
	static constexpr std::uint64_t
	convert(Rep count) noexcept
	{
		using scale = std::ratio_divide<Period, std::nano>;

		static_assert(std::is_arithmetic_v<Rep>, "a count of numbers");
		if constexpr (std::is_floating_point_v<Rep>)
			return detail::fraction_to_ns<scale>(count);
		else
			return detail::whole_to_ns<scale>(count);
	}

	std::uint64_t ns_ = 0;
};

/* As a delay: never due. As a wait: nothing to wait for. */
inline constexpr delay never = delay::from_ns(HWT_NEVER);

/* steady_clock reads CLOCK_MONOTONIC, as a timer does. */
using time_point = std::chrono::time_point<std::chrono::steady_clock,
    std::chrono::nanoseconds>;

constexpr bool
operator==(delay a, delay b) noexcept
{
	return a.ns() == b.ns();
}

constexpr bool
operator!=(delay a, delay b) noexcept
{
	return a.ns() != b.ns();
}

namespace detail {

/* What is before the clock's beginning has passed, too. */
inline std::uint64_t
deadline_ns(time_point deadline) noexcept
{
	auto ns = deadline.time_since_epoch().count();

	return ns < 0 ? 0 : static_cast<std::uint64_t>(ns);
}

/*
 * What arg points to: the callable of one timeout.
 *
 * Of a timeout that is owned, the owner deletes the node, when hwt_cancel_wait
 * says that nothing runs any more. It cannot wait in the callable itself; then
 * the function below that runs the callable deletes the node. And it does not
 * delete what stop may be looking at: see sweep.
 * Of one that was posted, the function that runs it deletes the node, or stop.
 */
class node {
public:
	node() = default;
	node(const node &) = delete;
	node &operator=(const node &) = delete;
	virtual ~node() = default;
	virtual void call(hwt_timeout timeout) = 0;
	virtual void destroy_callable() noexcept = 0;

	/* The owner is gone. Set and read by the thread that runs the
	 * callable. */
	bool abandoned = false;
	/* Not periodic, and has run: stop never sees it, and its owner needs
	 * no lock. */
	bool ran = false;
	/* Under the lock of sweep: stop is done with it. */
	bool swept = false;
	/* Both as it was scheduled. */
	bool periodic = false;
	const hwt_executor *executor = nullptr;
	node *next_orphan = nullptr;
};

template <class Callable> class node_of final : public node {
public:
	template <class F>
	explicit node_of(F &&callable) noexcept(
	    std::is_nothrow_constructible_v<Callable, F>)
	    : callable_(std::in_place, std::forward<F>(callable))
	{
	}

	void
	call(hwt_timeout timeout) override
	{
		if constexpr (std::is_invocable_v<Callable &, hwt_timeout>)
			static_cast<void>((*callable_)(timeout));
		else
			static_cast<void>((*callable_)());
	}

	void
	destroy_callable() noexcept override
	{
		callable_.reset();
	}

private:
	std::optional<Callable> callable_;
};

/* A program and its shared objects have these in common: stop tells by the
 * functions what it was returned. */
#pragma GCC visibility push(default)

inline void
run_once(hwt_timeout timeout, void *arg) noexcept
{
	node *own = static_cast<node *>(arg);

	own->call(timeout);
	/* This may destroy the owner of the timeout. */
	own->destroy_callable();
	own->ran = true;
	if (own->abandoned)
		delete own;
}

inline void
run_periodic(hwt_timeout timeout, void *arg) noexcept
{
	node *own = static_cast<node *>(arg);

	own->call(timeout);
	if (own->abandoned)
		delete own;
}

inline void
run_posted(hwt_timeout timeout, void *arg) noexcept
{
	node *own = static_cast<node *>(arg);

	own->call(timeout);
	delete own;
}

/*
 * Between owners of timeouts and a stop that destroys the callables that it was
 * returned. While a stop is under way, owners leave such nodes as orphans to
 * it. An owner that finds its timeout returned finds the stop counted, since
 * it is counted before it begins.
 */
class sweep {
public:
	void
	begin() noexcept
	{
		std::lock_guard<std::mutex> guard(lock_);

		stops_++;
	}

	void
	take(node *given_back) noexcept
	{
		/* May destroy the owner, which comes to leave then. */
		given_back->destroy_callable();
		std::lock_guard<std::mutex> guard(lock_);
		given_back->swept = true;
	}

	void
	end() noexcept
	{
		node *orphans = nullptr;

		{
			std::lock_guard<std::mutex> guard(lock_);
			if (--stops_ == 0)
				orphans = std::exchange(orphans_, nullptr);
		}
		while (orphans != nullptr)
			delete std::exchange(orphans, orphans->next_orphan);
	}

	/* The owner has no more use for a node that does not run. */
	void
	leave(node *unused) noexcept
	{
		{
			std::lock_guard<std::mutex> guard(lock_);
			if (stops_ != 0 && !unused->swept) {
				unused->next_orphan = orphans_;
				orphans_ = unused;
				return;
			}
		}
		delete unused;
	}

private:
	std::mutex lock_;
	unsigned stops_ = 0;
	node *orphans_ = nullptr;
};

inline sweep the_sweep;

#pragma GCC visibility pop

template <class F>
inline constexpr bool is_nothrow_kept =
    std::is_nothrow_constructible_v<std::decay_t<F>, F>;

template <class F>
node *
make_node(F &&callable) noexcept(is_nothrow_kept<F>)
{
	using kept = std::decay_t<F>;

	static_assert(std::is_invocable_v<kept &> ||
		std::is_invocable_v<kept &, hwt_timeout>,
	    "a callable without arguments, or with a hwt_timeout");
	return new (std::nothrow) node_of<kept>(std::forward<F>(callable));
}

} /* namespace detail */

/* See LIFETIMES and THREADS above. Empty by default. */
class timeout {
public:
	timeout() noexcept = default;

	timeout(timeout &&other) noexcept
	    : timer_(other.timer_), handle_(std::exchange(other.handle_, {})),
	      node_(std::exchange(other.node_, nullptr))
	{
	}

	/* Ends what *this owned, as the destructor does. */
	timeout &
	operator=(timeout &&other) noexcept
	{
		timeout taken(std::move(other));

		std::swap(timer_, taken.timer_);
		std::swap(handle_, taken.handle_);
		std::swap(node_, taken.node_);
		return *this;
	}

	~timeout()
	{
		if (node_ == nullptr)
			return;
		switch (hwt_cancel_wait(timer_, handle_)) {
		case -EDEADLK:
			/* A periodic one would go on otherwise. */
			static_cast<void>(hwt_cancel(timer_, handle_));
			node_->abandoned = true;
			break;
		case -EOWNERDEAD:
			break;
		case 0:
			delete node_;
			break;
		default:
			if (node_->ran)
				delete node_;
			else
				detail::the_sweep.leave(node_);
		}
	}

	/* Ends it, as the destructor does; *this is empty then. */
	void
	reset() noexcept
	{
		timeout ended(std::move(*this));
	}

	/*
	 * hwt_cancel: does not wait. True: this call has won, and the callable
	 * is destroyed without having been run (of a periodic timeout: without
	 * a further run). False: it is running, for the last time, or
	 * has ended.
	 */
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

	/* hwt_reschedule. False: it is handed over to an executor, is running,
	 * or has ended. The callable of a periodic timeout may reschedule its
	 * own. EINVAL: after is out of range. */
	[[nodiscard]] bool
	try_reschedule(std::error_code &error, delay after) noexcept
	{
		int result = node_ == nullptr
		    ? -ENOENT
		    : hwt_reschedule(timer_, handle_, after.ns());

		error = make_error(result == -EINVAL ? result : 0);
		return result == 0;
	}

	[[nodiscard]] bool
	reschedule(delay after)
	{
		std::error_code error;
		bool moved = try_reschedule(error, after);

		check(error, "reschedule");
		return moved;
	}

	/* hwt_reschedule_at: the same for a time on the timer's clock. */
	[[nodiscard]] bool
	reschedule_at(time_point deadline) noexcept
	{
		return node_ != nullptr &&
		    hwt_reschedule_at(
			timer_, handle_, detail::deadline_ns(deadline)) == 0;
	}

	/*
	 * For idle timeouts, in place of hwt_touch. True: the callable will run
	 * once, after this delay, and not before. This is reschedule, but what
	 * an executor holds and has not begun is cancelled and scheduled again:
	 * the same callable, on the same executor, with another handle().
	 * A mailbox may hold it when a loop reads its sockets before that.
	 *
	 * False: too late. The callable is running, for the last time, or has
	 * ended; *this can be assigned a new one. A periodic timeout is only
	 * rescheduled.
	 *
	 * EINVAL: after is out of range; nothing has changed. With an error of
	 * hwt_new_timeout_on (the timer was stopped, other threads have reached
	 * max_pending, or there is no memory), it has ended, as by cancel.
	 */
	[[nodiscard]] bool
	try_touch(std::error_code &error, delay after) noexcept
	{
		int result = 0;

		if (try_reschedule(error, after))
			return true;
		/* One that runs once and is running does not notice this. */
		if (error || node_ == nullptr || node_->periodic ||
		    hwt_cancel(timer_, handle_) != 0)
			return false;
		result = hwt_new_timeout_on(timer_, node_->executor, &handle_,
		    detail::run_once, node_, after.ns());
		/* It may have run, and *this may be gone. */
		if (result == 0)
			return true;
		error = make_error(result);
		/* As in cancel. */
		delete std::exchange(node_, nullptr);
		return false;
	}

	[[nodiscard]] bool
	touch(delay after)
	{
		std::error_code error;
		bool moved = try_touch(error, after);

		check(error, "touch");
		return moved;
	}

	/* hwt_remaining. Nothing: it is running, or has ended. */
	std::optional<std::chrono::nanoseconds>
	remaining() const noexcept
	{
		std::int64_t ns = 0;

		if (node_ == nullptr ||
		    hwt_remaining(timer_, handle_, &ns) != 0)
			return std::nullopt;
		return std::chrono::nanoseconds(ns);
	}

	/* Whether *this owns nothing: it was never assigned a timeout, or was
	 * moved from, or ended it by reset, cancel or a touch that failed. One
	 * whose callable has run is not empty: see remaining. There is no
	 * operator bool, which would read as "is pending". */
	[[nodiscard]] bool
	empty() const noexcept
	{
		return node_ == nullptr;
	}

	/* For functions of hwt.h; the callable stays this object's. {0} when
	 * *this is empty. */
	hwt_timeout
	handle() const noexcept
	{
		return handle_;
	}

private:
	friend class timer;

	struct ::hwt *timer_ = nullptr;
	hwt_timeout handle_{};
	detail::node *node_ = nullptr;
};

/* Threads that run what is due. */
class pool {
public:
	explicit pool(unsigned threads, std::size_t queue_limit = 0)
	{
		std::error_code error;

		*this = try_make(error, threads, queue_limit);
		check(error, "pool");
	}

	static pool
	try_make(std::error_code &error, unsigned threads,
	    std::size_t queue_limit = 0) noexcept
	{
		pool made;

		error = make_error(
		    hwt_pool_create(&made.pool_, threads, queue_limit));
		made.executor_ = hwt_pool_executor(made.pool_);
		return made;
	}

	pool(pool &&other) noexcept
	    : pool_(std::exchange(other.pool_, nullptr)),
	      executor_(std::exchange(other.executor_, nullptr))
	{
	}

	pool &
	operator=(pool &&other) noexcept
	{
		pool taken(std::move(other));

		std::swap(pool_, taken.pool_);
		std::swap(executor_, taken.executor_);
		return *this;
	}

	/* Runs what the pool holds, and joins its threads. */
	~pool()
	{
		if (hwt_pool_destroy(pool_) == -EDEADLK)
			detail::fatal("a pool was destroyed in its own task");
	}

	struct hwt_pool *
	get() const noexcept
	{
		return pool_;
	}

	const hwt_executor *
	executor() const noexcept
	{
		return executor_;
	}

private:
	pool() noexcept = default;

	struct hwt_pool *pool_ = nullptr;
	const hwt_executor *executor_ = nullptr;
};

/* Delivery to an event loop, on whose thread run and the destructor are
 * called. */
class mailbox {
public:
	mailbox()
	{
		std::error_code error;

		*this = try_make(error);
		check(error, "mailbox");
	}

	static mailbox
	try_make(std::error_code &error) noexcept
	{
		mailbox made(nullptr);

		error = make_error(hwt_mailbox_create(&made.mailbox_));
		made.executor_ = hwt_mailbox_executor(made.mailbox_);
		return made;
	}

	mailbox(mailbox &&other) noexcept
	    : mailbox_(std::exchange(other.mailbox_, nullptr)),
	      executor_(std::exchange(other.executor_, nullptr))
	{
	}

	mailbox &
	operator=(mailbox &&other) noexcept
	{
		mailbox taken(std::move(other));

		std::swap(mailbox_, taken.mailbox_);
		std::swap(executor_, taken.executor_);
		return *this;
	}

	/* Runs what the mailbox holds. */
	~mailbox()
	{
		bool idle = false;

		while (hwt_mailbox_destroy(mailbox_) == -EBUSY) {
			if (idle)
				detail::fatal(
				    "a mailbox was destroyed in its own task");
			idle = run() == 0;
		}
	}

	/* Readable while something is due; do not read it. */
	int
	fd() const noexcept
	{
		return hwt_mailbox_fd(mailbox_);
	}

	/* Runs at most max callables, 0: all that are there now; how many it
	 * has run. 0 in a forked child. */
	std::size_t
	run(std::size_t max = 0) noexcept
	{
		std::size_t started = 0;

		static_cast<void>(hwt_mailbox_run(mailbox_, max, &started));
		return started;
	}

	struct hwt_mailbox *
	get() const noexcept
	{
		return mailbox_;
	}

	const hwt_executor *
	executor() const noexcept
	{
		return executor_;
	}

private:
	explicit mailbox(struct hwt_mailbox *empty) noexcept : mailbox_(empty)
	{
	}

	struct hwt_mailbox *mailbox_ = nullptr;
	const hwt_executor *executor_ = nullptr;
};

/* Names an executor, and does not own it. Empty: the timer's own. */
class executor_ref {
public:
	constexpr executor_ref() noexcept = default;

	constexpr executor_ref(const hwt_executor *executor) noexcept
	    : executor_(executor)
	{
	}

	executor_ref(const pool &of) noexcept : executor_(of.executor())
	{
	}

	executor_ref(const mailbox &of) noexcept : executor_(of.executor())
	{
	}

	constexpr const hwt_executor *
	get() const noexcept
	{
		return executor_;
	}

private:
	const hwt_executor *executor_ = nullptr;
};

/* hwt_options, with the same defaults and the same lifetimes. */
struct options {
	delay tick{};
	std::uint32_t ticks_per_wheel = 0;
	bool manual = false;
	bool relaxed = false;
	std::uint64_t max_pending = 0;
	delay slow_task{};
	executor_ref executor{};
	const hwt_clock *clock = nullptr;
	const hwt_wake *wake = nullptr;
	const hwt_log *log = nullptr;
	const char *thread_name = nullptr;
	const pthread_attr_t *thread_attr = nullptr;
};

/* A clock for a manual timer, moved by hand: for tests. It begins at 1 s and
 * must outlive the timer. */
class manual_clock {
public:
	manual_clock() = default;
	manual_clock(const manual_clock &) = delete;
	manual_clock &operator=(const manual_clock &) = delete;

	void
	move(delay by) noexcept
	{
		now_ns_ += by.ns();
	}

	const hwt_clock *
	get() const noexcept
	{
		return &clock_;
	}

private:
	static std::uint64_t
	read(void *self) noexcept
	{
		return static_cast<manual_clock *>(self)->now_ns_;
	}

	std::atomic<std::uint64_t> now_ns_{1000000000};
	hwt_clock clock_{read, this};
};

/* See LIFETIMES above. */
class timer {
public:
	timer() : timer(options())
	{
	}

	explicit timer(const options &given)
	{
		std::error_code error;

		*this = try_make(error, given);
		check(error, "timer");
	}

	static timer
	try_make(std::error_code &error, const options &from) noexcept
	{
		hwt_options given{};
		timer made(nullptr, true);

		given.tick_ns = from.tick.ns();
		given.ticks_per_wheel = from.ticks_per_wheel;
		given.flags = (from.manual ? HWT_MANUAL : 0) |
		    (from.relaxed ? HWT_RELAXED : 0);
		given.max_pending = from.max_pending;
		given.slow_task_ns = from.slow_task.ns();
		given.executor = from.executor.get();
		given.clock = from.clock;
		given.wake = from.wake;
		given.log = from.log;
		given.thread_name = from.thread_name;
		given.thread_attr = from.thread_attr;
		error = make_error(hwt_create(&made.timer_, &given));
		return made;
	}

	/* One that something else owns. The destructor leaves it alone. */
	static timer
	borrow(struct ::hwt *of) noexcept
	{
		return timer(of, false);
	}

	/* The process-wide one. */
	static timer
	shared()
	{
		std::error_code error;
		timer made = try_shared(error);

		check(error, "shared");
		return made;
	}

	static timer
	try_shared(std::error_code &error) noexcept
	{
		timer made(nullptr, false);

		error = make_error(hwt_shared(&made.timer_));
		return made;
	}

	timer(timer &&other) noexcept
	    : timer_(std::exchange(other.timer_, nullptr)), owned_(other.owned_)
	{
	}

	timer &
	operator=(timer &&other) noexcept
	{
		timer taken(std::move(other));

		std::swap(timer_, taken.timer_);
		std::swap(owned_, taken.owned_);
		return *this;
	}

	~timer()
	{
		if (timer_ == nullptr || !owned_)
			return;
		end();
	}

	/* For functions of hwt.h. */
	struct ::hwt *
	get() const noexcept
	{
		return timer_;
	}

	/*
	 * Runs task once, after a delay, in executor. task is called without
	 * arguments, or with its handle if it takes a hwt_timeout.
	 *
	 * The errors are those of hwt_new_timeout_on.
	 */
	template <class F>
	[[nodiscard]] timeout
	schedule(delay after, F &&task, executor_ref executor = {})
	{
		std::error_code error;
		timeout made =
		    try_schedule(error, after, std::forward<F>(task), executor);

		check(error, "schedule");
		return made;
	}

	template <class F>
	[[nodiscard]] timeout
	try_schedule(std::error_code &error, delay after, F &&task,
	    executor_ref executor = {}) noexcept(detail::is_nothrow_kept<F>)
	{
		return own(error, std::forward<F>(task), executor, false,
		    [&](hwt_timeout *handle, void *arg) {
			    return hwt_new_timeout_on(timer_, executor.get(),
				handle, detail::run_once, arg, after.ns());
		    });
	}

	/* hwt_new_timeout_at: the same for a time on the timer's clock, which
	 * is that of now(). The call reads no clock. time_point::max() is never
	 * due. */
	template <class F>
	[[nodiscard]] timeout
	schedule_at(time_point deadline, F &&task, executor_ref executor = {})
	{
		std::error_code error;
		timeout made = try_schedule_at(
		    error, deadline, std::forward<F>(task), executor);

		check(error, "schedule_at");
		return made;
	}

	template <class F>
	[[nodiscard]] timeout
	try_schedule_at(std::error_code &error, time_point deadline, F &&task,
	    executor_ref executor = {}) noexcept(detail::is_nothrow_kept<F>)
	{
		return own(error, std::forward<F>(task), executor, false,
		    [&](hwt_timeout *handle, void *arg) {
			    return hwt_new_timeout_at(timer_, executor.get(),
				handle, detail::run_once, arg,
				detail::deadline_ns(deadline));
		    });
	}

	/* hwt_new_periodic: runs task after a delay, then once per period. */
	template <class F>
	[[nodiscard]] timeout
	schedule_every(
	    delay first, delay period, F &&task, executor_ref executor = {})
	{
		std::error_code error;
		timeout made = try_schedule_every(
		    error, first, period, std::forward<F>(task), executor);

		check(error, "schedule_every");
		return made;
	}

	template <class F>
	[[nodiscard]] timeout
	try_schedule_every(std::error_code &error, delay first, delay period,
	    F &&task,
	    executor_ref executor = {}) noexcept(detail::is_nothrow_kept<F>)
	{
		return own(error, std::forward<F>(task), executor, true,
		    [&](hwt_timeout *handle, void *arg) {
			    return hwt_new_periodic(timer_, executor.get(),
				handle, detail::run_periodic, arg, first.ns(),
				period.ns());
		    });
	}

	/* Runs task once, after a delay. Nothing owns it: it can only be ended
	 * by stop, and must not be cancelled through its handle. */
	template <class F>
	void
	post(delay after, F &&task, executor_ref executor = {})
	{
		std::error_code error;

		try_post(error, after, std::forward<F>(task), executor);
		check(error, "post");
	}

	template <class F>
	void
	try_post(std::error_code &error, delay after, F &&task,
	    executor_ref executor = {}) noexcept(detail::is_nothrow_kept<F>)
	{
		timeout made = own(error, std::forward<F>(task), executor,
		    false, [&](hwt_timeout *handle, void *arg) {
			    return hwt_new_timeout_on(timer_, executor.get(),
				handle, detail::run_posted, arg, after.ns());
		    });

		made.node_ = nullptr;
	}

	/* hwt_start: starts the worker now. */
	void
	start()
	{
		check(make_error(hwt_start(timer_)), "start");
	}

	/*
	 * hwt_stop: when it returns, nothing runs in the worker any more, and
	 * the callables of timeouts that were returned are destroyed. Returns
	 * how many that were; visit(const hwt_timeout_info &) sees those of
	 * them that were scheduled with functions of hwt.h; it must not throw.
	 */
	template <class Visit>
	std::uint64_t
	stop(Visit &&visit)
	{
		std::uint64_t count = 0;

		check(make_error(sweep_with(
			  [this](hwt_unprocessed *left) {
				  return hwt_stop(timer_, left);
			  },
			  visit, count)),
		    "stop");
		return count;
	}

	std::uint64_t
	stop()
	{
		return stop(ignore);
	}

	/* hwt_shared_shutdown: stop, for the process-wide timer. */
	static std::uint64_t
	shared_shutdown()
	{
		std::uint64_t count = 0;

		check(
		    make_error(sweep_with(hwt_shared_shutdown, ignore, count)),
		    "shared_shutdown");
		return count;
	}

	/* hwt_advance: turns a manual timer; how many tasks that started. */
	std::uint64_t
	advance()
	{
		std::uint64_t started = 0;

		check(make_error(hwt_advance(timer_, &started)), "advance");
		return started;
	}

	/* hwt_next_wakeup, of a manual timer; hwt::never is possible. */
	delay
	next_wakeup()
	{
		std::uint64_t wait_ns = 0;

		check(make_error(hwt_next_wakeup(timer_, &wait_ns)),
		    "next_wakeup");
		return delay::from_ns(wait_ns);
	}

	/* The timer's clock: steady_clock, or a manual timer's own. */
	time_point
	now() const
	{
		std::uint64_t now_ns = 0;

		check(make_error(hwt_now(timer_, &now_ns)), "now");
		return time_point(std::chrono::nanoseconds(now_ns));
	}

	std::uint64_t
	pending() const noexcept
	{
		return hwt_pending_timeouts(timer_);
	}

	hwt_stats
	stats() const
	{
		hwt_stats stats;

		check(make_error(hwt_read_stats(timer_, &stats)), "stats");
		return stats;
	}

private:
	timer(struct ::hwt *of, bool owned) noexcept : timer_(of), owned_(owned)
	{
	}

	static void
	ignore(const hwt_timeout_info &) noexcept
	{
	}

	/* begin(handle, arg) calls the function of hwt.h that schedules. */
	template <class F, class Begin>
	timeout
	own(std::error_code &error, F &&task, executor_ref executor,
	    bool periodic, Begin &&begin) noexcept(detail::is_nothrow_kept<F>)
	{
		timeout made;
		detail::node *node = detail::make_node(std::forward<F>(task));
		int result = -ENOMEM;

		if (node != nullptr) {
			node->executor = executor.get();
			node->periodic = periodic;
			result = begin(&made.handle_, node);
		}
		error = make_error(result);
		if (result != 0) {
			delete node;
			return made;
		}
		made.timer_ = timer_;
		made.node_ = node;
		return made;
	}

	template <class Stop, class Visit>
	static int
	sweep_with(Stop &&stop, Visit &&visit, std::uint64_t &count) noexcept
	{
		hwt_unprocessed left{};
		hwt_timeout_info info;
		int result = 0;

		detail::the_sweep.begin();
		result = stop(&left);
		count = left.count;
		while (result == 0 && hwt_unprocessed_next(&left, &info)) {
			auto *node = static_cast<detail::node *>(info.arg);

			if (info.task == detail::run_posted)
				delete node;
			else if (info.task == detail::run_once ||
			    info.task == detail::run_periodic)
				detail::the_sweep.take(node);
			else
				visit(std::as_const(info));
		}
		detail::the_sweep.end();
		return result;
	}

	void
	end() noexcept
	{
		std::uint64_t count = 0;

		if (sweep_with(
			[this](hwt_unprocessed *left) {
				return hwt_stop(timer_, left);
			},
			ignore, count) == -EDEADLK)
			detail::fatal("a timer was destroyed in its own task");
		static_cast<void>(detail::destroy_when_idle(
		    [this] { return hwt_destroy(timer_); },
		    "timer waits for an executor that holds timeouts"));
	}

	struct ::hwt *timer_ = nullptr;
	bool owned_ = false;
};

/* Of the modules, each in a header of its own: hwt_purgatory.hpp and so on. */
class checkout;
class durable;
class purgatory;
template <class T> class store; /* hwt_checkout.hpp */

} /* namespace hwt_cxx */

/*
 * The names: hwt::timer and so on. hwt.h declares a structure of this name and
 * never shows what is in it, so that no namespace can have the name, but this
 * can. The structure that functions of hwt.h point to is another one.
 */
struct hwt {
	hwt() = delete;

	using checkout = hwt_cxx::checkout;
	using delay = hwt_cxx::delay;
	using durable = hwt_cxx::durable;
	using executor_ref = hwt_cxx::executor_ref;
	using mailbox = hwt_cxx::mailbox;
	using manual_clock = hwt_cxx::manual_clock;
	using options = hwt_cxx::options;
	using pool = hwt_cxx::pool;
	using purgatory = hwt_cxx::purgatory;
	template <class T> using store = hwt_cxx::store<T>;
	using time_point = hwt_cxx::time_point;
	using timeout = hwt_cxx::timeout;
	using timer = hwt_cxx::timer;

	static constexpr delay never = hwt_cxx::never;

	static const std::error_category &
	category() noexcept
	{
		return hwt_cxx::category();
	}
};

#endif
