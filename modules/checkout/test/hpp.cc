/* SPDX-License-Identifier: Apache-2.0 */
/* What hwt_checkout.hpp says: with time moved by hand, then with threads. */
#include <poll.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <ios>
#include <memory>
#include <mutex>
#include <vector>

#include "hwt_checkout.hpp"

#include "check.h"

using namespace std::chrono_literals;
using hold = hwt_cxx::checkout::hold;
using group = hwt_cxx::checkout::group;
using object = hwt_cxx::checkout::object;
using options = hwt_cxx::checkout::options;

static_assert(!std::is_copy_constructible_v<hold>);
static_assert(!std::is_move_constructible_v<object>);
static_assert(!std::is_move_constructible_v<group>);
/* As hold::member does with what the library answers. */
static_assert(std::is_standard_layout_v<object>);
static_assert(std::is_nothrow_move_constructible_v<hold>);
static_assert(std::is_nothrow_move_assignable_v<hwt_cxx::checkout>);
static_assert(std::is_nothrow_move_assignable_v<hwt_cxx::checkout::waiter>);

struct fixture {
	manual m;
	hwt_cxx::checkout pool;
	std::deque<object> objects{};
	object *a, *b, *c;
	std::vector<hwt_grant> grants{};
	hold last{};

	explicit fixture(const options &given = {}) : pool(m.timer, given)
	{
		a = &objects.emplace_back(pool, 1);
		b = &objects.emplace_back(pool, 2);
		c = &objects.emplace_back(pool, 3);
	}

	auto
	callable()
	{
		return [this, held = token()](hold granted, hwt_grant grant) {
			CHECK(bool(granted) == (grant == HWT_GRANTED));
			grants.push_back(grant);
			last = std::move(granted);
		};
	}

	/* Of the last request, whose callable has gone. */
	bool
	ended(hwt_grant grant)
	{
		CHECK(grants.size() == 1 && grants[0] == grant);
		grants.clear();
		return token::living == 0 && pool.stats().waiting == 0;
	}
};

TEST(a_hold_releases_what_it_has)
{
	fixture f;
	{
		hold held = f.pool.acquire_now({f.b, f.a});

		CHECK(held && f.pool.stats().out == 1);
		CHECK(!f.pool.acquire_now({f.a, f.c}));
		hold other = f.pool.acquire_now(f.c);
		hold moved = std::move(held);
		CHECK(!held && moved && other && f.pool.stats().out == 2);
		held.release();
		other = std::move(moved);
		CHECK(!moved && other && f.pool.stats().out == 1);
		CHECK(f.pool.acquire_now(f.c));
	}
	CHECK(f.pool.stats().out == 0);
	hold held = f.pool.acquire_wait(std::vector<object *>{f.a, f.b}, 1s);
	held.release();
	held.release();
	CHECK(!held && f.pool.acquire_wait({f.a, f.b, f.c}, 0s));
}

TEST(a_name_and_what_is_granted_are_options)
{
	fixture f;
	options given;
	std::error_code error;
	char *text = nullptr;
	size_t size = 0;

	given.name = "of sixteen bytes";
	hwt_cxx::checkout::try_make(error, f.m.timer, given);
	CHECK(error == std::errc::invalid_argument);
	given.name = "accounts";
	given.list_grants = true;

	hwt_cxx::checkout pool(f.m.timer, given);
	std::FILE *file = open_memstream(&text, &size);

	CHECK(hwt_checkout_dump(pool.get(), file) == 0);
	std::fclose(file);
	CHECK(std::strstr(text, "\"accounts\": open") != nullptr);
	CHECK(std::strstr(text, "\ngranted:\n") != nullptr);
	std::free(text);
}

TEST(a_callable_gets_the_hold)
{
	fixture f;
	bool ran = false;
	auto owned = [&ran, value = std::make_unique<int>(7)](
			 hold held) { ran = held && *value == 7; };

	f.pool.acquire(f.a, 1s, f.callable());
	CHECK(f.last && f.ended(HWT_GRANTED));
	auto waiting = f.pool.acquire({f.a, f.b}, 1s, std::move(owned));
	CHECK(!ran && f.pool.stats().waiting == 1);
	f.last.release();
	CHECK(ran && f.pool.stats().out == 0 && !waiting.cancel());
	CHECK(f.m.pending() == 0);
}

TEST(an_expired_one_gets_an_empty_hold)
{
	fixture f;
	hold held = f.pool.acquire_now(f.a);

	f.pool.acquire(f.a, 5ms, f.callable());
	f.m.pass(4ms);
	CHECK(f.grants.empty() && token::living == 1);
	f.m.pass(1ms);
	CHECK(f.ended(HWT_GRANT_EXPIRED) && !f.last);
}

