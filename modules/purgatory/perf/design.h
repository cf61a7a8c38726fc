/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions behind which each design of a purgatory stands, for main.c. A
 * program has one design.
 */
#ifndef DESIGN_H
#define DESIGN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	KEYS_MAX = 100
};

/* What waits. The design frees it when nothing refers to it any more. */
struct request {
	uint64_t number;
	uint64_t due_ns; /* on CLOCK_MONOTONIC: its deadline */
	uint32_t key_count;
	uint32_t key[];
};

struct design {
	const char *what;
	void (*create)(void);
	/* Ends all, and waits for threads. */
	void (*destroy)(void);
	/* Returns what finish takes. */
	uint64_t (*watch)(struct request *request, uint64_t delay_ns);
	/* Something under this key has changed. */
	void (*check)(uint32_t key);
	/* The request with this key, which it has alone, is over: what a table
	 * of requests in flight does. NULL: it has none. */
	void (*finish)(uint32_t key);
	/* How many places in keys' lists are taken, also by what has ended. */
	uint64_t (*linked)(void);
	/* Many waiters for a value of one key; NULL: none. */
	void (*watch_value)(uint32_t key, uint64_t at_least);
	void (*raise)(uint32_t key, uint64_t value);
};

extern const struct design design;

/* main.c's, for designs. */
bool request_holds(const struct request *request);
/* The request has ended; called once. */
void request_ended(const struct request *request, bool expired);
uint32_t request_hash(uint32_t key);

#endif
