/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of hwt.hpp and of the modules' headers. A test is a
 * function; main runs all. */
#ifndef CHECK_H
#define CHECK_H

#include "hwt.hpp"

#include <atomic>
#include <cstdlib>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) \
	((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition))

[[noreturn]] inline void
check_failed(const char *file, int line, const char *what)
{
	std::fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
	std::fflush(nullptr);
	std::_Exit(1);
}

/* Counts the callables that live: one that is lost or destroyed twice shows. */
struct token {
	static inline std::atomic<int> living{0};

	token() noexcept
	{
		living++;
	}

	token(const token &) noexcept
	{
		living++;
	}

	token &operator=(const token &) = default;

	~token()
	{
		living--;
	}
};

/* A timer with a tick of 1 ms that is turned by hand. */
struct manual {
	std::atomic<std::uint64_t> now_ns{HWT_SEC(1)};
	hwt_clock clock{read, this};
	hwt_options options;
	hwt::timer timer;

	explicit manual(
	    const hwt_executor *executor = nullptr, std::uint64_t limit = 0)
	    : options(options_of(&clock, executor, limit)), timer(options)
	{
	}

	std::uint64_t
	pass(hwt::delay by)
	{
		std::uint64_t started = 0;

		now_ns += by.ns();
		CHECK(hwt_advance(timer.get(), &started) == 0);
		return started;
	}

	std::uint64_t
	pending() const
	{
		return hwt_pending_timeouts(timer.get());
	}

	static std::uint64_t
	read(void *self) noexcept
	{
		return static_cast<manual *>(self)->now_ns;
	}

	static hwt_options
	options_of(const hwt_clock *clock, const hwt_executor *executor,
	    std::uint64_t limit)
	{
		hwt_options given{};

		given.tick_ns = HWT_MS(1);
		given.flags = HWT_MANUAL;
		given.max_pending = limit;
		given.executor = executor;
		given.clock = clock;
		return given;
	}
};

#ifdef __cpp_exceptions
/* The error that this throws. */
template <class F>
int
thrown(F &&function)
{
	try {
		function();
	} catch (const std::system_error &error) {
		return error.code().value();
	}
	return 0;
}
#endif

/* Exit status of a child; 42: by std::terminate. */
inline int
child(void (*function)())
{
	int status = 0;
	pid_t pid = 0;

	std::fflush(nullptr);
	pid = fork();
	if (pid == 0) {
		std::set_terminate([] { _exit(42); });
		static_cast<void>(!std::freopen("/dev/null", "w", stderr));
		function();
		_exit(0);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct test {
	static inline std::vector<const test *> all{};
	const char *name;
	void (*function)();

	test(const char *is, void (*runs)()) : name(is), function(runs)
	{
		all.push_back(this);
	}
};

#define TEST(name)                                  \
	static void name();                         \
	static const test name##_test{#name, name}; \
	static void name()

inline int
run_tests()
{
	for (const test *each : test::all) {
		each->function();
		if (token::living != 0) {
			std::fprintf(stderr, "%s: %d callables are left\n",
			    each->name, token::living.load());
			return 1;
		}
		std::printf("ok %s\n", each->name);
	}
	std::printf("%zu tests passed\n", test::all.size());
	return 0;
}

#endif
