/* SPDX-License-Identifier: Apache-2.0 */
/* Giving memory back to the system while the timer lives. See trim.c. */
#ifndef HWT_TRIM_H
#define HWT_TRIM_H

#include <stdbool.h>
#include <stdint.h>

/* So many spare records are worth it: a megabyte. */
#ifndef SPARE_RECORDS
#define SPARE_RECORDS 16384u
#endif

struct hwt;
struct record_store;

enum trim_phase {
	TRIM_NOT,
	TRIM_COLLECT,
	TRIM_RETURN,
	TRIM_WHEEL,
	TRIM_QUEUES
};

/* All of it is the worker's. */
struct trim {
	enum trim_phase phase;
	uint32_t records; /* COLLECT: how many more to take at most */
	uint32_t page; /* RETURN: all before it are still to be seen to */
	uint32_t step_pages; /* how many more this step may make blank */
	uint32_t pages; /* made blank since it began */
	bool refused; /* the system does not take them */
	/* How many records stayed spare the last time, how many timeouts there
	 * were then, and store.given as it was when that began. How often in a
	 * row it was hardly worth it. */
	uint64_t floor, pending, given;
	uint32_t vain;
	/* Since when enough of them are spare; or, after it was in vain, from
	 * when on less is enough, which may lie ahead. 0: neither. */
	uint64_t since_ns;
	/* When that was last looked at, and when a trim last began. */
	uint64_t looked_ns, began_ns;
};

/* Any thread: records of a page that the worker holds become the caller's.
 * Returns how many, BATCH at most; 0: there is none, or not where it has
 * looked. Lock-free. */
uint32_t trim_take_held(struct hwt *timer, uint32_t *index);
/* The same with a blank page, whose records are as if never used: *first is the
 * first. */
uint32_t trim_take_page(struct hwt *timer, uint32_t *first);
/* Any thread: whether the record's page takes no memory. */
bool trim_is_blank(const struct record_store *store, uint32_t index);
/* Any thread: the first index from there on, below end, whose record may be in
 * use; end: none. */
uint32_t trim_skip_blank(
    const struct record_store *store, uint32_t index, uint32_t end);

/* The rest is for the worker. When it should trim, if all stays as it is:
 * HWT_NEVER, or a moment, which may be over. */
uint64_t trim_time(struct hwt *timer, uint64_t now_ns);
void trim_start(struct hwt *timer);
/* Starts it if it is time to; whether it is under way. */
bool trim_begin(struct hwt *timer, uint64_t now_ns);
/* A bounded piece of it. False: that was the last one. */
bool trim_step(struct hwt *timer);
void trim_destroy(struct hwt *timer);

#endif
