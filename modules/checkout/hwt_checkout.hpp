/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_checkout for C++17 and later: header only, and optional. hwt_checkout.h
 * has the promises; they hold here. hwt.hpp says how errors, durations and
 * exceptions are treated; the same is true of this.
 *
 *   struct connection {
 *           hwt::checkout::object slot;
 *           explicit connection(hwt::checkout &pool) : slot(pool) {}
 *   };
 *   if (auto held = pool.acquire_wait({&a.slot, &b.slot}, 50ms))
 *           ...
 *   pool.acquire({&a.slot}, 50ms, [](hwt::checkout::hold held) { ... });
 *
 * LIFETIMES
 *
 *   object    A member of what is checked out; it cannot be moved. Its
 *             destructor takes the object, as acquire_wait does, and retires
 *             it: it waits until the holder has released it, and until a pause
 *             is over, and waits for sets with it end with HWT_GRANT_RETIRED.
 *             So release it before, or retire it with the hold: a thread that
 *             holds or has paused what it destroys waits for itself. In a
 *             callable, where nothing may wait, to destroy what is out calls
 *             std::terminate.
 *             While another thread may destroy an object, call acquire with a
 *             mutex locked under which it was found, or acquire_wait with that
 *             lock; who destroys it locks the mutex before, and sees to it that
 *             it is not found any more.
 *   hold      What was granted, or empty. It releases when it is destroyed or
 *             assigned; any thread may do that, once.
 *   request   Memory that is allocated once per request, with its callable. It
 *             goes when the hold and the waiter have gone.
 *   callable  Called exactly once if acquire has not failed, and destroyed when
 *             it has returned, on its thread.
 *   waiter    A handle for cancel: it owns no more than memory. Who needs none
 *             drops it.
 *   pause     Lasts until it is destroyed.
 *   checkout  Must outlive its objects, holds, waiters and pauses, and end
 *             before its timer: declare it between them. The destructor shuts
 *             it down, which ends what waits. No other call may be under way
 *             then, a release neither: threads that use it have been joined.
 *             What is out, and to destroy it in a callable, calls
 *             std::terminate.
 *
 * A forked child calls and destroys no callable from before the fork.
 */
#ifndef HWT_CHECKOUT_HPP
#define HWT_CHECKOUT_HPP

#include <hwt.hpp>

#include "hwt_checkout.h"

#include <initializer_list>
#include <memory>

namespace hwt_cxx {

namespace detail {

/*
 * One request. It has two users, who drop it: the waiter, and the library until
 * it has told the end, from when on the hold is in its place.
 */
class demand {
public:
	demand() = default;
	demand(const demand &) = delete;
	demand &operator=(const demand &) = delete;
	virtual ~demand() = default;

	void
	keep() noexcept
	{
		users_++;
	}

	void
	drop() noexcept
	{
		if (--users_ == 0)
			delete this;
	}

	/* Calls the callable, and destroys it. */
	virtual void
	end(hwt_grant) noexcept
	{
	}

	static void
	granted(hwt_request *, void *arg, hwt_grant grant) noexcept
	{
		static_cast<demand *>(arg)->end(grant);
	}

	/* As hwt_request_init. */
	template <class Objects>
	int
	prepare(::hwt_checkout *of, const Objects &set) noexcept
	{
		std::size_t i = 0;

		objects_.reset(new (std::nothrow) hwt_object *[set.size() + 1]);
		if (objects_ == nullptr)
			return -ENOMEM;
		for (auto *each : set)
			objects_[i++] = each != nullptr ? each->get() : nullptr;
		checkout = of;
		count = i;
		return hwt_request_init(
		    &request, objects_.get(), i, granted, this);
	}

	bool
	has(const hwt_object *object) const noexcept
	{
		for (std::size_t i = 0; i < count; i++)
			if (objects_[i] == object)
				return true;
		return false;
	}

