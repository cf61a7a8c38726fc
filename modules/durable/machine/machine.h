/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue of delayed tasks: a state machine without clock, I/O or threads.
 *
 * Its state is a function of the sequence of commands, each with its time. Two
 * machines that were given the same commands are equal, and so is one that was
 * saved and loaded. A host (redis/, server/) supplies time, stores the state,
 * and parses commands by command.h, which is the same in both.
 *
 * STATES of a record, and the function that makes each move:
 *
 *   (none) --machine_add--> WAITING ----advance----> DUE --machine_take--+
 *                              ^                                         v
 *            machine_finish, RETRY, or the lease ends <-------------- RUNNING
 *                                                                        |
 *   DEAD <--FAIL, or no attempt left, or expired-------------------------+
 *   DONE <--DONE---------------------------------------------------------+
 *
 *   WAITING, DUE, RUNNING --machine_cancel--> CANCELLED
 *   WAITING, DUE, RUNNING --machine_reschedule--> WAITING or DUE
 *   DEAD --machine_replay--> DUE; --machine_drop--> (none)
 *   DONE, CANCELLED --advance, when the retention is over--> (none)
 *
 * TIME. now_ms is Unix time: due times and retention. steady_ms advances with
 * real time alone: leases and rates; so a step of the wall clock ends no lease.
 * Neither may fall from one command to the next. Every command that may change
 * something first calls machine_advance, which moves what has come due. If
 * revision has grown then, the host must hand this on to replicas and files,
 * also when the command itself changed nothing.
 *
 * INVARIANTS (machine_check)
 *   1. Each record is in the table, and by its state in exactly one of: the
 *      wheel (WAITING, DONE, CANCELLED), the list due (DUE), the leases
 *      (RUNNING), or none (DEAD).
 *   2. count[] says how many there are in each state.
 *   3. added = the sum of count[] + removed + dropped.
 *   4. A RUNNING record has a lease, which is in its worker's list. A worker
 *      has a lease.
 *   5. Fences grow: no record's fence exceeds the machine's.
 */
#ifndef HWT_DURABLE_MACHINE_H
#define HWT_DURABLE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "modules/durable/machine/table.h"
#include "modules/durable/machine/wheel.h"

#define MACHINE_ID_MAX 64
#define MACHINE_WORKER_MAX 64
#define MACHINE_REASON_MAX 1024
#define MACHINE_ATTEMPTS_MAX 1000
#define MACHINE_DELAY_MAX_MS UINT64_C(315360000000) /* 10 years */
#define MACHINE_TASKS_MAX 1024 /* of a command */
#define MACHINE_LIMIT_MAX 1000000000

/* Bounds of one advance. With these and the wheels' slots, the state is a
 * function of the commands: they are a part of the format's version. */
#define MACHINE_VERSION 1
#define WHEEL_SLOTS 32768
#define LEASE_SLOTS 4096
#define ADVANCE_WORK 8192

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

/* What an add says of its tasks; shared by records that say the same. */
struct policy {
	uint32_t references;
	uint32_t attempts;
	uint64_t retry_first_ms, retry_most_ms;
	uint64_t expires_ms; /* after the due time; 0: never */
	uint64_t result_ms; /* how long the id of an ended task is kept */
};

struct worker {
	struct node node; /* by name */
	struct lease *leases;
	size_t length;
	char name[];
};

/* An attempt. */
struct lease {
	struct record *record;
	struct worker *worker;
	struct lease *next, *prev; /* of the worker */
	uint64_t request; /* 0: the take named none */
	uint64_t due_ms; /* when the record came due for this attempt */
};

struct reason {
	size_t length;
	char text[];
};

struct record {
	struct node node; /* by id */
	struct record *next, *prev; /* of the wheel's slot, or of the due */
	/* WAITING, DUE: when it is due for the next attempt. RUNNING: when the
	 * lease ends, on the steady clock. DONE, CANCELLED: when the retention
	 * ends. DEAD: when it died. */
	uint64_t time_ms;
	uint64_t due_ms; /* as it was added, rescheduled or replayed for */
	uint64_t fence; /* of the newest attempt, ended or not; 0: none yet */
	uint64_t serial; /* unique in this machine; grows with each add */
	struct policy *policy;
	union {
		struct lease *lease; /* RUNNING */
		struct reason *reason; /* DEAD; NULL: no memory for it */
	};
	uint32_t payload_length;
	uint32_t change; /* its place in the machine's changes + 1; 0: none */
	uint16_t attempt; /* begun since it was added, rescheduled, replayed */
	uint8_t state;
	uint8_t id_length;
	char bytes[]; /* id, payload */
};

