/* SPDX-License-Identifier: Apache-2.0 */
/* No hook is called: what Criterion's are for, the caller of runner.c does. */
#ifndef HWT_TEST_RUNNER_HOOKS_H
#define HWT_TEST_RUNNER_HOOKS_H

#include <stddef.h>

struct criterion_global_stats {
	size_t nb_tests, tests_skipped;
};

#define ReportHook(kind) \
	static __attribute__((unused)) void runner_report_##kind

#endif
