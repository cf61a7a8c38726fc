/* SPDX-License-Identifier: Apache-2.0 */
/* What hwt_purgatory.hpp says: with time moved by hand, then with threads. */
#include <functional>
#include <memory>
#include <vector>

#include <poll.h>

#include "hwt_purgatory.hpp"

#include "check.h"

using namespace std::chrono_literals;

static_assert(!std::is_copy_constructible_v<hwt_cxx::purgatory>);
static_assert(std::is_nothrow_move_constructible_v<hwt_cxx::purgatory>);
static_assert(std::is_nothrow_move_assignable_v<hwt_cxx::purgatory>);
static_assert(std::is_trivially_copyable_v<hwt_cxx::purgatory::operation>);

static const hwt_key one{1, 1};
static const hwt_key two{1, 2};

struct fixture {
	manual m;
	hwt_cxx::purgatory purgatory;
	bool holds = false;
	std::vector<hwt_outcome> outcomes{};

	explicit fixture(hwt_cxx::purgatory::options options = {})
	    : purgatory(m.timer, options)
	{
	}

	auto
	predicate()
	{
		return [this, held = token()] { return holds; };
	}

	auto
	done()
	{
		return [this, held = token()](hwt_outcome outcome) {
			outcomes.push_back(outcome);
		};
	}

	/* Of the last operation, and nothing is left. */
	bool
	ended(hwt_outcome outcome)
	{
		CHECK(outcomes.size() == 1 && outcomes[0] == outcome);
		outcomes.clear();
		return token::living == 0 && purgatory.stats().pending == 0 &&
		    m.pending() == 0;
	}
};

TEST(completes_when_the_condition_holds)
{
	fixture f;
	auto operation =
	    f.purgatory.watch(1s, {one, two}, f.predicate(), f.done());

	CHECK(operation && token::living == 2);
	CHECK(f.purgatory.stats().links == 2);
	CHECK(f.purgatory.check(one) == 0 && f.outcomes.empty());
	f.holds = true;
	CHECK(f.purgatory.check(two) == 1 && f.ended(HWT_COMPLETED));
	CHECK(!operation.complete() && !operation.cancel());
}

TEST(is_empty_when_it_completes_at_once)
{
	fixture f;

	f.holds = true;
	CHECK(!f.purgatory.watch(1s, one, f.predicate(), f.done()));
	CHECK(f.ended(HWT_COMPLETED));
}

TEST(expires)
{
	fixture f;

	f.purgatory.watch(5ms, one, f.predicate(), f.done());
	f.m.pass(4ms);
	CHECK(f.outcomes.empty() && token::living == 2);
	f.m.pass(1ms);
	CHECK(f.ended(HWT_EXPIRED));
}

TEST(deadlines_move)
{
	fixture f;
	hwt_cxx::purgatory::operation none;
	std::error_code error;
	auto a = f.purgatory.watch(hwt::never, one, nullptr, f.done());

	CHECK(!none.reschedule(1s));
	CHECK(!a.try_reschedule(error, -1s));
	CHECK(error == std::errc::invalid_argument);
	CHECK(a.reschedule(5ms));
	f.m.pass(4ms);
	CHECK(a.reschedule(3ms));
	f.m.pass(2ms);
	CHECK(f.outcomes.empty());
	f.m.pass(1ms);
	CHECK(f.ended(HWT_EXPIRED) && !a.reschedule(1s));
}

TEST(waits_for_a_quorum)
{
	fixture f;
	std::error_code error;

	CHECK(f.purgatory.watch_quorum(1s, {one, two}, 7, 2, f.done()));
	CHECK(f.purgatory.raise(two, 7) == 0 && f.outcomes.empty());
	CHECK(f.purgatory.raise(one, 8) == 1 && f.ended(HWT_COMPLETED));
	f.purgatory.try_watch_quorum(error, 1s, {one, two}, 7, 3, f.done());
	CHECK(error == std::errc::invalid_argument && token::living == 0);
}

TEST(lists_what_waits)
{
	fixture f;
	int seen = 0;
	auto a = f.purgatory.watch(1s, {one, two}, nullptr, f.done());

	f.purgatory.watch(1s, one, nullptr, f.done());
	CHECK(f.purgatory.count(one) == 2 && f.purgatory.count(two) == 1);
	CHECK(f.purgatory.list(one, [&](hwt_cxx::purgatory::operation each) {
		seen++;
		return each.handle().id != a.handle().id;
	}) == 1);
	CHECK(seen == 1);
	CHECK(f.purgatory.list(one, [](auto each) { each.cancel(); }) == 2);
	CHECK(f.purgatory.count(one) == 0);
}

