/* SPDX-License-Identifier: Apache-2.0 */
/* What hwt_durable.hpp says, with a real engine. */
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>

#include "hwt_durable.hpp"

extern "C" {
#include "spec/server.h"
}

#include "check.h"

using namespace std::chrono_literals;
using hwt_cxx::durable;
using outcome = durable::outcome;

static_assert(!std::is_copy_constructible_v<durable>);
static_assert(std::is_nothrow_move_constructible_v<durable>);
static_assert(std::is_nothrow_move_constructible_v<durable::worker>);
static_assert(std::is_nothrow_move_assignable_v<durable::scheduler>);

static server engine;

static hwt_options
fast()
{
	hwt_options options{};

	options.tick_ns = HWT_MS(1);
	return options;
}

/* A space of its own for each. */
struct fixture {
	static inline int spaces = 0;

	hwt::timer timer{fast()};
	std::string space = "space" + std::to_string(spaces++);
	durable tasks;

	fixture() : tasks(options())
	{
	}

	durable::options
	options()
	{
		durable::options given;

		given.servers = engine.servers;
		given.space = space.c_str();
		given.shards = 1;
		given.slots = 8;
		given.tick = 1ms;
		given.timer = timer.get();
		given.create = true;
		return given;
	}

	hwt_durable_state
	state(const char *id)
	{
		auto found = tasks.find(id);

		CHECK(found);
		return found->state;
	}

	/* Until it has ended. */
	hwt_durable_state
	await(const char *id)
	{
		hwt_durable_state now = state(id);

		for (; now <= HWT_DURABLE_RUNNING; now = state(id))
			std::this_thread::sleep_for(1ms);
		return now;
	}
};

/* Before all others: under ThreadSanitizer the child of a process with threads
 * begins none. */
TEST(some_errors_end_the_program)
{
#ifdef __cpp_exceptions
	fixture::spaces += 10;
	CHECK(child([] {
		fixture f;
		durable::scheduler scheduler(f.tasks);
		durable::worker worker(f.tasks, "mail",
		    [](const durable::delivery &) { throw 1; });

		f.tasks.add({"a", "mail", ""});
		std::this_thread::sleep_for(60s);
	}) == 42);
#endif
	fixture::spaces += 10;
	CHECK(child([] {
		static std::unique_ptr<durable::worker> own;
		fixture f;
		durable::scheduler scheduler(f.tasks);

		own = std::make_unique<durable::worker>(f.tasks, "mail",
		    [](const durable::delivery &) { own.reset(); });
		f.tasks.add({"a", "mail", ""});
		std::this_thread::sleep_for(60s);
	}) == 42);
	fixture::spaces += 10;
	CHECK(child([] {
		fixture f;
		durable::scheduler scheduler(f.tasks);
		durable gone = std::move(f.tasks);
	}) == 42);
}

TEST(tasks_are_added_found_moved_and_cancelled)
{
	fixture f;
	std::error_code error;
	std::string zeros("a\0b", 3);
	durable::time_point due =
	    std::chrono::time_point_cast<std::chrono::milliseconds>(
		std::chrono::system_clock::now()) +
	    1h;

	CHECK(f.tasks.add({zeros, "mail", zeros, 1h}));
	CHECK(!f.tasks.add({zeros, "other", "", 2h}));
	auto found = f.tasks.find(zeros);
	CHECK(found && found->state == HWT_DURABLE_PENDING);
	CHECK(found->queue == "mail" && found->payload == zeros);
	CHECK(found->attempts == 0 && found->max_attempts == 20);
	CHECK(!f.tasks.find("none"));
	CHECK(f.tasks.reschedule(zeros, due));
	found = f.tasks.find(zeros);
	CHECK(found->due == due && found->generation == 2);
	CHECK(f.tasks.reschedule(zeros, 5min));
	CHECK(f.tasks.find(zeros)->due < due);
	CHECK(f.tasks.cancel(zeros) && f.tasks.cancel(zeros));
	CHECK(!f.tasks.reschedule(zeros, 1h) && !f.tasks.cancel("none"));
	CHECK(!f.tasks.try_reschedule(error, zeros, 1h));
	CHECK(error.value() == EALREADY);
	CHECK(!f.tasks.try_cancel(error, "none") && error.value() == ENOENT);
	CHECK(!f.tasks.try_find(error, "") && error.value() == EINVAL);
	CHECK(f.tasks.stats().cancelled == 1);
}

