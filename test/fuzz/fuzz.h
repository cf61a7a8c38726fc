/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes turned into calls, for libFuzzer. One input is one life of one or two
 * manual timers with a mailbox and an executor that keeps, refuses or runs at
 * once. Every call of the public interface that one thread can make is
 * made, with any argument: handles are live, stale, foreign, flipped or raw,
 * options and delays come from the input. Tasks take their calls from the same
 * bytes.
 *
 * What must hold: no call answers what it may not answer about a timeout that
 * is known here (account.c), each accepted timeout ends exactly once, and the
 * inside of a timer is as test/random/checker.h says, every few calls.
 *
 *   input.c    bytes to numbers, delays and handles
 *   account.c  what has become of each timeout
 *   fuzz.c     the calls
 *   replay.c   a main without libFuzzer: runs the files that it is given
 */
#ifndef HWT_TEST_FUZZ_FUZZ_H
#define HWT_TEST_FUZZ_FUZZ_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hwt.h"

#define TIMERS 2
#define SLOTS 256
#define DEPTH_MAX 3

/* One timeout that was accepted. */
struct slot {
	/* 0: the caller did not want it, and no task has told it yet. */
	hwt_timeout handle;
	unsigned timer;
	bool periodic;
	/* Runs begun, the run under way, and an executor holding it. */
	unsigned started;
	bool running, held, in_mailbox;
	/* This run is its last. */
	bool ending;
	/* It has ended: started, cancelled or given back. */
	bool ended;
};

struct fuzz_timer {
	struct hwt *timer;
	uint64_t now_ns;
	bool stopped, advancing;
	/* Tasks and turns of it on the stack. */
	unsigned frames;
	uint64_t accepted;
	uint64_t wakes;
};

struct fuzz {
	const uint8_t *at, *end;
	struct fuzz_timer timers[TIMERS];
	struct hwt_mailbox *mailbox;
	bool mailbox_running;
	struct slot slots[SLOTS];
	unsigned slot_count;
	unsigned depth;
	unsigned calls;
};

extern struct fuzz fuzz;

/* What must hold. */
#define require(condition) \
	((condition) ? (void)0 : fuzz_object(__func__, #condition))

_Noreturn void fuzz_object(const char *function, const char *condition);

/* input.c */
uint8_t input_byte(void);
uint64_t input_word(void);
bool input_chance(unsigned one_in);
uint64_t input_delay(const struct fuzz_timer *timer);
hwt_timeout input_handle(unsigned timer);

/* account.c */
struct slot *slot_of(unsigned timer, hwt_timeout handle);
struct slot *slot_new(unsigned timer, bool periodic);
void slot_accepted(struct slot *slot, hwt_timeout handle);
void slot_refused(struct slot *slot);
void slot_runs(struct slot *slot, hwt_timeout handle);
void slot_ran(struct slot *slot);
/* What a call has answered about a handle. */
void note_cancel(unsigned timer, hwt_timeout handle, int rc, bool waited);
void note_reschedule(unsigned timer, hwt_timeout handle, int rc);
void note_remaining(unsigned timer, hwt_timeout handle, int rc);
/* Stop gave these back, or dropped them. */
void note_unprocessed(unsigned timer, struct hwt_unprocessed *unprocessed);
void note_dropped(unsigned timer);
/* After the last call: nothing is left, nothing was lost. */
void note_all_ended(unsigned timer);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
