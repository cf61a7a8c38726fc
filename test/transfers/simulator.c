/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simulator.h describes it. The functions are those that gcc 12 calls; what is
 * not here does not link, so that none of them is missed. Not seen is what
 * memcpy, memmove, memset and the C library touch.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "simulator.h"
#include "take.h"

#define LINES (1u << 20) /* of the table, a power of two */

struct line {
	uintptr_t number; /* 0: none */
	uint64_t cores; /* that have it: bits */
	bool modified; /* by the only one that has it */
	uint64_t transfers[8]; /* by accesses to each of its words */
};

static struct line *table;
static unsigned line_bits = 6;
/* 0: cores go on in a fixed order. */
static uint64_t random_state;
static uint64_t counted;
/* Of these: by each core, and under a lock. */
static uint64_t by_core[CORES_MAX], locked;
static sem_t turn[CORES_MAX];
static bool alive[CORES_MAX];
static unsigned core_count, met;
/* What a core waits for: a counter, and its least value. */
static const unsigned *awaited[CORES_MAX];
static unsigned least[CORES_MAX];
static void (*body_of_cores)(unsigned core);
static _Thread_local unsigned self;
static _Thread_local bool simulated, measures, stands_by, holds_lock;

void
cores_option(unsigned line_bytes, uint64_t seed)
{
	line_bits = (unsigned)__builtin_ctz(line_bytes);
	random_state = seed;
}

static struct line *
line_of(uintptr_t address)
{
	uintptr_t number = address >> line_bits;
	size_t at = number * UINT64_C(0x9e3779b97f4a7c15) >> 44;

	while (table[at].number != 0 && table[at].number != number)
		at = (at + 1) % LINES;
	table[at].number = number;
	return &table[at];
}

static bool
goes_on(unsigned core)
{
	return alive[core] &&
	    (awaited[core] == NULL || (int)(*awaited[core] - least[core]) >= 0);
}

/* Where to begin to look for the next core. */
static unsigned
before_next(void)
{
	if (random_state == 0)
		return self;
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (unsigned)((random_state >> 32) % core_count);
}

void
core_pass(void)
{
	unsigned next = before_next();
	unsigned passed = 0;

	do {
		next = (next + 1) % core_count;
		if (passed++ > core_count)
			abort(); /* each core waits */
	} while (!goes_on(next));
	if (next == self)
		return;
	sem_post(&turn[next]);
	while (sem_wait(&turn[self]) != 0)
		;
}

void
core_await(const unsigned *counter, unsigned value)
{
	awaited[self] = counter;
	least[self] = value;
	if (!goes_on(self))
		core_pass();
	awaited[self] = NULL;
}

void
cores_meet(void)
{
	met++;
	core_await(&met, (met + core_count - 1) / core_count * core_count);
}

void
core_measure(bool on)
{
	measures = on;
}

void
core_stand_by(void)
{
	stands_by = true;
}

static void
touch(const volatile void *memory, bool write)
{
	uint64_t bit = UINT64_C(1) << self;
	struct line *line;
	bool moves;

	if (!simulated)
		return;
	line = line_of((uintptr_t)memory);
	if (write)
		moves = (line->cores & ~bit) != 0;
	else
		moves = line->cores != 0 && !(line->cores & bit);
	line->cores = write ? bit : line->cores | bit;
	line->modified = write || (line->modified && !moves);
	if (!measures)
		return;
	if (moves && !stands_by) {
		line->transfers[(uintptr_t)memory >> 3 & 7]++;
		counted++;
		by_core[self]++;
		locked += holds_lock;
	}
	core_pass();
}

void
core_lock(unsigned *word)
{
	while (*word != 0)
		core_pass();
	*word = 1;
	holds_lock = true;
	touch(word, true);
}

void
core_unlock(unsigned *word)
{
	*word = 0;
	touch(word, true);
	holds_lock = false;
}

static void *
core_main(void *argument)
{
	self = (unsigned)(uintptr_t)argument;
	while (sem_wait(&turn[self]) != 0)
		;
	simulated = true;
	body_of_cores(self);
	simulated = false;
	alive[self] = false;
	for (unsigned i = 1; i < core_count; i++) {
		unsigned next = (self + i) % core_count;

		if (goes_on(next)) {
			sem_post(&turn[next]);
			break;
		}
	}
	return NULL;
}

/* Threads that take turns do so faster on one processor. */
static void
stay_here(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)sched_getcpu(), &set);
	(void)sched_setaffinity(0, sizeof(set), &set);
}

void
cores_run(unsigned cores, void (*body)(unsigned core))
{
	pthread_t thread[CORES_MAX];
	unsigned i;

	stay_here();
	if (table == NULL)
		table = calloc(LINES, sizeof(*table));
	if (table == NULL || cores == 0 || cores > CORES_MAX)
		abort();
	memset(table, 0, LINES * sizeof(*table));
	counted = 0;
	locked = 0;
	memset(by_core, 0, sizeof(by_core));
	met = 0;
	core_count = cores;
	body_of_cores = body;
	for (i = 0; i < cores; i++) {
		sem_init(&turn[i], 0, 0);
		alive[i] = true;
	}
	for (i = 0; i < cores; i++)
		if (pthread_create(
			&thread[i], NULL, core_main, (void *)(uintptr_t)i) != 0)
			abort();
	sem_post(&turn[0]);
	for (i = 0; i < cores; i++)
		pthread_join(thread[i], NULL);
}

