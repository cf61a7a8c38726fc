/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of hwt.hpp share. A test is a function; main runs all. */
#ifndef CHECK_H
#define CHECK_H

#include "hwt.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>

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

struct test {
	const char *name;
	void (*function)();
};

template <std::size_t count>
int
run_tests(const test (&tests)[count])
{
	for (const test &each : tests) {
		each.function();
		if (token::living != 0) {
			std::fprintf(stderr, "%s: %d callables are left\n",
			    each.name, token::living.load());
			return 1;
		}
		std::printf("ok %s\n", each.name);
	}
	std::printf("%zu tests passed\n", count);
	return 0;
}

#endif
