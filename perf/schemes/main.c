/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What do START, STOP and PER_TICK cost with n timers pending, in each of
 * Varghese and Lauck's schemes?
 *
 * n timers are pending, each at a record anywhere in memory, as after long use.
 * Intervals are negative exponential, as in the paper: what remains of them is
 * distributed as they are, so that the population stays as it is. Their mean is
 * n ticks, or 4096 where n is less: about one timer expires at each tick.
 *
 * START and STOP are timed in batches of different timers, ticks in batches,
 * too, by the CPU clock; what a scheme leaves for the next tick to do is done
 * within that. What was stopped or expired is started again, untimed. Each
 * figure ends after budget_ms and 8 batches; and where starting again is slow,
 * it is left undone until a sixteenth of the timers is gone. First of all, the
 * scheme is held against an oracle on a short random run.
 *
 *   schemes/SCHEME [n=N] [budget_ms=100] [seed=1]
 *
 * Without n, it is measured for n from 10^2 to 10^6, each in a process of its
 * own, and the slopes are told: least squares of log cost on log n from 10^4
 * up. Their unit is what the table of complexities has. What more memory does
 * to a slope is seen in the one of `memory`, which takes and returns records,
 * and nothing else. The average of hashed wheels is for no more timers than
 * buckets, of which there are 512 here.
 *
 * Who would call it unfair: whoever sees one scheme's nanoseconds beside
 * another's, since all but hwt's are for one thread, and hwt's is the wheel in
 * the library, with atomic words, bit sets and a worker's part that `settle`
 * waits for. What is compared are slopes, with the paper's complexities. The
 * heap is binary; one of four children, as libev's, has the same slope.
 */
#include <math.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "perf/perf.h"
#include "perf/schemes/scheme.h"

enum {
	BATCH_MIN = 4,
	BATCH_MAX = 1024,
	BATCHES_MIN = 8,
	/* A batch that takes this long needs not be longer. */
	BATCH_LONG_NS = 20000,
	MEAN_MIN = 4096,
	/* What starting again may take, in budgets; and how many of the timers
	 * may be gone when it took longer. */
	RESTARTS_BUDGETS = 5,
	GONE_PART = 16,
	/* The longest interval, in means. */
	RANGE_MEANS = 8,
	CHECK_TIMERS = 300,
	CHECK_TICKS = 20000,
	/* The second of the hierarchical wheels turns in 65536. */
	CHECK_RANGE = 140000,
	SIZES = 5,
	SIZES_UPPER = 3
};

enum operation {
	START,
	STOP,
	PER_TICK,
	OPERATIONS
};

struct figures {
	double ns[OPERATIONS];
};

static const char *const names[OPERATIONS] = {"start", "stop", "tick"};

/* Where nothing is ever due, a tick is nothing. */
static unsigned
operations(void)
{
	return scheme.never_due ? PER_TICK : OPERATIONS;
}

/* The time of an operation, in batches. */
struct timing {
	double ns;
	uint64_t count, batches;
};

static struct {
	uint64_t *handle;
	/* Those that have expired, in order. */
	uint32_t *expired;
	uint64_t expired_count;
	/* All of them, and where the next batch begins. */
	uint32_t *everyone;
	uint64_t place, restarts_ns;
	uint64_t timers, mean, range;
	uint64_t clock_cost_ns, budget_ns, random;
} bench;

void
expire(uint32_t who)
{
	bench.handle[who] = 0;
	bench.expired[bench.expired_count++] = who;
}

static uint64_t
draw(void)
{
	return perf_random(&bench.random);
}

/* What remains of an interval is distributed as it is. */
static uint64_t
draw_interval(void)
{
	double part = 1 - perf_random_fraction(&bench.random);
	double ticks = ceil(-log(part) * (double)bench.mean);

	if (ticks >= (double)bench.range)
		return bench.range - 1;
	return ticks < 1 ? 1 : (uint64_t)ticks;
}

static void
settle(void)
{
	if (scheme.settle)
		scheme.settle();
}