TEST(a_waiter_cancels)
{
	fixture f;
	hold held = f.pool.acquire_now(f.a);
	hwt_cxx::checkout::waiter none;
	auto waiting = f.pool.acquire(f.a, hwt::never, f.callable());

	CHECK(!none.cancel());
	none = std::move(waiting);
	CHECK(!waiting.cancel() && none.cancel());
	CHECK(f.ended(HWT_GRANT_CANCELLED) && !none.cancel());
	held.release();
	none = f.pool.acquire(f.a, 1s, f.callable());
	CHECK(f.ended(HWT_GRANTED) && !none.cancel());
	none = {};
	CHECK(f.last);
}

/* The callable may end the hold, and so all that is left of its request. */
TEST(a_callable_drops_its_own_request)
{
	fixture f;
	hold held = f.pool.acquire_now(f.a);
	int runs = 0;
	auto waiting = std::make_unique<hwt_cxx::checkout::waiter>();

	*waiting = f.pool.acquire(f.a, 1s, [&, held = token()](hold granted) {
		granted.release();
		waiting.reset();
		CHECK(token::living == 1);
		runs++;
	});
	held.release();
	CHECK(runs == 1 && f.pool.stats().out == 0);
}

TEST(retired_objects_leave_their_hold)
{
	fixture f;
	auto gone = std::make_unique<object>(f.pool, 4);
	hold held = f.pool.acquire_now({gone.get(), f.a});
	std::error_code error;

	f.pool.acquire({f.b, gone.get()}, 1s, f.callable());
	held.retire(*gone);
	CHECK(f.ended(HWT_GRANT_RETIRED));
	gone.reset();
	CHECK(held && !f.pool.acquire_now(f.a) && f.pool.acquire_now(f.b));
	held.release();
	CHECK(f.pool.acquire_now(f.a));
	/* The library does not look at it any more, nor it at the library. */
	auto pool = std::make_unique<hwt_cxx::checkout>(f.m.timer);
	object late(*pool);
	pool->acquire_now(&late).retire(late);
	pool.reset();
}

TEST(the_destructor_of_an_object_retires_it)
{
	fixture f;
	auto gone = std::make_unique<object>(f.pool, 4);
	hold held = f.pool.acquire_now(gone.get());

	f.pool.acquire({gone.get()}, 1s, [&f, &gone](hold granted) {
		/* In a callable, too: it is out, and leaves its hold. */
		granted.retire(*gone);
		gone.reset();
		f.grants.push_back(HWT_GRANTED);
	});
	held.release();
	CHECK(f.ended(HWT_GRANTED) && gone == nullptr);
	gone = std::make_unique<object>(f.pool, 4);
	held = f.pool.acquire_now(f.a);
	f.pool.acquire({f.a, gone.get()}, 1s, f.callable());
	gone.reset();
	CHECK(f.ended(HWT_GRANT_RETIRED));
}

TEST(the_destructor_of_an_object_waits_for_its_holder)
{
	fixture f;
	auto gone = std::make_unique<object>(f.pool, 4);
	std::atomic<bool> released{false};
	hold held = f.pool.acquire_now(gone.get());
	std::thread holder([&] {
		std::this_thread::sleep_for(20ms);
		released = true;
		held.release();
	});

	gone.reset();
	CHECK(released);
	holder.join();
	gone = std::make_unique<object>(f.pool, 4);
	held = f.pool.acquire_now(gone.get());
	released = false;
	f.pool.shutdown();
	holder = std::thread([&] {
		std::this_thread::sleep_for(20ms);
		released = true;
		held.release();
	});
	gone.reset();
	CHECK(released);
	holder.join();
}

TEST(a_wait_that_has_a_lock_unlocks_it_and_is_retired)
{
	fixture f;
	std::mutex lock;
	auto gone = std::make_unique<object>(f.pool, 4);
	hold held = f.pool.acquire_now(gone.get());
	std::error_code error;
	std::thread waiting([&] {
		std::unique_lock<std::mutex> found(lock);

		CHECK(!f.pool.try_acquire_wait(
		    error, gone.get(), hwt::never, std::move(found)));
	});

	while (f.pool.stats().waiting == 0)
		std::this_thread::yield();
	lock.lock();
	held.retire(*gone);
	gone.reset();
	lock.unlock();
	waiting.join();
	CHECK(error == std::errc::identifier_removed);
	std::unique_lock<std::mutex> own(lock);
	CHECK(f.pool.acquire_wait(f.a, 0s, std::move(own)) && lock.try_lock());
	own = std::unique_lock<std::mutex>(lock, std::adopt_lock);
	CHECK(!f.pool.try_acquire_wait(error, {}, 0s, std::move(own)) && error);
	CHECK(lock.try_lock());
	lock.unlock();
	CHECK(!f.pool.try_acquire_wait(
	    error, f.a, 0s, std::unique_lock<std::mutex>()));
	CHECK(error == std::errc::operation_not_permitted);
}

