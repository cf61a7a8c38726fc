/* SPDX-License-Identifier: Apache-2.0 */
/* As observed debug, in C++: says on stdout what gdb is to find in a timer, and
 * calls look. Names of the library's structures are this program's as well. */
#include <hwt.hpp>

#include <cinttypes>
#include <cstdio>

using namespace std::chrono_literals;

struct record {
	int number;
};

struct slab {
	record records[2];
};

extern "C" void look(hwt::timer *timer, slab *own);

/* gdb stops here. */
extern "C" __attribute__((noinline)) void
look(hwt::timer *timer, slab *own)
{
	__asm__ volatile("" : : "r"(timer), "r"(own) : "memory");
}

int
main()
{
	hwt::manual_clock clock;
	hwt::options options;
	slab own{};
	void *arg = nullptr;

	options.tick = 1ms;
	options.manual = true;
	options.clock = clock.get();
	options.thread_name = "cxx";
	hwt::timer timer(options);
	hwt::timeout t = timer.schedule(5ms, [] {});
	if (hwt_state(timer.get(), t.handle(), &arg) != HWT_STATE_PENDING)
		return 1;
	auto now_ns = timer.now().time_since_epoch().count();
	std::printf("timer \"cxx\": manual, tick 1000000 ns, 512 buckets\n"
		    "next tick: 1 at %" PRId64 " ns\n"
		    "clock when last read: %" PRId64 " ns\n"
		    "pending: 1\nin executors: 0\n"
		    "earliest: %#" PRIx64 ", deadline %" PRId64 " ns\n"
		    "asleep: no, or until the next tick at most\n",
	    now_ns + 1000000, now_ns, t.handle().id, now_ns + 5000000);
	std::printf("%#" PRIx64 " pending, deadline %" PRId64
		    " ns, in the queue, task "
		    "hwt_cxx::detail::run_once(hwt_timeout, void*), arg %p\n",
	    t.handle().id, now_ns + 5000000, arg);
	std::fflush(stdout);
	look(&timer, &own);
	return 0;
}
