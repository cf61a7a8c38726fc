/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs of rows.c for what any program may do: timers, calls, executors,
 * threads that wait for each other. Times are in ticks; timeouts have numbers
 * from 0 to 7, and each is made once. verbs_inside.c has the others.
 */
#include "program.h"

#include <errno.h>

/* Making the timer: what comes before manual or worker is an option of it. */

static struct hwt_options options;
static struct hwt_mailbox *mailbox;
static struct hwt_pool *pool;
static struct hwt *second; /* another timer */
static unsigned woken;
static uint64_t wait_ns;

static void
wake(void *ctx)
{
	(void)ctx;
	explore_modify(&woken, 4);
	woken++;
}

static void
log_write(void *ctx, int level, const char *message)
{
	(void)ctx;
	(void)level;
	(void)message;
}

static const struct hwt_wake waker = {.wake = wake};
static const struct hwt_log quiet = {.write = log_write};

OF(use_limit, max_pending, options.max_pending = max_pending)

static void
manual(void)
{
	options.flags = HWT_MANUAL;
	options.wake = &waker;
	timer_make_with(&options);
}

ALONE(worker, timer_make_with(&options))

static void
caches(unsigned first, unsigned second_, unsigned third)
{
	thread_prepare(0, first);
	thread_prepare(1, second_);
	thread_prepare(2, third);
}

/* All but so many caches belong to threads that do nothing. */
static void
caches_left(unsigned count)
{
	unsigned i;

	for (i = count; i < CACHES_MAX; i++)
		explore_check(cache_claim(timer) != NULL);
}

ALONE(flush, cache_flush(timer, cache_of(timer)))

/* A thread may not be had, once. */
ALONE(thread_fails,
    sim_failures[SIM_THREAD] = (struct sim_failure){.count = 1, .may = true})

/* The system takes so many pages back, and then none. */
OF(releases, count,
    sim_failures[SIM_RELEASE] = (struct sim_failure){
	.after = count, .count = UINT32_MAX})
ALONE(memory_recurs, sim_settings.memory_recurs = true)
ALONE(early_handles, handles_early = true)
ALONE(clock_moves, sim_settings.clock_moves = true)

static void
start(void)
{
	int error = hwt_start(timer);

	explore_check(error == 0 || error == -ESHUTDOWN ||
	    (error == -EAGAIN && sim_failures[SIM_THREAD].count > 0));
}

static void
destroy(void)
{
	int error;

	while ((error = hwt_destroy(timer)) == -EBUSY)
		explore_yield();
	explore_check(error == 0);
	timer = NULL;
	verify_order();
	notes_reset();
}

/* Calls. */

TWO(new_timeout, i, ticks, (void)schedule(i, ticks *TICK_NS))
OF(never, i, (void)schedule(i, HWT_NEVER))
TWO(new_at, i, tick, (void)schedule_at(i, timer->origin_ns + tick * TICK_NS))

static void
periodic(unsigned i, unsigned ticks, unsigned period)
{
	(void)schedule_periodic(i, NULL, ticks * TICK_NS, period * TICK_NS);
}

OF(cancel_, i, (void)cancel(i))
OF(cancel_wait_, i, (void)cancel_wait(i))
OF(ask_state_, i, (void)ask_state(i))
OF(ask_remaining_, i, (void)ask_remaining(i))
TWO(move, i, ticks, (void)reschedule(i, ticks *TICK_NS))

/* To a deadline on the clock; tick 0 is long past. */
TWO(move_at, i, tick,
    (void)reschedule_at(i, tick == 0 ? 1 : timer->origin_ns + tick * TICK_NS))

static void
touch_(unsigned i, unsigned fresh, unsigned ticks)
{
	(void)touch(i, fresh, ticks * TICK_NS);
}

static void
pending(unsigned min, unsigned max)
{
	uint64_t count = hwt_pending_timeouts(timer);

	explore_check(count >= min && count <= max);
}

ALONE(turn, (void)advance(0))
OF(advance_, i, (void)advance(i))
OF(tick, ticks, clock_add(ticks *TICK_NS))
ALONE(half_tick, clock_add(TICK_NS / 2))