TEST(a_pause_lasts_until_it_is_destroyed)
{
	fixture f;
	std::error_code error;
	hold held = f.pool.acquire_now(f.a);

	CHECK(!f.pool.pause(0s));
	held.release();
	{
		auto paused = f.pool.pause(0s);

		CHECK(paused && !f.pool.try_pause(error, 0s));
		CHECK(error.value() == EALREADY);
		CHECK(!f.pool.acquire_now(f.a));
		f.pool.acquire(f.a, 1s, f.callable());
		auto moved = std::move(paused);
		CHECK(!paused && moved && f.grants.empty());
	}
	CHECK(f.ended(HWT_GRANTED) && f.last);
	f.last.release();
	auto paused = f.pool.pause(0s);
	paused.resume();
	paused.resume();
	CHECK(f.pool.acquire_now(f.a));
}

struct connection : object {
	int number = 0;
};

/* The members, all free. */
struct grouped : fixture {
	group any;
	std::deque<connection> members;

	explicit grouped(int count = 2, const options &given = {})
	    : fixture(given), any(pool, 4)
	{
		for (int i = 0; i < count; i++)
			add(i);
	}

	/* Members wait for their holder. */
	~grouped()
	{
		last.release();
	}

	connection &
	add(int number)
	{
		connection &made = members.emplace_back();

		made.number = number;
		any.add(made);
		return made;
	}

	connection *
	got(const hold &held)
	{
		return static_cast<connection *>(held.member(any));
	}
};

TEST(a_hold_tells_which_member_it_has_got)
{
	grouped f;
	group other(f.pool);
	hold one = f.pool.acquire_now(&f.any);
	hold two = f.pool.acquire_wait({f.a, &f.any}, 0s);

	CHECK(f.got(one)->number == 1 && f.got(two)->number == 0);
	CHECK(one.member(other) == nullptr && !f.pool.acquire_now(f.a));
	CHECK(!f.pool.acquire_now({&f.any, f.b}) && f.pool.acquire_now(f.b));
	f.pool.acquire(&f.any, 1s, f.callable());
	two.release();
	CHECK(two.member(f.any) == nullptr && f.got(f.last)->number == 0);
	CHECK(f.ended(HWT_GRANTED));
	one.release();
	std::vector<hwt_cxx::checkout::wanted> set{&f.any, f.c};
	one = f.pool.acquire_now(set);
	CHECK(f.got(one)->number == 1 && !f.pool.acquire_now(f.c));
}

TEST(a_retired_member_ends_no_wait_and_can_be_added_again)
{
	grouped f(1);
	std::error_code error;
	hold held = f.pool.acquire_now(&f.any);
	connection *broken = f.got(held);

	f.pool.acquire({&f.any, f.a}, 1s, f.callable());
	f.any.try_add(error, *broken);
	CHECK(error == std::errc::invalid_argument);
	f.any.try_add(error, *f.a);
	CHECK(error == std::errc::invalid_argument);
	held.retire(*broken);
	CHECK(held && f.got(held) == nullptr && f.grants.empty());
	f.any.add(*broken);
	CHECK(f.got(f.last) == broken && f.ended(HWT_GRANTED));
	held.release();
	CHECK(f.got(f.last) == broken);
}

/* The others are granted as before. */
TEST(the_destructor_of_a_member_retires_it)
{
	grouped f(3);

	f.members.pop_front(); /* the others lie before it */
	hold held = f.pool.acquire_now(&f.any);
	hold other = f.pool.acquire_now(&f.any);
	CHECK(f.got(held)->number + f.got(other)->number == 3);
	CHECK(!f.pool.acquire_now(&f.any));
	held.release();
	CHECK(f.pool.stats().out == 1 && f.pool.acquire_now(&f.any));
}

TEST(the_destructor_of_a_member_waits_for_its_holder)
{
	grouped f(3);
	hold held = f.pool.acquire_now(&f.any);
	std::atomic<bool> released{false};

	CHECK(f.got(held)->number == 2);
	std::thread holder([&] {
		std::this_thread::sleep_for(20ms);
		released = true;
		held.release();
	});

	f.members.pop_back();
	CHECK(released);
	holder.join();
	/* After a shutdown nothing can be taken. */
	f.pool.shutdown();
	f.members.clear();
}

/* Each takes what the other wants. */
TEST(two_destructors_of_members_do_not_wait_for_each_other)
{
	grouped f(0);

	for (int i = 0; i < 100; i++) {
		std::vector<connection> one(16), two(16);
		std::atomic<int> ready{0};
		auto end = [&ready](std::vector<connection> &ended) {
			ready++;
			while (ready != 2)
				continue;
			ended.clear();
		};

		for (int j = 0; j < 16; j++) {
			f.any.add(one[j]);
			f.any.add(two[j]);
		}
		std::thread other([&] { end(one); });
		end(two);
		other.join();
	}
}