TEST(what_a_task_says_of_itself_is_found)
{
	fixture f;
	durable::task task{"a", "mail", "", 1min};
	durable::time_point until =
	    std::chrono::time_point_cast<std::chrono::milliseconds>(
		std::chrono::system_clock::now()) +
	    1h;

	task.expires = until;
	CHECK(f.tasks.add(task) && f.tasks.find("a")->expires == until);
	task.id = "b";
	task.expires.reset();
	CHECK(f.tasks.add(task) && !f.tasks.find("b")->expires);
	task.id = "c";
	task.expires_after = 2min;
	CHECK(f.tasks.add(task));
	auto found = f.tasks.find("c");
	CHECK(*found->expires == found->due + 1min);
	task.id = "d";
	task.retry_first = 9s;
	task.retry_factor = 1.5;
	task.retry_most = 1min;
	task.priority = HWT_DURABLE_LOW;
	CHECK(f.tasks.add(task));
	CHECK(f.tasks.find("d")->priority == HWT_DURABLE_LOW);
	found = f.tasks.find("d");
	CHECK(found->retry_first == 9s && found->retry_most == 1min);
	CHECK(found->retry_factor == 1.5);
}

TEST(a_queue_is_paused_and_resumed)
{
	fixture f;
	std::error_code error;
	durable::scheduler scheduler(f.tasks);

	f.tasks.pause("mail");
	durable::worker worker(f.tasks, "mail", [](auto &) {});
	CHECK(f.tasks.add({"a", "mail", "", 0ms}));
	while (f.state("a") != HWT_DURABLE_DELIVERED)
		std::this_thread::sleep_for(1ms);
	f.tasks.resume("mail");
	CHECK(f.await("a") == HWT_DURABLE_SUCCEEDED);
	CHECK(!f.tasks.try_pause(error, "no queue"));
	f.tasks.limit("mail", 64, 0.5);
	f.tasks.limit("mail", 0, 0);
	CHECK(!f.tasks.try_limit(error, "mail", 0, -1));
	CHECK(error.value() == EINVAL);
	CHECK(!f.tasks.try_resume(error, "") && error.value() == EINVAL);
}

TEST(a_schedule_is_put_listed_and_dropped)
{
	fixture f;
	std::error_code error;
	const std::string zeros("a\0b", 3);
	durable::schedule hourly{"hourly", "mail", zeros, 1h};
	durable::schedule daily{"daily", "mail"};

	hourly.expires_after = 90s;
	hourly.retry_first = 9s;
	hourly.retry_factor = 1.5;
	hourly.priority = HWT_DURABLE_LOW;
	f.tasks.put(hourly);
	daily.cron = "30 2 * * *";
	daily.missed = HWT_DURABLE_MISSED_ALL;
	f.tasks.put(daily);
	f.tasks.put(daily);
	auto found = f.tasks.schedules();
	CHECK(found.size() == 2);
	auto &first = found[found[0].schedule.name == "daily" ? 0 : 1];
	auto &other = found[found[0].schedule.name == "daily" ? 1 : 0];
	CHECK(first.schedule.cron == daily.cron && first.schedule.zone.empty());
	CHECK(first.schedule.missed == HWT_DURABLE_MISSED_ALL);
	CHECK(first.schedule.payload.empty() && first.next && !first.last);
	CHECK(
	    other.schedule.payload == zeros && other.schedule.queue == "mail");
	CHECK(other.schedule.every.ns() == hourly.every.ns());
	CHECK(other.schedule.max_attempts == 20);
	CHECK(other.schedule.expires_after.ns() == hourly.expires_after.ns());
	CHECK(other.schedule.retry_first.ns() == hourly.retry_first.ns());
	CHECK(other.schedule.retry_factor == 1.5);
	CHECK(other.schedule.priority == HWT_DURABLE_LOW);
	CHECK(first.schedule.priority == 0);
	daily.cron = "61 2 * * *";
	CHECK(!f.tasks.try_put(error, daily) && error.value() == EINVAL);
	CHECK(f.tasks.drop_schedule("daily"));
	CHECK(!f.tasks.drop_schedule("daily"));
	CHECK(!f.tasks.try_drop_schedule(error, "no name"));
	CHECK(error.value() == EINVAL && f.tasks.schedules().size() == 1);
}

