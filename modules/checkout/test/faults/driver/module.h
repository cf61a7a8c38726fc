/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the sections of the modules share: a timer whose time moves by hand, and
 * calls that are judged. A call that fails must do so for the fault and with an
 * error that its header lists, and must have changed nothing; the next one must
 * work.
 */
#ifndef HWT_TEST_FAULTS_MODULE_H
#define HWT_TEST_FAULTS_MODULE_H

#include "modules/checkout/test/faults/driver/faults.h"

#define TICK HWT_MS(1)
#define FAR HWT_SEC(100)
#define STATE_MAX 1024
#define POISON UINT64_C(0x5a5a5a5a5a5a5a5a)

extern struct hwt *timer;

void timer_open(void);
void timer_close(void);
void timer_advance(uint64_t ns);

/* Mailboxes, whose descriptor a fault may keep from being made readable. */
bool fd_is_readable(int fd);
/* Runs what makes it readable. A write that is interrupted for good goes on
 * trying: then this thread ends the fault. */
void signal_in_thread(void *(*signals)(void *unused));
/* It is not readable: because of the fault, which ends here. */
void signal_failed(void);

void attempt_begin(void);
/* Whether the call failed, as it may have; then it is to be repeated. A fault
 * that is permanent is switched off after the second failure. */
bool attempt_failed(const char *function, int result);
/* What the call answers, when it has failed as often as it may. */
#define ATTEMPT(function, ...)                           \
	({                                               \
		int rc;                                  \
                                                         \
		do {                                     \
			attempt_begin();                 \
			rc = function(__VA_ARGS__);      \
		} while (attempt_failed(#function, rc)); \
		rc;                                      \
	})
/* made is what function, which must succeed in the end, has put into its first
 * argument; until then it leaves that as it is, and no memory. */
#define MAKE(made, function, ...)                                          \
	do {                                                               \
		__typeof__(made) const poison = (void *)(uintptr_t)POISON; \
		__typeof__(made) fresh;                                    \
		int64_t blocks = balance_now().blocks;                     \
		int rc;                                                    \
                                                                           \
		do {                                                       \
			fresh = poison;                                    \
			attempt_begin();                                   \
			rc = function(&fresh, ##__VA_ARGS__);              \
			CHECK(rc == 0 ||                                   \
			    (fresh == poison &&                            \
				balance_now().blocks == blocks));          \
		} while (attempt_failed(#function, rc));                   \
		CHECK(fresh != poison);                                    \
		(made) = fresh;                                            \
	} while (0)

/* What a module's sections say. */

/* Writes at most STATE_MAX bytes that a call which fails must leave as they
 * are, and answers how many. */
size_t module_state(void *state);
/* What its header lists, as far as the system and the timer have a part in
 * it. */
bool module_lists(const char *function, int error);
/* What the fault may make of a call; 0: nothing, it is to succeed. */
int module_error(const struct fault *fault);

#endif
