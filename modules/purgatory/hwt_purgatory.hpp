/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_purgatory for C++17 and later: header only, and optional. hwt_purgatory.h
 * has the promises; they hold here. hwt.hpp says how errors, durations and
 * exceptions are treated; the same is true of this.
 *
 *   hwt_cxx::purgatory writes(timer);
 *   writes.watch(
 *       30s, {{PARTITION, 7}}, [w] { return w->acks >= w->needed; },
 *       [w](hwt_outcome outcome) { w->reply(outcome); });
 *   ...
 *   w->acks++;
 *   writes.check({PARTITION, 7});
 *
 * where w is a std::shared_ptr: the callables may own what they use.
 *
 * LIFETIMES
 *
 *   callables  Predicate and done are moved or copied into memory that is
 *              allocated once per operation. Both are destroyed when done has
 *              returned, on its thread and still within the callback; or by a
 *              watch that fails. done is called exactly once, so nothing has to
 *              be kept for them.
 *   operation  A handle: it owns nothing, can be copied, and must not be used
 *              when the purgatory has gone.
 *   purgatory  Ends before its timer: declare it after. The destructor ends
 *              what is pending with HWT_SHUT_DOWN, and then waits until
 *              executors have released what they hold. A mailbox does so when
 *              run() is called: a thread that destroys a purgatory whose
 *              mailbox it runs itself first calls shutdown(), and run() until
 *              it returns 0. To destroy it in one of its callbacks, also by
 *              destroying a callable that owns it, calls std::terminate.
 *   mailbox    Must outlive the purgatories that it serves: declare it before.
 *
 * A forked child destroys no callable of an operation from before the fork.
 */
#ifndef HWT_PURGATORY_HPP
#define HWT_PURGATORY_HPP

#include <hwt.hpp>

#include "hwt_purgatory.h"

#include <atomic>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <new>
#include <optional>

namespace hwt_cxx {

namespace detail {

/* What arg points to: the callables of one operation. */
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

		if constexpr (std::is_invocable_v<Done &, hwt_outcome>)
			static_cast<void>(own->ended(outcome));
		else
			static_cast<void>(own->ended());
	}
};

struct purgatory_closer {
	void
	operator()(::hwt_purgatory *purgatory) const noexcept
	{
		if (hwt_purgatory_shutdown(purgatory) == -EDEADLK)
			fatal("a purgatory was destroyed in its own callback");
		static_cast<void>(destroy_when_idle(
		    [=] { return hwt_purgatory_destroy(purgatory); },
		    "purgatory waits for an executor that holds operations"));
	}
};

struct operation_mailbox_closer {
	void
	operator()(hwt_operation_mailbox *mailbox) const noexcept
	{
		std::size_t ran = 1;

		while (hwt_operation_mailbox_destroy(mailbox) == -EBUSY) {
			if (ran == 0)
				fatal("a mailbox was destroyed in its own "
				      "callback");
			ran = 0;
			static_cast<void>(
			    hwt_operation_mailbox_run(mailbox, 0, &ran));
		}
	}
};

} /* namespace detail */

/* See LIFETIMES above. Any thread may use it at any time. */
class purgatory {
public:
	/* Where done is called: on the thread of an event loop. */
	class mailbox {
	public:
		mailbox()
		{
			std::error_code error;

			*this = try_make(error);
			check_error(error, "mailbox");
		}

		static mailbox
		try_make(std::error_code &error) noexcept
		{
			hwt_operation_mailbox *made = nullptr;

			error = make_error(hwt_operation_mailbox_create(&made));
			return mailbox(made);
		}

		/* Readable while something waits; do not read it. */
		int
		fd() const noexcept
		{
			return hwt_operation_mailbox_fd(get());
		}

		/* Calls done of at most max operations, 0: of all that are
		 * there now; how many. 0 in a forked child. */
		std::size_t
		run(std::size_t max = 0) noexcept
		{
			std::size_t ran = 0;

			static_cast<void>(
			    hwt_operation_mailbox_run(get(), max, &ran));
			return ran;
		}

		const hwt_operation_executor *
		executor() const noexcept
		{
			return hwt_operation_mailbox_executor(get());
		}

		hwt_operation_mailbox *
		get() const noexcept
		{
			return mailbox_.get();
		}

	private:
		explicit mailbox(hwt_operation_mailbox *made) noexcept
		    : mailbox_(made)
		{
		}

		std::unique_ptr<hwt_operation_mailbox,
		    detail::operation_mailbox_closer>
		    mailbox_;
	};

	/* hwt_purgatory_options, with the same defaults. */
	struct options {
		std::uint32_t shards = 0;
		std::uint64_t max_pending = 0;
		const hwt_operation_executor *executor = nullptr;
		const char *name = nullptr;
	};

	/* {{1, 2}, {1, 3}}, a key, or what has data() and size(). It refers to
	 * them. */
	class key_list {
	public:
		key_list(const hwt_key &key) noexcept : data_(&key), size_(1)
		{
		}

		key_list(std::initializer_list<hwt_key> keys) noexcept
		    : size_(keys.size())
		{
			data_ = keys.begin();
		}