/* Who has cancelled it between two runs sees what those have told. */
static void
cancel_told(unsigned i)
{
	if (cancel(i) == 0)
		see_told(i);
}

static void
ask_wakeup(void)
{
	explore_check(hwt_next_wakeup(timer, &wait_ns) == 0);
	if (explore_self() == EXPLORE_THREADS_MAX)
		woken = 0;
}

/* Tasks: what they do as well. */

OF(task_moves, i, subject[i].moves = true)
TWO(task_news, i, next, subject[i].schedules = next)
TWO(task_waits, i, of, subject[i].waits = of)
OF(task_goes_on, i, subject[i].releases = true)
OF(task_tells, i, subject[i].tells = true)
OF(task_awake, i, subject[i].awake = true)

/* Executors. The box keeps what it gets for whoever runs it. */

static struct box {
	_Alignas(8) uint32_t count;
	uint32_t closed;
	hwt_timeout timeout[8 * SUBJECTS];
	uint32_t taken;
} box;

static int
box_execute(void *ctx, struct hwt *from, hwt_timeout timeout)
{
	(void)ctx;
	explore_check(from == timer);
	explore_modify(&box.count, 8);
	box.timeout[box.count++] = timeout;
	return 0;
}

static int
refuse(void *ctx, struct hwt *from, hwt_timeout timeout)
{
	(void)ctx;
	(void)timeout;
	explore_check(from == timer);
	return EBUSY;
}

static const struct hwt_executor box_executor = {.execute = box_execute};
static const struct hwt_executor refuser = {.execute = refuse};

ALONE(use_box, options.executor = &box_executor)

static void
use_refuser(void)
{
	options.executor = &refuser;
	options.log = &quiet;
}

static void
box_close(void)
{
	explore_modify(&box.count, 8);
	box.closed = 1;
}

static bool
box_ready(const void *context)
{
	(void)context;
	return box.closed || box.count > box.taken;
}

static void
run_handle(hwt_timeout timeout)
{
	int result;

	note_call();
	result = hwt_run(timer, timeout);
	explore_check(result == 0 || result == -ENOENT);
}

/* Runs what comes, until the box is closed. */
static void
box_serve(void)
{
	for (;;) {
		explore_await(&box.count, 8, box_ready, NULL);
		if (box.count == box.taken)
			return;
		run_handle(box.timeout[box.taken++]);
	}
}

static void
box_run(void)
{
	for (;;) {
		explore_modify(&box.count, 8);
		if (box.count == box.taken)
			return;
		run_handle(box.timeout[box.taken++]);
	}
}

OF(run, i, run_handle(subject[i].known))
ALONE(mailbox_make, explore_check(hwt_mailbox_create(&mailbox) == 0))

static void
use_mailbox(void)
{
	mailbox_make();
	options.executor = hwt_mailbox_executor(mailbox);
}

TWO(new_in_mailbox, i, ticks,
    (void)schedule_on(i, hwt_mailbox_executor(mailbox), ticks *TICK_NS))

/* Posts. One thread's arrive in their order, and each runs as often as it was
 * accepted. */
static struct letter {
	struct hwt_post post;
	unsigned owed, runs, thread, number;
	bool again; /* its function posts it once more */
} letter[2];
static unsigned letters, letters_run;

static void letter_read(struct hwt_post *post);

static void
posted(struct letter *l, int error)
{
	explore_modify(&l->owed, 4);
	l->owed += error == 0;
}

static void
post_letter(struct letter *l)
{
	l->thread = explore_self();
	l->number = ++letters;
	posted(l, hwt_mailbox_post(mailbox, &l->post, letter_read));
}

static void
letter_read(struct hwt_post *post)
{
	struct letter *l = (struct letter *)post;
	const struct letter *other = l == letter ? &letter[1] : letter;

	explore_modify(&l->runs, 4);
	l->runs++;
	letters_run++;
	explore_check(other->number == 0 || other->thread != l->thread ||
	    other->number > l->number || other->runs > 0);
	if (l->again && l->runs == 1)
		post_letter(l);
	else
		memset(post, 1, sizeof(*post));
}

OF(post, i, post_letter(&letter[i]))

static void
post_again(unsigned i)
{
	letter[i].again = true;
	post_letter(&letter[i]);
}