	hwt_request request{};
	::hwt_checkout *checkout = nullptr;
	std::size_t count = 0;

private:
	std::atomic<unsigned> users_{1};
	std::unique_ptr<hwt_object *[]> objects_;
};

struct demand_dropper {
	void
	operator()(demand *dropped) const noexcept
	{
		dropped->drop();
	}
};

struct demand_releaser {
	void
	operator()(demand *held) const noexcept
	{
		/* It fails in a forked child alone. */
		static_cast<void>(
		    hwt_checkout_release(held->checkout, &held->request));
		held->drop();
	}
};

struct checkout_resumer {
	void
	operator()(::hwt_checkout *paused) const noexcept
	{
		static_cast<void>(hwt_checkout_resume(paused));
	}
};

struct checkout_closer {
	void
	operator()(::hwt_checkout *checkout) const noexcept
	{
		static_cast<void>(hwt_checkout_shutdown(checkout));
		switch (hwt_checkout_destroy(checkout)) {
		case -EBUSY:
			fatal("a checkout was destroyed while something is "
			      "out");
		case -EDEADLK:
			fatal("a checkout was destroyed in a callable");
		}
	}
};

} /* namespace detail */

/* See LIFETIMES above. Any thread may use it at any time. */
class checkout {
public:
	/* Those of equal order are taken by address. */
	class object {
	public:
		explicit object(const checkout &of, std::uint64_t order = 0)
		    : checkout_(of.get())
		{
			check(make_error(
				  hwt_object_init(checkout_, &object_, order)),
			    "object");
		}

		object(const object &) = delete;
		object &operator=(const object &) = delete;

		~object()
		{
			if (checkout_ != nullptr)
				end();
		}

		/* For functions of hwt_checkout.h, which must not retire it. */
		hwt_object *
		get() noexcept
		{
			return &object_;
		}

	private:
		friend class checkout;

		void end() noexcept;

		::hwt_checkout *checkout_; /* NULL: it is retired */
		hwt_object object_{};
	};

	/* {&a, &b}, an object's address, or what has data() and size(). */
	class object_list {
	public:
		object_list(object *one) noexcept : one_(one), size_(1)
		{
		}

		object_list(std::initializer_list<object *> objects) noexcept
		    : size_(objects.size())
		{
			data_ = objects.begin();
		}

		template <class Objects,
		    class = decltype(std::declval<const Objects &>().data())>
		object_list(const Objects &objects) noexcept
		    : data_(objects.data()), size_(objects.size())
		{
		}

		object *const *
		begin() const noexcept
		{
			return data_ != nullptr ? data_ : &one_;
		}

		object *const *
		end() const noexcept
		{
			return begin() + size_;
		}

		std::size_t
		size() const noexcept
		{
			return size_;
		}

	private:
		object *one_ = nullptr;
		object *const *data_ = nullptr;
		std::size_t size_;
	};

	class hold {
	public:
		hold() noexcept = default;

		void
		release() noexcept
		{
			demand_.reset();
		}

		/*
		 * hwt_object_retire: takes the object out of this hold for
		 * good. Then it can be destroyed without a wait, also in a
		 * callable. EPERM: it is not in this hold.
		 */
		void
		retire(object &retired)
		{
			int result = -EPERM;

			if (demand_ != nullptr && demand_->has(retired.get()))
				result = hwt_object_retire(
				    demand_->checkout, retired.get());
			check(make_error(result), "retire");
			retired.checkout_ = nullptr;
		}

		explicit operator bool() const noexcept
		{
			return demand_ != nullptr;
		}

	private:
		friend class checkout;

		explicit hold(detail::demand *granted) noexcept
		    : demand_(granted)
		{
		}

		std::unique_ptr<detail::demand, detail::demand_releaser>
		    demand_;
	};

	class waiter {
	public:
		waiter() noexcept = default;

		/*
		 * hwt_checkout_cancel. True: the callable is called with
		 * HWT_GRANT_CANCELLED, mostly before this returns. False: it
		 * has been called, or will be; with that too, if the objects
		 * that it is being tried with are not free.
		 */
		bool
		cancel() noexcept
		{
			return demand_ != nullptr &&
			    hwt_checkout_cancel(
				demand_->checkout, &demand_->request) == 0;
		}

	private:
		friend class checkout;

		explicit waiter(detail::demand *waiting) noexcept
		    : demand_(waiting)
		{
		}

		std::unique_ptr<detail::demand, detail::demand_dropper> demand_;
	};

	/* Nothing is out, and nothing is granted; or empty. */
	class pause_guard {
	public:
		void
		resume() noexcept
		{
			paused_.reset();
		}