		template <class Keys,
		    class = decltype(std::declval<const Keys &>().data())>
		key_list(const Keys &keys) noexcept
		    : data_(keys.data()), size_(keys.size())
		{
		}

	private:
		friend class purgatory;

		const hwt_key *data_ = nullptr;
		std::size_t size_ = 0;
	};

	/* Empty by default, and when watch has completed it. */
	class operation {
	public:
		operation() noexcept = default;

		/* Ends it as HWT_COMPLETED. True: this call has decided that;
		 * if the predicate is running, done follows on its thread. */
		bool
		complete() const noexcept
		{
			return hwt_operation_complete(purgatory_, handle_) == 0;
		}

		/* The same as HWT_CANCELLED. */
		bool
		cancel() const noexcept
		{
			return hwt_operation_cancel(purgatory_, handle_) == 0;
		}

		/* Moves its deadline. False: it has ended, or its deadline has
		 * come. Otherwise, the errors of hwt_operation_reschedule. */
		[[nodiscard]] bool
		try_reschedule(
		    std::error_code &error, delay after) const noexcept
		{
			int result = purgatory_ == nullptr
			    ? -ENOENT
			    : hwt_operation_reschedule(
				  purgatory_, handle_, after.ns());

			error = make_error(result == -ENOENT ? 0 : result);
			return result == 0;
		}

		[[nodiscard]] bool
		reschedule(delay after) const
		{
			std::error_code error;
			bool moved = try_reschedule(error, after);

			check_error(error, "reschedule");
			return moved;
		}

		explicit operator bool() const noexcept
		{
			return handle_.id != 0;
		}

		/* For functions of hwt_purgatory.h. */
		hwt_operation
		handle() const noexcept
		{
			return handle_;
		}

	private:
		friend class purgatory;

		::hwt_purgatory *purgatory_ = nullptr;
		hwt_operation handle_{};
	};

	explicit purgatory(const timer &of) : purgatory(of, options())
	{
	}

	purgatory(const timer &of, const options &given)
	{
		std::error_code error;

		*this = try_make(error, of, given);
		check_error(error, "purgatory");
	}

	static purgatory
	try_make(std::error_code &error, const timer &of,
	    const options &given) noexcept
	{
		hwt_purgatory_options options{};
		::hwt_purgatory *made = nullptr;

		options.shards = given.shards;
		options.max_pending = given.max_pending;
		options.executor = given.executor;
		options.name = given.name;
		error =
		    make_error(hwt_purgatory_create(&made, of.get(), &options));
		return purgatory(made);
	}

	/*
	 * Watches an operation. holds() is the predicate; nullptr: only the
	 * other calls complete it. done is called without arguments, or with
	 * the outcome if it takes a hwt_outcome; perhaps before this returns.
	 * The operation is empty if this call has completed it.
	 *
	 * The errors are those of hwt_purgatory_watch: done is not called then.
	 */
	template <class Try, class Done>
	operation
	watch(delay after, key_list keys, Try &&holds, Done &&done,
	    const hwt_operation_executor *executor = nullptr)
	{
		std::error_code error;
		operation made =
		    try_watch(error, after, keys, std::forward<Try>(holds),
			std::forward<Done>(done), executor);

		check_error(error, "watch");
		return made;
	}

	template <class Try, class Done>
	operation
	try_watch(std::error_code &error, delay after, key_list keys,
	    Try &&holds, Done &&done,
	    const hwt_operation_executor *executor =
		nullptr) noexcept(detail::is_nothrow_kept<Try>
		&&detail::is_nothrow_kept<Done>)
	{
		hwt_operation_spec spec{};

		spec.keys = keys.data_;
		spec.key_count = keys.size_;
		spec.delay_ns = after.ns();
		spec.executor = executor;
		return begin(error, spec, std::forward<Try>(holds),
		    std::forward<Done>(done));
	}

	/* The same, until the key's value reaches at_least: see raise. */
	template <class Done>
	operation
	watch_value(delay after, hwt_key key, std::uint64_t at_least,
	    Done &&done, const hwt_operation_executor *executor = nullptr)
	{
		std::error_code error;
		operation made = try_watch_value(error, after, key, at_least,
		    std::forward<Done>(done), executor);

		check_error(error, "watch_value");
		return made;
	}

	template <class Done>
	operation
	try_watch_value(std::error_code &error, delay after, hwt_key key,
	    std::uint64_t at_least, Done &&done,
	    const hwt_operation_executor *executor =
		nullptr) noexcept(detail::is_nothrow_kept<Done>)
	{
		hwt_operation_spec spec{};

		spec.keys = &key;
		spec.key_count = 1;
		spec.at_least = at_least;
		spec.delay_ns = after.ns();
		spec.executor = executor;
		return begin(error, spec, nullptr, std::forward<Done>(done));
	}