static void
bench_create(uint64_t timers, uint64_t range)
{
	uint32_t who;

	bench.timers = timers;
	bench.range = range;
	bench.expired_count = bench.place = 0;
	bench.everyone = calloc(timers, sizeof(*bench.everyone));
	bench.handle = calloc(timers, sizeof(*bench.handle));
	bench.expired = calloc(timers, sizeof(*bench.expired));
	perf_must(bench.handle && bench.expired && bench.everyone, "calloc");
	for (who = 0; who < timers; who++)
		bench.everyone[who] = who;
	scheme.create(timers, range);
}

static void
bench_destroy(void)
{
	scheme.destroy();
	free(bench.handle);
	free(bench.expired);
	free(bench.everyone);
}

static void
start(uint64_t interval, uint32_t who)
{
	bench.handle[who] = scheme.start(interval, who);
	perf_must(bench.handle[who], "START");
}

/* The oracle: due[who] is the tick of a timer that is pending, otherwise 0. */
static void
check_expired(uint64_t *due, uint64_t now)
{
	uint32_t who;

	while (bench.expired_count > 0) {
		who = bench.expired[--bench.expired_count];
		perf_must(due[who] == now, "check: a timer's tick");
		due[who] = 0;
	}
	for (who = 0; who < CHECK_TIMERS; who++)
		perf_must(!due[who] || due[who] > now, "check: a timer's end");
}

/* Half of the intervals are short; and those of whole turns are not rare. */
static uint64_t
check_interval(void)
{
	uint64_t word = draw();

	if (word % 16 == 0)
		return (uint64_t)HASHED_BUCKETS << (word >> 8) % 8;
	if (word % 2)
		return 1 + (word >> 8) % 16;
	return 1 + (word >> 8) % (CHECK_RANGE - 1);
}

/* Starts timers that are not pending and stops some that are. */
static void
check_calls(uint64_t *due, uint64_t now)
{
	uint64_t calls = draw() % 8, interval;
	uint32_t who;

	while (calls--) {
		who = (uint32_t)(draw() % CHECK_TIMERS);
		if (!due[who]) {
			interval = check_interval();
			due[who] = now + interval;
			start(interval, who);
		} else if (draw() % 4 == 0) {
			due[who] = 0;
			scheme.stop(bench.handle[who]);
		}
	}
}

static void
check(void)
{
	uint64_t due[CHECK_TIMERS] = {0}, now, expired = 0;

	bench_create(CHECK_TIMERS, CHECK_RANGE);
	perf_must(
	    !scheme.bounded || !scheme.start(2 * (uint64_t)CHECK_RANGE, 0),
	    "check: refusing what is beyond the range");
	for (now = 1; now <= CHECK_TICKS + CHECK_RANGE; now++) {
		if (now <= CHECK_TICKS)
			check_calls(due, now - 1);
		scheme.tick();
		expired += bench.expired_count;
		check_expired(due, now);
	}
	perf_must(expired > CHECK_TICKS / 2, "check: enough timers");
	bench_destroy();
}