		explicit operator bool() const noexcept
		{
			return paused_ != nullptr;
		}

	private:
		friend class checkout;

		explicit pause_guard(::hwt_checkout *paused) noexcept
		    : paused_(paused)
		{
		}

		std::unique_ptr<::hwt_checkout, detail::checkout_resumer>
		    paused_;
	};

	/* hwt_checkout_options, with the same defaults. */
	struct options {
		std::uint32_t shards = 0;
		std::uint32_t hold_after = 0;
	};

	explicit checkout(const timer &of) : checkout(of, options())
	{
	}

	checkout(const timer &of, const options &given)
	{
		std::error_code error;

		*this = try_make(error, of, given);
		check(error, "checkout");
	}

	static checkout
	try_make(std::error_code &error, const timer &of,
	    const options &given) noexcept
	{
		hwt_checkout_options options{};
		::hwt_checkout *made = nullptr;

		options.shards = given.shards;
		options.hold_after = given.hold_after;
		error =
		    make_error(hwt_checkout_create(&made, of.get(), &options));
		return checkout(made);
	}

	/* hwt_checkout_try. Empty: one of them is out, or there is a pause. */
	[[nodiscard]] hold
	acquire_now(object_list set)
	{
		std::error_code error;
		hold held = try_acquire_now(error, set);

		check(error, "acquire_now");
		return held;
	}

	[[nodiscard]] hold
	try_acquire_now(std::error_code &error, object_list set) noexcept
	{
		return hold_by(error, set, -EAGAIN, [this](hwt_request *by) {
			return hwt_checkout_try(get(), by);
		});
	}

	/* Waits in this thread. Empty: the deadline has come. EDEADLK: in a
	 * callable. */
	[[nodiscard]] hold
	acquire_wait(object_list set, delay within)
	{
		std::error_code error;
		hold held = try_acquire_wait(error, set, within);

		check(error, "acquire_wait");
		return held;
	}

	[[nodiscard]] hold
	try_acquire_wait(
	    std::error_code &error, object_list set, delay within) noexcept
	{
		return hold_by(
		    error, set, -ETIMEDOUT, [this, within](hwt_request *by) {
			    return hwt_checkout_acquire_wait(
				get(), by, within.ns());
		    });
	}

	/* The same, and unlocks, under which the objects were found: as soon as
	 * it is decided, or the wait has begun. See LIFETIMES. */
	[[nodiscard]] hold
	acquire_wait(
	    object_list set, delay within, std::unique_lock<std::mutex> lock)
	{
		std::error_code error;
		hold held =
		    try_acquire_wait(error, set, within, std::move(lock));

		check(error, "acquire_wait");
		return held;
	}

	[[nodiscard]] hold
	try_acquire_wait(std::error_code &error, object_list set, delay within,
	    std::unique_lock<std::mutex> lock) noexcept
	{
		return hold_by(error, set, -ETIMEDOUT, [&](hwt_request *by) {
			if (!lock.owns_lock())
				return -EPERM;
			return hwt_checkout_acquire_wait_unlock(get(), by,
			    within.ns(), lock.release()->native_handle());
		});
	}

	/*
	 * callable gets a hold, and why it is empty if it takes a hwt_grant,
	 * too. It is called once, perhaps before this returns: here, if all
	 * objects are free, so that it may recur. Otherwise it is called by
	 * whoever releases, cancels, retires, resumes or shuts down, or by the
	 * timer: it returns soon, and waits for nothing here.
	 *
	 * The errors are those of hwt_checkout_acquire: it is not called then.
	 */
	template <class F>
	waiter
	acquire(object_list set, delay within, F &&callable)
	{
		std::error_code error;
		waiter made =
		    try_acquire(error, set, within, std::forward<F>(callable));

		check(error, "acquire");
		return made;
	}

	template <class F>
	waiter try_acquire(std::error_code &error, object_list set,
	    delay within, F &&callable) noexcept(detail::is_nothrow_kept<F>);

	/* hwt_checkout_pause: waits until nothing is out. Empty: something was
	 * after this delay, and all goes on. EDEADLK: in a callable. */
	[[nodiscard]] pause_guard
	pause(delay within)
	{
		std::error_code error;
		pause_guard paused = try_pause(error, within);

		check(error, "pause");
		return paused;
	}