TEST(a_batch_tells_of_each)
{
	fixture f;
	std::error_code error;
	std::vector<durable::task> batch{
	    {"a", "mail", "1", 1h}, {"b", "mail", "", 1h}};

	CHECK(f.tasks.add(batch) == std::vector<int>({0, 0}));
	batch[0].id = "c";
	batch[1].due = durable::time_point() + 1ns;
	CHECK(f.tasks.add(batch) == std::vector<int>({0, 1}));
	batch[0].id = "";
	batch[1].id = "d";
	CHECK(f.tasks.try_add(error, batch) ==
	    std::vector<int>({-EINVAL, -ECANCELED}));
	CHECK(error == std::errc::invalid_argument && !f.tasks.find("d"));
	CHECK(f.tasks.add(std::vector<durable::task>()).empty());
	CHECK(!f.tasks.try_add(error, {"e", "not a queue", "", 1h}) && error);
	CHECK(!f.tasks.try_add(error, {"e", "mail", "", -1h}) && error);
}

TEST(a_worker_executes)
{
	fixture f;
	std::mutex lock;
	std::vector<std::string> ran;
	durable::scheduler scheduler(f.tasks);

	f.tasks.add({"once", "mail", "text"});
	f.tasks.add({"twice", "mail", ""});
	f.tasks.add({"bad", "mail", ""});
	f.tasks.add({"later", "mail", ""});
	{
		durable::worker worker(f.tasks, "mail", {2, {}, {}},
		    [&, held = token()](const durable::delivery &task) {
			    std::lock_guard<std::mutex> guard(lock);

			    CHECK(task.queue == "mail" && task.fence > 0);
			    CHECK(task.payload ==
				(task.id == "once" ? "text" : ""));
			    ran.emplace_back(task.id);
			    if (task.id == "twice" && task.attempt == 1)
				    return outcome::retry(1ms);
			    if (task.id == "later")
				    return outcome::retry(1h);
			    CHECK(task.set_error("why"));
			    CHECK(!task.set_error(std::string(1025, 'x')));
			    return task.id == "bad" ? outcome::fail()
						    : outcome::done();
		    });
		auto moved = std::move(worker);

		CHECK(f.await("once") == HWT_DURABLE_SUCCEEDED);
		CHECK(f.await("twice") == HWT_DURABLE_SUCCEEDED);
		CHECK(f.await("bad") == HWT_DURABLE_FAILED);
		CHECK(f.tasks.find("twice")->attempts == 2);
		while (f.tasks.find("later")->due <
		    std::chrono::system_clock::now() + 50min)
			std::this_thread::sleep_for(1ms);
		CHECK(token::living == 1 && worker.stop(0s));
	}
	CHECK(token::living == 0 && ran.size() == 5);
	std::function<void(const durable::delivery &)> nothing = [](auto &) {};
	durable::worker other(f.tasks, "mail", nothing);
	f.tasks.add({"more", "mail", ""});
	CHECK(f.await("more") == HWT_DURABLE_SUCCEEDED);
}