	/* The same, until so many of these keys have reached at_least. */
	template <class Done>
	operation
	watch_quorum(delay after, key_list keys, std::uint64_t at_least,
	    std::uint64_t quorum, Done &&done,
	    const hwt_operation_executor *executor = nullptr)
	{
		std::error_code error;
		operation made = try_watch_quorum(error, after, keys, at_least,
		    quorum, std::forward<Done>(done), executor);

		check_error(error, "watch_quorum");
		return made;
	}

	template <class Done>
	operation
	try_watch_quorum(std::error_code &error, delay after, key_list keys,
	    std::uint64_t at_least, std::uint64_t quorum, Done &&done,
	    const hwt_operation_executor *executor =
		nullptr) noexcept(detail::is_nothrow_kept<Done>)
	{
		hwt_operation_spec spec{};

		spec.keys = keys.data_;
		spec.key_count = keys.size_;
		spec.at_least = at_least;
		spec.quorum = quorum;
		spec.delay_ns = after.ns();
		spec.executor = executor;
		return begin(error, spec, nullptr, std::forward<Done>(done));
	}

	/* What operations under this key wait for has changed: asks their
	 * predicates. How many operations this call has completed. */
	std::size_t
	check(hwt_key key)
	{
		std::size_t completed = 0;

		check_error(
		    make_error(hwt_purgatory_check(get(), key, &completed)),
		    "check");
		return completed;
	}

	/* The key's value is at least value now. */
	std::size_t
	raise(hwt_key key, std::uint64_t value)
	{
		std::size_t completed = 0;

		check_error(make_error(hwt_purgatory_raise(
				get(), key, value, &completed)),
		    "raise");
		return completed;
	}

	/* Cancels all operations under this key; how many. */
	std::size_t
	cancel(hwt_key key)
	{
		std::size_t cancelled = 0;

		check_error(make_error(hwt_purgatory_cancel_key(
				get(), key, &cancelled)),
		    "cancel");
		return cancelled;
	}

	/* How many operations wait under this key. */
	std::size_t
	count(hwt_key key) const
	{
		std::size_t count = 0;

		check_error(
		    make_error(hwt_purgatory_count_key(get(), key, &count)),
		    "count");
		return count;
	}

	/* Calls visit(operation) for each operation that waits under this key
	 * throughout: see hwt_purgatory_list_key. If it returns a bool, false
	 * ends that. It must not throw. Returns how often it was called. */
	template <class Visit>
	std::size_t
	list(hwt_key key, Visit &&visit) const
	{
		using kept = std::remove_reference_t<Visit>;
		listing<kept> all{get(), visit};
		std::size_t visited = 0;

		check_error(make_error(hwt_purgatory_list_key(get(), key,
				listing<kept>::visit, &all, &visited)),
		    "list");
		return visited;
	}

	/* Ends all operations; when it returns, no callback is running but in
	 * executors. EDEADLK: in a callback of this purgatory. */
	void
	shutdown()
	{
		check_error(
		    make_error(hwt_purgatory_shutdown(get())), "shutdown");
	}

	hwt_purgatory_stats
	stats() const
	{
		hwt_purgatory_stats stats{};

		check_error(make_error(hwt_purgatory_read_stats(get(), &stats)),
		    "stats");
		return stats;
	}

	/* For functions of hwt_purgatory.h. */
	::hwt_purgatory *
	get() const noexcept
	{
		return purgatory_.get();
	}

private:
	explicit purgatory(::hwt_purgatory *made) noexcept : purgatory_(made)
	{
	}

	template <class Visit> struct listing {
		::hwt_purgatory *of;
		Visit &each;

		static bool
		visit(hwt_operation handle, void *, void *ctx) noexcept
		{
			auto *own = static_cast<listing *>(ctx);
			operation found;

			found.purgatory_ = own->of;
			found.handle_ = handle;
			if constexpr (std::is_same_v<bool,
					  std::invoke_result_t<Visit &,
					      operation>>)
				return own->each(found);
			own->each(found);
			return true;
		}
	};

	/* check is a function of this class. */
	static void
	check_error(const std::error_code &error, const char *what)
	{
		hwt_cxx::check(error, what);
	}

	template <class Try, class Done>
	operation
	begin(std::error_code &error, hwt_operation_spec &spec, Try &&holds,
	    Done &&done) noexcept(detail::is_nothrow_kept<Try>
		&&detail::is_nothrow_kept<Done>)
	{
		using kept_try = std::decay_t<Try>;
		using kept = detail::watched<kept_try, std::decay_t<Done>>;
		operation made;
		int result = -ENOMEM;
		auto *own = new (std::nothrow)
		    kept{std::forward<Try>(holds), std::forward<Done>(done)};

		spec.arg = own;
		spec.done = kept::done;
		if constexpr (!std::is_same_v<kept_try, std::nullptr_t>)
			spec.try_complete = kept::try_complete;
		if (own != nullptr)
			result =
			    hwt_purgatory_watch(get(), &made.handle_, &spec);
		error = make_error(result);
		if (result < 0)
			delete own;
		if (result == 0)
			made.purgatory_ = get();
		else
			made.handle_ = {};
		return made;
	}

	std::unique_ptr<::hwt_purgatory, detail::purgatory_closer> purgatory_;
};

} /* namespace hwt_cxx */

#endif