	[[nodiscard]] pause_guard
	try_pause(std::error_code &error, delay within) noexcept
	{
		int result = hwt_checkout_pause(get(), within.ns());

		error = make_error(result == -ETIMEDOUT ? 0 : result);
		return pause_guard(result == 0 ? get() : nullptr);
	}

	/* hwt_checkout_shutdown: ends all waits. */
	void
	shutdown()
	{
		check(make_error(hwt_checkout_shutdown(get())), "shutdown");
	}

	hwt_checkout_stats
	stats() const
	{
		hwt_checkout_stats stats{};

		check(make_error(hwt_checkout_read_stats(get(), &stats)),
		    "stats");
		return stats;
	}

	/* For functions of hwt_checkout.h. */
	::hwt_checkout *
	get() const noexcept
	{
		return checkout_.get();
	}

private:
	template <class F> class demand_of;

	explicit checkout(::hwt_checkout *made) noexcept : checkout_(made)
	{
	}

	template <class Acquire>
	hold
	hold_by(std::error_code &error, object_list set, int refused,
	    Acquire &&acquire) noexcept
	{
		auto *made = new (std::nothrow) detail::demand;
		int result =
		    made == nullptr ? -ENOMEM : made->prepare(get(), set);

		if (result == 0)
			result = acquire(&made->request);
		error = make_error(result == refused ? 0 : result);
		if (result == 0)
			return hold(made);
		delete made;
		return hold();
	}

	std::unique_ptr<::hwt_checkout, detail::checkout_closer> checkout_;
};

/* One with a callable. */
template <class F> class checkout::demand_of final : public detail::demand {
public:
	template <class Given>
	explicit demand_of(Given &&callable) noexcept(
	    std::is_nothrow_constructible_v<F, Given>)
	    : callable_(std::in_place, std::forward<Given>(callable))
	{
	}

	void
	end(hwt_grant grant) noexcept override
	{
		hold held(grant == HWT_GRANTED ? this : nullptr);

		/* The hold may end in the callable. */
		if (held)
			keep();
		if constexpr (std::is_invocable_v<F &, hold, hwt_grant>)
			static_cast<void>((*callable_)(std::move(held), grant));
		else
			static_cast<void>((*callable_)(std::move(held)));
		callable_.reset();
		drop();
	}

private:
	std::optional<F> callable_;
};

template <class F>
checkout::waiter
checkout::try_acquire(std::error_code &error, object_list set, delay within,
    F &&callable) noexcept(detail::is_nothrow_kept<F>)
{
	using kept = demand_of<std::decay_t<F>>;
	auto *made = new (std::nothrow) kept(std::forward<F>(callable));
	int result = made == nullptr ? -ENOMEM : made->prepare(get(), set);

	if (result == 0) {
		made->keep();
		result =
		    hwt_checkout_acquire(get(), &made->request, within.ns());
	}
	error = make_error(result);
	if (result < 0) {
		delete made;
		return waiter();
	}
	waiter waiting(made);
	if (result == 0)
		made->end(HWT_GRANTED);
	return waiting;
}

/* See LIFETIMES above. After a shutdown nothing can be acquired, and it waits
 * until nothing at all is out. */
inline void
checkout::object::end() noexcept
{
	hwt_object *self = &object_;
	hwt_request request{};
	hwt_checkout_stats stats{};
	int result = hwt_request_init(&request, &self, 1, nullptr, nullptr);

	if (result == 0)
		result =
		    hwt_checkout_acquire_wait(checkout_, &request, HWT_NEVER);
	if (result == -EDEADLK)
		result = hwt_checkout_try(checkout_, &request);
	if (result == -EAGAIN)
		detail::fatal("an object that is out was destroyed in a "
			      "callable");
	while (result == -ESHUTDOWN &&
	    hwt_checkout_read_stats(checkout_, &stats) == 0 &&
	    stats.out + stats.waiting != 0)
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	if (result != 0)
		return;
	static_cast<void>(hwt_object_retire(checkout_, self));
	static_cast<void>(hwt_checkout_release(checkout_, &request));
}

} /* namespace hwt_cxx */

#endif
