/* SPDX-License-Identifier: Apache-2.0 */
/* What hwt.hpp says, with time moved by hand. */
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include <poll.h>

#include "check.h"

using namespace std::chrono_literals;
using std::chrono::duration;

/* Durations. */

constexpr std::uint64_t limit = std::uint64_t{1} << 63;

constexpr bool
refused(hwt::delay delay)
{
	return delay.ns() >= limit && delay != hwt::never;
}

static_assert(hwt::delay(5ns).ns() == 5);
static_assert(hwt::delay(5ms).ns() == HWT_MS(5));
static_assert(hwt::delay(2h).ns() == HWT_MIN(120));
static_assert(hwt::delay(0.25s).ns() == HWT_MS(250));
static_assert(hwt::delay(duration<float>(0.5f)).ns() == HWT_MS(500));
static_assert(hwt::delay(duration<int, std::pico>(1)).ns() == 1);
static_assert(hwt::delay(duration<int, std::pico>(1001)).ns() == 2);
static_assert(hwt::delay(duration<double, std::nano>(1.5)).ns() == 2);
static_assert(hwt::delay(duration<int, std::ratio<1, 3>>(1)).ns() == 333333334);
static_assert(
    hwt::delay(duration<int, std::ratio<1, 3>>(3)).ns() == HWT_SEC(1));
static_assert(hwt::delay(std::chrono::nanoseconds::max()).ns() == limit - 1);
static_assert(hwt::delay(duration<unsigned, std::milli>(7)).ns() == HWT_MS(7));
static_assert(refused(-1ns));
static_assert(refused(-1h));
static_assert(refused(std::chrono::nanoseconds::min()));
static_assert(refused(std::chrono::microseconds::max()));
static_assert(refused(std::chrono::hours::max()));
static_assert(refused(duration<std::uint64_t, std::nano>(limit)));
static_assert(refused(duration<double>(-0.001)));
static_assert(refused(duration<double>(1e10)));
static_assert(hwt::never.ns() == HWT_NEVER);

static_assert(!std::is_copy_constructible_v<hwt::timeout>);
static_assert(!std::is_copy_constructible_v<hwt::timer>);
static_assert(std::is_nothrow_move_constructible_v<hwt::timeout>);
static_assert(std::is_nothrow_move_assignable_v<hwt::timeout>);
static_assert(std::is_nothrow_move_constructible_v<hwt::timer>);

TEST(runs_once_and_is_destroyed_then)
{
	manual m;
	int runs = 0;
	hwt::timeout t =
	    m.timer.schedule(5ms, [&runs, held = token()] { runs++; });

	CHECK(m.timer.pending() == 1 && t.remaining() == 5ms);
	CHECK(m.timer.next_wakeup() == hwt::delay(5ms));
	CHECK(m.pass(4ms) == 0 && runs == 0 && token::living == 1);
	CHECK(m.pass(1ms) == 1 && runs == 1 && token::living == 0);
	CHECK(m.pass(1s) == 0 && runs == 1);
	CHECK(!t.cancel() && !t.reschedule(1ms) && !t.remaining());
	CHECK(m.timer.next_wakeup() == hwt::never);
	CHECK(m.timer.stats().started == 1);
}

TEST(destructor_cancels)
{
	manual m;
	{
		hwt::timeout t =
		    m.timer.schedule(5ms, [held = token()] { std::abort(); });
		hwt::timeout never_due =
		    m.timer.schedule(hwt::never, [held = token()] {});

		CHECK(token::living == 2);
	}
	CHECK(token::living == 0 && m.timer.pending() == 0);
	CHECK(m.pass(1s) == 0);
}

TEST(takes_what_can_only_be_moved_and_its_own_handle)
{
	manual m;
	int got = 0;
	hwt_timeout seen{};
	auto callable = [value = std::make_unique<int>(7), &got, &seen](
			    hwt_timeout self) {
		got = *value;
		seen = self;
		return got;
	};
	hwt::timeout t = m.timer.schedule(1ms, std::move(callable));
	std::function<void()> copied = [&got] { got++; };
	hwt::timeout u = m.timer.schedule(2ms, copied);

	CHECK(m.pass(1ms) == 1 && got == 7 && seen.id == t.handle().id);
	CHECK(m.pass(1ms) == 1 && got == 8);
}

