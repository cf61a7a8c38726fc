/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_checkout for C++17 and later: header only, and optional. hwt_checkout.h
 * has the promises; they hold here. hwt.hpp says how errors, durations and
 * exceptions are treated; the same is true of this.
 *
 *   struct connection {
 *           hwt_cxx::checkout::object slot;
 *           explicit connection(hwt_cxx::checkout &pool) : slot(pool) {}
 *   };
 *   if (auto held = pool.acquire_wait({&a.slot, &b.slot}, 50ms))
 *           ...
 *   pool.acquire({&a.slot}, 50ms, [](hwt_cxx::checkout::hold held) { ... });
 *
 * Any one of equal objects, the members of a group:
 *
 *   struct connection : hwt_cxx::checkout::object { ... };
 *   hwt_cxx::checkout::group group(pool);
 *   connection one;
 *   group.add(one);
 *   if (auto held = pool.acquire_wait(&group, 50ms))
 *           static_cast<connection *>(held.member(group))->...
 *
 * Some objects for reading, beside others that read them:
 *
 *   if (auto held = pool.acquire_wait(
 *               {hwt_cxx::checkout::read(&a.slot), &b.slot}, 50ms))
 *           ...
 *
 * Objects by key, which a callable loads and another one, if need be, writes
 * out before it is destroyed (hwt_store_create):
 *
 *   hwt_cxx::store<account> accounts(pool, {},
 *       [](std::string_view key) { return read_account(key); },
 *       [](std::string_view key, account &a) { return write(key, a); });
 *   if (auto held = accounts.acquire_wait({"alice", "bob"}, 50ms))
 *           held[0].pay(held[1], 7);
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
 *             A member is granted to whoever asks for its group until the
 *             destructor of object has taken it, so also while what is derived
 *             from it is being destroyed: retire it with a hold before, or
 *             acquire nothing of the group any more. The destructor takes
 *             members until it has that one, and releases the others then.
 *             While another thread may destroy an object, call acquire with a
 *             mutex locked under which it was found, or acquire_wait with that
 *             lock; who destroys it locks the mutex before, and sees to it that
 *             it is not found any more.
 *   group     It cannot be moved, and must outlive its members. Its destructor
 *             ends waits for sets with it with HWT_GRANT_RETIRED, and calls
 *             std::terminate if it has members.
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
 *             std::terminate. With an executor it waits until that has told all
 *             and nothing is out: a thread that destroys a checkout whose
 *             mailbox it runs itself first calls shutdown(), and run() until it
 *             returns 0.
 *   mailbox   Must outlive the checkouts that it serves: declare it before. Its
 *             destructor runs what is in it; in a callable that it runs, that
 *             calls std::terminate.
 *   store     Must outlive its holds, waiters and jobs, and end before its
 *             checkout: declare it after it. Its destructor unloads all. No
 *             other call may be under way then, but those that end loads and
 *             unloads, for which it waits; what an unload refuses is tried
 *             again. What is out or waits, or a pause, and to destroy it in a
 *             callable that gets a hold, calls std::terminate.
 *
 * A forked child calls and destroys no callable from before the fork.
 */
#ifndef HWT_CHECKOUT_HPP
#define HWT_CHECKOUT_HPP

#include <hwt.hpp>

#include "hwt_checkout.h"

#include <atomic>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string_view>

namespace hwt_cxx {

namespace detail {

/*
 * The memory of one request. It has two users, who drop it: the waiter, and the
 * library until it has told the end, from when on the hold is in its place.
 */
class shared_request {
public:
	shared_request() = default;
	shared_request(const shared_request &) = delete;
	shared_request &operator=(const shared_request &) = delete;
	virtual ~shared_request() = default;

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

private:
	std::atomic<unsigned> users_{1};
};

/* A request of objects. */
class demand : public shared_request {
public:
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

	/* As hwt_request_init_items. */
	template <class Set>
	int
	prepare(::hwt_checkout *of, const Set &set) noexcept
	{
		items_.reset(new (std::nothrow) hwt_item[set.size() + 1]());
		if (items_ == nullptr)
			return -ENOMEM;
		for (std::size_t i = 0; i < set.size(); i++)
			items_[i] = set[i].item();
		checkout = of;
		count = set.size();
		return hwt_request_init_items(
		    &request, items_.get(), count, granted, this);
	}