/* What has changed since machine_settle. record is NULL: it is gone. */
struct change {
	uint64_t serial;
	struct record *record;
};

struct machine_time {
	uint64_t now_ms, steady_ms;
};

/* 0: no limit. */
struct machine_limits {
	uint64_t running; /* attempts at a time */
	uint64_t rate; /* attempts that begin in a second */
	uint64_t pending; /* WAITING, DUE and RUNNING */
};

struct machine_counters {
	uint64_t added, begun,
	    retried; /* attempts; those that were not the last */
	uint64_t done, dead, cancelled; /* ends */
	uint64_t leases_ended, expired;
	uint64_t removed, dropped; /* records, after retention; dead letters */
};

struct machine {
	struct table records; /* by id */
	struct table workers; /* by name; those that have a lease */
	struct wheel wheel; /* now_ms; WHEEL_SLOTS */
	struct wheel leases; /* steady_ms; LEASE_SLOTS */
	struct record *due_first, *due_last;
	size_t count[STATES];
	struct machine_time time;
	uint64_t fence; /* epoch and counter: the last that was given */
	uint64_t serial; /* the last that was given */
	bool paused;
	bool memory_level; /* the host need not fsync before it answers */
	struct machine_limits limits;
	/* Of the rate: thousandths of an attempt that may begin, as of then. */
	uint64_t tokens, tokens_ms;
	struct machine_counters counters;
	struct policy *policies[8]; /* those used last, by their hash */
	size_t bytes; /* memory that records and what belongs to them take */
	/* For a host that stores rows: see machine_track. */
	struct change *changes;
	size_t changes_count, changes_max;
	bool tracked;
	/* Grows with each change; not a part of the state. A host that finds it
	 * unchanged after a command has nothing to store or to hand on. */
	uint64_t revision;
	/* So many of these were moves from WAITING to DUE, which a host that
	 * stores rows need not store. */
	uint64_t came_due;
};

/* NULL: no memory. seed: of the hash of ids; not a part of the state. */
struct machine *machine_create(uint64_t seed);
void machine_destroy(struct machine *machine);

/* What it takes, in bytes. */
size_t machine_memory(const struct machine *machine);

/* A new epoch: the host calls it once whenever it begins to accept commands,
 * at a start or a promotion. All fences from now on are greater than those of
 * any host before, also of one that was promoted without the last of them. */
void machine_new_epoch(struct machine *machine);

/* Moves what is due at this time, up to ADVANCE_WORK. */
void machine_advance(struct machine *machine, struct machine_time time);

/* In how many ms, from this time on, a take may find something or an advance
 * change something; 0: at once; TIME_NEVER: not by itself. */
uint64_t machine_wait_ms(
    const struct machine *machine, struct machine_time time);

/* The policy of tasks that say nothing. */
extern const struct policy machine_policy;

struct machine_task {
	const char *id;
	size_t id_length;
	const char *payload;
	size_t payload_length;
	uint64_t due_ms;
};

enum machine_error {
	MACHINE_OK,
	MACHINE_FULL, /* limits.pending */
	MACHINE_PAUSED,
	MACHINE_NO_MEMORY
};

/* results[i]: 0 stored, or the enum machine_state of what has the id. On an
 * error nothing has changed. Arguments were checked by the caller. */
enum machine_error machine_add(struct machine *machine,
    const struct policy *policy, const struct machine_task *tasks, size_t count,
    uint8_t *results);

struct machine_take {
	const char *worker;
	size_t worker_length;
	size_t limit; /* 1 to MACHINE_TASKS_MAX */
	uint64_t visibility_ms;
	/* Not 0: if the worker has leases of a take with this number, these
	 * are the answer, since that take's answer was lost. */
	uint64_t request;
};