TEST(many_read_and_one_writes)
{
	fixture f;
	const auto read = hwt_cxx::checkout::read(f.a);
	auto first = f.pool.acquire_now({read, f.b});
	auto second = f.pool.acquire_now(read);
	std::optional<hwt_grant> told;
	std::error_code error;

	CHECK(first && second);
	f.pool.acquire(f.a, 1s, [&](hold, hwt_grant grant) { told = grant; });
	CHECK(!f.pool.acquire_now(read));
	first.release();
	CHECK(!told);
	second.release();
	CHECK(told == HWT_GRANTED);
	CHECK(!f.pool.try_acquire_now(error, {read, f.a}));
	CHECK(error.value() == ENOTSUP);
}

TEST(a_pause_is_told_and_ends_with_its_hold)
{
	fixture f;
	hold held = f.pool.acquire_now(f.a);

	f.pool.pause(1s, f.callable());
	CHECK(f.grants.empty() && !f.pool.acquire_now(f.b));
	held.release();
	CHECK(f.last && f.ended(HWT_GRANTED) && f.pool.stats().pauses == 1);
	f.last.release();
	held = f.pool.acquire_now({f.a, f.b});
	auto waiting = f.pool.pause({f.b, f.c}, 5ms, f.callable());
	CHECK(f.grants.empty());
	held.release();
	CHECK(f.last && f.ended(HWT_GRANTED) && f.pool.acquire_now(f.a));
	CHECK(!f.pool.acquire_now(f.c) && !waiting.cancel());
	f.last.release();
	held = f.pool.acquire_now(f.a);
	f.pool.pause(5ms, f.callable());
	f.m.pass(5ms);
	CHECK(!f.last && f.ended(HWT_GRANT_EXPIRED) && f.pool.acquire_now(f.b));
}

TEST(the_destructor_of_a_group_ends_its_waits)
{
	fixture f;
	auto gone = std::make_unique<group>(f.pool);

	f.pool.acquire({f.a, gone.get()}, 1s, f.callable());
	CHECK(f.grants.empty());
	gone.reset();
	CHECK(f.ended(HWT_GRANT_RETIRED) && f.pool.acquire_now(f.a));
}

/* hold_after 1: it keeps what it has got. */
TEST(options_say_who_is_served_in_order)
{
	options given;

	for (std::uint32_t after : {1u, HWT_CHECKOUT_NEVER}) {
		given.hold_after = after;
		fixture f(given);
		hold held = f.pool.acquire_now(f.b);
		auto waiting = f.pool.acquire({f.a, f.b}, 1s, f.callable());
		held.release();
		f.last.release();
		held = f.pool.acquire_now(f.b);
		f.grants.clear();
		waiting = f.pool.acquire({f.a, f.b}, 1s, f.callable());
		CHECK(bool(f.pool.acquire_now(f.a)) == (after != 1));
		waiting.cancel();
	}
}

TEST(callables_run_in_a_mailbox)
{
	hwt_cxx::checkout::mailbox box;
	pollfd ready{box.fd(), POLLIN, 0};
	options given;

	given.executor = box.executor();
	grouped f(1, given);
	hold held = f.pool.acquire_now(&f.any);
	f.pool.acquire(&f.any, 1s, f.callable());
	auto waiting = f.pool.acquire(&f.any, 1s, f.callable());
	CHECK(poll(&ready, 1, 0) == 0);
	held.release();
	CHECK(waiting.cancel() && poll(&ready, 1, 0) == 1);
	CHECK(f.grants.empty() && !f.pool.acquire_now(&f.any));
	CHECK(box.run(1) == 1 && f.got(f.last) == &f.members[0]);
	CHECK(f.grants == std::vector<hwt_grant>{HWT_GRANTED});
	f.grants.clear();
	CHECK(box.run() == 1 && f.ended(HWT_GRANT_CANCELLED));
	CHECK(box.run() == 0);
	hwt_cxx::checkout::mailbox moved = std::move(box);
	CHECK(box.run() == 0 && box.executor() == nullptr);
	CHECK(moved.fd() == ready.fd);
}

/* The loop is on another thread. */
TEST(the_destructor_waits_for_a_mailbox)
{
	hwt_cxx::checkout::mailbox box;
	hwt::timer timer;
	std::atomic<bool> ran{false};
	std::thread loop;
	options given;

	given.executor = box.executor();
	{
		hwt_cxx::checkout pool(timer, given);
		object a(pool);
		hold held = pool.acquire_now(&a);

		pool.acquire(&a, 1h,
		    [&ran, held = token()](hold granted) { ran = !granted; });
		pool.shutdown();
		loop = std::thread([&] {
			std::this_thread::sleep_for(50ms);
			box.run();
		});
		held.release();
	}
	CHECK(ran && token::living == 0);
	loop.join();
}