	/* As hwt_request_init_pause; it is in no set. */
	template <class Set>
	int
	prepare_pause(::hwt_checkout *of, const Set *set) noexcept
	{
		std::size_t size = set != nullptr ? set->size() : 0;

		paused_.reset(new (std::nothrow) hwt_object *[size + 1]());
		if (paused_ == nullptr)
			return -ENOMEM;
		for (std::size_t i = 0; i < size; i++)
			paused_[i] = (*set)[i].item().wanted;
		checkout = of;
		return hwt_request_init_pause(of, &request,
		    set != nullptr ? paused_.get() : nullptr, size, granted,
		    this);
	}

	/* While it is granted. */
	bool
	has(const hwt_object *object) const noexcept
	{
		for (std::size_t i = 0; i < count; i++)
			if (items_[i].granted == object)
				return true;
		return false;
	}

	/* What it has got for that; or NULL. */
	hwt_object *
	granted_for(const hwt_object *wanted) const noexcept
	{
		for (std::size_t i = 0; i < count; i++)
			if (items_[i].wanted == wanted)
				return items_[i].granted;
		return nullptr;
	}

	hwt_request request{};
	::hwt_checkout *checkout = nullptr;
	std::size_t count = 0;

private:
	std::unique_ptr<hwt_item[]> items_;
	std::unique_ptr<hwt_object *[]> paused_;
};

/* A request of keys, which it copies. */
class store_demand : public shared_request {
public:
	/* Calls the callable, and destroys it. */
	virtual void
	end(int) noexcept
	{
	}

	static void
	granted(hwt_store_request *, void *arg, int result) noexcept
	{
		static_cast<store_demand *>(arg)->end(result);
	}

	/* As hwt_store_request_init. */
	template <class Keys>
	int
	prepare(::hwt_store *of, const Keys &keys) noexcept
	{
		std::size_t bytes = 0;
		char *at = nullptr;

		for (std::size_t i = 0; i < keys.size(); i++)
			bytes += keys[i].name().size();
		items.reset(
		    new (std::nothrow) hwt_store_item[keys.size() + 1]());
		names_.reset(new (std::nothrow) char[bytes + 1]);
		if (items == nullptr || names_ == nullptr)
			return -ENOMEM;
		at = names_.get();
		for (std::size_t i = 0; i < keys.size(); i++) {
			std::string_view name = keys[i].name();

			name.copy(at, name.size());
			items[i] = {at, name.size(), nullptr, keys[i].use()};
			at += name.size();
		}
		store = of;
		count = keys.size();
		return hwt_store_request_init(
		    of, &request, items.get(), count, granted, this);
	}

	hwt_store_request request{};
	::hwt_store *store = nullptr;
	std::unique_ptr<hwt_store_item[]> items;
	std::size_t count = 0;

private:
	std::unique_ptr<char[]> names_;
};

struct store_demand_releaser {
	void
	operator()(store_demand *held) const noexcept
	{
		/* It fails in a forked child alone. */
		static_cast<void>(
		    hwt_store_release(held->store, &held->request));
		held->drop();
	}
};

/* The callables of a store. */
class store_code {
public:
	store_code() = default;
	store_code(const store_code &) = delete;
	store_code &operator=(const store_code &) = delete;
	virtual ~store_code() = default;

	::hwt_store *store = nullptr;
};

struct store_closer {
	void
	operator()(::hwt_store *store) const noexcept
	{
		hwt_store_stats stats{};
		bool forked =
		    hwt_store_read_stats(store, &stats) == -EOWNERDEAD;

		if (destroy_when_idle([=] { return destroy(store); },
			"store waits for a load or an unload") == -EDEADLK)
			fatal("a store was destroyed in a callable");
		if (!forked)
			delete code;
	}

	store_code *code = nullptr;

private:
	/* -EBUSY: jobs run, or have ended. */
	static int
	destroy(::hwt_store *store) noexcept
	{
		hwt_store_stats before{};
		hwt_store_stats stats{};
		int result = 0;

		static_cast<void>(hwt_store_read_stats(store, &before));
		result = hwt_store_destroy(store);
		if (result != -EBUSY)
			return result;
		static_cast<void>(hwt_store_read_stats(store, &stats));
		if (stats.jobs == 0 && stats.loads == before.loads &&
		    stats.unloads == before.unloads &&
		    stats.refusals == before.refusals)
			fatal("a store was destroyed while something is out or "
			      "waits, or in a pause");
		return result;
	}
};

/* What a load answers for an error. */
inline int
store_errno(const std::error_code &error) noexcept
{
	std::error_condition known = error.default_error_condition();

	return known.category() == std::generic_category() && known.value() > 0
	    ? -known.value()
	    : -EIO;
}

/* A job that is dropped without an answer. */
struct store_job_refuser {
	void
	operator()(hwt_store_job *job) const noexcept
	{
		static_cast<void>(
		    hwt_store_complete(store, job, -ECANCELED, nullptr));
	}

