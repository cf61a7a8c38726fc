/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several event loops, each with a mailbox, on two timers, beside a pool, under
 * load.
 *
 * Each loop has connections, each with a timeout in the loop's mailbox, which
 * it schedules, cancels and reschedules between polls and from tasks; some
 * tasks run the mailbox again from inside. All that it keeps of a connection is
 * plain memory of its thread. After hwt_cancel has returned 0 there, the task
 * must not run, even if it was in the mailbox already, and a task runs on its
 * loop's thread alone. Each loop also gives jobs to the pool, whose queue is
 * short, so that some run in a worker: a job cancels somebody's connection. The
 * number of loops grows from 1 to 8; all ends are counted.
 */
#include "stress.h"

enum {
	LOOPS_MAX = 8,
	CONNECTIONS = 128,
	TIMERS = 2,
	TURNS = 1500,
	PER_TURN = 24,
	POOL_THREADS = 2,
	POOL_LIMIT = 64,
	NESTED_ONE_IN = 16
};

struct connection {
	struct member *member;
	struct hwt *timer;
	/* For others, who may cancel it; then they set revoked. */
	atomic_uint_fast64_t id;
	atomic_bool revoked;
	/* The loop's own. */
	bool armed;
	uint64_t due_ns;
	hwt_timeout timeout;
};

struct member {
	struct hwt_mailbox *mailbox;
	pthread_t thread;
	/* The same, as the thread itself knows it. */
	pthread_t self;
	uint64_t random;
	unsigned depth;
	uint64_t accepted, started, cancelled, jobs, nested;
	struct connection connections[CONNECTIONS];
};

static struct hwt *timers[TIMERS];
static struct hwt_pool *pool;
static struct member members[LOOPS_MAX];
static unsigned members_count;
/* The loops have done their turns; nothing comes into the mailboxes. */
static pthread_barrier_t turned, quiet;
/* The timers do not accept any more. */
static atomic_bool stopped;
static atomic_uint_fast64_t revoked, jobs_done;
static uint64_t accepted_total, started_total, cancelled_total;
static uint64_t jobs_total, nested_total, listed_total, refused_total;

static void connection_act(struct connection *connection);

static void
task(hwt_timeout timeout, void *arg)
{
	struct connection *connection = arg;
	struct member *member = connection->member;
	uint64_t now_ns = stress_now_ns();

	stress_check(pthread_equal(pthread_self(), member->self),
	    "a task on another thread than its loop's");
	stress_check(connection->armed, "a task after its cancel");
	stress_check(connection->timeout.id == timeout.id, "another's handle");
	stress_check(now_ns >= connection->due_ns,
	    "started %" PRIu64 " ns early", connection->due_ns - now_ns);
	connection->armed = false;
	member->started++;
	if (atomic_load(&stopped))
		return;
	if (random_below(&member->random, 2))
		connection_act(connection);
	if (member->depth || random_below(&member->random, NESTED_ONE_IN))
		return;
	member->depth++;
	member->nested++;
	stress_check(
	    !hwt_mailbox_run(member->mailbox, 2, NULL), "hwt_mailbox_run");
	member->depth--;
}

/* In the pool, or in a worker. Reads nothing but what is atomic. */
static void
job(hwt_timeout timeout, void *arg)
{
	uint64_t random = timeout.id;
	struct member *member = &members[random_below(&random, members_count)];
	struct connection *connection =
	    &member->connections[random_below(&random, CONNECTIONS)];
	hwt_timeout victim = {atomic_load(&connection->id)};
	int error;

	(void)arg;
	if (random_below(&random, 4))
		error = hwt_cancel(connection->timer, victim);
	else
		error = hwt_cancel_wait(connection->timer, victim);
	stress_check(!error || error == -ENOENT || error == -EINPROGRESS,
	    "cancel: %d", error);
	if (!error) {
		atomic_fetch_add(&revoked, 1);
		atomic_store(&connection->revoked, true);
	}
	atomic_fetch_add(&jobs_done, 1);
}