TEST(a_callable_may_finish_later)
{
	fixture f;
	durable::scheduler scheduler(f.tasks);
	std::atomic<int> began{0};
	hwt_durable_token token[3];
	durable::worker worker(
	    f.tasks, "mail", [&](const durable::delivery &task) {
		    token[began] = task.token;
		    began++;
		    return outcome::later();
	    });
	std::error_code error;

	f.tasks.add({"later", "mail", ""});
	while (began == 0)
		std::this_thread::sleep_for(1ms);
	CHECK(!durable::try_finish(error, token[0], outcome::later()) &&
	    error == std::errc::invalid_argument);
	CHECK(durable::finish(token[0], outcome::retry(0s)));
	CHECK(!durable::finish(token[0], outcome::done()));
	while (began == 1)
		std::this_thread::sleep_for(1ms);
	CHECK(durable::finish(token[1], outcome::release()));
	while (began == 2)
		std::this_thread::sleep_for(1ms);
	CHECK(!durable::try_finish(
		  error, token[2], outcome::fail(), std::string(1025, 'x')) &&
	    error == std::errc::invalid_argument);
	CHECK(durable::finish(token[2], outcome::done(), "why"));
	CHECK(f.await("later") == HWT_DURABLE_SUCCEEDED);
	CHECK(f.tasks.find("later")->attempts == 2);
}

TEST(the_end_of_a_worker_waits_for_its_callable)
{
	fixture f;
	durable::scheduler scheduler(f.tasks);
	std::atomic<int> began{0}, may_end{0}, ended{0};
	auto callable = [&](const durable::delivery &) {
		began++;
		while (may_end == 0)
			std::this_thread::sleep_for(1ms);
		may_end--;
		ended++;
	};
	auto worker = std::make_unique<durable::worker>(f.tasks, "mail",
	    [callable, held = token()](auto &task) { callable(task); });

	f.tasks.add({"a", "mail", ""});
	while (began < 1)
		std::this_thread::sleep_for(1ms);
	CHECK(!worker->stop(1ms) && ended == 0 && token::living == 1);
	may_end++;
	CHECK(worker->stop(hwt::never) && ended == 1 && token::living == 0);
	CHECK(worker->stop(0s));
	*worker = durable::worker(f.tasks, "mail",
	    [callable, held = token()](auto &task) { callable(task); });
	f.tasks.add({"b", "mail", ""});
	while (began < 2)
		std::this_thread::sleep_for(1ms);
	std::thread helper([&] {
		std::this_thread::sleep_for(20ms);
		may_end++;
	});
	worker.reset();
	CHECK(ended == 2);
	helper.join();
}

TEST(an_error_destroys_the_callable)
{
	fixture f;
	std::error_code error;
	durable moved = std::move(f.tasks);
	auto nothing = [held = token()](const durable::delivery &) {};

	durable::worker::try_start(error, f.tasks, "mail", {}, nothing);
	CHECK(error == std::errc::invalid_argument && token::living == 1);
	durable::worker::try_start(
	    error, moved, "mail", {9999, {}, {}}, nothing);
	CHECK(error == std::errc::invalid_argument && token::living == 1);
	durable::scheduler::try_start(error, moved, {3, 2, nullptr});
	CHECK(error == std::errc::invalid_argument);
	auto other = f.options();
	other.shards = 2;
	durable::try_open(error, other);
	CHECK(error == std::errc::file_exists);
#ifdef __cpp_exceptions
	CHECK(thrown([&] { f.tasks.add({"a", "mail", ""}); }) == EINVAL);
	CHECK(thrown([&] { moved.add({"", "mail", ""}); }) == EINVAL);
	CHECK(thrown([&] { moved.reschedule("", 1s); }) == EINVAL);
	CHECK(thrown([&] { durable none(other); }) == EEXIST);
	CHECK(thrown([&] {
		durable::worker none(moved, "not a queue", nothing);
	}) == EINVAL);
#endif
}

TEST(a_forked_child_leaves_callables_alone)
{
	static fixture *f;
	static durable::worker *worker;

	f = new fixture;
	worker = new durable::worker(
	    f->tasks, "mail", [held = token()](const durable::delivery &) {});
	CHECK(child([] {
		std::error_code error;

		f->tasks.try_add(error, {"a", "mail", ""});
		CHECK(error.value() == EOWNERDEAD);
		delete worker;
		delete f;
		CHECK(token::living == 1);
	}) == 0);
	delete worker;
	delete f;
}

int
main()
{
	int result = 0;

	server_start(&engine, nullptr);
	result = run_tests();
	server_stop(&engine);
	return result;
}
