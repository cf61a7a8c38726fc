/* SPDX-License-Identifier: Apache-2.0 */
/* The promises of hwt.hpp: with time moved by hand, and with real threads. */
#include "check.h"

#include <cmath>

#include <poll.h>

using namespace std::chrono_literals;
using std::chrono::duration;

constexpr bool
refused(hwt::delay delay)
{
	return delay.ns() >= std::uint64_t{1} << 63 && !(delay == hwt::never);
}

static_assert(hwt::delay(5ms).ns() == HWT_MS(5));
static_assert(hwt::delay(2h).ns() == HWT_MIN(120));
static_assert(hwt::delay(0.25s).ns() == HWT_MS(250));
static_assert(hwt::delay(duration<int, std::pico>(1001)).ns() == 2);
static_assert(hwt::delay(duration<int, std::ratio<1, 3>>(1)).ns() == 333333334);
static_assert(
    hwt::delay(duration<int, std::ratio<1, 3>>(3)).ns() == HWT_SEC(1));
static_assert(hwt::delay(std::chrono::nanoseconds::max()).ns() == INT64_MAX);
static_assert(refused(-1ns) && refused(std::chrono::nanoseconds::min()));
static_assert(refused(std::chrono::hours::max()));
static_assert(refused(duration<double>(1e10)));
static_assert(hwt::never.ns() == HWT_NEVER);
static_assert(!std::is_copy_constructible_v<hwt::timeout>);
static_assert(std::is_nothrow_move_assignable_v<hwt::timeout>);

TEST(callable_runs_once_and_is_destroyed_then)
{
	manual m;
	int runs = 0;
	hwt_timeout seen{};
	hwt::timeout t = m.timer.schedule(5ms,
	    [&, held = token(), move_only = std::make_unique<int>(1)](
		hwt_timeout self) {
		    runs += *move_only;
		    seen = self;
	    });

	CHECK(m.pass(4ms) == 0 && runs == 0 && token::living == 1);
	CHECK(m.pass(1ms) == 1 && runs == 1 && token::living == 0);
	CHECK(seen.id == t.handle().id && !t.cancel() && !t.reschedule(1ms));
	CHECK(m.pass(1s) == 0);
}

TEST(destructor_and_cancel_destroy_the_callable)
{
	manual m;
	{
		hwt::timeout t =
		    m.timer.schedule(hwt::never, [held = token()] {});
		CHECK(token::living == 1);
	}
	CHECK(token::living == 0 && m.pending() == 0);
	hwt::timeout t = m.timer.schedule(1ms, [held = token()] {});
	CHECK(!t.empty() && t.cancel() && token::living == 0 && t.empty());
	CHECK(!t.cancel() && m.pass(1s) == 0);
}

TEST(assignment_ends_what_was_owned)
{
	manual m;
	int runs = 0;
	auto count = [&runs, held = token()] { runs++; };
	hwt::timeout a = m.timer.schedule(1ms, count), b;

	b = std::move(a);
	CHECK(a.empty() && !a.cancel());
	b = m.timer.schedule(1ms, count);
	CHECK(m.pending() == 1 && m.pass(1ms) == 1 && runs == 1);
	b = {};
	CHECK(b.empty());
}

TEST(periodic_timeout_runs_until_it_is_cancelled)
{
	manual m;
	int runs = 0;
	hwt::timeout t;

	t = m.timer.schedule(
	    2ms,
	    [&, held = token()] {
		    if (++runs == 3)
			    CHECK(t.reschedule(5ms));
	    },
	    nullptr, 3ms);
	CHECK(m.pass(2ms) == 1 && m.pass(3ms) == 1 && m.pass(3ms) == 1);
	CHECK(m.pass(3ms) == 0 && m.pass(2ms) == 1 && runs == 4);
	CHECK(token::living == 1 && t.cancel() && m.pass(1s) == 0);
}

struct connection {
	hwt::timeout idle{};
	token held{};
};

TEST(callable_that_owns_its_timeout_ends_with_its_run)
{
	manual m;
	{
		auto c = std::make_shared<connection>();
		c->idle = m.timer.schedule(1ms, [c] {});
	}
	CHECK(token::living == 1 && m.pass(1ms) == 1 && token::living == 0);
	auto c = std::make_shared<connection>();
	connection *raw = c.get();
	raw->idle = m.timer.schedule(1ms, [kept = std::move(c)] {});
	/* The callable is the last owner of what this call is in. */
	CHECK(raw->idle.cancel() && token::living == 0);
}

TEST(timeout_destroyed_in_its_own_callable_runs_to_its_end)
{
	manual m;
	int runs = 0;
	hwt::timeout once, often, again;

	once = m.timer.schedule(1ms, [&, held = token()] {
		once = {};
		CHECK(token::living >= 1);
		runs++;
	});
	often = m.timer.schedule(
	    1ms,
	    [&, held = token()] {
		    often = {};
		    runs++;
	    },
	    nullptr, 1ms);
	again = m.timer.schedule(1ms, [&, held = token()] {
		again = m.timer.schedule(1ms, [&runs] { runs += 10; });
		runs++;
	});
	CHECK(m.pass(1ms) == 3 && runs == 3);
	CHECK(m.pass(10ms) == 1 && runs == 13 && m.pending() == 0);
}

