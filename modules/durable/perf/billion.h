/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The book of billion.py: a file that its processes share, and that none of
 * them loses when it is killed. Tasks have numbers; task n is entry n modulo
 * ENTRIES, so the book has one size however long the run is. billion.py reads
 * the head, and has the names of its fields in the same order.
 *
 *   asked     tasks below this have an entry, and may have been sent
 *   acked     tasks below this were acknowledged
 *   undone    tasks below this were cancelled, if they were to be
 *   settled   tasks below this have ended and are counted in executed,
 *             cancelled, dead or lost; their entries may be used again, but
 *             no sooner than after AHEAD_MAX more tasks: one of them may be
 *             executed once more
 *
 * One producer at a time writes these four; after a kill the next one goes on
 * with them, and asks again for what was asked and not acknowledged, by the
 * same ids. Workers write an entry's execution.
 */
#ifndef HWT_DURABLE_PERF_BILLION_H
#define HWT_DURABLE_PERF_BILLION_H

#include <stdatomic.h>
#include <stdint.h>

enum {
	ENTRIES = 1 << 23,
	AHEAD_MAX = ENTRIES / 2,
	KILLS_MAX = 4096,
	LATE_MAX = 60000 /* ms; the last one is all that are later */
};

enum part {
	PRODUCER = 1,
	SCHEDULER,
	WORKER,
	REDIS
};

/* Why a task was executed again. */
enum cause {
	WORKER_KILLED,
	REDIS_KILLED,
	UNEXPLAINED,
	CAUSES
};

/* An entry's end. */
enum end {
	DONE = 1,
	FAILED
};

struct entry {
	atomic_uint_fast64_t number, due_ms;
	atomic_uint_fast64_t begun_ms; /* of the last execution, as pid */
	atomic_uint_least32_t pid;
	atomic_uint_least8_t runs, end;
	atomic_uint_least8_t cancelled; /* 1: a cancel was answered by yes */
};

/* back_ms: what was killed is there again; 0: not yet. */
struct kill {
	atomic_uint_fast64_t ms, part, pid, back_ms;
};

struct book {
	atomic_uint_fast64_t asked, acked, undone, settled;
	atomic_uint_fast64_t executed, cancelled, dead, lost;
	atomic_uint_fast64_t begun; /* executions */
	atomic_uint_fast64_t kept; /* came too late to be cancelled */
	atomic_uint_fast64_t early;
	atomic_uint_fast64_t undead; /* executed after a cancel */
	atomic_uint_fast64_t cause[CAUSES];
	atomic_uint_fast64_t wanted; /* by the rates, until now */
	atomic_uint_fast64_t until_ms; /* of adds */
	atomic_uint_fast64_t kills; /* written before they are done */
	struct kill kill[KILLS_MAX];
	/* First executions: outside of kills, and from a kill until 10 s later.
	 */
	atomic_uint_fast64_t late[2][LATE_MAX];
	struct entry entry[ENTRIES];
};

#endif
