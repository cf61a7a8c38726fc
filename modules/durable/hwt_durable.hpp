/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_durable for C++17 and later: header only, and optional. hwt_durable.h has
 * the promises; they hold here. hwt.hpp says how errors, durations and
 * exceptions are treated; the same is true of this, but that strings and
 * vectors may throw std::bad_alloc.
 *
 *   hwt_cxx::durable tasks(options);
 *   tasks.add({"order-1-close", "orders", "if unpaid", 30min});
 *   ...
 *   hwt_cxx::durable::scheduler scheduler(tasks);
 *   hwt_cxx::durable::worker worker(
 *       tasks, "orders", [](const hwt_cxx::durable::delivery &task) {
 *               return close(task.id) ? outcome::done()
 *                                     : outcome::retry(5s);
 *       });
 *
 * where outcome is hwt_cxx::durable::outcome.
 *
 * LIFETIMES
 *
 *   durable    Must outlive its workers and schedulers: declare it before them.
 *              To destroy it earlier calls std::terminate.
 *   worker     The destructor waits for callables that are running. In its own
 *              callable it calls std::terminate.
 *   callable   Moved or copied once into the worker, and called by all of its
 *              threads, several at a time if there are several. Destroyed when
 *              the worker has stopped.
 *
 * A forked child destroys no callable of a worker from before the fork.
 */
#ifndef HWT_DURABLE_HPP
#define HWT_DURABLE_HPP

#include <hwt.hpp>

#include "hwt_durable.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string_view>
#include <vector>

namespace hwt_cxx {

namespace detail {

/* A callable, and the worker that calls it. */
class running {
public:
	running() = default;
	running(const running &) = delete;
	running &operator=(const running &) = delete;
	virtual ~running() = default;

	hwt_durable_worker *worker = nullptr;
};

struct worker_stopper {
	void
	operator()(running *stopped) const noexcept
	{
		switch (hwt_durable_worker_stop(stopped->worker, HWT_NEVER)) {
		case -EDEADLK:
			fatal("a worker was destroyed in its own callable");
		case 0:
			delete stopped;
		}
	}
};

struct scheduler_stopper {
	void
	operator()(hwt_durable_scheduler *scheduler) const noexcept
	{
		static_cast<void>(hwt_durable_scheduler_stop(scheduler));
	}
};

struct durable_closer {
	void
	operator()(::hwt_durable *durable) const noexcept
	{
		if (hwt_durable_close(durable) == -EBUSY)
			fatal("a durable was destroyed before its workers and "
			      "schedulers");
	}
};

} /* namespace detail */

/* Any thread may use it at any time. Its calls block: see hwt_durable.h. */
class durable {
public:
	using time_point = std::chrono::time_point<std::chrono::system_clock,
	    std::chrono::nanoseconds>;

	/* hwt_durable_options, with the same defaults and lifetimes. */
	struct options {
		const char *servers = nullptr;
		const char *space = nullptr;
		const char *user = nullptr;
		const char *password_file = nullptr;
		std::uint32_t shards = 0;
		std::uint32_t slots = 0;
		delay tick{};
		std::uint32_t level = 0;
		std::uint32_t replicas = 0;
		delay skew{}; /* hwt::never: clocks are not compared */
		delay timeout{};
		delay retention{};
		struct ::hwt *timer = nullptr;
		const hwt_log *log = nullptr;
		bool create = false; /* HWT_DURABLE_CREATE */
		bool repair = false; /* HWT_DURABLE_REPAIR */
	};

	struct task {
		std::string id;
		std::string queue;
		std::string payload{};
		delay after{};
		/* Instead of after. */
		std::optional<time_point> due{};
		std::uint32_t max_attempts = 0;
		bool replace = false; /* HWT_DURABLE_REPLACE */
		/* It does not begin later; 0: it does not expire. */
		delay expires_after{};
		/* Instead of expires_after. */
		std::optional<time_point> expires{};
		/* How long a retry waits that does not say it: hwt_durable.h.
		 */
		delay retry_first{};
		delay retry_most{};
		double retry_factor = 0;
		/* HWT_DURABLE_HIGH, HWT_DURABLE_LOW; 0: normal. */
		std::uint32_t priority = 0;
	};