TEST(moves_and_assignment)
{
	manual m;
	int runs = 0;
	auto count = [&runs, held = token()] { runs++; };
	std::vector<hwt::timeout> many;
	hwt::timeout a = m.timer.schedule(1ms, count);
	hwt::timeout &same = a;
	hwt::timeout b;

	b = std::move(a);
	CHECK(a.handle().id == 0 && !a.cancel() && !a.remaining());
	same = std::move(b);
	a = std::move(same);
	CHECK(m.timer.pending() == 1 && a.handle().id != 0);
	a = m.timer.schedule(1ms, count);
	CHECK(m.timer.pending() == 1);
	for (int i = 0; i < 100; i++)
		many.push_back(m.timer.schedule(1ms, count));
	many.erase(many.begin(), many.begin() + 50);
	hwt::timer moved = std::move(m.timer);
	m.timer = std::move(moved);
	CHECK(m.pass(1ms) == 51 && runs == 51);
	a.reset();
	CHECK(a.handle().id == 0);
}

TEST(cancel_and_reschedule_tell_what_was)
{
	manual m;
	int runs = 0;
	hwt::timeout t = m.timer.schedule(5ms, [&runs] { runs++; });
	std::error_code error;

	CHECK(t.reschedule(10ms) && m.pass(5ms) == 0);
	CHECK(!t.try_reschedule(error, -1s));
	CHECK(error == std::errc::invalid_argument);
	CHECK(t.cancel() && !t.cancel() && !t.try_reschedule(error, 1ms));
	CHECK(!error && m.pass(1s) == 0 && runs == 0);
}

TEST(deadlines)
{
	manual m;
	int runs = 0;
	hwt::time_point now = m.timer.now();
	hwt::timeout t = m.timer.schedule_at(now + 5ms, [&runs] { runs++; });
	hwt::timeout never =
	    m.timer.schedule_at(hwt::time_point::max(), [] { std::abort(); });
	std::error_code error;

	CHECK(t.remaining() == 5ms && t.reschedule_at(now + 7ms));
	CHECK(m.pass(6ms) == 0 && m.pass(1ms) == 1 && runs == 1);
	CHECK(m.timer.now() == now + 7ms && !t.reschedule_at(now));
	t = m.timer.schedule_at(now - 1h, [&runs] { runs++; });
	CHECK(m.pass(1ms) == 1 && runs == 2);
	CHECK(m.pass(24h * 365) == 0 && never.cancel());
	m.timer.stop();
	t = m.timer.try_schedule_at(error, now, [held = token()] {});
	CHECK(error.value() == ESHUTDOWN && token::living == 0);
	CHECK(error.message() == hwt_strerror(ESHUTDOWN));
	auto apart = hwt::timer().now() - std::chrono::steady_clock::now();
	CHECK(apart < 1min && apart > -1min);
}

TEST(empty_until_assigned_and_after_it_was_ended)
{
	manual m;
	hwt::timeout a, b;
	std::error_code error;

	static_assert(!std::is_constructible_v<bool, hwt::timeout>);
	CHECK(a.empty() && a.handle().id == 0 && !a.remaining());
	a = m.timer.schedule(1ms, [] {});
	CHECK(!a.empty());
	b = std::move(a);
	CHECK(a.empty() && !b.empty());
	CHECK(m.pass(1ms) == 1 && !b.empty() && !b.remaining());
	CHECK(!b.cancel() && !b.empty());
	b.reset();
	CHECK(b.empty());
	a = m.timer.schedule_every(1ms, 1ms, [] {});
	CHECK(m.pass(1ms) == 1 && !a.empty() && a.cancel() && a.empty());
	a = m.timer.try_schedule(error, hwt::delay(-1ms), [] {});
	CHECK(error && a.empty());
}

struct connection {
	hwt::timeout idle;
	token held{};
	int *ends;

	explicit connection(int *counter) : ends(counter)
	{
	}

	~connection()
	{
		++*ends;
	}
};