static void
connection_arm(struct connection *connection)
{
	struct member *member = connection->member;
	uint64_t delay_ns = random_below(&member->random, HWT_MS(2));
	int error;

	atomic_store(&connection->id, 0);
	atomic_store(&connection->revoked, false);
	connection->armed = true;
	connection->due_ns = stress_now_ns() + delay_ns;
	error = hwt_new_timeout_on(connection->timer,
	    hwt_mailbox_executor(member->mailbox), &connection->timeout, task,
	    connection, delay_ns);
	stress_must(!error, "hwt_new_timeout_on: %d", error);
	member->accepted++;
	atomic_store(&connection->id, connection->timeout.id);
}

/* -ENOENT: a job was faster; it will set revoked. */
static void
connection_cancel(struct connection *connection)
{
	struct member *member = connection->member;
	int error = hwt_cancel(connection->timer, connection->timeout);

	stress_check(!error || error == -ENOENT, "hwt_cancel: %d", error);
	if (error)
		return;
	connection->armed = false;
	member->cancelled++;
}

static void
connection_move(struct connection *connection)
{
	struct member *member = connection->member;
	uint64_t delay_ns = random_below(&member->random, HWT_MS(2));
	uint64_t due_ns = stress_now_ns() + delay_ns;
	int error =
	    hwt_reschedule(connection->timer, connection->timeout, delay_ns);

	stress_check(!error || error == -ENOENT || error == -EINPROGRESS,
	    "hwt_reschedule: %d", error);
	if (!error)
		connection->due_ns = due_ns;
}

static void
connection_act(struct connection *connection)
{
	uint64_t *random = &connection->member->random;

	if (connection->armed && atomic_load(&connection->revoked))
		connection->armed = false;
	if (!connection->armed)
		connection_arm(connection);
	else if (random_below(random, 3))
		connection_cancel(connection);
	else
		connection_move(connection);
}

static void
job_give(struct member *member)
{
	struct hwt *timer = timers[random_below(&member->random, TIMERS)];
	int error = hwt_new_timeout_on(timer, hwt_pool_executor(pool), NULL,
	    job, NULL, random_below(&member->random, HWT_MS(1)));

	stress_must(!error, "hwt_new_timeout_on: %d", error);
	member->jobs++;
}

static void
member_turn(struct member *member)
{
	struct pollfd fd = {
	    .fd = hwt_mailbox_fd(member->mailbox), .events = POLLIN};
	size_t max = random_below(&member->random, 3) ? 0 : 4;
	unsigned i;

	for (i = 0; i < PER_TURN; i++)
		connection_act(&member->connections[random_below(
		    &member->random, CONNECTIONS)]);
	for (i = 0; i < PER_TURN / 4; i++)
		job_give(member);
	if (poll(&fd, 1, (int)random_below(&member->random, 2)) > 0)
		stress_check(!hwt_mailbox_run(member->mailbox, max, NULL),
		    "hwt_mailbox_run");
}

static void *
member_thread(void *arg)
{
	struct member *member = arg;
	uint64_t turns = stress_scaled(TURNS);
	int error;

	member->self = pthread_self();
	while (turns--)
		member_turn(member);
	pthread_barrier_wait(&turned);
	pthread_barrier_wait(&quiet);
	while ((error = hwt_mailbox_destroy(member->mailbox)) == -EBUSY)
		stress_check(!hwt_mailbox_run(member->mailbox, 0, NULL), "run");
	stress_check(!error, "hwt_mailbox_destroy: %d", error);
	return NULL;
}

static void
member_make(struct member *member, uint64_t salt)
{
	unsigned i;

	memset(member, 0, sizeof(*member));
	member->random = random_seed(salt);
	stress_must(
	    !hwt_mailbox_create(&member->mailbox), "hwt_mailbox_create");
	for (i = 0; i < CONNECTIONS; i++) {
		member->connections[i].member = member;
		member->connections[i].timer = timers[i % TIMERS];
	}
}

