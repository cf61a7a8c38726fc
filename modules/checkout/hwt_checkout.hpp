/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_checkout for C++17 and later: header only, and optional. The promises of
 * hwt_checkout.h hold, and its functions take get() of these; errors and
 * durations are as in hwt.hpp.
 *
 *   hwt_cxx::checkout checkout(timer);
 *   hwt_object_init(checkout.get(), &account.object, account.number);
 *
 *   if (auto held = checkout.acquire_wait({&a.object, &b.object}, 50ms))
 *           ...
 *   checkout.acquire({&a.object, {&b.object, HWT_READ}}, 50ms,
 *       [&](hwt_cxx::checkout::hold held, hwt_grant) { ... });
 *
 * Objects by key, which a callable loads:
 *
 *   hwt_cxx::store<account> accounts(checkout, {}, load);
 *   if (auto held = accounts.acquire_wait({"alice", "bob"}, 50ms))
 *           accounts.value(held, 0).pay(accounts.value(held, 1), 7);
 *
 * A hold is a std::unique_ptr to the items, which releases what it has: [i] is
 * a hwt_item with granted, or a hwt_store_item with value. It is empty if
 * nothing was granted. A callable is called once, unless acquire throws,
 * perhaps before it returns, and is destroyed when it has returned. It may be
 * of a type that only moves. One thread at a time may use a hold.
 *
 * A checkout outlives its stores and holds, and ends before its timer; a store
 * outlives its holds. A checkout's destructor ends all waits, a store's
 * unloads all. If something is out then, they call std::terminate, and so
 * does an exception that leaves a callable.
 */
#ifndef HWT_CHECKOUT_HPP
#define HWT_CHECKOUT_HPP

#include <hwt.hpp>

#include "hwt_checkout.h"

#include <string_view>
#include <vector>

namespace hwt_cxx {

/* An object, or the key of one, and its use. */
template <class Name> struct wanted {
	template <class From,
	    class = std::enable_if_t<std::is_constructible_v<Name, From>>>
	wanted(From &&from, hwt_use given = HWT_WRITE)
	    : name(std::forward<From>(from)), use(given)
	{
	}

	Name name;
	hwt_use use;
};

namespace detail {

struct checkout_calls {
	using owner = ::hwt_checkout;
	using request = hwt_request;
	using item = hwt_item;
	using name = hwt_object *;
	using end = hwt_grant;
	static constexpr end granted = HWT_GRANTED;
	static constexpr auto acquire = hwt_checkout_acquire;
	static constexpr auto acquire_wait = hwt_checkout_acquire_wait;
	static constexpr auto release = hwt_checkout_release;
	static constexpr auto cancel = hwt_checkout_cancel;
	static constexpr auto destroy = hwt_checkout_destroy;

	template <class Shared>
	static int
	prepare(Shared &own)
	{
		for (const auto &each : own.names)
			own.items.push_back({each.name, nullptr, each.use});
		return hwt_request_init_items(&own.request, own.items.data(),
		    own.items.size(), Shared::granted, &own);
	}
};

struct store_calls {
	using owner = hwt_store;
	using request = hwt_store_request;
	using item = hwt_store_item;
	using name = std::string;
	using end = int;
	static constexpr end granted = 0;
	static constexpr auto acquire = hwt_store_acquire;
	static constexpr auto acquire_wait = hwt_store_acquire_wait;
	static constexpr auto release = hwt_store_release;
	static constexpr auto cancel = hwt_store_cancel;
	static constexpr auto destroy = hwt_store_destroy;

