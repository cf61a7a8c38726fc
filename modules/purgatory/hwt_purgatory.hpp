/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_purgatory for C++17 and later: header only, and optional. The promises of
 * hwt_purgatory.h hold, and its functions take purgatory.get(); errors and
 * durations are as in hwt.hpp.
 *
 *   hwt_cxx::purgatory writes(timer);
 *   writes.watch(30s, {{PARTITION, 7}}, [w] { return w->acks >= w->needed; },
 *       [w](hwt_outcome outcome) { w->reply(outcome); });
 *   ...
 *   w->acks++;
 *   writes.check({PARTITION, 7});
 *
 * where w is a std::shared_ptr. The callables may be of a type that only moves.
 * They are destroyed when done has returned, on its thread and within the
 * callback, or by a watch that fails. An exception that leaves one ends in
 * std::terminate.
 *
 * Declare the purgatory after its timer. Its destructor ends pending operations
 * with HWT_SHUT_DOWN; in a callback of its own it calls std::terminate.
 */
#ifndef HWT_PURGATORY_HPP
#define HWT_PURGATORY_HPP

#include <hwt.hpp>

#include "hwt_purgatory.h"

#include <vector>

namespace hwt_cxx {

namespace detail {

/* An operation's arg. */
template <class Try, class Done> struct watched {
	Try holds;
	Done ended;

	static bool
	try_complete(hwt_operation, void *arg) noexcept
	{
		return static_cast<watched *>(arg)->holds();
	}

	static void
	done(hwt_operation, void *arg, hwt_outcome outcome) noexcept
	{
		std::unique_ptr<watched> own(static_cast<watched *>(arg));

		own->ended(outcome);
	}
};

inline void
destroy_purgatory(::hwt_purgatory *purgatory) noexcept
{
	if (hwt_purgatory_shutdown(purgatory) == -EDEADLK ||
	    hwt_purgatory_destroy(purgatory) == -EBUSY)
		fatal("a purgatory was destroyed in a callback of its own");
}

} /* namespace detail */

class purgatory {
public:
	explicit purgatory(
	    const timer &of, const hwt_purgatory_options &options = {})
	{
		::hwt_purgatory *made = nullptr;

		error(hwt_purgatory_create(&made, of.get(), &options),
		    "purgatory");
		purgatory_.reset(made);
	}

	/* For functions of hwt_purgatory.h. */
	::hwt_purgatory *
	get() const noexcept
	{
		return purgatory_.get();
	}

	/* hwt_purgatory_watch. bool holds() is the predicate; nullptr: other
	 * calls complete it. done(hwt_outcome) may run before this returns.
	 * The result is {0} if this call has completed the operation. */
	template <class Try, class Done>
	hwt_operation
	watch(delay after, const std::vector<hwt_key> &keys, Try &&holds,
	    Done &&done, std::uint64_t at_least = 0)
	{
		using kept_try = std::decay_t<Try>;
		using kept = detail::watched<kept_try, std::decay_t<Done>>;
		auto *own = new kept{
		    std::forward<Try>(holds), std::forward<Done>(done)};
		hwt_operation_spec spec{};
		hwt_operation made{};
		int result = 0;

		if constexpr (!std::is_same_v<kept_try, std::nullptr_t>)
			spec.try_complete = kept::try_complete;
		spec.done = kept::done;
		spec.arg = own;
		spec.keys = keys.data();
		spec.key_count = keys.size();
		spec.delay_ns = after.ns();
		spec.at_least = at_least;
		result = hwt_purgatory_watch(get(), &made, &spec);
		if (result < 0)
			delete own;
		error(result, "watch");
		return result == 0 ? made : hwt_operation{};
	}

	/* How many operations this call has completed. */
	std::size_t
	check(hwt_key key)
	{
		std::size_t count = 0;

		error(hwt_purgatory_check(get(), key, &count), "check");
		return count;
	}

	std::size_t
	raise(hwt_key key, std::uint64_t value)
	{
		std::size_t count = 0;

		error(hwt_purgatory_raise(get(), key, value, &count), "raise");
		return count;
	}

private:
	static void
	error(int result, const char *what)
	{
		hwt_cxx::check(make_error(result), what);
	}

	std::unique_ptr<::hwt_purgatory,
	    detail::destroyer<detail::destroy_purgatory>>
	    purgatory_;
};

} /* namespace hwt_cxx */

#endif