/* The callable owns the owner of its timeout: it is all gone after the run. */
TEST(timeout_destroyed_with_its_callable_after_the_run)
{
	manual m;
	int ends = 0;
	{
		auto c = std::make_shared<connection>(&ends);
		c->idle = m.timer.schedule(1ms, [c] { CHECK(*c->ends == 0); });
	}
	CHECK(ends == 0 && m.pass(1ms) == 1 && ends == 1);
	{
		auto c = std::make_shared<connection>(&ends);
		c->idle = m.timer.schedule(1ms, [c] {});
		CHECK(c->idle.cancel());
	}
	CHECK(ends == 2);
	{
		auto c = std::make_shared<connection>(&ends);
		auto *raw = c.get();
		raw->idle = m.timer.schedule(1ms, [kept = std::move(c)] {});
		/* The callable is the last owner of what this call is in. */
		CHECK(raw->idle.cancel());
	}
	CHECK(ends == 3 && m.timer.pending() == 0);
}

TEST(destroyed_in_its_own_task)
{
	manual m;
	int runs = 0;
	auto once = std::make_unique<hwt::timeout>();
	auto often = std::make_unique<hwt::timeout>();
	auto again = std::make_unique<hwt::timeout>();

	*once = m.timer.schedule(1ms, [&, held = token()] {
		once.reset();
		CHECK(token::living >= 1);
		runs++;
	});
	*often = m.timer.schedule_every(1ms, 1ms, [&, held = token()] {
		runs++;
		often.reset();
	});
	*again = m.timer.schedule(1ms, [&, held = token()] {
		*again = m.timer.schedule(
		    1ms, [&runs, more = token()] { runs += 10; });
		runs++;
	});
	CHECK(m.pass(1ms) == 3 && runs == 3 && token::living == 1);
	CHECK(m.pass(10ms) == 1 && runs == 13 && token::living == 0);
	CHECK(m.timer.pending() == 0);
}

TEST(periodic)
{
	manual m;
	int runs = 0;
	std::error_code error;
	hwt::timeout t = m.timer.schedule_every(
	    2ms, 3ms, [&runs, held = token()] { runs++; });

	CHECK(m.pass(2ms) == 1 && m.pass(2ms) == 0 && m.pass(1ms) == 1);
	CHECK(runs == 2 && token::living == 1 && t.cancel());
	CHECK(token::living == 0 && m.pass(1s) == 0);
	t = m.timer.schedule_every(1ms, 1ms, [&] {
		if (++runs == 5)
			CHECK(!t.cancel());
		else
			CHECK(t.reschedule(4ms));
	});
	CHECK(m.pass(1ms) == 1 && m.pass(3ms) == 0 && m.pass(1ms) == 1);
	CHECK(m.pass(4ms) == 1 && runs == 5 && m.pass(1s) == 0);
	t = m.timer.try_schedule_every(error, 1ms, 0ms, [held = token()] {});
	CHECK(error == std::errc::invalid_argument && token::living == 0);
}

TEST(post_is_destroyed_after_the_run_or_by_stop)
{
	manual m;
	int runs = 0, seen = 0;
	int mine = 0;
	hwt_task *task = [](hwt_timeout, void *) {};

	m.timer.post(1ms, [&runs, held = token()] { runs++; });
	m.timer.post(9ms, [&runs, held = token()] { runs++; });
	CHECK(m.pass(1ms) == 1 && runs == 1 && token::living == 1);
	hwt::timeout kept = m.timer.schedule(9ms, [held = token()] {});
	CHECK(hwt_new_timeout(m.timer.get(), nullptr, task, &mine, 1) == 0);
	CHECK(m.timer.stop([&](const hwt_timeout_info &info) {
		seen += info.arg == &mine && info.task == task;
	}) == 3);
	CHECK(seen == 1 && runs == 1 && token::living == 0);
	CHECK(m.timer.stop() == 0 && !kept.cancel());
}

/* Callables that own timeouts whose callables were returned as well. */
TEST(stop_ends_cycles)
{
	manual m;
	int ends = 0;
	{
		auto a = std::make_shared<connection>(&ends);
		auto b = std::make_shared<connection>(&ends);
		a->idle = m.timer.schedule(1ms, [a, b] {});
		b->idle = m.timer.schedule_every(1ms, 1ms, [a, b] {});
	}
	m.timer.post(1ms, [c = std::make_shared<connection>(&ends)] {});
	CHECK(ends == 0 && m.timer.stop() == 3 && ends == 3);
}

TEST(numbers_that_are_none_are_refused)
{
	CHECK(refused(duration<double>(NAN)));
	CHECK(refused(duration<double>(INFINITY)));
	CHECK(refused(duration<float>(-INFINITY)));
	CHECK(hwt::delay(duration<double>(-0.0)).ns() == 0);
}