TEST(an_error_destroys_the_callable)
{
	fixture f;
	std::error_code error;
	hold held = f.pool.acquire_now(f.a);
	std::vector<object *> none, many(30, f.b);

	f.pool.try_acquire(error, none, 1s, f.callable());
	CHECK(error == std::errc::invalid_argument);
	f.pool.try_acquire(error, {f.a, nullptr}, 1s, f.callable());
	CHECK(error == std::errc::invalid_argument);
	f.pool.try_acquire(error, {f.a, f.a}, 1s, f.callable());
	CHECK(error == std::errc::invalid_argument);
	f.pool.try_acquire(error, f.a, -1s, f.callable());
	CHECK(error == std::errc::invalid_argument);
	CHECK(!f.pool.try_acquire_now(error, many) && error);
	CHECK(!f.pool.try_acquire_wait(error, f.a, -1s) && error);
	f.pool.acquire(f.a, 1s, f.callable());
	f.pool.shutdown();
	CHECK(f.ended(HWT_GRANT_SHUT_DOWN));
	f.pool.try_acquire(error, f.b, 1s, f.callable());
	CHECK(error.value() == ESHUTDOWN && token::living == 0);
	CHECK(!f.pool.try_acquire_now(error, f.b));
	CHECK(error.value() == ESHUTDOWN);
	CHECK(!f.pool.try_pause(error, 0s) && error.value() == ESHUTDOWN);
	hwt_cxx::checkout::try_make(
	    error, f.m.timer, {3, 0, nullptr, nullptr, false});
	CHECK(error == std::errc::invalid_argument);
}

/* What the stores below load: its name, and how many are there. */
struct page {
	static inline std::atomic<int> living{0};

	explicit page(std::string_view from) : name(from)
	{
		living++;
	}

	page(const page &) = delete;
	page &operator=(const page &) = delete;

	~page()
	{
		living--;
	}

	std::string name;
	const void *owner = nullptr;
};

using pages = hwt_cxx::store<page>;

static_assert(!std::is_copy_constructible_v<pages>);
static_assert(std::is_nothrow_move_assignable_v<pages>);
static_assert(!std::is_copy_constructible_v<pages::hold>);
static_assert(!std::is_copy_constructible_v<pages::load_job>);

static std::unique_ptr<page>
read_page(std::string_view name)
{
	return std::make_unique<page>(name);
}

TEST(a_store_loads_what_is_named_and_unloads_it)
{
	fixture f;
	std::string unloaded;
	{
		pages all(
		    f.pool, {},
		    [held = token()](
			std::string_view name) { return read_page(name); },
		    [&, held = token()](std::string_view name, page &out) {
			    CHECK(name == out.name && page::living != 0);
			    unloaded += name;
		    });
		pages::hold held = all.acquire_wait({"a", "bc"}, 1s);

		CHECK(held && held.size() == 2 && held[1].name == "bc");
		CHECK(held->name == "a" && (*held).name == "a");
		CHECK(all.stats().loads == 2 && f.pool.stats().out == 1);
		held.release();
		CHECK(!held && held.size() == 0);
		all.trim();
		CHECK(page::living == 0 && unloaded.size() == 3);
		/* One key, of any kind, and what has keys. */
		std::string name(300, 'x');
		std::error_code error;
		CHECK(!all.try_acquire_wait(error, name, 1s));
		CHECK(error == std::errc::invalid_argument);
		name.resize(255);
		std::vector<pages::key> list{name, pages::read("a")};
		CHECK(all.acquire_wait(list, 1s)[0].name == name);
		CHECK(all.acquire_wait(name, 1s)->name == name);
		CHECK(all.acquire_wait(std::string_view("\0", 1), 1s));
		pages moved = std::move(all);
		CHECK(moved.stats().loaded == 3 && token::living == 2);
	}
	CHECK(page::living == 0 && token::living == 0);
}

TEST(a_callable_gets_the_hold_of_keys)
{
	fixture f;
	pages all(f.pool, {}, read_page);
	std::vector<int> ends;
	pages::hold last;
	auto callable = [&, held = token()](
			    pages::hold granted, std::error_code why) {
		CHECK(bool(granted) == !why);
		ends.push_back(why.value());
		if (granted)
			last = std::move(granted);
	};
	auto waiting = all.acquire("a", 1s, callable);

	CHECK(ends == std::vector<int>{0} && last->name == "a");
	CHECK(!waiting.cancel());
	waiting = all.acquire({"a"}, hwt::never, callable);
	CHECK(waiting.cancel() && !waiting.cancel());
	all.acquire("a", 5ms, callable);
	f.m.pass(5ms);
	CHECK(ends == (std::vector<int>{0, ECANCELED, ETIMEDOUT}));
	{
		pages::hold one;
		all.acquire({"a", "b"}, 1s,
		    [&](pages::hold granted) { one = std::move(granted); });
		last = all.acquire_wait("c", 1s);
		CHECK(one.size() == 2);
	}
	std::vector<pages::hold> readers;
	for (int i = 0; i < 2; i++)
		all.acquire(pages::read("a"), 1s, [&](pages::hold granted) {
			readers.push_back(std::move(granted));
		});
	CHECK(readers.size() == 2 && &*readers[0] == &*readers[1]);
	ends.clear();
	all.acquire("a", hwt::never, callable);
	f.pool.shutdown();
	CHECK(ends == std::vector<int>{ESHUTDOWN});
}

