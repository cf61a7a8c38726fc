/* SPDX-License-Identifier: Apache-2.0 */
/* Short programs that sweep.c runs with each call of the system failing. */
#ifndef HWT_TEST_MODEL_SCENARIO_H
#define HWT_TEST_MODEL_SCENARIO_H

#include "test/model/model.h"

struct scenario {
	const char *name;
	void (*run)(void);
	/* Its calls are made on one thread: a call that is interrupted for
	 * good would never end. */
	bool one_thread;
};

extern const struct scenario scenarios[];

/* At the end of a scenario: each timeout must have ended once. */
void scenario_settle(void);
/* Ends this process as one that passed. */
_Noreturn void scenario_end(void);

/* Ends the process as a failure. */
void fail(const char *format, ...)
    __attribute__((noreturn, format(printf, 1, 2)));
#define CHECK(condition)       \
	((condition) ? (void)0 \
		     : fail("%s:%d: %s", __FILE__, __LINE__, #condition))

uint64_t now_ns(void);
void pause_ns(uint64_t ns);

#endif