static bool
readable(int fd)
{
	pollfd one{fd, POLLIN, 0};

	return poll(&one, 1, 10000) == 1;
}

TEST(touch_takes_back_what_a_mailbox_holds)
{
	hwt::mailbox box;
	manual m(box);
	int runs = 0;
	hwt::timeout idle =
	    m.timer.schedule(5ms, [&runs, held = token()] { runs++; });
	hwt_timeout before = idle.handle();

	CHECK(idle.touch(5ms) && idle.handle().id == before.id);
	m.pass(5ms);
	CHECK(readable(box.fd()) && !idle.reschedule(5ms) && idle.touch(5ms));
	CHECK(idle.handle().id != before.id && box.run() == 0 && runs == 0);
	m.pass(5ms);
	CHECK(box.run() == 1 && runs == 1 && token::living == 0);
	CHECK(!idle.touch(5ms));
}

TEST(stop_leaves_callables_to_their_timeouts)
{
	manual m;
	hwt::timeout t = m.timer.schedule(1ms, [held = token()] {});

	CHECK(m.timer.stop() == 1 && token::living == 1 && !t.cancel());
	CHECK(m.timer.stop() == 0);
}

TEST(timer_destructor_waits_for_a_pool)
{
	hwt::pool pool(2);
	std::atomic<int> runs{0};
	std::vector<hwt::timeout> many;
	{
		manual m(pool);
		for (int i = 0; i < 20; i++)
			many.push_back(m.timer.schedule(1ms, [&runs] {
				std::this_thread::sleep_for(1ms);
				runs++;
			}));
		m.pass(1ms);
		CHECK(m.timer.stop() == 0);
		many.clear();
	}
	CHECK(runs <= 20);
}

#ifdef __cpp_exceptions
TEST(errors_are_thrown)
{
	manual m(nullptr, 1);
	hwt_options bad{};
	auto task = [held = token()] {};
	hwt::timeout t = m.timer.schedule(1ms, task);

	bad.tick_ns = 1;
	CHECK(thrown([&] { hwt::timer timer(bad); }) == EINVAL);
	CHECK(thrown([&] { hwt::pool pool(0); }) == EINVAL);
	CHECK(thrown([&] { (void)m.timer.schedule(1ms, task); }) == ENOBUFS);
	CHECK(thrown([&] { t.reschedule(-1ms); }) == EINVAL);
	CHECK(thrown([&] { t.touch(duration<double>(NAN)); }) == EINVAL);
	CHECK(t.cancel());
	CHECK(thrown([&] { (void)m.timer.schedule(-1ms, task); }) == EINVAL);
	m.timer.stop();
	CHECK(thrown([&] { (void)m.timer.schedule(1ms, task); }) == ESHUTDOWN);
}

TEST(exception_that_leaves_a_callable_terminates)
{
	CHECK(child([] {
		manual m;
		hwt::timeout t = m.timer.schedule(1ms, [] { throw 1; });
		m.pass(1ms);
	}) == 42);
}
#endif

TEST(timer_destroyed_in_its_own_task_terminates)
{
	CHECK(child([] {
		static auto *m = new manual;
		hwt::timeout t = m->timer.schedule(1ms, [] { delete m; });
		m->pass(1ms);
	}) == 42);
}

TEST(forked_child_leaves_callables_alone)
{
	static manual *m;
	static hwt::timeout *t;

	m = new manual;
	t = new hwt::timeout(m->timer.schedule(1ms, [held = token()] {}));
	CHECK(child([] {
		delete t;
		CHECK(token::living == 1);
		delete m;
	}) == 0);
	delete t;
	delete m;
}

/* Timeouts are destroyed, cancelled and touched at about the time at which they
 * are due; what the callable uses is gone then. */
static void
race(const hwt_executor *executor)
{
	std::atomic<int> runs{0};
	hwt_options fast{};
	std::vector<std::thread> threads;
	fast.tick_ns = HWT_US(50);
	fast.executor = executor;
	hwt::timer timer(fast);

	for (int self = 0; self < 3; self++)
		threads.emplace_back([&, self] {
			for (int i = 0; i < 2000; i++) {
				auto used = std::make_unique<int>(i);
				hwt::timeout t = timer.schedule(
				    std::chrono::microseconds(
					10 * ((i + self) % 30)),
				    [&runs, &used = *used, held = token()] {
					    used++;
					    runs++;
				    },
				    nullptr,
				    i % 4 == 0 ? hwt::delay(50us)
					       : hwt::delay());

				if (i % 3 != 0)
					std::this_thread::sleep_for(
					    std::chrono::microseconds(i % 200));
				if (i % 5 == 0)
					t.cancel();
				else if (i % 5 == 1)
					t.touch(50us);
			}
		});
	for (std::thread &each : threads)
		each.join();
	CHECK(runs > 0 && hwt_pending_timeouts(timer.get()) == 0);
}

TEST(timeouts_race_with_their_runs_in_the_worker)
{
	race(nullptr);
}

TEST(timeouts_race_with_their_runs_in_a_pool)
{
	hwt::pool pool(2);

	race(pool);
}

int
main()
{
	return run_tests();
}
