/* SPDX-License-Identifier: Apache-2.0 */
/* Real threads: callables run while their timeouts are destroyed, cancelled and
 * stopped. Each callable must live until its run has ended and be destroyed
 * once; ThreadSanitizer and AddressSanitizer watch. */
#include <deque>
#include <memory>
#include <vector>

#include <poll.h>

#include "check.h"

using namespace std::chrono_literals;

enum {
	THREADS = 3,
	ROUNDS = 2000
};

static hwt::options
fast(hwt::executor_ref executor = {})
{
	hwt::options options;

	options.tick = 50us;
	options.executor = executor;
	return options;
}

template <class F>
static void
in_threads(F &&function)
{
	std::vector<std::thread> threads;

	for (int i = 0; i < THREADS; i++)
		threads.emplace_back(function, i);
	for (std::thread &each : threads)
		each.join();
}

/* Each timeout is destroyed at about the time at which it is due, after which
 * what the callable uses is gone. */
static void
destroy_against_run(hwt::executor_ref executor)
{
	hwt::timer timer(fast(executor));
	std::atomic<int> runs{0};

	in_threads([&](int self) {
		for (int i = 0; i < ROUNDS; i++) {
			auto used = std::make_unique<int>(i);
			auto task = [&used = *used, &runs, held = token()] {
				used++;
				runs++;
			};
			hwt::delay soon =
			    std::chrono::microseconds(10 * ((i + self) % 30));
			hwt::timeout t = i % 2 != 0
			    ? timer.schedule(soon, std::move(task))
			    : timer.schedule_every(soon, 50us, std::move(task));

			if (i % 3 != 0)
				std::this_thread::sleep_for(
				    std::chrono::microseconds(i % 200));
			if (i % 5 == 0)
				t.cancel();
		}
	});
	CHECK(runs > 0 && timer.pending() == 0);
}

TEST(destroy_against_run_in_the_worker)
{
	destroy_against_run({});
}

TEST(destroy_against_run_in_a_pool)
{
	hwt::pool pool(2);

	destroy_against_run(pool);
}

/* touch comes at about the time at which the timeout is due, and is in time or
 * too late: the callable has not run, or runs once. */
static void
touch_against_run(hwt::executor_ref executor)
{
	hwt::timer timer(fast(executor));
	std::atomic<int> kept{0};

	in_threads([&](int self) {
		for (int i = 0; i < ROUNDS; i++) {
			std::atomic<int> runs{0};
			hwt::timeout t = timer.schedule(
			    std::chrono::microseconds(10 * ((i + self) % 10)),
			    [&runs, held = token()] { runs++; });

			for (int wait = i % 300; wait > 0 && runs == 0; wait--)
				std::this_thread::yield();
			if (t.touch(1h)) {
				CHECK(runs == 0 && t.cancel());
				CHECK(runs == 0);
				kept++;
			} else {
				t.reset();
				CHECK(runs == 1);
			}
		}
	});
	CHECK(kept > 0 && timer.pending() == 0);
}

TEST(touch_against_run_in_the_worker)
{
	touch_against_run({});
}

TEST(touch_against_run_in_a_pool)
{
	hwt::pool pool(1);

	touch_against_run(pool);
}

/* What is in a loop's mailbox is in time until the loop runs it. */
TEST(touch_is_in_time_on_the_thread_of_a_loop)
{
	hwt::timer timer(fast());

	in_threads([&](int) {
		hwt::mailbox box;

		for (int i = 0; i < ROUNDS / 20; i++) {
			hwt::timeout t = timer.schedule(
			    50us, [held = token()] { std::abort(); }, box);
			pollfd handed_over{box.fd(), POLLIN, 0};

			CHECK(poll(&handed_over, 1, 10000) == 1);
			CHECK(!t.reschedule(1h) && t.touch(1h));
			CHECK(box.run() == 0 && t.cancel());
		}
		CHECK(box.run() == 0);
	});
	CHECK(timer.pending() == 0);
}

/* A timeout whose callable owns it is destroyed by whoever is last. */
TEST(last_owner_is_the_callable_or_a_thread)
{
	hwt::pool pool(2);
	hwt::timer timer(fast(pool));
	std::atomic<int> ends{0};
	struct connection {
		std::atomic<int> *ends;
		hwt::timeout idle{};

		explicit connection(std::atomic<int> *counter) : ends(counter)
		{
		}

		~connection()
		{
			++*ends;
		}
	};

	in_threads([&](int) {
		for (int i = 0; i < ROUNDS; i++) {
			auto c = std::make_shared<connection>(&ends);

			ends--;
			c->idle =
			    timer.schedule(std::chrono::microseconds(i % 100),
				[c, held = token()] {});
			if (i % 2 != 0)
				std::this_thread::yield();
		}
	});
	timer.stop();
	while (ends != 0)
		std::this_thread::sleep_for(1ms);
}

/* stop returns what others are destroying, posting and running. */
TEST(stop_against_all)
{
	for (int round = 0; round < 30; round++) {
		hwt::pool pool(1);
		hwt::timer timer(fast(pool));
		std::atomic<bool> stopped{false};
		std::thread stopper([&] {
			std::this_thread::sleep_for(
			    std::chrono::microseconds(100 * round));
			timer.stop();
			stopped = true;
		});

		in_threads([&](int self) {
			std::deque<hwt::timeout> many;
			std::error_code error;

			while (!stopped) {
				timer.try_post(error,
				    std::chrono::milliseconds(self),
				    [held = token()] {});
				many.push_back(timer.try_schedule_every(
				    error, 100us, 100us, [held = token()] {}));
				many.push_back(timer.try_schedule(
				    error, 5ms, [held = token()] {}));
				if (many.size() > 100)
					many.erase(
					    many.begin(), many.begin() + 50);
			}
		});
		stopper.join();
	}
}

/* A loop per thread, one timer for all. */
TEST(mailboxes)
{
	hwt::timer timer(fast());

	in_threads([&](int) {
		hwt::mailbox box;
		int runs = 0;
		int wanted = 0;

		for (int i = 0; i < ROUNDS / 4; i++) {
			hwt::timeout kept = timer.schedule(
			    50us,
			    [&runs, &wanted, held = token()] {
				    runs++;
				    wanted++;
			    },
			    box);

			timer.post(
			    50us, [&runs, held = token()] { runs++; }, box);
			wanted++;
			box.run();
		}
		while (runs < wanted) {
			box.run();
			std::this_thread::yield();
		}
		CHECK(runs == wanted);
	});
	timer.stop();
}

/* The loop is on another thread. */
TEST(timer_destructor_waits_for_a_mailbox)
{
	hwt::mailbox box;
	std::atomic<bool> ran{false};
	std::thread loop;
	{
		hwt::timer timer(fast(box));

		timer.post(1us, [&ran, held = token()] { ran = true; });
		pollfd handed_over{box.fd(), POLLIN, 0};
		CHECK(poll(&handed_over, 1, 10000) == 1);
		loop = std::thread([&] {
			std::this_thread::sleep_for(100ms);
			box.run();
		});
	}
	CHECK(ran);
	loop.join();
}

int
main()
{
	return run_tests();
}
