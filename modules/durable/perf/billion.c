/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of billion.py, which says what they are for:
 *
 *   billion BOOK SERVERS produce RATE PERIOD-MS BEGAN-MS
 *           adds RATE tasks a second, and three times as many in the middle
 *           tenth of each period, until the book says that it is over; then it
 *           waits until all have ended. Half of them are due within a minute,
 *           the others in the minute after it; a tenth is cancelled
 *   billion BOOK SERVERS work
 *           executes until SIGTERM; one task of a thousand fails
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "modules/durable/hwt_durable.h"
#include "modules/durable/perf/billion.h"
#include "modules/durable/perf/queue.h"

enum {
	ADD_THREADS = 4, /* adds under way */
	/* A call each, which waits for an fsync. No factor of 10: each has as
	 * many to cancel. */
	CANCEL_THREADS = 63,
	ID_MAX = 24,
	HALF_MS = 60000,
	REST_MS = 60000,
	VISIBILITY_MS = 10000,
	RECONNECT_MS = 2000, /* of workers, after Redis answers again */
	KILL_LASTS_MS = 10000,
	PATIENCE_MS = 60000 /* nothing more ends: what is left is lost */
};

static struct book *book;
static struct hwt_durable *durable;
static uint64_t rate, period_ms, began_ms;
static atomic_uint_fast64_t cancel_at[CANCEL_THREADS];

static struct entry *
entry_of(uint64_t number)
{
	return &book->entry[number % ENTRIES];
}

static bool
is_cancelled(uint64_t number)
{
	return number % 10 == 3;
}

/* Without an answer, or refused for now. */
static bool
ask_again(int error)
{
	if (error != -ETIMEDOUT && error != -ECONNREFUSED && error != -EAGAIN &&
	    error != -EOPNOTSUPP && error != -ETIME)
		return false;
	(void)usleep(20000);
	return true;
}

static void
space_open(const char *servers)
{
	struct hwt_durable_options options = {
	    .servers = servers, .space = "billion"};
	int error;

	do
		error = hwt_durable_open(&durable, &options);
	while (ask_again(error));
	if (error != 0)
		FAIL("open: %s", strerror(-error));
}

/* The producer. */

/* The entries of numbers from first on. */
static void
entries_make(uint64_t first, size_t count)
{
	struct entry *entry;
	uint64_t number, random;

	for (number = first; number < first + count; number++) {
		entry = entry_of(number);
		random = number * UINT64_C(0x9e3779b97f4a7c15) >> 20;
		entry->runs = 0;
		entry->end = 0;
		entry->cancelled = 0;
		entry->due_ms = now_ms() +
		    (number % 2 == 0 ? random % HALF_MS
				     : HALF_MS + random % REST_MS);
		entry->number = number;
	}
	book->asked = first + count;
}

/* Those that have entries. What was added before is there, and stays. */
static void
entries_add(uint64_t first, size_t count)
{
	struct hwt_durable_task task[BATCH_MAX];
	char text[BATCH_MAX][PAYLOAD + 1], id[BATCH_MAX][ID_MAX];
	size_t i;
	int error;

	for (i = 0; i < count; i++) {
		(void)snprintf(id[i], sizeof(id[i]), "t%" PRIu64, first + i);
		(void)snprintf(
		    text[i], sizeof(text[i]), "%-*" PRIu64, PAYLOAD, first + i);
		task[i] = (struct hwt_durable_task){.id = id[i],
		    .id_length = strlen(id[i]),
		    .queue = "billion",
		    .due_unix_ns = HWT_MS(entry_of(first + i)->due_ms),
		    .flags = HWT_DURABLE_AT,
		    .payload = text[i],
		    .payload_length = PAYLOAD};
	}
	do
		error = hwt_durable_add(durable, count, task, NULL);
	while (ask_again(error));
	if (error != 0)
		FAIL("add: %s", strerror(-error));
}

static void
cancel_one(uint64_t number)
{
	char id[ID_MAX];
	int error;

	(void)snprintf(id, sizeof(id), "t%" PRIu64, number);
	do
		error = hwt_durable_cancel(durable, id, strlen(id));
	while (ask_again(error));
	if (error == 0)
		entry_of(number)->cancelled = 1;
	/* It was executed; so long ago, maybe, that its record has gone. */
	else if (error == -EINPROGRESS || error == -EALREADY ||
	    (error == -ENOENT && entry_of(number)->end != 0))
		atomic_fetch_add(&book->kept, 1);
	else
		FAIL("cancel %s: %s", id, strerror(-error));
}

/* Of so many numbers that follow each other, each thread has one; at says which
 * is its next one. */
