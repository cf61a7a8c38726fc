/* SPDX-License-Identifier: Apache-2.0 */
/* hwt_purgatory.hpp, with time moved by hand. */
#include "hwt_purgatory.hpp"

#include <memory>

#include "check.h"

using namespace std::chrono_literals;

static_assert(!std::is_copy_constructible_v<hwt_cxx::purgatory>);
static_assert(std::is_nothrow_move_constructible_v<hwt_cxx::purgatory>);

static const hwt_key left = {1, 1}, right = {1, 2};

struct fixture {
	manual m;
	hwt_cxx::purgatory waits{m.timer};
	bool holds = false;
	std::vector<hwt_outcome> outcomes{};

	hwt_operation
	watch(hwt::delay after, const std::vector<hwt_key> &keys)
	{
		return waits.watch(
		    after, keys, [this, own = token()] { return holds; },
		    [this, own = std::make_unique<token>()](
			hwt_outcome outcome) { outcomes.push_back(outcome); });
	}
};

TEST(check_completes_an_operation_under_either_key)
{
	fixture f;
	hwt_operation operation = f.watch(1s, {left, right});

	CHECK(operation.id != 0);
	CHECK(f.waits.check(right) == 0);
	f.holds = true;
	CHECK(f.waits.check(right) == 1);
	CHECK(f.waits.check(left) == 0);
	CHECK(f.outcomes == std::vector{HWT_COMPLETED});
	/* At once, and so there is no handle. */
	CHECK(f.watch(1s, {left}).id == 0);
	CHECK(f.outcomes.size() == 2);
}

TEST(an_operation_expires_or_is_cancelled)
{
	fixture f;
	hwt_operation operation = f.watch(hwt::never, {left});

	f.watch(10ms, {left});
	f.m.pass(5ms);
	CHECK(f.outcomes.empty());
	f.m.pass(6ms);
	CHECK(f.outcomes == std::vector{HWT_EXPIRED});
	CHECK(hwt_operation_cancel(f.waits.get(), operation) == 0);
	CHECK(f.outcomes.back() == HWT_CANCELLED);
	CHECK(token::living == 0);
}

TEST(raise_completes_from_the_threshold_on)
{
	fixture f;
	std::vector<int> ended{};

	for (int at_least : {3, 1, 5}) {
		f.waits.watch(
		    1s, {left}, nullptr,
		    [&ended, at_least](hwt_outcome outcome) {
			    CHECK(outcome == HWT_COMPLETED);
			    ended.push_back(at_least);
		    },
		    static_cast<std::uint64_t>(at_least));
	}
	CHECK(f.waits.raise(left, 3) == 2);
	CHECK(f.waits.raise(left, 9) == 1);
	CHECK((ended == std::vector{1, 3, 5}));
}

TEST(the_destructor_ends_what_is_pending)
{
	std::vector<hwt_outcome> outcomes{};
	manual m;

	{
		hwt_cxx::purgatory waits(m.timer);

		waits.watch(hwt::never, {left}, nullptr,
		    [&](hwt_outcome outcome) { outcomes.push_back(outcome); });
	}
	CHECK(outcomes == std::vector{HWT_SHUT_DOWN});
}

TEST(destruction_in_a_callback_of_its_own_terminates)
{
	CHECK(child([] {
		manual m;
		auto waits = std::make_unique<hwt_cxx::purgatory>(m.timer);

		waits->watch(
		    1s, {left}, nullptr, [&](hwt_outcome) { waits.reset(); });
		m.pass(2s);
	}) == 42);
}

#ifdef __cpp_exceptions
TEST(a_watch_that_fails_throws_and_destroys_its_callables)
{
	fixture f;

	CHECK(thrown([&] { f.watch(1s, {}); }) == EINVAL);
	CHECK(hwt_purgatory_shutdown(f.waits.get()) == 0);
	CHECK(thrown([&] { f.watch(1s, {left}); }) == ESHUTDOWN);
	CHECK(token::living == 0 && f.outcomes.empty());
}
#endif

int
main()
{
	return run_tests();
}