	struct info {
		hwt_durable_state state;
		std::uint32_t attempts;
		std::uint32_t max_attempts;
		std::uint32_t generation;
		time_point due;
		std::string queue;
		/* Of an ended task that did not fail: empty. */
		std::string payload;
		std::optional<time_point> expires{};
		/* 0: 1 s, 10 min, 2. */
		std::chrono::nanoseconds retry_first{};
		std::chrono::nanoseconds retry_most{};
		double retry_factor = 0;
		/* HWT_DURABLE_HIGH, HWT_DURABLE_LOW; 0: normal. */
		std::uint32_t priority = 0;
	};

	/* hwt_durable_schedule; every, or a line of cron. */
	struct schedule {
		std::string name;
		std::string queue;
		std::string payload{};
		delay every{};
		std::string cron{};
		std::string zone{}; /* empty: UTC */
		hwt_durable_missed missed = HWT_DURABLE_MISSED_LAST;
		std::uint32_t max_attempts = 0;
		/* From when an occurrence is due; and as a task's. */
		delay expires_after{};
		delay retry_first{};
		delay retry_most{};
		double retry_factor = 0;
		std::uint32_t priority = 0;
	};

	/* As it is in the engine. */
	struct schedule_found {
		struct schedule schedule;
		/* The last occurrence that was added, and the next one. */
		std::optional<time_point> last;
		std::optional<time_point> next;
	};

	/* hwt_durable_delivery: what it refers to is there until the callable
	 * returns. */
	struct delivery {
		std::string_view id;
		std::string_view queue;
		std::string_view payload;
		std::uint32_t attempt;
		std::uint32_t max_attempts;
		std::uint32_t generation;
		time_point due;
		std::uint64_t fence;
		hwt_durable_token token; /* for finish */
		const hwt_durable_delivery *given;

		/* hwt_durable_set_error; false: too long, or no memory. */
		bool
		set_error(std::string_view text) const noexcept
		{
			return hwt_durable_set_error(
				   given, text.data(), text.size()) == 0;
		}
	};

	/* What a callable returns; done, if it returns void. */
	class outcome {
	public:
		static outcome
		done() noexcept
		{
			return outcome(0, never);
		}

		/* Never: after a back-off. */
		static outcome
		retry(delay after = never) noexcept
		{
			return outcome(HWT_DURABLE_RETRY, after);
		}

		static outcome
		fail() noexcept
		{
			return outcome(HWT_DURABLE_FAIL, never);
		}

		/* For finish alone: HWT_DURABLE_RELEASE. */
		static outcome
		release() noexcept
		{
			return outcome(HWT_DURABLE_RELEASE, never);
		}

		/* HWT_DURABLE_LATER: finish will say it. */
		static outcome
		later() noexcept
		{
			return outcome(HWT_DURABLE_LATER, never);
		}

	private:
		friend class durable;

		outcome(int result, delay after) noexcept
		    : result_(result), after_(after)
		{
		}

		int result_;
		delay after_;
	};

	/* hwt_durable_finish, from any thread. False: the attempt has an
	 * outcome already (ESTALE). What is to be finished later still cannot
	 * be given: EINVAL. */
	static bool
	finish(hwt_durable_token token, outcome ended)
	{
		std::error_code error;
		bool finished = try_finish(error, token, ended);

		check(error.value() == ESTALE ? std::error_code() : error,
		    "finish");
		return finished;
	}

	static bool
	try_finish(std::error_code &error, hwt_durable_token token,
	    outcome ended) noexcept
	{
		error = make_error(hwt_durable_finish(
		    token, ended.result_, ended.after_.ns()));
		return !error;
	}

	/* hwt_durable_finish_error: why a task may become a dead letter. */
	static bool
	finish(hwt_durable_token token, outcome ended, std::string_view why)
	{
		std::error_code error;
		bool finished = try_finish(error, token, ended, why);

		check(error.value() == ESTALE ? std::error_code() : error,
		    "finish");
		return finished;
	}

	static bool
	try_finish(std::error_code &error, hwt_durable_token token,
	    outcome ended, std::string_view why) noexcept
	{
		error = make_error(hwt_durable_finish_error(token,
		    ended.result_, ended.after_.ns(), why.data(), why.size()));
		return !error;
	}

	/* hwt_durable_worker_options, with the same defaults. */
	struct worker_options {
		std::uint32_t threads = 0;
		delay visibility{};
		delay run_limit{};
		std::uint64_t outstanding_max = 0;
	};

