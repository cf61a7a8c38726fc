/* SPDX-License-Identifier: Apache-2.0 */
/* As installed.c, in C++: it sees the public headers, and those alone. */
#include <hwt.hpp>
#include <hwt_checkout.hpp>

#include <cstdio>

#if __has_include(<core/timer.h>) || __has_include(<checkout.h>)
#error "headers of the library hide those of the program"
#endif

int
main()
{
	hwt::timer timer;

	std::puts(hwt_version());
	return hwt_checkout_destroy(nullptr);
}