static void
pool_post(unsigned i)
{
	int error = hwt_pool_post(pool, &letter[i].post, letter_read);

	explore_check(error == 0 || error == -EAGAIN);
	posted(&letter[i], error);
}

static void
posts(unsigned least)
{
	explore_check(letters_run >= least);
	explore_check(letter[0].runs == letter[0].owed);
	explore_check(letter[1].runs == letter[1].owed);
}

static uint32_t in_run; /* a loop is in hwt_mailbox_run */

static void
mailbox_run(unsigned max)
{
	unsigned letters_before = letters_run;
	size_t started = 0;
	bool told = sim_eventfd_count(hwt_mailbox_fd(mailbox)) != 0;

	explore_modify(&in_run, 4);
	in_run = 1;
	note_call();
	explore_check(hwt_mailbox_run(mailbox, max, &started) == 0);
	explore_modify(&in_run, 4);
	in_run = 0;
	explore_check(
	    max == 0 || started + letters_run - letters_before <= max);
	/* In the end: what the loop was not told of is not there. */
	explore_check(
	    explore_self() != EXPLORE_THREADS_MAX || told || started == 0);
}

/* As soon as it holds nothing. */
static void
mailbox_destroy(void)
{
	int error = hwt_mailbox_destroy(mailbox);

	while (error == -EBUSY) {
		explore_check(hwt_mailbox_run(mailbox, 0, NULL) == 0);
		error = hwt_mailbox_destroy(mailbox);
	}
	explore_check(error == 0);
	mailbox = NULL;
}

/* On the loop's thread: what it has cancelled does not run. */
static void
mailbox_cancel(unsigned i)
{
	int result = cancel(i);
	unsigned started = subject[i].started;

	explore_check(hwt_mailbox_run(mailbox, 1, NULL) == 0);
	explore_check(result != 0 || subject[i].started == started);
}

/* When its timeout has ended, if only that was handed over. */
static void
mailbox_end(unsigned i)
{
	if (cancel(i) != 0)
		explore_check(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	if (subject[i].started + subject[i].cancelled > 0)
		mailbox_destroy();
}

TWO(pool_make, threads, queue,
    explore_check(hwt_pool_create(&pool, threads, queue) == 0))
TWO(new_in_pool, i, ticks,
    (void)schedule_on(i, hwt_pool_executor(pool), ticks *TICK_NS))

static void
pool_destroy(void)
{
	explore_check(hwt_pool_destroy(pool) == 0);
	pool = NULL;
}

/* A second timer hands over to the same mailbox. */
static uint32_t second_runs;

static void
second_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	explore_modify(&second_runs, 4);
	second_runs++;
}

static void
second_make(void)
{
	const struct hwt_options own = {
	    .flags = HWT_MANUAL, .tick_ns = TICK_NS, .ticks_per_wheel = 8};

	explore_check(hwt_create(&second, &own) == 0);
	explore_check(hwt_new_timeout_on(second, hwt_mailbox_executor(mailbox),
			  NULL, second_task, NULL, TICK_NS) == 0);
}

/* What is handed over is announced, or taken by a run that is under way. */
static void
second_turn(void)
{
	bool told;

	explore_check(hwt_advance(second, NULL) == 0);
	told = sim_eventfd_count(hwt_mailbox_fd(mailbox)) != 0;
	told |= explore_load(&in_run, 4) != 0;
	explore_check(told || explore_load(&second_runs, 4) == 1);
}

static void
second_end(void)
{
	explore_check(second_runs == 1 && timer_dispatched(second) == 0);
	explore_check(hwt_stop(second, NULL) == 0);
	explore_check(hwt_destroy(second) == 0);
}

/* The process-wide timer. */

static struct hwt *found[2];

static void
find_shared(unsigned i)
{
	int error = hwt_shared(&found[i]);

	explore_check(error == 0 || error == -ESHUTDOWN);
	if (error != 0)
		found[i] = NULL;
}

static void
shut_down(void)
{
	explore_check(hwt_shared_shutdown(NULL) == 0);
	explore_check(hwt_shared(&found[1]) == -ESHUTDOWN);
}

ALONE(found_same, explore_check(found[0] != NULL && found[0] == found[1]))