	/* Executes the tasks of a queue until it is destroyed; or of several,
	 * "mail,sms": hwt_durable_worker_options. */
	class worker {
	public:
		template <class F>
		worker(
		    const durable &of, const std::string &queue, F &&callable)
		    : worker(of, queue, worker_options(),
			  std::forward<F>(callable))
		{
		}

		template <class F>
		worker(const durable &of, const std::string &queue,
		    const worker_options &given, F &&callable)
		{
			std::error_code error;

			*this = try_start(
			    error, of, queue, given, std::forward<F>(callable));
			check(error, "worker");
		}

		template <class F>
		static worker try_start(std::error_code &error,
		    const durable &of, const std::string &queue,
		    const worker_options &given,
		    F &&callable) noexcept(detail::is_nothrow_kept<F>);

		/*
		 * hwt_durable_worker_stop. False: a callable is still running
		 * after this delay; call it again. True: it has stopped, and
		 * the callable is destroyed. EDEADLK: in its own callable.
		 */
		bool
		stop(delay within)
		{
			int result = 0;

			if (running_ != nullptr)
				result = hwt_durable_worker_stop(
				    running_->worker, within.ns());
			check(
			    make_error(result == -EBUSY ? 0 : result), "stop");
			if (result == 0)
				delete running_.release();
			return result == 0;
		}

	private:
		explicit worker(detail::running *started) noexcept
		    : running_(started)
		{
		}

		std::unique_ptr<detail::running, detail::worker_stopper>
		    running_;
	};

	/* hwt_durable_scheduler_options, with the same defaults. */
	struct scheduler_options {
		std::uint32_t first_shard = 0;
		std::uint32_t last_shard = 0;
		const char *name = nullptr;
	};

	/* Looks after shards until it is destroyed. */
	class scheduler {
	public:
		explicit scheduler(const durable &of)
		    : scheduler(of, scheduler_options())
		{
		}

		scheduler(const durable &of, const scheduler_options &given)
		{
			std::error_code error;

			*this = try_start(error, of, given);
			check(error, "scheduler");
		}

		static scheduler
		try_start(std::error_code &error, const durable &of,
		    const scheduler_options &given) noexcept
		{
			hwt_durable_scheduler_options options{};
			hwt_durable_scheduler *made = nullptr;

			options.first_shard = given.first_shard;
			options.last_shard = given.last_shard;
			options.name = given.name;
			error = make_error(hwt_durable_scheduler_start(
			    &made, of.get(), &options));
			return scheduler(made);
		}

	private:
		explicit scheduler(hwt_durable_scheduler *started) noexcept
		    : scheduler_(started)
		{
		}

		std::unique_ptr<hwt_durable_scheduler,
		    detail::scheduler_stopper>
		    scheduler_;
	};

	/* hwt_durable_open. */
	durable() : durable(options())
	{
	}

	explicit durable(const options &given)
	{
		std::error_code error;

		*this = try_open(error, given);
		check(error, "durable");
	}

	static durable
	try_open(std::error_code &error, const options &given) noexcept
	{
		hwt_durable_options options{};
		::hwt_durable *made = nullptr;

		options.servers = given.servers;
		options.space = given.space;
		options.user = given.user;
		options.password_file = given.password_file;
		options.shards = given.shards;
		options.flags = (given.create ? HWT_DURABLE_CREATE : 0u) |
		    (given.repair ? HWT_DURABLE_REPAIR : 0u);
		options.slots = given.slots;
		options.tick_ns = given.tick.ns();
		options.level = given.level;
		options.replicas = given.replicas;
		options.skew_ns = given.skew.ns();
		options.timeout_ns = given.timeout.ns();
		options.retention_ns = given.retention.ns();
		options.timer = given.timer;
		options.log = given.log;
		error = make_error(hwt_durable_open(&made, &options));
		return durable(made);
	}

	/* True: stored. False: it was there already, maybe ended, and nothing
	 * has changed; so after an error, such as ETIMEDOUT, it can be
	 * repeated. */
	bool
	add(const task &added)
	{
		std::error_code error;
		bool stored = try_add(error, added);

		check(error, "add");
		return stored;
	}

	bool
	try_add(std::error_code &error, const task &added)
	{
		hwt_durable_task given = task_of(added);
		int result = 0;

		error = make_error(hwt_durable_add(get(), 1, &given, &result));
		return !error && result == 0;
	}

