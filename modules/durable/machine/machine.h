/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue of delayed tasks: a state machine without clock, I/O or threads.
 *
 * Its state is a function of the sequence of commands, each with its time. Two
 * machines that were given the same commands are equal, and so is one that was
 * saved and loaded. A host (redis/, server/) gives time and stores the state.
 *
 * STATES of a record, and what makes each move:
 *
 *   (none) --machine_add--> WAITING ----advance----> DUE --machine_take--+
 *                              ^                                         v
 *                 ORDER_RETRY, or the lease ends <--------------- RUNNING
 *                                                                        |
 *   DEAD <--ORDER_FAIL, or no attempt left, or expired-------------------+
 *   DONE <--ORDER_DONE---------------------------------------------------+
 *
 *   WAITING, DUE, RUNNING --ORDER_CANCEL--> CANCELLED
 *   WAITING, DUE, RUNNING --ORDER_RESCHEDULE--> WAITING or DUE
 *   DEAD --ORDER_REPLAY--> DUE; --ORDER_DROP--> (none)
 *   DONE, CANCELLED --advance, when the retention is over--> (none)
 *
 * TIME. now_ms is Unix time: due times and retention. steady_ms advances with
 * real time alone: leases and rates; so a step of the wall clock ends no lease.
 * Neither may fall from one command to the next. Every command that may change
 * something first calls machine_advance, which moves what has come due. If
 * revision has grown then, the host must hand this on to replicas and files,
 * also when the command itself changed nothing.
 *
 * A WHEEL is hashed, with ticks of 1 ms (Varghese & Lauck's scheme 6): a table
 * by time, whose buckets are the slots, and so grow with what is in it. Its
 * groups are the records of one time each. Groups of later rounds stay in their
 * slot, and each round begins at another one. The table knows the least time.
 * So no operation depends on how many records there are, or on their times.
 * Records leave in the order of their times, and those of one time in the order
 * in which they were inserted: so it depends on the contents alone.
 *
 * MEMORY. An add that finds none is refused. Where a machine cannot have the
 * few bytes that any other command needs, the process ends, as a Redis does:
 * what was acknowledged is in the host's files.
 *
 * INVARIANTS (test/machine_check.h)
 *   1. Each record is in the table, and by its state in exactly one of: the
 *      wheels waiting (WAITING), ended (DONE, CANCELLED) and leases (RUNNING),
 *      the lists due (DUE) and dead (DEAD).
 *   2. count[] says how many there are in each state.
 *   3. added = the sum of count[] + removed + dropped.
 *   4. An attempt that runs and has a request is in the group of its take.
 *   5. Fences grow: no record's fence exceeds the machine's.
 */
#ifndef HWT_DURABLE_MACHINE_H
#define HWT_DURABLE_MACHINE_H

#include "modules/durable/machine/table.h"

#define MACHINE_ID_MAX 64
#define MACHINE_WORKER_MAX 64
#define MACHINE_REASON_MAX 1024
#define MACHINE_PAYLOAD_MAX ((size_t)1 << 20) /* that a host may allow */
#define MACHINE_ATTEMPTS_MAX 1000
#define MACHINE_DELAY_MAX_MS UINT64_C(315360000000) /* 10 years */
#define MACHINE_TIME_MAX_MS ((UINT64_C(1) << 47) - 1)
#define MACHINE_SERIAL_MAX ((UINT64_C(1) << 40) - 1)
#define MACHINE_TASKS_MAX 1024 /* of a command */
#define MACHINE_LIMIT_MAX 1000000000

/* Bounds of one command, so that none takes longer than 10 ms. The state is a
 * function of the commands with these: they are a part of the version. Tests
 * have smaller ones. */
#define MACHINE_VERSION 1
#ifndef ADVANCE_WORK
#define ADVANCE_WORK 2048 /* records */
#define TAKE_BYTES ((size_t)8 << 20) /* a take ends after so much payload */
#endif

enum machine_state {
	STATE_NONE,
	STATE_WAITING,
	STATE_DUE,
	STATE_RUNNING,
	STATE_DONE,
	STATE_DEAD,
	STATE_CANCELLED,
	STATES
};

struct argument {
	const char *bytes;
	size_t length;
};

/* What an add says of its tasks. */
struct policy {
	uint64_t attempts, retry_first_ms, retry_most_ms;
	uint64_t expires_ms; /* after the due time; 0: never */
	uint64_t result_ms; /* how long the id of an ended task is kept */
};

/* A policy, once for all records that have it. */
struct shared_policy {
	struct node node; /* by the policy */
	uint64_t references;
	struct policy policy;
};

/* The newest attempt of a record that is RUNNING or DEAD. */
struct attempt {
	struct entry by_time; /* RUNNING: the record's, in the wheel leases */
	struct entry by_take; /* if the take made a request */
	struct record *record;
	uint64_t due_ms; /* RUNNING: when the record came due for it */
	size_t length;
	/* The key of its take; 0: no request, or DEAD. */
	uint64_t request;
	char text[]; /* RUNNING: the worker; DEAD: the reason */
};

struct record {
	struct node by_id;
	union {
		struct entry by_time; /* WAITING, DONE, CANCELLED: in a wheel */
		struct {
			struct attempt *newest; /* RUNNING, DEAD */
			struct link link; /* DUE, DEAD: of the list */
		};
	};
	/* WAITING, DUE: when it is due for the next attempt. RUNNING: when the
	 * lease ends, on the steady clock. DONE, CANCELLED: when the retention
	 * ends. DEAD: when it died. */
	uint64_t time_ms;
	uint64_t fence; /* of the newest attempt, ended or not; 0: none yet */
	const struct policy *policy; /* a shared one */
	/* The next record that has changed, or an end; NULL: it has not. See
	 * ROWS. */
	struct record *changed;
	uint64_t due_ms : 47; /* as added, rescheduled or replayed for */
	uint64_t attempt : 10; /* begun since then */
	uint64_t id_length : 7;
	uint64_t serial : 40; /* unique in this machine; grows with each add */
	uint64_t payload_length : 21;
	uint64_t state : 3;
	char bytes[]; /* id, payload */
};

#define TIME_NEVER UINT64_MAX /* table_least of none */

struct machine_time {
	uint64_t now_ms, steady_ms;
};
struct machine_settings {
	/* Limits; 0: none. */
	uint64_t running; /* attempts at a time */
	uint64_t rate; /* attempts that begin in a second */
	uint64_t pending; /* WAITING, DUE and RUNNING */
	uint64_t paused;
	uint64_t memory_level; /* the host need not fsync before it answers */
};

enum machine_counter {
	COUNT_ADDED,
	COUNT_BEGUN,
	COUNT_RETRIED, /* attempts that were not the last */
	COUNT_DONE,
	COUNT_DEAD,
	COUNT_CANCELLED,
	COUNT_LEASES_ENDED,
	COUNT_EXPIRED,
	COUNT_REMOVED, /* after the retention */
	COUNT_DROPPED,
	COUNTERS
};

#define SAVED_NUMBERS (11 + COUNTERS)

struct machine {
	struct table records; /* by id */
	struct table takes; /* attempts by request and worker, in groups */
	struct table policies;
	struct table waiting, ended; /* by now_ms */
	struct table leases; /* by steady_ms */
	struct link due, dead; /* first to last */
	size_t count[STATES];
	size_t bytes; /* of records and of what belongs to them */
	union {
		struct {
			/* Epoch and counter: the last that was given. */
			uint64_t fence;
			uint64_t serial; /* the last that was given */
			struct machine_settings settings;
			/* Of the rate: thousandths of an attempt that may
			 * begin, as of then. */
			uint64_t tokens, tokens_ms;
			uint64_t counters[COUNTERS];
			struct machine_time time;
		};
		uint64_t saved[SAVED_NUMBERS];
	};
	bool tracked; /* set by a host with rows: see ROWS */
	struct record *changes_first, **changes_last;
	/* Not parts of the state. A host that finds revision unchanged after a
	 * command has nothing to store or to hand on. came_due: so many changes
	 * were moves from WAITING to DUE, which are not stored in rows. */
	uint64_t revision, came_due;
};

/* seed: of the hash of ids; not a part of the state. */
struct machine *machine_create(uint64_t seed);
void machine_destroy(struct machine *machine);
/* In bytes. */
size_t machine_memory(const struct machine *machine);

/* A new epoch: the host calls it once whenever it begins to accept commands,
 * at a start or a promotion. All fences from now on are greater than
 * any host's before, also of one that was promoted without the last of them. */
void machine_new_epoch(struct machine *machine);

/* Moves what is due at this time, up to ADVANCE_WORK. */
void machine_advance(struct machine *machine, struct machine_time time);

/* What is due and has expired dies, up to the first that has not, as in a take.
 * For a host that runs a take only if it finds a task. */
void machine_expire(struct machine *machine);

/* In how many ms, from this time on, a take may find something or an advance
 * change something; 0: at once; TIME_NEVER: not by itself. The end of a
 * retention does not count: each command advances, and for the memory a host
 * does so now and then. */
uint64_t machine_wait_ms(
    const struct machine *machine, struct machine_time time);

/* True: a take at this time finds a task. */
bool machine_has_task(const struct machine *machine, struct machine_time time);

struct machine_task {
	struct argument id, payload;
	uint64_t due_ms;
};

/* The policy of tasks that say nothing. */
extern const struct policy machine_policy;

/* results[i]: 0 stored, or the enum machine_state of what has the id. NULL, or
 * an error: a code in capitals, a blank, a sentence; then nothing has changed.
 * Here and below, the caller has checked all arguments. */
const char *machine_add(struct machine *machine, const struct policy *policy,
    const struct machine_task *tasks, size_t count, uint8_t *results);

struct machine_take {
	struct argument worker;
	uint64_t limit; /* 1 to MACHINE_TASKS_MAX */
	uint64_t visibility_ms;
	/* Not 0: if the worker has leases of a take with this number, these
	 * are the answer, since that take's answer was lost. */
	uint64_t request;
};

/* taken: room for MACHINE_TASKS_MAX. Returns how many; 0: nothing to take now.
 * While the queue is paused, no attempt begins. */
size_t machine_take(struct machine *machine, const struct machine_take *take,
    struct record **taken);

enum machine_verb {
	ORDER_DONE, /* of an attempt */
	ORDER_FAIL,
	ORDER_RETRY,
	ORDER_EXTEND,
	ORDER_CANCEL, /* of a task */
	ORDER_RESCHEDULE, /* its next attempt is the first again */
	ORDER_REPLAY,
	ORDER_DROP
};

#define RETRY_BY_POLICY UINT64_MAX

struct machine_order {
	uint64_t verb; /* enum machine_verb */
	/* RETRY: the delay, or RETRY_BY_POLICY. EXTEND: the visibility.
	 * RESCHEDULE: when it is due. */
	uint64_t ms;
	struct argument reason; /* FAIL */
};

/* False: the record is not in a state for that, or fence, which counts for an
 * order of an attempt, is not its newest one. */
bool machine_order(struct machine *machine, const struct machine_order *order,
    const struct argument *id, uint64_t fence);

void machine_set(
    struct machine *machine, const struct machine_settings *settings);

/* NULL: there is none. */
struct record *machine_find(
    const struct machine *machine, const struct argument *id);

static inline const char *
record_payload(const struct record *record)
{
	return record->bytes + record->id_length;
}

/* One without a text if it has none. */
const struct attempt *record_newest(const struct record *record);

static inline uint64_t
least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t
minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/*
 * SAVING. The state is a header and an encoded record each, in this order: the
 * due ones and the dead, each first to last; those in the wheels.
 */
#define MACHINE_HEADER_MAX 512
/* Return the length. */
size_t machine_save_header(
    const struct machine *machine, unsigned char header[MACHINE_HEADER_MAX]);
/* Not whole: without its policy and payload; in the state STATE_NONE, that it
 * is gone. */
size_t record_encode(
    const struct record *record, bool whole, unsigned char *to);
/* At most so long. */
size_t record_encoded_max(const struct record *record);
/* Visits each record in that order. */
void machine_walk(const struct machine *machine,
    void (*visit)(const struct record *record, void *ctx), void *ctx);

/* Into a new machine: the header, then each record, then the end. False: not
 * what was saved by this version, or damaged, or no memory: destroy it. */
bool machine_load_header(
    struct machine *machine, const void *header, size_t length);
bool machine_load_record(
    struct machine *machine, const void *bytes, size_t length);
bool machine_load_end(const struct machine *machine);

/* Everything that is a part of the state, in one number: equal machines have
 * equal digests. O(n). */
uint64_t machine_digest(const struct machine *machine);

/*
 * ROWS. For a host that stores what changes, in the order of its transactions.
 * If it is tracked, the machine remembers what has changed: the host stores the
 * header, and each record that machine_changed returns, as a whole if it is
 * new; and calls machine_settle after its transaction. machine_load_record
 * takes both, in their order: a whole record replaces the one before, and the
 * change of one that is not there changes nothing. So the host may store a
 * record that is still there as a whole again, in the place of the first that
 * it has stored.
 */
/* The one after this one, or the first one after NULL; NULL: no more. */
struct record *machine_changed(
    const struct machine *machine, const struct record *after);
void machine_settle(struct machine *machine);
/* The record that this stored one is the whole of, if it is still there. */
struct record *machine_find_encoded(
    const struct machine *machine, const void *bytes, size_t length);

#endif