/* A child whose parent has refused to have one. */
static void
child(void)
{
	explore_check(hwt_shared_shutdown(NULL) == 0);
	a64_store_relaxed(&process_epoch_at.word, 0);
}

/* Waiting for others. */

static bool
worker_sleeps(const void *word)
{
	return timer->wake_before != 0 && sim_sleeps_on(word);
}

/* In a long sleep. */
ALONE(await_sleep,
    explore_await(
	&timer->wake_sequence, 4, worker_sleeps, &timer->wake_sequence))

static bool
is_announced(const void *context)
{
	(void)context;
	return timer->wake_before != 0;
}

/* It has said that it is about to sleep. */
ALONE(
    await_announced, explore_await(&timer->wake_before, 8, is_announced, NULL))

static bool
is_taken(const void *word)
{
	const uint64_t mask = STATE_MASK | FLAG_HAS_ENTRY;

	return (*(const uint64_t *)word & mask) ==
	    (STATE_PENDING | FLAG_HAS_ENTRY);
}

/* The worker has placed it. */
static void
await_taken(unsigned i)
{
	const void *word = record_at(&timer->store, index_of(i));

	explore_await(word, 8, is_taken, word);
}

/* All that is due some time has started. */
static void
await_all(void)
{
	const struct subject *e;

	for (e = subject; e < subject + SUBJECTS; e++) {
		if (e->accepted > e->cancelled && !e->never && !e->periodic)
			await_started((unsigned)(e - subject));
	}
}

/* What a program expects in the end. */

TWO(started, i, count, explore_check(subject[i].started == count))

/* A touch that has moved it. */
TWO(unstarted_or_touched, i, fresh,
    explore_check(is_touched(i, fresh) || subject[i].started == 0))

static void
same_record(unsigned i, unsigned j)
{
	explore_check(subject[i].handle.id != subject[j].handle.id);
	explore_check(index_of(i) == index_of(j));
}

OF(woken_times, times, explore_check(woken == times))

/* Who asked is told of the next tick, or is woken. */
static void
woken_or_told(void)
{
	explore_check(woken <= 1);
	explore_check(woken > 0 || wait_ns <= TICK_NS);
}

static void
executors_run(void)
{
	box_run();
	if (mailbox != NULL)
		mailbox_run(0);
}

/* Time goes on until all are due: what is lost shows. */
static void
drain(void)
{
	uint64_t left = 0;
	unsigned i;

	if (timer_is_stopped()) {
		executors_run();
		return;
	}
	verify_entries();
	verify_records();
	sim_settings.clock_moves = false;
	if (wheel_is_behind())
		turn();
	for (i = 0; i < 5; i++) {
		executors_run();
		(void)advance(1);
	}
	executors_run();
	for (i = 0; i < SUBJECTS; i++)
		left += subject[i].periodic || subject[i].never;
	explore_check(hwt_pending_timeouts(timer) <= left);
	explore_check(timer_dispatched(timer) == 0);
}

/* It runs on, unless somebody has ended it. */
static void
goes_on(unsigned i)
{
	unsigned count = subject[i].started;

	if (hwt_pending_timeouts(timer) == 0)
		return;
	(void)advance(4);
	executors_run();
	explore_check(subject[i].started > count);
}

void
verbs_reset(void)
{
	memset(&options, 0, sizeof(options));
	memset(&box, 0, sizeof(box));
	mailbox = NULL;
	pool = NULL;
	woken = 0;
	wait_ns = 0;
	second_runs = 0;
	in_run = 0;
	memset(letter, 0, sizeof(letter));
	letters = letters_run = 0;
	verbs_inside_reset();
}

/* What is left of executors goes before the timer does. */
void
verbs_finish(void)
{
	if (mailbox == NULL)
		return;
	executors_run();
	mailbox_destroy();
}