	/* At most HWT_DURABLE_BATCH_MAX. Of each: 0 stored, the state of what
	 * was there already, or a negative error; error is the first of
	 * these. */
	std::vector<int>
	add(const std::vector<task> &added)
	{
		std::error_code error;
		std::vector<int> results = try_add(error, added);

		check(error, "add");
		return results;
	}

	std::vector<int>
	try_add(std::error_code &error, const std::vector<task> &added)
	{
		std::vector<hwt_durable_task> given;
		/* What fails as a whole leaves them as they are. */
		std::vector<int> results(added.size(), -ECANCELED);

		for (const task &each : added)
			given.push_back(task_of(each));
		error = make_error(hwt_durable_add(
		    get(), given.size(), given.data(), results.data()));
		return results;
	}

	/* hwt_durable_cancel. False: it is running (EINPROGRESS), has succeeded
	 * or failed (EALREADY), or is not known (ENOENT): the try_ form stores
	 * which. */
	bool
	cancel(std::string_view id)
	{
		std::error_code error;
		bool cancelled = try_cancel(error, id);

		check(unless_late(error), "cancel");
		return cancelled;
	}

	bool
	try_cancel(std::error_code &error, std::string_view id) noexcept
	{
		error =
		    make_error(hwt_durable_cancel(get(), id.data(), id.size()));
		return !error;
	}

	/* hwt_durable_reschedule. False: as cancel, or it was cancelled. */
	template <class When>
	bool
	reschedule(std::string_view id, When when)
	{
		std::error_code error;
		bool moved = try_reschedule(error, id, when);

		check(unless_late(error), "reschedule");
		return moved;
	}

	bool
	try_reschedule(
	    std::error_code &error, std::string_view id, delay after) noexcept
	{
		error = make_error(hwt_durable_reschedule(
		    get(), id.data(), id.size(), after.ns(), 0));
		return !error;
	}

	bool
	try_reschedule(std::error_code &error, std::string_view id,
	    time_point due) noexcept
	{
		error = make_error(hwt_durable_reschedule(
		    get(), id.data(), id.size(), unix_ns(due), HWT_DURABLE_AT));
		return !error;
	}

	/* Nothing: there is none, or its retention is over. */
	std::optional<info>
	find(std::string_view id)
	{
		std::error_code error;
		std::optional<info> found = try_find(error, id);

		check(error, "find");
		return found;
	}

	std::optional<info>
	try_find(std::error_code &error, std::string_view id)
	{
		std::string payload(HWT_DURABLE_PAYLOAD_MAX, '\0');
		hwt_durable_info got{};
		int result = hwt_durable_get(get(), id.data(), id.size(), &got,
		    payload.data(), payload.size());

		error = make_error(result == -ENOENT ? 0 : result);
		if (result != 0)
			return std::nullopt;
		payload.resize(got.payload_length);
		payload.shrink_to_fit();
		info found{got.state, got.attempts, got.max_attempts,
		    got.generation, time_of(got.due_unix_ns), got.queue,
		    std::move(payload)};
		if (got.expires_unix_ns != 0)
			found.expires = time_of(got.expires_unix_ns);
		found.retry_first =
		    std::chrono::nanoseconds(got.retry_first_ns);
		found.retry_most = std::chrono::nanoseconds(got.retry_most_ns);
		found.retry_factor = got.retry_factor;
		found.priority = static_cast<std::uint32_t>(got.flags);
		return found;
	}

	/* hwt_durable_pause: no attempt of the queue's tasks begins until the
	 * resume. */
	void
	pause(const std::string &queue)
	{
		std::error_code error;

		try_pause(error, queue);
		check(error, "pause");
	}

	bool
	try_pause(std::error_code &error, const std::string &queue) noexcept
	{
		error = make_error(hwt_durable_pause(get(), queue.c_str()));
		return !error;
	}

	void
	resume(const std::string &queue)
	{
		std::error_code error;

		try_resume(error, queue);
		check(error, "resume");
	}

	bool
	try_resume(std::error_code &error, const std::string &queue) noexcept
	{
		error = make_error(hwt_durable_resume(get(), queue.c_str()));
		return !error;
	}

	/* hwt_durable_limit: tasks at a time, and attempts that begin in a
	 * second; 0: any number. */
	void
	limit(const std::string &queue, std::uint64_t at_once, double rate)
	{
		std::error_code error;

		try_limit(error, queue, at_once, rate);
		check(error, "limit");
	}