static void *
cancel_some(void *argument)
{
	atomic_uint_fast64_t *at = argument;
	uint64_t step = CANCEL_THREADS, number;

	for (number = *at;; number += step) {
		while (number >= book->acked)
			(void)usleep(5000);
		if (is_cancelled(number) && entry_of(number)->cancelled == 0)
			cancel_one(number);
		*at = number + step;
	}
	return NULL;
}

static void
cancel_start(void)
{
	pthread_t thread;
	size_t i;

	for (i = 0; i < CANCEL_THREADS; i++) {
		cancel_at[i] = book->undone + i;
		if (pthread_create(&thread, NULL, cancel_some, &cancel_at[i]) !=
		    0)
			FAIL("no thread");
	}
}

/* What all threads are behind. */
static void
cancel_note(void)
{
	uint64_t least = book->acked;
	size_t i;

	for (i = 0; i < CANCEL_THREADS; i++)
		least = cancel_at[i] < least ? cancel_at[i] : least;
	book->undone = least;
}

/* Whether it has ended; counts it. */
static bool
entry_settle(uint64_t number, bool last)
{
	struct entry *entry = entry_of(number);

	if (entry->cancelled != 0)
		book->cancelled++;
	else if (entry->end == DONE)
		book->executed++;
	else if (entry->end == FAILED)
		book->dead++;
	else if (last)
		book->lost++;
	else
		return false;
	book->settled = number + 1;
	return true;
}

static void
settle(bool last)
{
	uint64_t until = last ? book->acked : book->undone;

	cancel_note();
	while (book->settled < until && entry_settle(book->settled, last))
		continue;
}

/* How many should have been added by then. */
static uint64_t
wanted_at(uint64_t ms)
{
	uint64_t whole = ms / period_ms, part = ms % period_ms;
	uint64_t from = period_ms / 20 * 9, most = period_ms / 10;
	uint64_t peak = part < from ? 0 : part - from;

	peak = peak < most ? peak : most;
	return rate * (ms + 2 * (whole * most + peak)) / 1000;
}

/* Adds under way, the oldest first: what is acked ends before the first one
 * that is not done. */
static struct add {
	uint64_t first, count;
	bool done;
} adds[ADD_THREADS];
static uint64_t adds_begun, adds_done;
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

/* The next one; NULL: there is nothing to add by now. */
static struct add *
add_begin(void)
{
	struct add *add = NULL;
	uint64_t wanted, room;

	(void)pthread_mutex_lock(&adding);
	wanted = book->wanted > book->asked ? book->wanted - book->asked : 0;
	wanted = wanted < BATCH_MAX ? wanted : BATCH_MAX;
	/* The entries of what has not ended cannot be used again. */
	room = book->settled + AHEAD_MAX - book->asked;
	if (wanted > 0 && room >= BATCH_MAX &&
	    adds_begun - adds_done < ADD_THREADS) {
		add = &adds[adds_begun++ % ADD_THREADS];
		*add = (struct add){.first = book->asked, .count = wanted};
		entries_make(add->first, (size_t)wanted);
	}
	(void)pthread_mutex_unlock(&adding);
	return add;
}

static void
add_end(struct add *add)
{
	(void)pthread_mutex_lock(&adding);
	add->done = true;
	while (adds_done < adds_begun && adds[adds_done % ADD_THREADS].done) {
		add = &adds[adds_done++ % ADD_THREADS];
		book->acked = add->first + add->count;
	}
	(void)pthread_mutex_unlock(&adding);
}

static void *
add_some(void *unused)
{
	struct add *add;

	(void)unused;
	while (now_ms() < book->until_ms) {
		add = add_begin();
		if (add != NULL) {
			entries_add(add->first, (size_t)add->count);
			add_end(add);
		} else
			(void)usleep(1000);
	}
	return NULL;
}

static void
produce(void)
{
	pthread_t thread[ADD_THREADS];
	uint64_t now;
	size_t i;

	for (i = 0; i < ADD_THREADS; i++)
		if (pthread_create(&thread[i], NULL, add_some, NULL) != 0)
			FAIL("no thread");
	while ((now = now_ms()) < book->until_ms) {
		book->wanted = wanted_at((now - began_ms) / 10 * 10);
		settle(false);
		(void)usleep(1000);
	}
	for (i = 0; i < ADD_THREADS; i++)
		(void)pthread_join(thread[i], NULL);
}