TEST(errors)
{
	manual m({}, 1);
	std::error_code error;
	hwt::timeout t = m.timer.try_schedule(error, -1ms, [held = token()] {});

	CHECK(error == std::errc::invalid_argument && token::living == 0);
	CHECK(error.category() == hwt::category() && t.handle().id == 0);
	t = m.timer.try_schedule(error, 1ms, [held = token()] {});
	CHECK(!error && token::living == 1);
	m.timer.try_post(error, 1ms, [held = token()] {});
	CHECK(error == std::errc::no_buffer_space && token::living == 1);
	CHECK(!error.message().empty() && error.category().name()[0] != 0);
	CHECK(m.timer.stop() == 1u);
	m.timer.try_post(error, 1ms, [] {});
	CHECK(error.value() == ESHUTDOWN);
	hwt::options options;
	options.tick = -1ms;
	hwt::timer none = hwt::timer::try_make(error, options);
	CHECK(error == std::errc::invalid_argument && none.get() == nullptr);
	none.try_post(error, 1ms, [] {});
	CHECK(error == std::errc::invalid_argument && none.pending() == 0);
	hwt::pool::try_make(error, 0);
	CHECK(error == std::errc::invalid_argument);
}

#ifdef __cpp_exceptions
struct throws_when_moved {
	bool armed = true;
	token held{};

	throws_when_moved() = default;
	throws_when_moved(throws_when_moved &&)
	{
		throw 7;
	}
	void
	operator()()
	{
	}
};

TEST(errors_are_thrown)
{
	manual m;
	hwt::options bad;
	bool moved = false;

	bad.ticks_per_wheel = UINT32_MAX;
	CHECK(thrown([&] { hwt::timer t(bad); }) == EINVAL);
	CHECK(thrown([&] { hwt::pool p(0); }) == EINVAL);
	CHECK(thrown([&] {
		(void)m.timer.schedule(-1ms, [held = token()] {});
	}) == EINVAL);
	CHECK(thrown([&] { m.timer.post(-1ms, [] {}); }) == EINVAL);
	CHECK(thrown([&] { m.timer.start(); }) == EINVAL);
	CHECK(thrown([&] {
		hwt::timer borrowed = hwt::timer::borrow(m.timer.get());
		hwt::timeout t = borrowed.schedule(1ms, [] {});
		static_cast<void>(t.reschedule(-1ms));
	}) == EINVAL);
	try {
		m.timer.post(1ms, throws_when_moved());
	} catch (int) {
		moved = true;
	}
	CHECK(moved && m.timer.pending() == 0);
	hwt::mailbox box;
	hwt::timeout t = m.timer.schedule(
	    1ms, [held = token()] {}, box);
	m.pass(1ms);
	CHECK(thrown([&] { (void)t.touch(-1ms); }) == EINVAL);
	CHECK(token::living == 1);
	m.timer.stop();
	CHECK(thrown([&] { m.timer.advance(); }) == ESHUTDOWN);
	CHECK(thrown([&] { (void)t.touch(1ms); }) == ESHUTDOWN);
	CHECK(token::living == 0 && box.run() == 0);
}
#endif

static bool
readable(int fd)
{
	pollfd one{fd, POLLIN, 0};

	return poll(&one, 1, 0) == 1;
}

TEST(mailbox)
{
	hwt::mailbox box;
	manual m(box);
	int runs = 0;
	hwt::timeout cancelled =
	    m.timer.schedule(1ms, [held = token()] { std::abort(); });
	hwt::timeout t =
	    m.timer.schedule(1ms, [&runs, held = token()] { runs++; });

	CHECK(!readable(box.fd()) && box.run() == 0);
	m.pass(1ms);
	CHECK(readable(box.fd()) && runs == 0);
	cancelled.reset();
	CHECK(token::living == 1);
	CHECK(box.run() == 1 && runs == 1 && token::living == 0);
	m.timer.post(1ms, [&runs] { runs++; });
	m.pass(1ms);
	m.timer.stop();
	CHECK(box.run(1) == 1 && runs == 2);
}