static uint64_t
cpu_ns(void)
{
	return perf_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static void
find_clock_cost(void)
{
	uint64_t least = UINT64_MAX, began, cost;
	unsigned i;

	for (i = 0; i < 10000; i++) {
		began = cpu_ns();
		cost = cpu_ns() - began;
		if (cost < least)
			least = cost;
	}
	bench.clock_cost_ns = least;
}

/* A batch that was too short only tells that batches must be longer. */
static bool
batch_grows(uint64_t *batch, uint64_t batch_max, uint64_t ns)
{
	if (ns >= BATCH_LONG_NS || *batch == batch_max)
		return false;
	*batch = 2 * *batch < batch_max ? 2 * *batch : batch_max;
	return true;
}

static void
timing_add(struct timing *timing, uint64_t batch, uint64_t ns)
{
	ns -= ns < bench.clock_cost_ns ? ns : bench.clock_cost_ns;
	timing->ns += (double)ns;
	timing->count += batch;
	timing->batches++;
}

static bool
timing_ends(const struct timing *timing)
{
	return timing->batches >= BATCHES_MIN &&
	    timing->ns >= (double)bench.budget_ns;
}

struct pending {
	uint64_t interval;
	uint32_t who;
};

static int
compare_later_first(const void *left, const void *right)
{
	const struct pending *a = left, *b = right;

	return (a->interval < b->interval) - (a->interval > b->interval);
}

/* Latest first, so that ordered lists are filled at their front. Twice, and in
 * between all are stopped in another order: so records are anywhere. */
static void
fill(void)
{
	struct pending *pending = calloc(bench.timers, sizeof(*pending));
	uint32_t i, turn;

	perf_must(pending, "calloc");
	for (i = 0; i < bench.timers; i++)
		pending[i] = (struct pending){draw_interval(), i};
	qsort(pending, bench.timers, sizeof(*pending), compare_later_first);
	for (turn = 0; turn < 2; turn++) {
		for (i = 0; turn == 1 && i < bench.timers; i++)
			scheme.stop(bench.handle[i]);
		settle();
		for (i = 0; i < bench.timers; i++)
			start(pending[i].interval, pending[i].who);
		settle();
	}
	free(pending);
}

/* Starts again, untimed, what was stopped or has expired; false: that has taken
 * too long. */
static bool
restart(const uint32_t *who, uint64_t count)
{
	uint64_t began_ns = cpu_ns();

	while (count--)
		start(draw_interval(), *who++);
	settle();
	bench.restarts_ns += cpu_ns() - began_ns;
	return bench.restarts_ns < RESTARTS_BUDGETS * bench.budget_ns;
}

/* The order in which timers come has nothing to do with that of their records
 * or deadlines. */
static uint64_t
time_stops(const uint32_t *who, uint64_t count)
{
	uint64_t began_ns = cpu_ns();

	while (count--)
		scheme.stop(bench.handle[*who++]);
	settle();
	return cpu_ns() - began_ns;
}

static uint64_t
time_starts(const uint32_t *who, uint64_t count)
{
	uint64_t interval[BATCH_MAX], began_ns, i;

	for (i = 0; i < count; i++)
		interval[i] = draw_interval();
	began_ns = cpu_ns();
	for (i = 0; i < count; i++)
		start(interval[i], who[i]);
	settle();
	return cpu_ns() - began_ns;
}

/* The next timers of all, round and round. */
static const uint32_t *
next_batch(uint64_t count)
{
	if (bench.place + count > bench.timers)
		bench.place = 0;
	bench.place += count;
	return &bench.everyone[bench.place - count];
}

static void
measure_starts(uint64_t batch_max, struct timing *starts)
{
	uint64_t batch = BATCH_MIN, ns;
	const uint32_t *who;

	while (!timing_ends(starts)) {
		who = next_batch(batch);
		time_stops(who, batch);
		ns = time_starts(who, batch);
		if (!batch_grows(&batch, batch_max, ns))
			timing_add(starts, batch, ns);
	}
}

static void
measure_stops(uint64_t batch_max, struct timing *stops)
{
	uint64_t batch = BATCH_MIN, gone = 0, ns;
	const uint32_t *who;

	bench.restarts_ns = 0;
	while (!timing_ends(stops) && gone < bench.timers / GONE_PART) {
		who = next_batch(batch);
		ns = time_stops(who, batch);
		if (gone || !restart(who, batch))
			gone += batch;
		if (!batch_grows(&batch, batch_max, ns))
			timing_add(stops, batch, ns);
	}
}

static void
measure_ticks(uint64_t batch_max, struct timing *ticks)
{
	uint64_t batch = 1, ns, i;
	bool restarts = true;

	bench.restarts_ns = 0;
	while (!timing_ends(ticks) &&
	    bench.expired_count < bench.timers / GONE_PART) {
		ns = cpu_ns();
		for (i = 0; i < batch; i++)
			scheme.tick();
		ns = cpu_ns() - ns;
		if (restarts) {
			restarts = restart(bench.expired, bench.expired_count);
			bench.expired_count = 0;
		}
		if (!batch_grows(&batch, batch_max, ns))
			timing_add(ticks, batch, ns);
	}
}

/* While a batch is stopped, fewer are pending: half of it stands in for them.
 * Batches of ticks are so short that few expire within one. */
static void
measure(uint64_t n, struct figures *figures)
{
	uint64_t batch = n / 3 < BATCH_MAX ? n / 3 : BATCH_MAX;
	struct timing timings[OPERATIONS] = {0};
	unsigned i;

	bench.mean = n < MEAN_MIN ? MEAN_MIN : n;
	bench_create(n + batch / 2, RANGE_MEANS * bench.mean);
	fill();
	find_clock_cost();
	measure_starts(batch, &timings[START]);
	measure_stops(batch, &timings[STOP]);
	if (operations() > PER_TICK)
		measure_ticks(bench.mean / GONE_PART, &timings[PER_TICK]);
	bench_destroy();
	for (i = 0; i < operations(); i++) {
		perf_must(timings[i].count, "timing enough of them");
		figures->ns[i] = timings[i].ns / (double)timings[i].count;
	}
}

/* In a process of its own, so that none finds the memory of another. */
static void
measure_apart(uint64_t n, struct figures *figures)
{
	pid_t child = fork();
	int status = 0;

	perf_must(child >= 0, "fork");
	if (!child) {
		measure(n, figures);
		_exit(0);
	}
	perf_must(waitpid(child, &status, 0) == child && !status, "a size");
}

static double
slope(const double *n, const double *cost_ns, unsigned count)
{
	double x_mean = 0, y_mean = 0, above = 0, below = 0;
	unsigned i;

	for (i = 0; i < count; i++) {
		x_mean += log(n[i]) / count;
		y_mean += log(cost_ns[i]) / count;
	}
	for (i = 0; i < count; i++) {
		above += (log(n[i]) - x_mean) * (log(cost_ns[i]) - y_mean);
		below += (log(n[i]) - x_mean) * (log(n[i]) - x_mean);
	}
	return above / below;
}

static void
print_costs(const struct figures *figures, const char *suffix)
{
	char name[32];
	unsigned i;

	for (i = 0; i < operations(); i++) {
		snprintf(name, sizeof(name), "%s_ns%s", names[i], suffix);
		perf_metric(name, "ns", figures->ns[i]);
	}
}

static void
print_slopes(const double *n, const struct figures *figures)
{
	const char *const costs[OPERATIONS] = {
	    scheme.start_cost, scheme.stop_cost, scheme.tick_cost};
	double cost_ns[SIZES_UPPER];
	char name[32];
	unsigned i, k;

	for (i = 0; i < operations(); i++) {
		for (k = 0; k < SIZES_UPPER; k++)
			cost_ns[k] = figures[SIZES - SIZES_UPPER + k].ns[i];
		snprintf(name, sizeof(name), "slope_%s", names[i]);
		perf_metric(name, costs[i],
		    slope(n + SIZES - SIZES_UPPER, cost_ns, SIZES_UPPER));
	}
}

static void
measure_all(void)
{
	static const double n[SIZES] = {100, 1000, 10000, 100000, 1000000};
	struct figures *figures = mmap(NULL, SIZES * sizeof(*figures),
	    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char suffix[32];
	unsigned i;

	perf_must(figures != MAP_FAILED, "mmap");
	for (i = 0; i < SIZES; i++)
		measure_apart((uint64_t)n[i], &figures[i]);
	print_slopes(n, figures);
	for (i = 0; i < SIZES; i++) {
		snprintf(suffix, sizeof(suffix), "_%.0f", n[i]);
		print_costs(&figures[i], suffix);
	}
}

int
main(int argc, char **argv)
{
	struct figures figures;
	uint64_t n;

	bench.random = perf_begin(argc, argv, scheme.what);
	n = perf_option("n", 0);
	bench.budget_ns = HWT_MS(perf_option("budget_ms", 100));
	perf_options_end();
	perf_must(!n || (n >= 10 && n <= 10000000), "n from 10 to 10^7");
	if (!scheme.never_due)
		check();
	if (n) {
		measure(n, &figures);
		print_costs(&figures, "");
	} else {
		measure_all();
	}
	return 0;
}