	::hwt_store *store = nullptr;
};

using store_job = std::unique_ptr<hwt_store_job, store_job_refuser>;

struct demand_dropper {
	void
	operator()(shared_request *dropped) const noexcept
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
		auto destroy = [=] { return hwt_checkout_destroy(checkout); };

		static_cast<void>(hwt_checkout_shutdown(checkout));
		switch (has_executor
			? destroy_when_idle(destroy,
			      "checkout waits for an executor that holds "
			      "requests, or for a release")
			: destroy()) {
		case -EBUSY:
			fatal("a checkout was destroyed while something is "
			      "out");
		case -EDEADLK:
			fatal("a checkout was destroyed in a callable");
		}
	}

	bool has_executor = false;
};

struct request_mailbox_closer {
	void
	operator()(hwt_request_mailbox *mailbox) const noexcept
	{
		std::size_t told = 1;

		while (hwt_request_mailbox_destroy(mailbox) == -EBUSY) {
			if (told == 0)
				fatal("a mailbox was destroyed in a callable "
				      "that it runs");
			told = 0;
			static_cast<void>(
			    hwt_request_mailbox_run(mailbox, 0, &told));
		}
	}
};

} /* namespace detail */

/* See LIFETIMES above. Any thread may use it at any time. */
class checkout {
public:
	class object;

	/* Where callables are called: on the thread of an event loop. */
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
			hwt_request_mailbox *made = nullptr;