/* A loop that was busy reads its sockets first, and its mailbox last. */
TEST(touch_takes_back_what_a_mailbox_holds)
{
	hwt::mailbox box;
	manual m;
	bool open = true;
	hwt::timeout idle = m.timer.schedule(
	    5ms, [&open, held = token()] { open = false; }, box);
	hwt_timeout before = idle.handle();

	m.pass(5ms);
	CHECK(readable(box.fd()) && !idle.reschedule(5ms));
	CHECK(idle.touch(5ms) && idle.handle().id != before.id);
	CHECK(idle.remaining() == 5ms && m.timer.pending() == 1);
	CHECK(box.run() == 0 && open);
	CHECK(m.pass(4ms) == 0 && box.run() == 0 && idle.touch(5ms));
	m.pass(4ms);
	CHECK(box.run() == 0 && open);
	m.pass(1ms);
	CHECK(box.run() == 1 && !open && token::living == 0);
	CHECK(!idle.touch(5ms) && m.timer.pending() == 0);
}

TEST(touch_of_one_that_is_not_held_is_reschedule)
{
	manual m;
	int runs = 0;
	std::error_code error;
	hwt::timeout empty;
	hwt::timeout once = m.timer.schedule(1ms, [&] {
		runs++;
		CHECK(!once.touch(1ms));
	});
	hwt::timeout often = m.timer.schedule_every(1ms, 1ms, [&] {
		runs++;
		CHECK(often.touch(3ms));
	});
	hwt_timeout before = once.handle();

	CHECK(once.touch(2ms) && once.handle().id == before.id);
	CHECK(!once.try_touch(error, -1ms));
	CHECK(error == std::errc::invalid_argument);
	CHECK(!empty.try_touch(error, 1ms) && !error);
	CHECK(m.pass(1ms) == 1 && m.pass(1ms) == 1 && runs == 2);
	CHECK(!once.try_touch(error, 1ms) && !error);
	CHECK(m.pass(1ms) == 0 && m.pass(1ms) == 1 && runs == 3);
	CHECK(often.cancel() && !often.touch(1ms));
}

/* Another run of the periodic one would follow the one that is held. */
TEST(touch_lets_a_periodic_one_run_that_is_held)
{
	hwt::mailbox box;
	manual m(box);
	int runs = 0;
	hwt::timeout often = m.timer.schedule_every(
	    1ms, 1ms, [&runs, held = token()] { runs++; });

	m.pass(1ms);
	CHECK(!often.touch(5ms) && box.run() == 1 && runs == 1);
	CHECK(often.touch(5ms) && m.pass(4ms) == 0 && box.run() == 0);
	m.pass(1ms);
	CHECK(box.run() == 1 && runs == 2);
}

/* It stays the timer's executor's, or its own. */
TEST(touch_keeps_the_executor)
{
	hwt::mailbox own, timers;
	manual m(timers);
	int runs = 0;
	hwt::timeout a = m.timer.schedule(1ms, [&runs] { runs++; });
	hwt::timeout b = m.timer.schedule(
	    1ms, [&runs] { runs += 10; }, own);
	hwt::timeout moved;

	m.pass(1ms);
	CHECK(a.touch(1ms) && b.touch(1ms));
	moved = std::move(b);
	m.pass(1ms);
	CHECK(timers.run() == 1 && runs == 1);
	CHECK(moved.touch(1ms) && !b.touch(1ms));
	m.pass(1ms);
	CHECK(own.run() == 1 && runs == 11 && timers.run() == 0);
}

/* Those that a loop's mailbox holds touch and end each other, in any order. */
TEST(touch_in_a_callable_of_the_same_mailbox)
{
	hwt::mailbox box;
	manual m(box);
	int runs = 0;
	hwt::timeout first, second;

	first = m.timer.schedule(1ms, [&, held = token()] {
		CHECK(!first.touch(1ms) && second.touch(1ms) == (++runs == 1));
	});
	second = m.timer.schedule(1ms, [&, held = token()] {
		CHECK(!second.touch(1ms) && first.touch(1ms) == (++runs == 1));
	});
	m.pass(1ms);
	CHECK(box.run() == 1 && runs == 1 && token::living == 1);
	m.pass(1ms);
	CHECK(box.run() == 1 && runs == 2 && token::living == 0);
	first = m.timer.schedule(1ms, [held = token()] { std::abort(); });
	m.pass(1ms);
	CHECK(first.touch(1ms));
	first.reset();
	CHECK(token::living == 0 && box.run() == 0);
}