uint64_t
transfers_counted(void)
{
	return counted;
}

uint64_t
transfers_in_a_row(void)
{
	uint64_t most = locked;
	uint64_t of_line;
	unsigned i, j;

	for (i = 0; i < CORES_MAX; i++)
		most = by_core[i] > most ? by_core[i] : most;
	for (i = 0; i < LINES; i++) {
		of_line = 0;
		for (j = 0; j < 8; j++)
			of_line += table[i].transfers[j];
		most = of_line > most ? of_line : most;
	}
	return most;
}

void
transfers_each(void (*word)(uintptr_t address, uint64_t transfers))
{
	unsigned i, j;

	for (i = 0; i < LINES; i++)
		for (j = 0; j < 8; j++)
			if (table[i].transfers[j] > 0)
				word((table[i].number << line_bits) + 8 * j,
				    table[i].transfers[j]);
}

void
simulated_take(const volatile void *memory)
{
	touch(memory, true);
}

/* What the compiler calls. */

void __tsan_init(void);
void __tsan_func_entry(void *);
void __tsan_func_exit(void);
void __tsan_read_range(void *, unsigned long);
void __tsan_write_range(void *, unsigned long);

void
__tsan_init(void)
{
}

void
__tsan_func_entry(void *caller)
{
	(void)caller;
}

void
__tsan_func_exit(void)
{
}

static void
touch_range(char *memory, size_t size, bool write)
{
	char *end = memory + size;

	for (; memory < end; memory = (char *)(((uintptr_t)memory | 63) + 1))
		touch(memory, write);
}

void
__tsan_read_range(void *memory, unsigned long size)
{
	touch_range(memory, size, false);
}

void
__tsan_write_range(void *memory, unsigned long size)
{
	touch_range(memory, size, true);
}

#define PLAIN(size)                                     \
	void __tsan_read##size(void *);                 \
	void __tsan_write##size(void *);                \
	void __tsan_read##size(void *memory)            \
	{                                               \
		touch_range(memory, size, false);       \
	}                                               \
	void __tsan_write##size(void *memory)           \
	{                                               \
		touch_range(memory, size, true);        \
	}                                               \
	void __tsan_unaligned_read##size(void *);       \
	void __tsan_unaligned_write##size(void *);      \
	void __tsan_unaligned_read##size(void *memory)  \
	{                                               \
		touch_range(memory, size, false);       \
	}                                               \
	void __tsan_unaligned_write##size(void *memory) \
	{                                               \
		touch_range(memory, size, true);        \
	}
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

/* The order does not matter: one core runs at a time. A failed compare-and-swap
 * takes the line as a successful one does. */
#define CHANGE(bits, type, name, result)                               \
	type __tsan_atomic##bits##_##name(volatile type *, type, int); \
	type __tsan_atomic##bits##_##name(                             \
	    volatile type *at, type value, int order)                  \
	{                                                              \
		type old = *at;                                        \
		(void)order;                                           \
		*at = (type)(result);                                  \
		touch(at, true);                                       \
		return old;                                            \
	}
#define ATOMIC(bits, type)                                                   \
	type __tsan_atomic##bits##_load(const volatile type *, int);         \
	type __tsan_atomic##bits##_load(const volatile type *at, int order)  \
	{                                                                    \
		type value = *at;                                            \
		(void)order;                                                 \
		touch(at, false);                                            \
		return value;                                                \
	}                                                                    \
	void __tsan_atomic##bits##_store(volatile type *, type, int);        \
	void __tsan_atomic##bits##_store(                                    \
	    volatile type *at, type value, int order)                        \
	{                                                                    \
		(void)order;                                                 \
		*at = value;                                                 \
		touch(at, true);                                             \
	}                                                                    \
	CHANGE(bits, type, exchange, value)                                  \
	CHANGE(bits, type, fetch_add, old + value)                           \
	CHANGE(bits, type, fetch_sub, old - value)                           \
	CHANGE(bits, type, fetch_or, old | value)                            \
	CHANGE(bits, type, fetch_and, old &value)                            \
	int __tsan_atomic##bits##_compare_exchange_strong(                   \
	    volatile type *, type *, type, int, int);                        \
	int __tsan_atomic##bits##_compare_exchange_strong(volatile type *at, \
	    type *expected, type value, int order, int failed)               \
	{                                                                    \
		type old = *at;                                              \
		bool equal = old == *expected;                               \
		(void)order;                                                 \
		(void)failed;                                                \
		if (equal)                                                   \
			*at = value;                                         \
		else                                                         \
			*expected = old;                                     \
		touch(at, true);                                             \
		return equal;                                                \
	}                                                                    \
	int __tsan_atomic##bits##_compare_exchange_weak(                     \
	    volatile type *, type *, type, int, int);                        \
	int __tsan_atomic##bits##_compare_exchange_weak(volatile type *at,   \
	    type *expected, type value, int order, int failed)               \
	{                                                                    \
		return __tsan_atomic##bits##_compare_exchange_strong(        \
		    at, expected, value, order, failed);                     \
	}
__extension__ typedef unsigned __int128 wide;
ATOMIC(8, uint8_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)
ATOMIC(128, wide)

void __tsan_atomic_thread_fence(int);
void
__tsan_atomic_thread_fence(int order)
{
	(void)order;
}