			error = make_error(hwt_request_mailbox_create(&made));
			return mailbox(made);
		}

		/* Readable while something waits in it; do not read it. */
		int
		fd() const noexcept
		{
			return hwt_request_mailbox_fd(get());
		}

		/* Calls at most max callables, 0: of all that are there now;
		 * how many. 0 in a forked child. */
		std::size_t
		run(std::size_t max = 0) noexcept
		{
			std::size_t told = 0;

			static_cast<void>(
			    hwt_request_mailbox_run(get(), max, &told));
			return told;
		}

		const hwt_request_executor *
		executor() const noexcept
		{
			return hwt_request_mailbox_executor(get());
		}

		hwt_request_mailbox *
		get() const noexcept
		{
			return mailbox_.get();
		}

	private:
		explicit mailbox(hwt_request_mailbox *made) noexcept
		    : mailbox_(made)
		{
		}

		std::unique_ptr<hwt_request_mailbox,
		    detail::request_mailbox_closer>
		    mailbox_;
	};

	/* Equal objects, of which a set has any one. */
	class group {
	public:
		explicit group(const checkout &of, std::uint64_t order = 0)
		    : checkout_(of.get())
		{
			check(make_error(
				  hwt_group_init(checkout_, &group_, order)),
			    "group");
		}

		group(const group &) = delete;
		group &operator=(const group &) = delete;

		~group()
		{
			if (members_ != 0)
				detail::fatal("a group that has members was "
					      "destroyed");
			static_cast<void>(hwt_group_retire(checkout_, &group_));
		}

		/*
		 * hwt_group_add: makes it a member, which is granted to whoever
		 * waits. EINVAL: it is in use. Once it is retired, it can be
		 * added again.
		 */
		void
		add(object &added)
		{
			std::error_code error;

			try_add(error, added);
			check(error, "add");
		}

		void try_add(std::error_code &error, object &added) noexcept;

		/* For functions of hwt_checkout.h, which must not retire it. */
		hwt_group *
		get() noexcept
		{
			return &group_;
		}

	private:
		friend class checkout;
		friend class object;

		::hwt_checkout *checkout_;
		hwt_group group_{};
		std::atomic<std::size_t> members_{0};
		/* One destructor of a member at a time takes others. */
		std::mutex ending_;
	};

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

		/* For group::add. */
		object() noexcept = default;

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
		int take(hwt_request *by, hwt_item *got) noexcept;
		int take_and_retire() noexcept;
		void forget() noexcept;

		hwt_object object_{}; /* the first: hold::member */
		/* NULL: it is retired, or no member yet */
		::hwt_checkout *checkout_ = nullptr;
		group *of_ = nullptr;
	};

	/* What a set names: an object, for writing unless read has made it, or
	 * any one of a group. */
	class wanted {
	public:
		wanted(object *one) noexcept
		    : object_(one != nullptr ? one->get() : nullptr)
		{
		}

		wanted(group *any) noexcept
		    : object_(any != nullptr ? &any->get()->any : nullptr)
		{
		}

		wanted(std::nullptr_t) noexcept
		{
		}

		hwt_item
		item() const noexcept
		{
			return {object_, nullptr, use_};
		}

	private:
		friend class checkout;

		hwt_object *object_ = nullptr;
		hwt_use use_ = HWT_WRITE;
	};

	/* For reading. Who has an object for reading and would write it
	 * releases it first: there is no upgrade (ENOTSUP, where a set names it
	 * for both). */
	static wanted
	read(object *one) noexcept
	{
		wanted made = one;

		made.use_ = HWT_READ;
		return made;
	}

	/* {&a, &b}, also with groups; one address; or what has data() and
	 * size(), of object * or wanted. */
	class object_list {
	public:
		object_list(object *one) noexcept : one_(one), size_(1)
		{
		}

		object_list(group *any) noexcept : one_(any), size_(1)
		{
		}

		object_list(wanted one) noexcept : one_(one), size_(1)
		{
		}

		object_list(std::initializer_list<wanted> set) noexcept
		    : size_(set.size())
		{
			wanted_ = set.begin();
		}

		template <class Objects,
		    class = decltype(std::declval<const Objects &>().data())>
		object_list(const Objects &set) noexcept : size_(set.size())
		{
			if constexpr (std::is_convertible_v<
					  decltype(set.data()), const wanted *>)
				wanted_ = set.data();
			else
				objects_ = set.data();
		}

		wanted
		operator[](std::size_t i) const noexcept
		{
			if (objects_ != nullptr)
				return objects_[i];
			return wanted_ != nullptr ? wanted_[i] : one_;
		}

		std::size_t
		size() const noexcept
		{
			return size_;
		}

	private:
		wanted one_ = nullptr;
		const wanted *wanted_ = nullptr;
		object *const *objects_ = nullptr;
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
		 * callable. EPERM: it is not in this hold, or for reading.
		 */
		void
		retire(object &retired)
		{
			int result = -EPERM;

			if (demand_ != nullptr && demand_->has(retired.get()))
				result = hwt_object_retire(
				    demand_->checkout, retired.get());
			check(make_error(result), "retire");
			retired.forget();
		}

		/* The member that it has got. NULL: none, or it is retired. */
		object *
		member(group &of) const noexcept
		{
			if (demand_ == nullptr)
				return nullptr;
			return reinterpret_cast<object *>(
			    demand_->granted_for(&of.get()->any));
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
		const hwt_request_executor *executor = nullptr;
		const char *name = nullptr;
		bool list_grants = false;
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
		options.executor = given.executor;
		options.name = given.name;
		options.list_grants = given.list_grants;
		error =
		    make_error(hwt_checkout_create(&made, of.get(), &options));
		return checkout(made, given.executor != nullptr);
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
	 * options.executor or, without one, by whoever releases, cancels,
	 * retires, resumes or shuts down, or by the timer: it returns soon, and
	 * waits for nothing here.
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

	/*
	 * hwt_request_init_pause: a pause that is told. The callable, as that
	 * of acquire, gets a hold when nothing is out, or no object of the set;
	 * the hold's end ends the pause. EALREADY: the whole is paused already,
	 * or about to be.
	 */
	template <class F>
	waiter
	pause(delay within, F &&callable)
	{
		return pause_of(nullptr, within, std::forward<F>(callable));
	}

	template <class F>
	waiter
	pause(object_list set, delay within, F &&callable)
	{
		return pause_of(&set, within, std::forward<F>(callable));
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

	checkout(::hwt_checkout *made, bool has_executor) noexcept
	    : checkout_(made, detail::checkout_closer{has_executor})
	{
	}

	template <class F>
	waiter
	pause_of(const object_list *set, delay within, F &&callable)
	{
		std::error_code error;
		waiter made =
		    acquire_prepared(error, within, std::forward<F>(callable),
			[this, set](detail::demand *demand) {
				return demand->prepare_pause(get(), set);
			});

		check(error, "pause");
		return made;
	}

	template <class F, class Prepare>
	waiter acquire_prepared(std::error_code &error, delay within,
	    F &&callable,
	    Prepare &&prepare) noexcept(detail::is_nothrow_kept<F>);

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
	return acquire_prepared(error, within, std::forward<F>(callable),
	    [this, &set](detail::demand *demand) {
		    return demand->prepare(get(), set);
	    });
}

template <class F, class Prepare>
checkout::waiter
checkout::acquire_prepared(std::error_code &error, delay within, F &&callable,
    Prepare &&prepare) noexcept(detail::is_nothrow_kept<F>)
{
	using kept = demand_of<std::decay_t<F>>;
	auto *made = new (std::nothrow) kept(std::forward<F>(callable));
	int result = made == nullptr ? -ENOMEM : prepare(made);

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

inline void
checkout::group::try_add(std::error_code &error, object &added) noexcept
{
	int result = -EINVAL;

	if (added.checkout_ == nullptr) {
		/* It may be granted and retired before add has returned. */
		members_++;
		added.checkout_ = checkout_;
		added.of_ = this;
		result = hwt_group_add(checkout_, &group_, added.get());
		if (result != 0)
			added.forget();
	}
	error = make_error(result);
}

/* It is retired. */
inline void
checkout::object::forget() noexcept
{
	if (of_ != nullptr)
		of_->members_--;
	of_ = nullptr;
	checkout_ = nullptr;
}

/* Takes it, or any member of its group. */
inline int
checkout::object::take(hwt_request *by, hwt_item *got) noexcept
{
	int result = 0;

	got->wanted = of_ != nullptr ? &of_->get()->any : &object_;
	result = hwt_request_init_items(by, got, 1, nullptr, nullptr);
	if (result == 0)
		result = hwt_checkout_acquire_wait(checkout_, by, HWT_NEVER);
	if (result == -EDEADLK)
		result = hwt_checkout_try(checkout_, by);
	/* A group may refuse for a moment. */
	for (int i = 0; result == -EAGAIN && of_ != nullptr && i < 1000; i++) {
		std::this_thread::yield();
		result = hwt_checkout_try(checkout_, by);
	}
	if (result == -EAGAIN)
		detail::fatal("an object that is out was destroyed in a "
			      "callable");
	return result;
}

/* Keeps the members that it takes meanwhile. */
inline int
checkout::object::take_and_retire() noexcept
{
	hwt_request request{};
	hwt_item got{};
	int result = take(&request, &got);

	if (result != 0)
		return result;
	if (got.granted == &object_)
		static_cast<void>(hwt_object_retire(checkout_, &object_));
	else
		result = take_and_retire();
	static_cast<void>(hwt_checkout_release(checkout_, &request));
	return result;
}

/* See LIFETIMES above. After a shutdown nothing can be acquired, and it waits
 * until nothing at all is out. */
inline void
checkout::object::end() noexcept
{
	std::unique_lock<std::mutex> alone;
	hwt_checkout_stats stats{};
	int result = hwt_checkout_read_stats(checkout_, &stats);

	/* In a forked child, where the mutex may be locked for ever. */
	if (result == 0) {
		if (of_ != nullptr)
			alone = std::unique_lock<std::mutex>(of_->ending_);
		result = take_and_retire();
	}
	while (result == -ESHUTDOWN &&
	    hwt_checkout_read_stats(checkout_, &stats) == 0 &&
	    stats.out + stats.waiting != 0)
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	/* Before the group may go, whose mutex that is. */
	if (alone.owns_lock())
		alone.unlock();
	forget();
}

/* What all stores have. */
class store_base {
public:
	/* hwt_store_options, with the same defaults. */
	struct options {
		std::uint64_t limit = 0;
		delay idle{};
		delay backoff{};
		std::uint32_t shards = 0;
		const hwt_store_executor *executor = nullptr;
		const char *name = nullptr;
	};

	/* For writing, unless read has made it. What it views is copied where a
	 * request needs it. */
	class key {
	public:
		template <class S,
		    class = std::enable_if_t<
			std::is_convertible_v<const S &, std::string_view>>>
		key(const S &name) noexcept : name_(name)
		{
		}

		std::string_view
		name() const noexcept
		{
			return name_;
		}

		hwt_use
		use() const noexcept
		{
			return use_;
		}

	private:
		friend class store_base;

		std::string_view name_;
		hwt_use use_ = HWT_WRITE;
	};

	static key
	read(std::string_view name) noexcept
	{
		key made = name;

		made.use_ = HWT_READ;
		return made;
	}

	/* {"a", "b"}; one key; or what has data() and size(), of key. */
	class key_list {
	public:
		template <class K,
		    std::enable_if_t<std::is_convertible_v<const K &, key>,
			int> = 0>
		key_list(const K &one) noexcept : one_(one), size_(1)
		{
		}

		key_list(std::initializer_list<key> keys) noexcept
		    : size_(keys.size())
		{
			keys_ = keys.begin();
		}

		template <class Keys,
		    std::enable_if_t<
			std::is_convertible_v<
			    decltype(std::declval<const Keys &>().data()),
			    const key *>,
			int> = 0>
		key_list(const Keys &keys) noexcept
		    : keys_(keys.data()), size_(keys.size())
		{
		}

		const key &
		operator[](std::size_t i) const noexcept
		{
			return keys_ != nullptr ? keys_[i] : one_;
		}

		std::size_t
		size() const noexcept
		{
			return size_;
		}

	private:
		key one_ = std::string_view();
		const key *keys_ = nullptr;
		std::size_t size_;
	};

	/* As checkout::waiter. */
	class waiter {
	public:
		waiter() noexcept = default;

		/* hwt_store_cancel. True: the callable is called with
		 * ECANCELED, mostly before this returns. */
		bool
		cancel() noexcept
		{
			return demand_ != nullptr &&
			    hwt_store_cancel(
				demand_->store, &demand_->request) == 0;
		}

	private:
		template <class T> friend class store;

		explicit waiter(detail::store_demand *waiting) noexcept
		    : demand_(waiting)
		{
		}

		std::unique_ptr<detail::store_demand, detail::demand_dropper>
		    demand_;
	};

	/* hwt_store_trim: unloads what nobody wants until all weighs at most
	 * that. */
	void
	trim(std::uint64_t weight = 0)
	{
		check(make_error(hwt_store_trim(get(), weight)), "trim");
	}

	hwt_store_stats
	stats() const
	{
		hwt_store_stats stats{};

		check(make_error(hwt_store_read_stats(get(), &stats)), "stats");
		return stats;
	}

	/* For functions of hwt_checkout.h. */
	::hwt_store *
	get() const noexcept
	{
		return store_.get();
	}

protected:
	store_base() noexcept = default;

	std::unique_ptr<::hwt_store, detail::store_closer> store_;
};

/* Objects by key. See LIFETIMES above. Any thread may use it at any time. */
template <class T> class store : public store_base {
public:
	/* What a load has made. */
	struct loaded {
		template <class U,
		    class = std::enable_if_t<std::is_convertible_v<
			std::unique_ptr<U>, std::unique_ptr<T>>>>
		loaded(
		    std::unique_ptr<U> made, std::uint32_t weighs = 1) noexcept
		    : value(std::move(made)), weight(weighs)
		{
		}

		std::unique_ptr<T> value;
		std::uint32_t weight; /* in the units of options::limit */
	};

	/* A load that ends later, by any thread: the first call here ends it.
	 * Without one, its destructor fails with ECANCELED. */
	class load_job {
	public:
		/* Nothing: it has failed with ENOENT. */
		void
		end(loaded made) noexcept
		{
			hwt_loaded given{made.value.get(), made.weight};

			if (made.value == nullptr)
				fail(std::make_error_code(
				    std::errc::no_such_file_or_directory));
			else if (job_ != nullptr &&
			    hwt_store_complete(job_.get_deleter().store,
				job_.release(), 0, &given) == 0)
				static_cast<void>(made.value.release());
		}

		void
		fail(const std::error_code &error) noexcept
		{
			if (job_ != nullptr)
				static_cast<void>(hwt_store_complete(
				    job_.get_deleter().store, job_.release(),
				    detail::store_errno(error), nullptr));
		}

	private:
		friend class store;

		explicit load_job(detail::store_job job) noexcept
		    : job_(std::move(job))
		{
		}

		detail::store_job job_;
	};

	/* The same of an unload. Without a call, the object stays. */
	class unload_job {
	public:
		/* Destroys the object. */
		void
		end() noexcept
		{
			if (job_ == nullptr)
				return;
			delete std::exchange(value_, nullptr);
			static_cast<void>(
			    hwt_store_complete(job_.get_deleter().store,
				job_.release(), 0, nullptr));
		}

		void
		refuse() noexcept
		{
			job_.reset();
		}

	private:
		friend class store;

		explicit unload_job(detail::store_job job, T *value) noexcept
		    : job_(std::move(job)), value_(value)
		{
		}

		detail::store_job job_;
		T *value_;
	};

	/* What was granted, or empty; as checkout::hold. What is held for
	 * reading is not changed. */
	class hold {
	public:
		hold() noexcept = default;

		void
		release() noexcept
		{
			demand_.reset();
		}

		/* That of the key i. */
		T &
		operator[](std::size_t i) const noexcept
		{
			return *static_cast<T *>(demand_->items[i].value);
		}

		T &
		operator*() const noexcept
		{
			return (*this)[0];
		}

		T *
		operator->() const noexcept
		{
			return &(*this)[0];
		}

		std::size_t
		size() const noexcept
		{
			return demand_ != nullptr ? demand_->count : 0;
		}

		/* hwt_store_pin: that of the key i is not unloaded before the
		 * store's destructor, or until it is unpinned. EPERM: this is
		 * empty. */
		void
		pin(std::size_t i, bool pinned = true)
		{
			int result = -EPERM;

			if (demand_ != nullptr)
				result = hwt_store_pin(demand_->store,
				    &demand_->request, i, pinned);
			check(make_error(result), "pin");
		}

		explicit operator bool() const noexcept
		{
			return demand_ != nullptr;
		}

	private:
		friend class store;

		explicit hold(detail::store_demand *granted) noexcept
		    : demand_(granted)
		{
		}

		std::unique_ptr<detail::store_demand,
		    detail::store_demand_releaser>
		    demand_;
	};

	/* The object is destroyed, and that is all. */
	struct unload_nothing {
		void
		operator()(std::string_view, T &) const noexcept
		{
		}
	};

	/*
	 * load is called with a key, and returns a std::unique_ptr<T>, or a
	 * loaded, which has a weight, too. Empty: it has failed, with ENOENT;
	 * or with the error that it has stored, if it takes a std::error_code &
	 * as well; EIO for one that has no errno value. If it takes a load_job
	 * instead, it returns nothing, and the job ends it.
	 *
	 * unload is called with a key and an object, which is destroyed then.
	 * If it returns a bool, false: the object stays. If it takes an
	 * unload_job as well, that ends it.
	 *
	 * Both run where hwt_store_options says, several at a time.
	 */
	template <class Load, class Unload = unload_nothing>
	store(const checkout &of, const options &given, Load &&load,
	    Unload &&unload = {})
	{
		std::error_code error;

		*this = try_make(error, of, given, std::forward<Load>(load),
		    std::forward<Unload>(unload));
		check(error, "store");
	}

	template <class Load, class Unload = unload_nothing>
	static store try_make(std::error_code &error, const checkout &of,
	    const options &given, Load &&load,
	    Unload &&unload = {}) noexcept(detail::is_nothrow_kept<Load>
		&&detail::is_nothrow_kept<Unload>);

	/* Waits in this thread. Empty: the deadline has come. EDEADLK: in a
	 * callable that gets a hold. Other errors are what a load has answered,
	 * so that one that answers ETIMEDOUT looks like the deadline. */
	[[nodiscard]] hold
	acquire_wait(key_list keys, delay within)
	{
		std::error_code error;
		hold held = try_acquire_wait(error, keys, within);

		check(error, "acquire_wait");
		return held;
	}

	[[nodiscard]] hold
	try_acquire_wait(
	    std::error_code &error, key_list keys, delay within) noexcept
	{
		auto *made = new (std::nothrow) detail::store_demand;
		int result =
		    made == nullptr ? -ENOMEM : made->prepare(get(), keys);

		if (result == 0)
			result = hwt_store_acquire_wait(
			    get(), &made->request, within.ns());
		error = make_error(result == -ETIMEDOUT ? 0 : result);
		if (result == 0)
			return hold(made);
		delete made;
		return hold();
	}

	/*
	 * callable gets a hold, and why it is empty if it takes a
	 * std::error_code, too: ETIMEDOUT, ECANCELED, ESHUTDOWN, or what a load
	 * has answered. It is called once, as that of checkout::acquire.
	 *
	 * The errors are those of hwt_store_acquire: it is not called then.
	 */
	template <class F>
	waiter
	acquire(key_list keys, delay within, F &&callable)
	{
		std::error_code error;
		waiter made =
		    try_acquire(error, keys, within, std::forward<F>(callable));

		check(error, "acquire");
		return made;
	}

	template <class F>
	waiter try_acquire(std::error_code &error, key_list keys, delay within,
	    F &&callable) noexcept(detail::is_nothrow_kept<F>);

private:
	template <class Load, class Unload> class code_of;
	template <class F> class demand_of;

	store() noexcept = default;
};

template <class T>
template <class Load, class Unload>
class store<T>::code_of final : public detail::store_code {
public:
	template <class L, class U>
	code_of(L &&load, U &&unload) noexcept(
	    std::is_nothrow_constructible_v<Load, L>
		&&std::is_nothrow_constructible_v<Unload, U>)
	    : load_(std::forward<L>(load)), unload_(std::forward<U>(unload))
	{
	}

	static int
	load(void *ctx, hwt_store_job *job, const void *key, std::size_t size,
	    hwt_loaded *to) noexcept
	{
		auto *code = static_cast<code_of *>(ctx);
		std::string_view name(static_cast<const char *>(key), size);
		std::error_code error;

		if constexpr (std::is_invocable_v<Load &, std::string_view,
				  load_job>) {
			code->load_(name, load_job({job, {code->store}}));
			return HWT_STORE_LATER;
		} else if constexpr (std::is_invocable_v<Load &,
					 std::string_view, std::error_code &>) {
			return code->answer(
			    code->load_(name, error), error, to);
		} else {
			return code->answer(code->load_(name), error, to);
		}
	}

	static int
	unload(void *ctx, hwt_store_job *job, const void *key, std::size_t size,
	    void *value) noexcept
	{
		auto *code = static_cast<code_of *>(ctx);
		std::string_view name(static_cast<const char *>(key), size);
		T *object = static_cast<T *>(value);

		if constexpr (std::is_invocable_v<Unload &, std::string_view,
				  T &, unload_job>) {
			code->unload_(name, *object,
			    unload_job({job, {code->store}}, object));
			return HWT_STORE_LATER;
		} else if constexpr (std::is_void_v<std::invoke_result_t<
					 Unload &, std::string_view, T &>>) {
			code->unload_(name, *object);
		} else if (!code->unload_(name, *object)) {
			return -EBUSY;
		}
		delete object;
		return 0;
	}

private:
	static int
	answer(
	    loaded made, const std::error_code &error, hwt_loaded *to) noexcept
	{
		if (error)
			return detail::store_errno(error);
		if (made.value == nullptr)
			return -ENOENT;
		to->weight = made.weight;
		to->value = made.value.release();
		return 0;
	}

	Load load_;
	Unload unload_;
};

template <class T>
template <class Load, class Unload>
store<T>
store<T>::try_make(std::error_code &error, const checkout &of,
    const options &given, Load &&load,
    Unload &&unload) noexcept(detail::is_nothrow_kept<Load>
	&&detail::is_nothrow_kept<Unload>)
{
	using code = code_of<std::decay_t<Load>, std::decay_t<Unload>>;
	std::unique_ptr<code> kept(new (std::nothrow)
		code(std::forward<Load>(load), std::forward<Unload>(unload)));
	hwt_store_options options{};
	::hwt_store *stored = nullptr;
	store made;
	int result = -ENOMEM;

	options.load = code::load;
	options.unload = code::unload;
	options.ctx = kept.get();
	options.limit = given.limit;
	options.idle_ns = given.idle.ns();
	options.backoff_ns = given.backoff.ns();
	options.shards = given.shards;
	options.executor = given.executor;
	options.name = given.name;
	if (kept != nullptr)
		result = hwt_store_create(&stored, of.get(), &options);
	error = make_error(result);
	if (result == 0) {
		kept->store = stored;
		made.store_ = {stored, detail::store_closer{kept.release()}};
	}
	return made;
}

/* One with a callable. */
template <class T>
template <class F>
class store<T>::demand_of final : public detail::store_demand {
public:
	template <class Given>
	explicit demand_of(Given &&callable) noexcept(
	    std::is_nothrow_constructible_v<F, Given>)
	    : callable_(std::in_place, std::forward<Given>(callable))
	{
	}

	void
	end(int result) noexcept override
	{
		hold held(result == 0 ? this : nullptr);

		/* The hold may end in the callable. */
		if (held)
			keep();
		if constexpr (std::is_invocable_v<F &, hold, std::error_code>)
			static_cast<void>(
			    (*callable_)(std::move(held), make_error(result)));
		else
			static_cast<void>((*callable_)(std::move(held)));
		callable_.reset();
		drop();
	}

private:
	std::optional<F> callable_;
};

template <class T>
template <class F>
store_base::waiter
store<T>::try_acquire(std::error_code &error, key_list keys, delay within,
    F &&callable) noexcept(detail::is_nothrow_kept<F>)
{
	using kept = demand_of<std::decay_t<F>>;
	auto *made = new (std::nothrow) kept(std::forward<F>(callable));
	int result = made == nullptr ? -ENOMEM : made->prepare(get(), keys);

	if (result == 0) {
		made->keep();
		result = hwt_store_acquire(get(), &made->request, within.ns());
	}
	error = make_error(result);
	if (result < 0) {
		delete made;
		return waiter();
	}
	waiter waiting(made);
	if (result == 0)
		made->end(0);
	return waiting;
}

} /* namespace hwt_cxx */

#endif