TEST(touch_of_a_stopped_timers_ends_the_timeout)
{
	hwt::mailbox box;
	manual m(box);
	int ends = 0;
	std::error_code error;
	auto owner = std::make_shared<connection>(&ends);
	connection *c = owner.get();

	c->idle = m.timer.schedule(1ms, [kept = std::move(owner)] {});
	m.pass(1ms);
	CHECK(!c->idle.try_touch(error, -1ms) && ends == 0);
	m.timer.stop();
	/* The callable is the last owner of what this call is in. */
	CHECK(!c->idle.try_touch(error, 1ms) && error.value() == ESHUTDOWN);
	CHECK(ends == 1 && box.run() == 0);
}

TEST(mailbox_destructor_runs_what_it_holds)
{
	manual m;
	int runs = 0;
	{
		hwt::mailbox first, box;
		first = std::move(box);
		hwt::timeout t = m.timer.schedule(
		    1ms, [] {}, first);
		m.timer.post(
		    1ms, [&runs, held = token()] { runs++; }, first);
		m.pass(1ms);
		t.reset();
		CHECK(runs == 0);
	}
	CHECK(runs == 1);
}

/* A callable that the loop runs inside another one destroys that one's. */
TEST(destroyed_in_a_task_inside_its_own)
{
	hwt::mailbox box;
	manual m(box);
	int runs = 0;
	hwt::timeout outer = m.timer.schedule(1ms, [&, held = token()] {
		m.pass(1ms);
		CHECK(box.run() == 1);
		CHECK(token::living == 1);
		runs++;
	});
	hwt::timeout inner = m.timer.schedule(2ms, [&, held = token()] {
		outer.reset();
		runs++;
	});

	m.pass(1ms);
	CHECK(box.run() == 1 && runs == 2);
	CHECK(token::living == 0);
}

TEST(timer_destructor_waits_for_a_pool)
{
	hwt::pool pool(2);
	std::atomic<int> runs{0};
	{
		manual m(pool);
		hwt::pool moved = std::move(pool);
		pool = std::move(moved);

		for (int i = 0; i < 20; i++)
			m.timer.post(1ms, [&runs, held = token()] {
				std::this_thread::sleep_for(1ms);
				runs++;
			});
		m.pass(1ms);
	}
	CHECK(runs == 20);
}

TEST(shared_timer)
{
	hwt::timer a = hwt::timer::shared();
	hwt::timer b = hwt::timer::shared();
	std::atomic<bool> ran{false};
	std::error_code error;

	CHECK(a.get() == b.get());
	b = hwt::timer();
	a.post(1ms, [&] { ran = true; });
	while (!ran)
		std::this_thread::sleep_for(1ms);
	a.post(1h, [held = token()] {});
	CHECK(hwt::timer::shared_shutdown() == 1);
	hwt::timer::try_shared(error);
	CHECK(error.value() == ESHUTDOWN);
}

TEST(a_forked_child_leaves_callables_alone)
{
	static hwt::mailbox *box;
	static manual *m;
	static hwt::timeout *t;
	hwt::mailbox boxed;

	box = &boxed;
	m = new manual(*box);
	t = new hwt::timeout(m->timer.schedule(1ms, [held = token()] {}));
	CHECK(child([] {
		std::error_code error;

		m->timer.try_post(error, 1ms, [held = token()] {});
		CHECK(error.value() == EOWNERDEAD && token::living == 1);
		delete t;
		CHECK(token::living == 1 && box->run() == 0);
		delete m;
		*box = hwt::mailbox();
	}) == 0);
	delete t;
	delete m;
}

TEST(some_errors_end_the_program)
{
#ifdef __cpp_exceptions
	CHECK(child([] {
		manual m;
		m.timer.post(1ms, [] { throw 1; });
		m.pass(1ms);
	}) == 42);
#endif
	CHECK(child([] {
		hwt::mailbox box;
		manual m(box);
		auto *gone = new hwt::mailbox(std::move(box));
		m.timer.post(1ms, [gone] { delete gone; });
		m.pass(1ms);
		gone->run();
	}) == 42);
	CHECK(child([] {
		auto *m = new manual;
		m->timer.post(1ms, [m] { delete m; });
		m->pass(1ms);
	}) == 42);
}

int
main()
{
	return run_tests();
}