TEST(handles_end_it)
{
	fixture f;
	hwt_cxx::purgatory::operation none;
	auto a = f.purgatory.watch(hwt::never, one, nullptr, f.done());

	CHECK(!none && !none.cancel() && !none.complete());
	none = a;
	CHECK(none.cancel() && !a.cancel() && f.ended(HWT_CANCELLED));
	a = f.purgatory.watch(1s, one, nullptr, f.done());
	CHECK(!none.complete() && a.complete() && f.ended(HWT_COMPLETED));
	f.purgatory.watch(1s, {one, two}, nullptr, f.done());
	CHECK(f.purgatory.check(one) == 0 && f.purgatory.cancel(two) == 1);
	CHECK(f.ended(HWT_CANCELLED));
}

TEST(waits_for_a_value)
{
	fixture f;

	CHECK(f.purgatory.watch_value(1s, one, 7, f.done()));
	CHECK(f.purgatory.raise(one, 6) == 0 && f.outcomes.empty());
	CHECK(f.purgatory.raise(one, 8) == 1 && f.ended(HWT_COMPLETED));
}

TEST(takes_all_kinds_of_callables_and_keys)
{
	fixture f;
	std::vector<hwt_key> keys{one, two};
	int runs = 0;
	std::function<bool()> copied = [&f] { return f.holds; };
	auto owned = [&runs, value = std::make_unique<int>(7)] {
		runs += *value;
		return runs;
	};

	f.purgatory.watch(1s, keys, copied, std::move(owned));
	f.purgatory.watch(1s, {{3, 4}}, copied, [&runs] { runs++; });
	f.holds = true;
	CHECK(f.purgatory.check({3, 4}) == 1 && runs == 1);
	CHECK(f.purgatory.check(keys[1]) == 1 && runs == 8);
}

TEST(an_error_destroys_the_callables)
{
	hwt_cxx::purgatory::options options;

	options.max_pending = 1;
	fixture f(options);
	std::error_code error;
	std::vector<hwt_key> none;

	f.purgatory.try_watch(error, 1s, none, f.predicate(), f.done());
	CHECK(error == std::errc::invalid_argument && token::living == 0);
	f.purgatory.try_watch(error, -1s, one, f.predicate(), f.done());
	CHECK(error == std::errc::invalid_argument && token::living == 0);
	f.purgatory.try_watch(error, 1s, one, f.predicate(), f.done());
	CHECK(!error && token::living == 2);
	f.purgatory.try_watch_value(error, 1s, one, 1, f.done());
	CHECK(error.value() == ENOBUFS && token::living == 2);
	f.purgatory.shutdown();
	CHECK(f.ended(HWT_SHUT_DOWN));
	f.purgatory.try_watch(error, 1s, one, nullptr, f.done());
	CHECK(error.value() == ESHUTDOWN && token::living == 0);
	options.shards = 3;
	hwt_cxx::purgatory::try_make(error, f.m.timer, options);
	CHECK(error == std::errc::invalid_argument);
	options.shards = 0;
	options.name = "sixteen-bytes-!!";
	hwt_cxx::purgatory::try_make(error, f.m.timer, options);
	CHECK(error == std::errc::invalid_argument);
	options.name++;
	hwt_cxx::purgatory::try_make(error, f.m.timer, options);
	CHECK(!error);
}

#ifdef __cpp_exceptions
struct throws_when_moved {
	token held{};

	throws_when_moved() = default;
	throws_when_moved(const throws_when_moved &)
	{
		throw 7;
	}
	bool
	operator()()
	{
		return false;
	}
};

TEST(errors_are_thrown)
{
	fixture f;
	hwt_cxx::purgatory moved = std::move(f.purgatory);
	bool caught = false;

	CHECK(thrown([&] { f.purgatory.check(one); }) == EINVAL);
	CHECK(thrown([&] { f.purgatory.watch(1s, one, nullptr, f.done()); }) ==
	    EINVAL);
	f.purgatory = std::move(moved);
	try {
		f.purgatory.watch(1s, one, throws_when_moved(), f.done());
	} catch (int number) {
		caught = number == 7;
	}
	CHECK(caught && token::living == 0);
	CHECK(f.purgatory.stats().pending == 0);
	f.purgatory.watch(1s, one, nullptr,
	    [&] { CHECK(thrown([&] { f.purgatory.shutdown(); }) == EDEADLK); });
	CHECK(f.purgatory.cancel(one) == 1);
}
#endif

TEST(the_destructor_ends_what_is_pending)
{
	fixture f;

	f.purgatory.watch(1s, one, f.predicate(), f.done());
	f.purgatory = hwt_cxx::purgatory(f.m.timer);
	CHECK(f.ended(HWT_SHUT_DOWN));
}