/* Those of jobs have no arg. */
static uint64_t
stop_and_walk(struct hwt *timer)
{
	struct hwt_unprocessed unprocessed;
	struct hwt_timeout_info info;
	struct connection *connection;

	stress_check(!hwt_stop(timer, &unprocessed), "hwt_stop");
	while (hwt_unprocessed_next(&unprocessed, &info)) {
		connection = info.arg;
		if (!connection)
			continue;
		stress_check(connection->armed, "a dead one is returned");
		connection->armed = false;
	}
	return unprocessed.count;
}

static void
round_verify(uint64_t listed)
{
	uint64_t accepted = 0, ended = listed + revoked + jobs_done;
	unsigned i;

	for (i = 0; i < members_count; i++) {
		accepted += members[i].accepted + members[i].jobs;
		ended += members[i].started + members[i].cancelled;
		started_total += members[i].started;
		cancelled_total += members[i].cancelled;
		jobs_total += members[i].jobs;
		nested_total += members[i].nested;
	}
	stress_check(accepted == ended,
	    "%u loops: accepted %" PRIu64 ", ended %" PRIu64, members_count,
	    accepted, ended);
	accepted_total += accepted;
	cancelled_total += revoked;
	listed_total += listed;
	for (i = 0; i < TIMERS; i++) {
		struct hwt_stats stats = timer_stats(timers[i]);

		refused_total += stats.executor_refused;
		stress_check(
		    !stats.pending, "%" PRIu64 " pending", stats.pending);
		stress_check(!hwt_destroy(timers[i]), "hwt_destroy");
	}
}

static void
round_run(unsigned loops)
{
	uint64_t listed = 0;
	unsigned i;

	stress_phase("loops turn", loops);
	members_count = loops;
	revoked = jobs_done = 0;
	atomic_store(&stopped, false);
	timers[0] = timer_create_ns(HWT_US(100), 64, 0);
	timers[1] = timer_create_ns(HWT_MS(1), 512, 0);
	stress_must(!hwt_pool_create(&pool, POOL_THREADS, POOL_LIMIT),
	    "hwt_pool_create");
	pthread_barrier_init(&turned, NULL, loops + 1);
	pthread_barrier_init(&quiet, NULL, loops + 1);
	for (i = 0; i < loops; i++)
		member_make(&members[i], loops * LOOPS_MAX + i);
	for (i = 0; i < loops; i++)
		members[i].thread = stress_thread(member_thread, &members[i]);
	pthread_barrier_wait(&turned);
	stress_phase("stop", loops);
	atomic_store(&stopped, true);
	for (i = 0; i < TIMERS; i++)
		listed += stop_and_walk(timers[i]);
	stress_check(!hwt_pool_destroy(pool), "hwt_pool_destroy");
	pthread_barrier_wait(&quiet);
	for (i = 0; i < loops; i++)
		stress_join(members[i].thread);
	pthread_barrier_destroy(&turned);
	pthread_barrier_destroy(&quiet);
	round_verify(listed);
}

int
main(int argc, char **argv)
{
	unsigned loops;

	stress_begin("loops", argc, argv);
	for (loops = 1; loops <= LOOPS_MAX; loops++)
		round_run(loops);
	stress_check(started_total && cancelled_total && nested_total,
	    "the loops did not see all that they should");
	return stress_end("1 to %d loops, accepted %" PRIu64
			  ", started %" PRIu64 " in loops, cancelled %" PRIu64
			  ", returned %" PRIu64 "; %" PRIu64
			  " jobs, of which %" PRIu64
			  " refused by the pool; %" PRIu64 " nested runs",
	    LOOPS_MAX, accepted_total, started_total, cancelled_total,
	    listed_total, jobs_total, refused_total, nested_total);
}