TEST(a_load_fails_with_its_error)
{
	fixture f;
	std::error_code with = std::make_error_code(std::errc::io_error);
	pages::options given;
	std::error_code error;
	int loads = 0;

	given.backoff = 5ms;
	pages all(
	    f.pool, given, [&](std::string_view name, std::error_code &why) {
		    loads++;
		    why = with;
		    return name == "a" ? read_page(name) : nullptr;
	    });
	CHECK(!all.try_acquire_wait(error, {"b", "a"}, 1s));
	CHECK(error == std::errc::io_error && page::living == 0);
	CHECK(!all.try_acquire_wait(error, "a", 1s) && loads == 2);
	f.m.pass(5ms);
	with = std::make_error_code(std::errc::no_space_on_device);
	std::error_code told;
	all.acquire(
	    "a", 1s, [&](pages::hold, std::error_code why) { told = why; });
	CHECK(told.value() == ENOSPC && loads == 3);
	all.try_acquire(error, "a", 1s, [](pages::hold) { CHECK(false); });
	CHECK(error.value() == ENOSPC && loads == 3);
	/* It has no errno value. */
	f.m.pass(5ms);
	with = std::make_error_code(std::io_errc::stream);
	CHECK(!all.try_acquire_wait(error, "a", 1s) && error.value() == EIO);
	f.m.pass(5ms);
	with = {};
	CHECK(!all.try_acquire_wait(error, "b", 1s) && error.value() == ENOENT);
	CHECK(all.try_acquire_wait(error, "a", 1s) && !error);
}

TEST(a_store_keeps_to_its_options)
{
	fixture f;
	pages::options given;
	bool keeps = true;
	std::uint64_t jobs = 0;

	given.limit = 5;
	given.idle = 5ms;
	given.shards = 1;
	/* It refuses them. */
	hwt_store_executor executor{
	    [](void *ctx, ::hwt_store *, hwt_store_job *) {
		    ++*static_cast<std::uint64_t *>(ctx);
		    return -EAGAIN;
	    },
	    &jobs};
	given.executor = &executor;
	pages all(
	    f.pool, given,
	    [](std::string_view name) {
		    return pages::loaded(read_page(name), 3);
	    },
	    [&](std::string_view, page &) { return !keeps; });
	all.acquire_wait("a", 1s)->owner = &f;
	all.acquire_wait("b", 1s)->owner = &f;
	CHECK(all.stats().weight == 6 && all.stats().refusals != 0);
	keeps = false;
	all.acquire_wait("c", 1s).pin(0);
	CHECK(all.stats().weight == 3 && all.stats().loaded == 1);
	f.m.pass(10ms);
	CHECK(page::living == 1);
	all.acquire_wait("c", 1s).pin(0, false);
	f.m.pass(10ms);
	hwt_store_stats stats = all.stats();
	CHECK(page::living == 0 && stats.loads == 3 && stats.unloads == 3);
	CHECK(jobs == stats.loads + stats.unloads + stats.refusals);
	std::error_code error;
	given.idle = hwt::never;
	(void)pages::try_make(error, f.pool, given, read_page);
	CHECK(error == std::errc::invalid_argument);
}

TEST(loads_and_unloads_end_later)
{
	fixture f;
	std::optional<pages::load_job> loading;
	std::vector<pages::unload_job> unloading;
	std::vector<int> ends;
	std::error_code error;
	pages all(
	    f.pool, {},
	    [&](std::string_view name, pages::load_job job) {
		    loading.emplace(std::move(job));
		    if (name == "at once")
			    loading->end(read_page(name));
		    else if (name == "dropped")
			    loading.reset();
	    },
	    [&](std::string_view, page &, pages::unload_job job) {
		    unloading.push_back(std::move(job));
	    });
	auto acquire = [&] {
		all.acquire("a", 1s, [&](pages::hold, std::error_code why) {
			ends.push_back(why.value());
		});
	};

	CHECK(all.acquire_wait("at once", 1s)->name == "at once");
	CHECK(!all.try_acquire_wait(error, "dropped", 1s));
	CHECK(error.value() == ECANCELED);
	acquire();
	loading->end(std::unique_ptr<page>());
	acquire();
	loading->fail(std::make_error_code(std::errc::io_error));
	acquire();
	CHECK(ends == (std::vector<int>{ENOENT, EIO}) && page::living == 1);
	loading->end(read_page("a"));
	CHECK(ends.size() == 3 && ends[2] == 0 && page::living == 2);
	/* It has ended. */
	loading->end(read_page("a"));
	loading->fail(std::make_error_code(std::errc::io_error));
	all.trim();
	CHECK(unloading.size() == 2 && page::living == 2);
	unloading[0].refuse();
	unloading[0].end();
	unloading[1].end();
	CHECK(page::living == 1 && all.stats().refusals == 1);
	unloading.clear();
	all.trim();
	unloading.clear();
	CHECK(page::living == 1 && all.stats().refusals == 2);
	all.trim();
	unloading[0].end();
	CHECK(page::living == 0 && all.stats().jobs == 0);
}