	bool
	try_limit(std::error_code &error, const std::string &queue,
	    std::uint64_t at_once, double rate) noexcept
	{
		hwt_durable_limits limits{};

		limits.at_once = at_once;
		limits.rate = rate;
		error = make_error(
		    hwt_durable_limit(get(), queue.c_str(), &limits));
		return !error;
	}

	/* hwt_durable_schedule_put: made, or changed, or there just so. What is
	 * wrong with a line is told to the log. */
	void
	put(const schedule &given)
	{
		std::error_code error;

		try_put(error, given);
		check(error, "put");
	}

	bool
	try_put(std::error_code &error, const schedule &given) noexcept
	{
		hwt_durable_schedule made{};

		made.name = given.name.c_str();
		made.every_ns = given.every.ns();
		made.cron = given.cron.empty() ? nullptr : given.cron.c_str();
		made.zone = given.zone.empty() ? nullptr : given.zone.c_str();
		made.missed = given.missed;
		made.task.queue = given.queue.c_str();
		made.task.payload = given.payload.data();
		made.task.payload_length = given.payload.size();
		made.task.max_attempts = given.max_attempts;
		made.task.expires_ns = given.expires_after.ns();
		made.task.retry_first_ns = given.retry_first.ns();
		made.task.retry_most_ns = given.retry_most.ns();
		made.task.retry_factor = given.retry_factor;
		made.task.flags = given.priority;
		error = make_error(hwt_durable_schedule_put(get(), &made));
		return !error;
	}

	/* hwt_durable_schedule_drop. False: there is none (ENOENT). */
	bool
	drop_schedule(const std::string &name)
	{
		std::error_code error;
		bool dropped = try_drop_schedule(error, name);

		check(unless_late(error), "drop_schedule");
		return dropped;
	}

	bool
	try_drop_schedule(
	    std::error_code &error, const std::string &name) noexcept
	{
		error =
		    make_error(hwt_durable_schedule_drop(get(), name.c_str()));
		return !error;
	}

	/* hwt_durable_schedule_list, of all. */
	std::vector<schedule_found>
	schedules()
	{
		std::error_code error;
		std::vector<schedule_found> found = try_schedules(error);

		check(error, "schedules");
		return found;
	}

	std::vector<schedule_found>
	try_schedules(std::error_code &error)
	{
		std::vector<schedule_found> found;
		int result = hwt_durable_schedule_list(
		    get(), nullptr, schedule_tell, &found);

		error = make_error(result);
		return found;
	}

	hwt_durable_stats
	stats() const
	{
		hwt_durable_stats stats{};

		check(
		    make_error(hwt_durable_read_stats(get(), &stats)), "stats");
		return stats;
	}

	/* For functions of hwt_durable.h. */
	::hwt_durable *
	get() const noexcept
	{
		return durable_.get();
	}

private:
	template <class F> class running_of;

	explicit durable(::hwt_durable *made) noexcept : durable_(made)
	{
	}

	/* What is before 1970 has passed, too. */
	static std::uint64_t
	unix_ns(time_point due) noexcept
	{
		auto ns = due.time_since_epoch().count();

		return ns < 0 ? 0 : static_cast<std::uint64_t>(ns);
	}

	static time_point
	time_of(std::uint64_t unix_ns) noexcept
	{
		return time_point(std::chrono::nanoseconds(unix_ns));
	}

	static std::optional<time_point>
	time_unless_0(std::uint64_t unix_ns) noexcept
	{
		if (unix_ns == 0)
			return std::nullopt;
		return time_of(unix_ns);
	}

	static schedule_found
	schedule_of(const hwt_durable_schedule *given,
	    const hwt_durable_schedule_info *info)
	{
		schedule_found told;

		told.schedule.name = given->name;
		told.schedule.queue = given->task.queue;
		told.schedule.payload.assign(
		    static_cast<const char *>(given->task.payload),
		    given->task.payload_length);
		told.schedule.every = std::chrono::nanoseconds(given->every_ns);
		told.schedule.cron = given->cron != nullptr ? given->cron : "";
		told.schedule.zone = given->zone != nullptr ? given->zone : "";
		told.schedule.missed =
		    static_cast<hwt_durable_missed>(given->missed);
		told.schedule.max_attempts = given->task.max_attempts;
		told.schedule.expires_after =
		    std::chrono::nanoseconds(given->task.expires_ns);
		told.schedule.retry_first =
		    std::chrono::nanoseconds(given->task.retry_first_ns);
		told.schedule.retry_most =
		    std::chrono::nanoseconds(given->task.retry_most_ns);
		told.schedule.retry_factor = given->task.retry_factor;
		told.schedule.priority = given->task.flags;
		told.last = time_unless_0(info->last_unix_ns);
		told.next = time_unless_0(info->next_unix_ns);
		return told;
	}