const struct verb library_verbs[] = {
    {"limit", .of = use_limit}, /* max_pending */
    {"box", .alone = use_box}, /* the timer's executor */
    {"refuser", .alone = use_refuser},
    {"mailbox", .alone = use_mailbox},
    {"manual", .alone = manual},
    {"worker", .alone = worker},
    {"caches", .three = caches}, /* of threads 0, 1, 2: records in them */
    {"cache", .two = thread_prepare}, /* a thread, records in it */
    {"caches-left", .of = caches_left},
    {"flush", .alone = flush}, /* the cache */
    {"thread-fails", .alone = thread_fails},
    {"releases", .of = releases},
    {"memory-recurs", .alone = memory_recurs},
    {"early-handles", .alone = early_handles},
    {"clock-moves", .alone = clock_moves}, /* reading it is a step */
    {"start", .alone = start},
    {"stop", .alone = stop},
    {"destroy", .alone = destroy},
    {"new", .two = new_timeout}, /* a timeout, its delay */
    {"never", .of = never},
    {"new-at", .two = new_at}, /* a tick since the beginning */
    {"new-in-mailbox", .two = new_in_mailbox},
    {"new-in-pool", .two = new_in_pool},
    {"periodic", .three = periodic}, /* a timeout, its delay, its period */
    {"cancel", .of = cancel_},
    {"cancel-told", .of = cancel_told},
    {"wait", .of = cancel_wait_},
    {"see-told", .of = see_told},
    {"move", .two = move}, /* hwt_reschedule */
    {"move-at", .two = move_at},
    {"touch", .three = touch_}, /* old, new, delay */
    {"state", .of = ask_state_},
    {"remaining", .of = ask_remaining_},
    {"pending", .two = pending}, /* at least, at most */
    {"turn", .alone = turn}, /* at this moment */
    {"advance", .of = advance_}, /* so many ticks later */
    {"tick", .of = tick}, /* time passes */
    {"half-tick", .alone = half_tick},
    {"ask-wakeup", .alone = ask_wakeup},
    {"task-moves", .of = task_moves}, /* itself, three ticks on */
    {"task-news", .two = task_news}, /* another one, in a tick */
    {"task-waits", .two = task_waits}, /* for a flag */
    {"task-goes-on", .of = task_goes_on}, /* lets the halted thread go on */
    {"task-tells", .of = task_tells}, /* by a plain store: see-told */
    {"task-awake", .of = task_awake}, /* no sleep is announced */
    {"box-close", .alone = box_close},
    {"box-serve", .alone = box_serve}, /* until it is closed */
    {"box-run", .alone = box_run}, /* what is there */
    {"run", .of = run}, /* hwt_run */
    {"mailbox-make", .alone = mailbox_make},
    {"mailbox-run", .of = mailbox_run}, /* at most so many; 0: all */
    {"mailbox-cancel", .of = mailbox_cancel}, /* by the loop */
    {"mailbox-end", .of = mailbox_end}, /* when that timeout has ended */
    {"mailbox-destroy", .alone = mailbox_destroy},
    {"pool", .two = pool_make}, /* threads, room in the queue */
    {"pool-destroy", .alone = pool_destroy},
    {"post", .of = post}, /* a letter, 0 or 1, to the mailbox */
    {"post-again", .of = post_again}, /* its function does, too */
    {"pool-post", .of = pool_post}, /* or it is full */
    {"posts", .of = posts}, /* at least so many have run */
    {"second", .alone = second_make}, /* has one for the mailbox */
    {"second-turn", .alone = second_turn},
    {"second-end", .alone = second_end},
    {"shared", .of = find_shared},
    {"shut-down", .alone = shut_down},
    {"forget", .alone = sim_forget}, /* the shared timer stays */
    {"shared-same", .alone = found_same},
    {"child", .alone = child},
    {"set", .of = flag_set},
    {"await", .of = flag_await},
    {"await-thread", .of = await_thread}, /* its end */
    {"await-started", .of = await_started},
    {"await-sleep", .alone = await_sleep},
    {"await-announced", .alone = await_announced},
    {"await-all", .alone = await_all}, /* when others have ended */
    {"await-taken", .of = await_taken},
    {"started", .two = started}, /* a timeout: so often */
    {"touched", .two = unstarted_or_touched},
    {"same-record", .two = same_record},
    {"woken", .of = woken_times},
    {"woken-or-told", .alone = woken_or_told},
    {"entries", .alone = verify_entries},
    {"drain", .alone = drain},
    {"goes-on", .of = goes_on},
    {.more = verbs_inside},
};