/* Until all have ended, or nothing moves. */
static void
drain(void)
{
	uint64_t moved_ms = now_ms(), before = 0, latest = 0, number;

	for (number = book->settled; number < book->acked; number++)
		if (entry_of(number)->due_ms > latest)
			latest = entry_of(number)->due_ms;
	while (book->settled < book->acked &&
	    now_ms() < (moved_ms > latest ? moved_ms : latest) + PATIENCE_MS) {
		settle(false);
		if (book->settled != before)
			moved_ms = now_ms();
		before = book->settled;
		(void)usleep(10000);
	}
	settle(true);
}

static void
producer_run(void)
{
	uint64_t again;
	size_t count;

	/* What the one before had sent, or not. */
	while ((again = book->asked - book->acked) > 0) {
		count = (size_t)(again < BATCH_MAX ? again : BATCH_MAX);
		entries_add(book->acked, count);
		book->acked += count;
	}
	cancel_start();
	produce();
	drain();
}

/* The worker. */

/* Why it is executed again: before the visibility of its last execution was
 * over, the worker that had it was killed, or Redis was away, which has not got
 * the finish. */
static enum cause
cause_of(const struct entry *entry)
{
	uint64_t begun = entry->begun_ms, count = book->kills, i;
	enum cause found = UNEXPLAINED;
	const struct kill *kill;

	for (i = 0; i < count && i < KILLS_MAX; i++) {
		kill = &book->kill[i];
		if (kill->ms > begun + VISIBILITY_MS)
			continue;
		if (kill->part == WORKER && kill->pid == entry->pid)
			return WORKER_KILLED;
		if (kill->part == REDIS &&
		    (kill->back_ms == 0 ||
			begun <= kill->back_ms + RECONNECT_MS))
			found = REDIS_KILLED;
	}
	return found;
}

static void
note_late(uint64_t due, uint64_t now)
{
	uint64_t late = now - due, i = book->kills;
	bool killed =
	    i > 0 && book->kill[(i - 1) % KILLS_MAX].ms + KILL_LASTS_MS >= due;

	atomic_fetch_add(
	    &book->late[killed][late < LATE_MAX ? late : LATE_MAX - 1], 1);
}

static int
execute(void *ctx, const struct hwt_durable_delivery *task)
{
	uint64_t number = strtoull(task->payload, NULL, 10), now = now_ms();
	struct entry *entry = entry_of(number);
	bool fails = number % 1000 == 7;

	(void)ctx;
	if (entry->number != number || entry->cancelled != 0) {
		atomic_fetch_add(entry->number != number
			? &book->cause[UNEXPLAINED]
			: &book->undead,
		    1);
		return fails ? HWT_DURABLE_FAIL : 0;
	}
	atomic_fetch_add(&book->begun, 1);
	if (now < entry->due_ms)
		atomic_fetch_add(&book->early, 1);
	else if (entry->runs == 0)
		note_late(entry->due_ms, now);
	if (entry->runs > 0)
		atomic_fetch_add(&book->cause[cause_of(entry)], 1);
	entry->begun_ms = now;
	entry->pid = (uint32_t)getpid();
	entry->runs++;
	entry->end = fails ? FAILED : DONE;
	return fails ? HWT_DURABLE_FAIL : 0;
}

static int
worker_run(void)
{
	struct hwt_durable_worker_options work = {.queue = "billion",
	    .callback = execute,
	    .threads = 2,
	    .visibility_ns = HWT_MS(VISIBILITY_MS)};
	struct hwt_durable_worker *worker;
	sigset_t ending;
	int number;

	(void)sigemptyset(&ending);
	(void)sigaddset(&ending, SIGTERM);
	(void)pthread_sigmask(SIG_BLOCK, &ending, NULL);
	if (hwt_durable_worker_start(&worker, durable, &work) != 0)
		FAIL("no worker");
	(void)sigwait(&ending, &number);
	return hwt_durable_worker_stop(worker, HWT_SEC(30)) != 0;
}

int
main(int argc, char **argv)
{
	int file;

	if (argc == 2 && strcmp(argv[1], "size") == 0)
		return printf("%zu %zu\n", sizeof(struct book),
			   offsetof(struct book, late)) < 0;
	if (argc < 4)
		FAIL("usage: see the top of billion.c");
	file = open(argv[1], O_RDWR | O_CLOEXEC);
	book = mmap(
	    NULL, sizeof(*book), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (file < 0 || book == MAP_FAILED)
		FAIL("%s: %s", argv[1], strerror(errno));
	space_open(argv[2]);
	if (strcmp(argv[3], "work") == 0)
		return worker_run();
	if (argc != 7)
		FAIL("usage: see the top of billion.c");
	rate = strtoull(argv[4], NULL, 10);
	period_ms = strtoull(argv[5], NULL, 10);
	began_ms = strtoull(argv[6], NULL, 10);
	producer_run();
	return 0;
}