	/* No exception may leave it. */
	static int
	schedule_tell(void *ctx, const hwt_durable_schedule *given,
	    const hwt_durable_schedule_info *info) noexcept
	{
#ifdef __cpp_exceptions
		try {
#endif
			static_cast<std::vector<schedule_found> *>(ctx)
			    ->push_back(schedule_of(given, info));
#ifdef __cpp_exceptions
		} catch (const std::bad_alloc &) {
			return -ENOMEM;
		}
#endif
		return 0;
	}

	/* It refers to the task. */
	static hwt_durable_task
	task_of(const task &from) noexcept
	{
		hwt_durable_task made{};

		made.id = from.id.data();
		made.id_length = from.id.size();
		made.queue = from.queue.c_str();
		made.payload = from.payload.data();
		made.payload_length = from.payload.size();
		made.max_attempts = from.max_attempts;
		if (from.due) {
			made.due_unix_ns = unix_ns(*from.due);
			made.flags = HWT_DURABLE_AT;
		} else {
			made.delay_ns = from.after.ns();
		}
		if (from.replace)
			made.flags |= HWT_DURABLE_REPLACE;
		if (from.expires) {
			made.expires_unix_ns = unix_ns(*from.expires);
			made.flags |= HWT_DURABLE_EXPIRES_AT;
		} else {
			made.expires_ns = from.expires_after.ns();
		}
		made.retry_first_ns = from.retry_first.ns();
		made.retry_most_ns = from.retry_most.ns();
		made.retry_factor = from.retry_factor;
		made.flags |= from.priority;
		return made;
	}

	static std::error_code
	unless_late(const std::error_code &error) noexcept
	{
		switch (error.value()) {
		case EINPROGRESS:
		case EALREADY:
		case ENOENT:
			return std::error_code();
		default:
			return error;
		}
	}

	std::unique_ptr<::hwt_durable, detail::durable_closer> durable_;
};

template <class F> class durable::running_of final : public detail::running {
public:
	template <class Given>
	explicit running_of(Given &&callable) noexcept(
	    std::is_nothrow_constructible_v<F, Given>)
	    : callable_(std::forward<Given>(callable))
	{
	}

	static int
	call(void *ctx, const hwt_durable_delivery *given) noexcept
	{
		F &callable = static_cast<running_of *>(ctx)->callable_;
		const delivery task{{given->id, given->id_length}, given->queue,
		    {static_cast<const char *>(given->payload),
			given->payload_length},
		    given->attempt, given->max_attempts, given->generation,
		    time_of(given->due_unix_ns), given->fence, given->token,
		    given};

		if constexpr (std::is_void_v<
				  std::invoke_result_t<F &, const delivery &>>)
			return callable(task), 0;
		else
			return tell(callable(task), given->retry_delay_ns);
	}

private:
	static int
	tell(outcome told, std::uint64_t *retry_delay_ns) noexcept
	{
		*retry_delay_ns = told.after_.ns();
		return told.result_;
	}

	F callable_;
};

template <class F>
durable::worker
durable::worker::try_start(std::error_code &error, const durable &of,
    const std::string &queue, const worker_options &given,
    F &&callable) noexcept(detail::is_nothrow_kept<F>)
{
	using kept = running_of<std::decay_t<F>>;
	hwt_durable_worker_options options{};
	auto *made = new (std::nothrow) kept(std::forward<F>(callable));
	int result = -ENOMEM;

	options.queue = queue.c_str();
	options.callback = kept::call;
	options.ctx = made;
	options.threads = given.threads;
	options.visibility_ns = given.visibility.ns();
	options.run_limit_ns = given.run_limit.ns();
	options.outstanding_max = given.outstanding_max;
	if (made != nullptr)
		result =
		    hwt_durable_worker_start(&made->worker, of.get(), &options);
	error = make_error(result);
	if (result == 0)
		return worker(made);
	delete made;
	return worker(nullptr);
}

} /* namespace hwt_cxx */

#endif
