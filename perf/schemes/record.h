/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the schemes share: records from a free list, linked so that one is taken
 * out of its list in constant time without knowing the list.
 */
#ifndef RECORD_H
#define RECORD_H

#include "perf/perf.h"
#include "perf/schemes/scheme.h"

/* at: what points to this record. */
struct record {
	struct record *next, **at;
	uint64_t due;
	uint32_t who;
	uint32_t place;
};

static struct {
	struct record *records, *free;
	uint64_t now;
} pool;

static inline void
pool_create(uint64_t capacity)
{
	uint64_t i;

	pool.records = calloc(capacity, sizeof(*pool.records));
	perf_must(pool.records, "calloc");
	pool.free = NULL;
	pool.now = 0;
	for (i = capacity; i > 0; i--) {
		pool.records[i - 1].next = pool.free;
		pool.free = &pool.records[i - 1];
	}
}

static inline void
pool_destroy(void)
{
	free(pool.records);
}

static inline struct record *
pool_take(uint64_t interval, uint32_t who)
{
	struct record *record = pool.free;

	pool.free = record->next;
	record->due = pool.now + interval;
	record->who = who;
	return record;
}

static inline void
pool_give(struct record *record)
{
	record->next = pool.free;
	pool.free = record;
}

static inline struct record *
record_of(uint64_t handle)
{
	return (struct record *)(uintptr_t)handle;
}

static inline uint64_t
record_handle(const struct record *record)
{
	return (uintptr_t)record;
}

/* Puts the record before the one that *at points to. */
static inline void
record_link(struct record **at, struct record *record)
{
	record->next = *at;
	record->at = at;
	if (record->next)
		record->next->at = &record->next;
	*at = record;
}

/* Puts the record before the first that is not due before it. */
static inline void
record_link_sorted(struct record **at, struct record *record)
{
	while (*at && (*at)->due < record->due)
		at = &(*at)->next;
	record_link(at, record);
}

static inline void
record_unlink(struct record *record)
{
	*record->at = record->next;
	if (record->next)
		record->next->at = record->at;
}

static inline void
record_stop(uint64_t handle)
{
	struct record *record = record_of(handle);

	record_unlink(record);
	pool_give(record);
}

static inline void
record_expire(struct record *record)
{
	uint32_t who = record->who;

	record_unlink(record);
	pool_give(record);
	expire(who);
}

/* Expires what is due now in a list, which is looked through as a whole. */
static inline void
list_expire(struct record **head)
{
	struct record *record, *next;

	for (record = *head; record; record = next) {
		next = record->next;
		if (record->due == pool.now)
			record_expire(record);
	}
}

/* The same for a list that is sorted. */
static inline void
list_expire_sorted(struct record **head)
{
	while (*head && (*head)->due == pool.now)
		record_expire(*head);
}

/* A power of two above count. */
static inline uint64_t
power_above(uint64_t count)
{
	uint64_t power = 1;

	while (power <= count)
		power *= 2;
	return power;
}

#endif
