/* SPDX-License-Identifier: Apache-2.0 */
/* As installed.c, in C++: it sees the public headers, and those alone. */
#include <hwt.hpp>
#include <hwt_checkout.hpp>

#include <condition_variable>
#include <cstdio>
#include <mutex>

#if __has_include(<core/timer.h>) || __has_include(<checkout.h>)
#error "headers of the library hide those of the program"
#endif

using namespace std::chrono_literals;

int
main()
{
	std::mutex mutex;
	std::condition_variable changed;
	bool ran = false;
	hwt::timer timer;
	hwt_checkout_options options{};
	struct hwt_checkout *checkout;
	hwt::timeout timeout = timer.schedule(1ms, [&] {
		std::lock_guard<std::mutex> lock(mutex);

		ran = true;
		changed.notify_one();
	});
	std::unique_lock<std::mutex> lock(mutex);

	changed.wait(lock, [&] { return ran; });
	if (hwt_checkout_create(&checkout, timer.get(), &options) ||
	    hwt_checkout_destroy(checkout))
		return 1;
	std::puts(hwt_version());
	return 0;
}
