/* SPDX-License-Identifier: Apache-2.0 */
/* hwt_checkout.hpp, with time moved by hand. */
#include "hwt_checkout.hpp"

#include "check.h"

using namespace std::chrono_literals;
using hold = hwt_cxx::checkout::hold;

static_assert(!std::is_copy_constructible_v<hold>);
static_assert(std::is_nothrow_move_assignable_v<hwt_cxx::checkout>);

struct fixture {
	manual m;
	hwt_cxx::checkout checkout{m.timer};
	hwt_object a{}, b{}, c{};
	std::vector<hwt_grant> grants{};
	hold last{};

	fixture()
	{
		CHECK(hwt_object_init(checkout.get(), &a, 1) == 0);
		CHECK(hwt_object_init(checkout.get(), &b, 2) == 0);
		CHECK(hwt_object_init(checkout.get(), &c, 3) == 0);
	}

	/* Of a type that only moves. */
	auto
	callable()
	{
		return [this, own = std::make_unique<token>()](
			   hold held, hwt_grant grant) {
			CHECK(bool(held) == (grant == HWT_GRANTED));
			grants.push_back(grant);
			last = std::move(held);
		};
	}

	bool
	is_free(hwt_object *object)
	{
		bool got = false;

		checkout.acquire({object}, hwt::never,
		    [&](hold held, hwt_grant) { got = bool(held); })();
		return got;
	}

	std::uint64_t
	out() const
	{
		hwt_checkout_stats stats{};

		CHECK(hwt_checkout_read_stats(checkout.get(), &stats) == 0);
		return stats.out;
	}
};

TEST(a_hold_has_its_objects_until_it_is_destroyed)
{
	fixture f;
	{
		hold held = f.checkout.acquire_wait({&f.b, &f.a}, 1s);

		CHECK(held[0].granted == &f.b && held[1].granted == &f.a);
		CHECK(!f.is_free(&f.a) && f.is_free(&f.c));
		hold other = f.checkout.acquire_wait({{&f.c, HWT_READ}}, 1s);
		CHECK(f.out() == 2);
		other = std::move(held);
		CHECK(!held && other && f.out() == 1);
		other = nullptr;
		CHECK(f.out() == 0);
	}
	CHECK(f.out() == 0);
}

TEST(a_callable_gets_the_hold_at_once_or_later)
{
	fixture f;

	f.checkout.acquire({&f.a}, 1s, f.callable());
	CHECK(f.last && f.grants.size() == 1 && token::living == 0);
	hold held = std::move(f.last);
	f.checkout.acquire({&f.a, &f.b}, 1s, f.callable());
	CHECK(f.grants.size() == 1 && token::living == 1);
	held = nullptr;
	CHECK(f.last && f.grants.size() == 2 && token::living == 0);
	CHECK(f.m.pending() == 0);
}

TEST(a_wait_ends_by_its_deadline_or_is_cancelled)
{
	fixture f;
	hold held = f.checkout.acquire_wait({&f.a}, 1s);

	f.checkout.acquire({&f.a}, 5ms, f.callable());
	f.m.pass(4ms);
	CHECK(f.grants.empty());
	f.m.pass(1ms);
	CHECK(f.grants == std::vector{HWT_GRANT_EXPIRED});
	auto cancel = f.checkout.acquire({&f.a}, hwt::never, f.callable());
	CHECK(cancel() && !cancel());
	CHECK(f.grants.back() == HWT_GRANT_CANCELLED && token::living == 0);
}

/* The callable may end the hold, and so all that is left of its request. */
TEST(a_callable_drops_its_own_request)
{
	fixture f;
	hold held = f.checkout.acquire_wait({&f.a}, 1s);
	int runs = 0;

	f.checkout.acquire(
	    {&f.a}, 1s, [&, own = token()](hold granted, hwt_grant) {
		    granted = nullptr;
		    CHECK(token::living == 1);
		    runs++;
	    });
	held = nullptr;
	CHECK(runs == 1 && f.out() == 0);
}

TEST(the_destructor_ends_what_waits)
{
	manual m;
	std::vector<hwt_grant> grants{};
	{
		hwt_cxx::checkout checkout(m.timer);
		hwt_group none{};

		CHECK(hwt_group_init(checkout.get(), &none, 1) == 0);
		checkout.acquire({&none.any}, hwt::never,
		    [&](hold, hwt_grant grant) { grants.push_back(grant); });
	}
	CHECK(grants == std::vector{HWT_GRANT_SHUT_DOWN});
	CHECK(child([] {
		fixture f;
		hold held = f.checkout.acquire_wait({&f.a}, 1s);

		hwt_cxx::checkout(std::move(f.checkout));
	}) == 42);
}

#ifdef __cpp_exceptions
TEST(errors_are_thrown_and_callables_destroyed)
{
	fixture f;
	hwt_checkout_options wrong{};

	wrong.shards = 3;
	CHECK(thrown([&] { hwt_cxx::checkout(f.m.timer, wrong); }) == EINVAL);
	CHECK(thrown([&] {
		f.checkout.acquire_wait({&f.a, &f.a}, 1s);
	}) == EINVAL);
	CHECK(hwt_checkout_shutdown(f.checkout.get()) == 0);
	CHECK(thrown([&] { f.checkout.acquire({&f.a}, 1s, f.callable()); }) ==
	    ESHUTDOWN);
	CHECK(token::living == 0 && f.grants.empty());
}
#endif

struct account : token {
	int balance = 10;
};

TEST(a_store_loads_each_value_once)
{
	fixture f;
	std::vector<std::string> loaded{};
	hwt_cxx::store<account> accounts(
	    f.checkout, {}, [&](std::string_view key) {
		    loaded.emplace_back(key);
		    return key == "nobody" ? nullptr
					   : std::make_unique<account>();
	    });
	int result = 1;

	if (auto held = accounts.acquire_wait({"alice", "bob"}, 1s)) {
		accounts.value(held, 0).balance -= 7;
		accounts.value(held, 1).balance += 7;
	}
	accounts.acquire({{"bob", HWT_READ}}, 1s, [&](auto held, int end) {
		CHECK(end == 0 && accounts.value(held, 0).balance == 17);
		result = end;
	});
	CHECK(result == 0 &&
	    loaded == (std::vector<std::string>{"alice", "bob"}));
	CHECK(token::living == 2);
#ifdef __cpp_exceptions
	CHECK(thrown([&] { accounts.acquire_wait({"nobody"}, 1s); }) == ENOENT);
#endif
}

int
main()
{
	return run_tests();
}