TEST(the_destructor_of_a_store_waits_for_jobs)
{
	fixture f;
	std::atomic<bool> ended{false};
	std::optional<pages::load_job> loading;
	bool refuses = true;
	auto all = std::make_unique<pages>(
	    f.pool, pages::options(),
	    [&](std::string_view name, pages::load_job job) {
		    if (name == "b")
			    job.end(read_page(name));
		    else
			    loading.emplace(std::move(job));
	    },
	    [&](std::string_view, page &) {
		    return !std::exchange(refuses, false);
	    });

	CHECK(all->acquire_wait("b", 1s));
	all->acquire("a", 1s, [](pages::hold none) { CHECK(!none); }).cancel();
	std::thread ends([&] {
		std::this_thread::sleep_for(20ms);
		ended = true;
		loading->end(read_page("a"));
	});

	all.reset();
	CHECK(ended && !refuses && page::living == 0);
	ends.join();
}

#ifdef __cpp_exceptions
TEST(errors_are_thrown)
{
	fixture f;
	hold held = f.pool.acquire_now(f.a);
	hwt_cxx::checkout moved = std::move(f.pool);
	auto nothing = [held = token()](hold) {};

	CHECK(thrown([&] { held = f.pool.acquire_now(f.b); }) == EINVAL);
	CHECK(thrown([&] { f.pool.acquire(f.b, 1s, nothing); }) == EINVAL);
	CHECK(thrown([&] { object none(f.pool); }) == EINVAL);
	CHECK(thrown([&] { group none(f.pool); }) == EINVAL);
	CHECK(thrown([&] { held.retire(*f.b); }) == EPERM);
	CHECK(thrown([] { hold().retire(*std::make_unique<fixture>()->a); }) ==
	    EPERM);
	f.pool = std::move(moved);
	{
		hold other = f.pool.acquire_now(f.b);
		CHECK(thrown([&] { held.retire(*f.b); }) == EPERM);
	}
	{
		hold reads = f.pool.acquire_now(hwt_cxx::checkout::read(f.b));
		CHECK(thrown([&] { reads.retire(*f.b); }) == EPERM);
		auto waiting = f.pool.pause(1s, nothing);
		CHECK(thrown([&] { f.pool.pause(1s, nothing); }) == EALREADY);
		CHECK(waiting.cancel());
	}
	pages all(f.pool, {}, [](std::string_view) { return read_page({}); });
	CHECK(thrown([&] { auto none = all.acquire_wait("", 1s); }) == EINVAL);
	CHECK(
	    thrown([&] { all.acquire("", 1s, [](pages::hold) {}); }) == EINVAL);
	CHECK(thrown([] { pages::hold().pin(0); }) == EPERM);
	CHECK(thrown([&] { all.acquire_wait("a", 1s).pin(1); }) == EINVAL);
	pages::options wrong;
	wrong.shards = 3;
	CHECK(thrown([&] { pages none(f.pool, wrong, read_page); }) == EINVAL);
	f.pool.acquire(f.b, 1s, [](hold) {});
	f.pool.acquire(f.a, 1s, [&f](hold) {
		CHECK(thrown([&] {
			hold none = f.pool.acquire_wait(f.b, 1s);
		}) == EDEADLK);
		CHECK(thrown([&] { auto none = f.pool.pause(1s); }) == EDEADLK);
	});
	held.release();
}
#endif

TEST(a_shutdown_ends_what_waits)
{
	fixture f;
	hwt_cxx::checkout pool(f.m.timer);
	auto kept = std::make_unique<object>(pool);

	CHECK(hwt_checkout_pause(pool.get(), 0) == 0);
	pool.acquire(kept.get(), 1s, f.callable());
	CHECK(f.grants.empty());
	{
		hwt_cxx::checkout ending = std::move(pool);

		/* Without that, the object would wait for the end of the
		 * pause. */
		ending.shutdown();
		CHECK(f.ended(HWT_GRANT_SHUT_DOWN));
		kept.reset();
	}
	pool = hwt_cxx::checkout(f.m.timer);
	CHECK(pool.stats().out == 0);
}

TEST(a_forked_child_leaves_callables_alone)
{
	static fixture *f;

	f = new fixture;
	hold held = f->pool.acquire_now(f->a);
	auto waiting = f->pool.acquire(f->a, 1s, f->callable());
	CHECK(child([] {
		std::error_code error;

		CHECK(!f->pool.try_acquire_now(error, f->b));
		CHECK(error.value() == EOWNERDEAD && f->grants.empty());
		delete f;
		CHECK(token::living == 1);
	}) == 0);
	CHECK(waiting.cancel() && f->ended(HWT_GRANT_CANCELLED));
	held.release();
	waiting = {};
	delete f;
}

