/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executors that end while the worker is handing over to them.
 *
 * The worker marks a timeout as handed over, and then calls execute. In
 * between, a cancel may end the timeout, and it may be the executor's last:
 * then the executor may be destroyed, and the worker must not come too late.
 *
 * Each round makes an executor, gives it a few timeouts of the next tick,
 * cancels them while the worker is in that tick, and destroys it. What the
 * executor holds by then, it runs. Two more timeouts of the same tick say that
 * the worker is there: the first and the last of the batch.
 *
 *   mailbox    named by its timeouts
 *   pool       the same
 *   own        a mailbox that is the timer's own, of which that has a copy
 *
 * A worker that comes too late works on memory that was released: for the
 * sanitizers to tell. Without them, each executor's memory and descriptor are
 * at once another's, which then gets tasks of rounds that have ended.
 */
#include "stress.h"

enum {
	TIMEOUTS = 8,
	ROUNDS = 20000,
	DEAR_ROUNDS = 4000,
	SPINS_MAX = 3000
};

struct round {
	_Atomic bool over;
	atomic_uint started;
	unsigned cancelled;
	/* Of the two that say that the worker is there. */
	atomic_uint there;
	hwt_timeout timeouts[TIMEOUTS + 2];
};

static uint64_t cancelled_total, started_total;
static uint64_t random_state;

static void
started(hwt_timeout timeout, void *arg)
{
	struct round *round = arg;

	(void)timeout;
	stress_check(!atomic_load(&round->over),
	    "a task started after its executor was destroyed");
	atomic_fetch_add(&round->started, 1);
}

static void
there(hwt_timeout timeout, void *arg)
{
	struct round *round = arg;

	(void)timeout;
	atomic_fetch_add(&round->there, 1);
}

static int
run_at_once(void *ctx, struct hwt *timer, hwt_timeout timeout)
{
	(void)ctx;
	return hwt_run(timer, timeout);
}

static const struct hwt_executor at_once = {run_at_once, NULL};

static void
schedule(
    struct hwt *timer, const struct hwt_executor *executor, struct round *round)
{
	struct hwt_spec specs[TIMEOUTS + 2] = {{0}};
	unsigned i;

	for (i = 0; i < TIMEOUTS + 2; i++) {
		specs[i].task = started;
		specs[i].arg = round;
		specs[i].executor = executor;
	}
	specs[0].task = specs[TIMEOUTS + 1].task = there;
	specs[0].executor = specs[TIMEOUTS + 1].executor = &at_once;
	stress_must(
	    !hwt_new_timeouts(timer, TIMEOUTS + 2, specs, round->timeouts),
	    "hwt_new_timeouts");
}

static void
await_there(struct round *round, unsigned count)
{
	unsigned spins = 0;

	while (atomic_load(&round->there) < count) {
		if (++spins % 10000 == 0)
			sched_yield();
	}
}

static void
cancel(struct hwt *timer, struct round *round)
{
	unsigned i;
	int error;

	await_there(round, 1);
	stress_spin(random_below(&random_state, SPINS_MAX));
	for (i = 1; i <= TIMEOUTS; i++) {
		error = hwt_cancel(timer, round->timeouts[i]);
		stress_check(
		    !error || error == -ENOENT || error == -EINPROGRESS,
		    "hwt_cancel: %d", error);
		round->cancelled += !error;
	}
}

static void
judge(struct round *round)
{
	unsigned n = atomic_load(&round->started);

	await_there(round, 2);
	atomic_store(&round->over, true);
	stress_check(n + round->cancelled == TIMEOUTS,
	    "%u started, %u cancelled, of %d", n, round->cancelled, TIMEOUTS);
	started_total += n;
	cancelled_total += round->cancelled;
}

static void
destroy_mailbox(struct hwt_mailbox *mailbox)
{
	int error;

	do {
		stress_check(!hwt_mailbox_run(mailbox, 0, NULL), "run");
		error = hwt_mailbox_destroy(mailbox);
	} while (error == -EBUSY);
	stress_check(!error, "hwt_mailbox_destroy: %d", error);
}

static void
mailbox_round(struct hwt *timer)
{
	struct hwt_mailbox *mailbox;
	struct round round = {0};

	stress_must(!hwt_mailbox_create(&mailbox), "hwt_mailbox_create");
	schedule(timer, hwt_mailbox_executor(mailbox), &round);
	cancel(timer, &round);
	destroy_mailbox(mailbox);
	judge(&round);
}

static void
pool_round(struct hwt *timer)
{
	struct hwt_pool *pool;
	struct round round = {0};

	stress_must(!hwt_pool_create(&pool, 1, 0), "hwt_pool_create");
	schedule(timer, hwt_pool_executor(pool), &round);
	cancel(timer, &round);
	stress_check(!hwt_pool_destroy(pool), "hwt_pool_destroy");
	judge(&round);
}

static struct hwt *
create(const struct hwt_executor *executor)
{
	struct hwt_options options = {
	    .tick_ns = HWT_US(20), .log = &quiet_log, .executor = executor};
	struct hwt *timer;

	stress_must(!hwt_create(&timer, &options), "hwt_create");
	stress_must(!hwt_start(timer), "hwt_start");
	return timer;
}

static void
end(struct hwt *timer)
{
	stress_check(!hwt_stop(timer, NULL), "hwt_stop");
	stress_check(!hwt_destroy(timer), "hwt_destroy");
}

static void
own_round(struct hwt *unused)
{
	struct hwt_mailbox *mailbox;
	struct round round = {0};
	struct hwt *timer;

	(void)unused;
	stress_must(!hwt_mailbox_create(&mailbox), "hwt_mailbox_create");
	timer = create(hwt_mailbox_executor(mailbox));
	schedule(timer, NULL, &round);
	cancel(timer, &round);
	destroy_mailbox(mailbox);
	judge(&round);
	end(timer);
}

int
main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*round)(struct hwt *timer);
		uint64_t rounds;
	} ways[] = {
	    {"mailbox", mailbox_round, ROUNDS},
	    {"pool", pool_round, DEAR_ROUNDS},
	    {"own", own_round, DEAR_ROUNDS},
	};
	struct hwt *timer;
	uint64_t step;
	unsigned i;

	stress_begin("hand_over", argc, argv);
	random_state = random_seed(0);
	timer = create(NULL);
	for (i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		for (step = 0; step < stress_scaled(ways[i].rounds); step++) {
			stress_phase(ways[i].name, step);
			ways[i].round(timer);
		}
	}
	end(timer);
	return stress_end("%" PRIu64 " started, %" PRIu64 " cancelled",
	    started_total, cancelled_total);
}