TEST(mailbox)
{
	hwt_cxx::purgatory::mailbox box;
	hwt_cxx::purgatory::options options;
	pollfd ready{box.fd(), POLLIN, 0};

	options.executor = box.executor();
	fixture f(options);
	f.purgatory.watch(1s, one, nullptr, f.done());
	f.purgatory.watch(1s, one, nullptr, f.done());
	CHECK(poll(&ready, 1, 0) == 0 && f.purgatory.cancel(one) == 2);
	CHECK(poll(&ready, 1, 0) == 1 && f.outcomes.empty());
	CHECK(box.run(1) == 1 && f.outcomes.size() == 1);
	f.purgatory.shutdown();
	CHECK(box.run() == 1 && box.run() == 0 && f.outcomes.size() == 2);
	hwt_cxx::purgatory::mailbox moved = std::move(box);
	CHECK(box.run() == 0 && box.executor() == nullptr);
	CHECK(moved.fd() == ready.fd);
}

/* The loop is on another thread. */
TEST(the_destructor_waits_for_a_mailbox)
{
	hwt_cxx::purgatory::mailbox box;
	hwt::timer timer;
	std::atomic<bool> ran{false};
	std::thread loop;
	{
		hwt_cxx::purgatory purgatory(timer);

		purgatory.watch(
		    1h, one, nullptr, [&ran, held = token()] { ran = true; },
		    box.executor());
		CHECK(purgatory.cancel(one) == 1 && !ran);
		loop = std::thread([&] {
			std::this_thread::sleep_for(50ms);
			box.run();
		});
	}
	CHECK(ran);
	loop.join();
}

TEST(a_forked_child_leaves_callables_alone)
{
	static fixture *f;
	hwt_cxx::purgatory::options options;

	/* ThreadSanitizer sees at most 64 locks held in the child. */
	options.shards = 8;
	f = new fixture(options);
	auto operation = f->purgatory.watch(1s, one, nullptr, f->done());
	CHECK(child([] {
		std::error_code error;

		f->purgatory.try_watch(error, 1s, one, nullptr, f->done());
		CHECK(error.value() == EOWNERDEAD && token::living == 1);
		delete f;
		CHECK(token::living == 1);
	}) == 0);
	CHECK(operation.cancel() && f->ended(HWT_CANCELLED));
	delete f;
}

TEST(some_errors_end_the_program)
{
#ifdef __cpp_exceptions
	CHECK(child([] {
		fixture f;
		f.purgatory.watch(1s, one, nullptr, [] { throw 1; });
		f.purgatory.cancel(one);
	}) == 42);
	CHECK(child([] {
		fixture f;
		f.purgatory.watch(
		    1s, one, []() -> bool { throw 1; }, [] {});
	}) == 42);
#endif
	CHECK(child([] {
		auto *f = new fixture;
		f->purgatory.watch(1s, one, nullptr, [f] { delete f; });
		f->purgatory.cancel(one);
	}) == 42);
	CHECK(child([] {
		fixture f;
		auto *box = new hwt_cxx::purgatory::mailbox;
		f.purgatory.watch(
		    1s, one, nullptr, [box] { delete box; }, box->executor());
		f.purgatory.cancel(one);
		box->run();
	}) == 42);
}

/* Checks, deadlines, cancels and a shutdown meet; each operation ends once, and
 * its callables are freed once. */
TEST(each_ends_once_whatever_races)
{
	enum {
		THREADS = 3,
		ROUNDS = 3000
	};
	hwt_options fast{};
	fast.tick_ns = HWT_US(50);
	hwt::timer timer(fast);
	auto purgatory = std::make_unique<hwt_cxx::purgatory>(timer);
	std::atomic<int> accepted{0}, ended{0};
	std::vector<std::thread> threads;

	for (int self = 0; self < THREADS; self++)
		threads.emplace_back([&, self] {
			std::error_code error;

			for (int i = 0; i < ROUNDS; i++) {
				auto value =
				    std::make_shared<std::atomic<int>>(0);
				hwt_key key{0, std::uint64_t(i % 4)};
				auto made = purgatory->try_watch(
				    error, std::chrono::microseconds(i % 300),
				    {key, {1, std::uint64_t(self)}},
				    [value, held = token()] {
					    return *value > 0;
				    },
				    [&ended, value, held = token()] {
					    ended++;
				    });
				accepted += !error;
				*value = i % 2;
				purgatory->check(key);
				if (i % 5 == 0)
					made.cancel();
				if (self == 0 && i == ROUNDS / 2)
					purgatory->shutdown();
			}
		});
	for (std::thread &each : threads)
		each.join();
	purgatory.reset();
	CHECK(accepted > 0 && accepted == ended);
}

int
main()
{
	return run_tests();
}