TEST(a_forked_child_destroys_a_store_but_no_callable)
{
	static fixture *f;
	static pages *all;

	f = new fixture;
	all = new pages(f->pool, {}, [held = token()](std::string_view name) {
		return read_page(name);
	});
	CHECK(all->acquire_wait("a", 1s));
	CHECK(child([] {
		std::error_code error;

		CHECK(!all->try_acquire_wait(error, "a", 1s));
		CHECK(error.value() == EOWNERDEAD);
		delete all;
		CHECK(token::living == 1 && page::living == 1);
	}) == 0);
	delete all;
	CHECK(token::living == 0 && page::living == 0);
	delete f;
}

TEST(some_errors_end_the_program)
{
#ifdef __cpp_exceptions
	CHECK(child([] {
		fixture f;
		f.pool.acquire(f.a, 1s, [](hold) { throw 1; });
	}) == 42);
	CHECK(child([] {
		fixture f;
		hold held = f.pool.acquire_now(f.a);
		f.pool.acquire(f.a, 1s, [](hold) { throw 1; });
		held.release();
	}) == 42);
#endif
	CHECK(child([] {
		fixture f;
		hold held = f.pool.acquire_now(f.a);
		auto pool =
		    std::make_unique<hwt_cxx::checkout>(std::move(f.pool));
		pool->acquire(f.a, 1s, [&](hold granted) {
			granted.release();
			pool.reset();
		});
		held.release();
	}) == 42);
	CHECK(child([] {
		fixture f;
		hold held = f.pool.acquire_now(f.a);
		f.pool = hwt_cxx::checkout(f.m.timer);
	}) == 42);
	CHECK(child([] {
		fixture f;
		auto out = std::make_unique<object>(f.pool);
		hold both = f.pool.acquire_now(out.get());
		hold held = f.pool.acquire_now(f.a);
		f.pool.acquire(f.a, 1s, [&](hold) { out.reset(); });
		held.release();
	}) == 42);
	CHECK(child([] {
		fixture f;
		connection member;
		group any(f.pool);
		any.add(member);
	}) == 42);
	CHECK(child([] {
		auto *box = new hwt_cxx::checkout::mailbox;
		options given;
		given.executor = box->executor();
		fixture f(given);
		hold held = f.pool.acquire_now(f.a);
		f.pool.acquire(f.a, 1s, [box](hold) { delete box; });
		held.release();
		box->run();
	}) == 42);
	CHECK(child([] {
		fixture f;
		auto all = std::make_unique<pages>(
		    f.pool, pages::options(), read_page);
		pages::hold held = all->acquire_wait("a", 1s);
		all->acquire("a", 1s, [&](pages::hold) { all.reset(); });
		held.release();
	}) == 42);
	CHECK(child([] {
		fixture f;
		auto *all = new pages(f.pool, {}, read_page);
		pages::hold held = all->acquire_wait("a", 1s);
		held = all->acquire_wait("b", 1s);
		delete all;
	}) == 42);
}

/* One holder at a time, and each callable once: whatever releases, cancels,
 * expires and pauses meet. */
TEST(each_ends_once_whatever_races)
{
	enum {
		THREADS = 3,
		ROUNDS = 2000
	};
	hwt_options fast{};
	fast.tick_ns = HWT_US(50);
	hwt::timer timer(fast);
	hwt_cxx::checkout pool(timer);
	std::deque<object> objects;
	int holders[4] = {};
	std::atomic<int> begun{0}, ended{0};
	std::vector<std::thread> threads;

	for (int i = 0; i < 4; i++)
		objects.emplace_back(pool);
	for (int self = 0; self < THREADS; self++)
		threads.emplace_back([&, self] {
			std::error_code error;

			for (int i = 0; i < ROUNDS; i++) {
				int x = (i + self) % 4;
				int y = (x + 1 + i % 3) % 4;
				auto use = [&holders, x, y](hold held) {
					if (!held)
						return;
					CHECK(holders[x]++ == 0);
					CHECK(holders[y]++ == 0);
					holders[x]--;
					holders[y]--;
				};
				auto within =
				    std::chrono::microseconds(i % 200);

				begun++;
				auto waiting = pool.acquire(
				    {&objects[x], &objects[y]}, within,
				    [&, use, held = token()](hold granted) {
					    use(std::move(granted));
					    ended++;
				    });
				if (i % 7 == 0)
					waiting.cancel();
				use(pool.acquire_wait(
				    {&objects[y], &objects[x]}, 20us));
				if (self == 0 && i % 50 == 0)
					auto paused =
					    pool.try_pause(error, 100us);
			}
		});
	for (std::thread &each : threads)
		each.join();
	/* The last ones that wait. */
	while (pool.stats().waiting != 0 || ended != begun)
		std::this_thread::sleep_for(1ms);
}

int
main()
{
	return run_tests();
}