	template <class Shared>
	static int
	prepare(Shared &own)
	{
		for (const auto &each : own.names)
			own.items.push_back({each.name.data(), each.name.size(),
			    nullptr, each.use});
		return hwt_store_request_init(own.owner, &own.request,
		    own.items.data(), own.items.size(), Shared::granted, &own);
	}
};

template <class Calls>
void
destroy_idle(typename Calls::owner *owner) noexcept
{
	if constexpr (std::is_same_v<Calls, checkout_calls>)
		static_cast<void>(hwt_checkout_shutdown(owner));
	if (int result = Calls::destroy(owner);
	    result == -EBUSY || result == -EDEADLK)
		fatal("a checkout or store was destroyed with something out");
}

} /* namespace detail */

/* What the class checkout, and a store, acquire with. */
template <class Calls> class acquirer {
	struct shared;
	struct releaser;

public:
	using wants = std::vector<wanted<typename Calls::name>>;
	using hold = std::unique_ptr<typename Calls::item[], releaser>;

	typename Calls::owner *
	get() const noexcept
	{
		return owner_.get();
	}

	/* Waits in this thread. Empty: the delay has passed. */
	hold
	acquire_wait(wants names, delay within)
	{
		auto own = prepare(std::move(names));
		int result =
		    Calls::acquire_wait(own->owner, &own->request, within.ns());

		if (result == -ETIMEDOUT)
			return hold();
		check(make_error(result), "acquire_wait");
		return make_hold(std::move(own));
	}

	/* Calls callable(hold, end): a hwt_grant, or the result of a store. The
	 * function that it returns cancels; true: it has ended the wait. */
	template <class F>
	auto
	acquire(wants names, delay within, F &&callable)
	{
		auto own = prepare(std::move(names));
		auto kept = std::make_shared<std::decay_t<F>>(
		    std::forward<F>(callable));
		int result = 0;

		own->waiting = own;
		own->callable = [kept = std::move(kept)](
				    hold held, typename Calls::end end) {
			(*kept)(std::move(held), end);
		};
		result = Calls::acquire(own->owner, &own->request, within.ns());
		if (result == 0)
			shared::granted(
			    &own->request, own.get(), Calls::granted);
		if (result < 0)
			own->waiting = nullptr;
		check(make_error(result), "acquire");
		return [own] {
			return Calls::cancel(own->owner, &own->request) == 0;
		};
	}

protected:
	std::shared_ptr<void> callback_{}; /* outlives the owner */
	std::unique_ptr<typename Calls::owner,
	    detail::destroyer<detail::destroy_idle<Calls>>>
	    owner_{};

private:
	/* The memory of a request. Its names and items stay where they are. */
	struct shared {
		typename Calls::owner *owner;
		wants names;
		std::vector<typename Calls::item> items{};
		typename Calls::request request{};
		std::function<void(hold, typename Calls::end)> callable{};
		std::shared_ptr<shared> waiting{}; /* itself, for granted */

		static void
		granted(typename Calls::request *, void *arg,
		    typename Calls::end end) noexcept
		{
			auto own =
			    std::move(static_cast<shared *>(arg)->waiting);
			auto called = std::move(own->callable);

			called(end == Calls::granted ? make_hold(own) : hold(),
			    end);
		}
	};

	struct releaser {
		std::shared_ptr<shared> own{};

		void
		operator()(typename Calls::item *) noexcept
		{
			static_cast<void>(
			    Calls::release(own->owner, &own->request));
		}
	};

	static hold
	make_hold(std::shared_ptr<shared> own)
	{
		auto *items = own->items.data();

		return hold(items, releaser{std::move(own)});
	}

	std::shared_ptr<shared>
	prepare(wants names) const
	{
		auto own =
		    std::make_shared<shared>(shared{get(), std::move(names)});

		check(make_error(Calls::prepare(*own)), "request");
		return own;
	}
};

class checkout : public acquirer<detail::checkout_calls> {
public:
	explicit checkout(
	    const timer &of, const hwt_checkout_options &options = {})
	{
		::hwt_checkout *made = nullptr;
		int result = hwt_checkout_create(&made, of.get(), &options);

		check(make_error(result), "checkout");
		owner_.reset(made);
	}
};

/* load makes the value of a key; nullptr: there is none, and requests end with
 * -ENOENT. To unload a value is to delete it: its destructor may write it out.
 * Of the options load, unload and ctx are set here. */
template <class T> class store : public acquirer<detail::store_calls> {
public:
	using load = std::function<std::unique_ptr<T>(std::string_view)>;

	store(const checkout &of, hwt_store_options options, load loads)
	{
		auto kept = std::make_shared<load>(std::move(loads));
		hwt_store *made = nullptr;
		int result = 0;

		options.load = loaded;
		options.unload = unloaded;
		options.ctx = kept.get();
		result = hwt_store_create(&made, of.get(), &options);
		check(make_error(result), "store");
		callback_ = std::move(kept);
		owner_.reset(made);
	}

	static T &
	value(const hold &held, std::size_t i)
	{
		return *static_cast<T *>(held[i].value);
	}

private:
	static int
	loaded(void *ctx, hwt_store_job *, const void *key, std::size_t size,
	    hwt_loaded *to) noexcept
	{
		std::string_view text(static_cast<const char *>(key), size);

		to->value = (*static_cast<load *>(ctx))(text).release();
		return to->value != nullptr ? 0 : -ENOENT;
	}

	static int
	unloaded(void *, hwt_store_job *, const void *, std::size_t,
	    void *value) noexcept
	{
		delete static_cast<T *>(value);
		return 0;
	}
};

} /* namespace hwt_cxx */

#endif
