/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of hwt.hpp share. A test is a function; main runs all. */
#ifndef CHECK_H
#define CHECK_H

#include "hwt.hpp"

#include <atomic>
#include <cstdio>
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

	token(token &&) noexcept
	{
		living++;
	}

	token &operator=(const token &) = default;
	token &operator=(token &&) = default;

	~token()
	{
		living--;
	}
};

/* A timer with a tick of 1 ms that is turned by hand. */
struct manual {
	hwt::manual_clock clock;
	hwt::timer timer;

	explicit manual(
	    hwt::executor_ref executor = {}, std::uint64_t max_pending = 0)
	{
		hwt::options options;

		options.tick = std::chrono::milliseconds(1);
		options.manual = true;
		options.clock = clock.get();
		options.executor = executor;
		options.max_pending = max_pending;
		timer = hwt::timer(options);
	}

	std::uint64_t
	pass(hwt::delay by)
	{
		clock.move(by);
		return timer.advance();
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
		CHECK(error.code().category() == hwt::category());
		return error.code().value();
	}
	return 0;
}
#endif

/* What a child ends with. */
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

/* TEST(a_sentence) { what is checked }; they run as they stand in the file. */
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