/* taken: room for limit. *count: how many. MACHINE_PAUSED, or no error and
 * count 0: nothing to take now. */
enum machine_error machine_take(struct machine *machine,
    const struct machine_take *take, struct record **taken, size_t *count);

enum machine_outcome {
	OUTCOME_DONE,
	OUTCOME_RETRY,
	OUTCOME_FAIL
};

#define RETRY_BY_POLICY UINT64_MAX

/* False: this is not the record's newest attempt, or it has ended. */
bool machine_finish(struct machine *machine, const char *id, size_t id_length,
    uint64_t fence, enum machine_outcome outcome, uint64_t retry_ms,
    const char *reason, size_t reason_length);
bool machine_extend(struct machine *machine, const char *id, size_t id_length,
    uint64_t fence, uint64_t visibility_ms);

/* True: it is cancelled now, or was before. */
bool machine_cancel(struct machine *machine, const char *id, size_t id_length);
/* True: its next attempt is the first again, and due then. */
bool machine_reschedule(
    struct machine *machine, const char *id, size_t id_length, uint64_t due_ms);
/* Dead letters. */
bool machine_replay(struct machine *machine, const char *id, size_t id_length);
bool machine_drop(struct machine *machine, const char *id, size_t id_length);

void machine_set_limits(
    struct machine *machine, const struct machine_limits *limits);
void machine_set_paused(struct machine *machine, bool paused);
void machine_set_level(struct machine *machine, bool memory_level);

const struct record *machine_get(
    const struct machine *machine, const char *id, size_t id_length);

/* Visits records of a state, some with each call; returns the next cursor, 0 at
 * the end. The first is 0. A record that is in this state during the whole scan
 * is visited once. At most so many buckets are looked through. */
uint64_t machine_list(struct machine *machine, enum machine_state state,
    uint64_t cursor, size_t buckets,
    void (*visit)(const struct record *record, void *ctx), void *ctx);

static inline const char *
record_payload(const struct record *record)
{
	return record->bytes + record->id_length;
}

/*
 * SAVING. The state is a header and an encoded record each, in this order: the
 * due ones, first to last; those in the wheel and the leases; dead letters.
 */

struct machine_sink {
	void (*piece)(void *ctx, const void *bytes, size_t length);
	void *ctx;
};

#define MACHINE_HEADER_MAX 512
size_t machine_save_header(
    const struct machine *machine, unsigned char header[MACHINE_HEADER_MAX]);
/* How long the encoded record is, and the encoded record. */
size_t record_encoded_length(const struct record *record);
void record_encode(const struct record *record, unsigned char *to);
/* The header is not a part. sink gets each record by itself. */
void machine_save(struct machine *machine, const struct machine_sink *sink);

/* Into a new machine: the header, then each record, then the end. False: not
 * what was saved by this version, or damaged, or no memory: destroy it. */
bool machine_load_header(
    struct machine *machine, const void *header, size_t length);
bool machine_load_record(
    struct machine *machine, const void *bytes, size_t length);
bool machine_load_end(struct machine *machine);

/* Everything that is a part of the state, in one number: equal machines have
 * equal digests. O(n). */
uint64_t machine_digest(struct machine *machine);

/*
 * ROWS. For a host that stores each record as a row, by its serial, and the
 * header. machine_track makes the machine remember what has changed; before
 * each command machine_reserve makes room for that (false: no memory). After
 * its transaction the host calls machine_settle. If that did not commit, it
 * calls machine_undo, which puts all that has changed back to the stored rows,
 * and loads the stored header: row returns NULL where none is stored. False:
 * no memory, or a damaged row; the machine must then be loaded anew.
 */
struct machine_rows {
	const void *(*row)(void *ctx, uint64_t serial, size_t *length);
	void *ctx;
};

void machine_track(struct machine *machine);
bool machine_reserve(struct machine *machine);
void machine_settle(struct machine *machine);
bool machine_undo(struct machine *machine, const struct machine_rows *rows);

/* For tests: NULL, or the invariant that is broken. O(n). */
const char *machine_check(struct machine *machine);

#endif
