/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of START, STOP and PER_TICK with n timers pending, in each of
 * Varghese and Lauck's seven schemes? Intervals are negative exponential, with
 * a mean of n ticks, or 4096 where n is less: about one timer expires a tick.
 * Starts, stops and ticks are timed in batches by the CPU clock, and started
 * again when they have ended. A scheme is first compared with an oracle.
 *
 *   schemes SCHEME [most=1000000] [budget_ms=100] [seed=1]
 *
 * n is 10^2 to most. The slopes of log cost on log n are those of the last two
 * decades; more memory alone gives a slope of 0.1 to 0.3.
 */
#include <math.h>

#include "perf/perf.h"

enum {
	BUCKETS = 512, /* of the hashed wheels */
	LEVELS = 4,
	LEVEL_BITS = 8,
	BATCH = 64,
	MEAN_MIN = 4096,
	RANGE_MEANS = 8, /* the longest interval, in means */
	GONE_PART = 16, /* of the timers, when a figure ends */
	CHECK_TIMERS = 300,
	CHECK_TICKS = 20000,
	CHECK_RANGE = 140000, /* a second hierarchical wheel turns in 65536 */
	STRIDE_PRIME = 1000000007,
	SIZES = 5
};

/* at: the pointer to this record. place: in the heap. */
struct record {
	struct record *next, **at;
	uint64_t due;
	uint32_t place;
};

enum operation {
	START,
	STOP,
	PER_TICK,
	OPERATIONS
};

struct scheme {
	const char *name;
	/* 0: one for each tick of the range. */
	uint64_t buckets;
	void (*start)(struct record *record);
	void (*stop)(struct record *record);
	void (*tick)(void);
};

static struct {
	const struct scheme *scheme;
	struct record *records;
	uint64_t timers, mean, range, now, random, budget_ns;
	/* Numbers of records, those that have expired, in order. */
	uint32_t *expired;
	uint64_t expired_count;
	/* Lists, or the heap. */
	struct record **bucket;
	uint64_t mask, heap_count;
} bench;

static void
expire(struct record *record)
{
	bench.expired[bench.expired_count++] =
	    (uint32_t)(record - bench.records);
}

static void
link_at(struct record **at, struct record *record)
{
	record->next = *at;
	record->at = at;
	if (record->next)
		record->next->at = &record->next;
	*at = record;
}

static void
unlink_record(struct record *record)
{
	*record->at = record->next;
	if (record->next)
		record->next->at = record->at;
}

#define bucket_of(tick) (&bench.bucket[(tick)&bench.mask])

/* Schemes 1, 2, 5 and 6: one list, or a hashed wheel of lists. */
static void
unsorted_start(struct record *record)
{
	link_at(bucket_of(record->due), record);
}

static void
sorted_start(struct record *record)
{
	struct record **at = bucket_of(record->due);

	while (*at && (*at)->due < record->due)
		at = &(*at)->next;
	link_at(at, record);
}

static void
unsorted_tick(void)
{
	struct record *record, *next;

	for (record = *bucket_of(++bench.now); record; record = next) {
		next = record->next;
		if (record->due != bench.now)
			continue;
		unlink_record(record);
		expire(record);
	}
}

static void
sorted_tick(void)
{
	struct record **head = bucket_of(++bench.now), *record;

	while ((record = *head) && record->due == bench.now) {
		unlink_record(record);
		expire(record);
	}
}

/* Scheme 3: a binary heap, whose first is bucket[1]. */
static void
heap_put(uint64_t place, struct record *record)
{
	bench.bucket[place] = record;
	record->place = (uint32_t)place;
}

static void
heap_settle(uint64_t place, struct record *record)
{
	struct record **heap = bench.bucket;
	uint64_t child;

	for (; place > 1 && heap[place / 2]->due > record->due; place /= 2)
		heap_put(place, heap[place / 2]);
	for (; (child = 2 * place) <= bench.heap_count; place = child) {
		if (child < bench.heap_count &&
		    heap[child + 1]->due < heap[child]->due)
			child++;
		if (heap[child]->due >= record->due)
			break;
		heap_put(place, heap[child]);
	}
	heap_put(place, record);
}

static void
heap_start(struct record *record)
{
	heap_settle(++bench.heap_count, record);
}

static void
heap_stop(struct record *record)
{
	struct record *last = bench.bucket[bench.heap_count--];

	if (last != record)
		heap_settle(record->place, last);
}

static void
heap_tick(void)
{
	struct record *first;

	bench.now++;
	while (bench.heap_count && bench.bucket[1]->due == bench.now) {
		first = bench.bucket[1];
		heap_stop(first);
		expire(first);
	}
}

/* Scheme 7: four wheels of 256 buckets. When a wheel has gone round, the next
 * bucket of the one above is spread over it. */
static struct record **
levels_bucket(unsigned level, uint64_t tick)
{
	uint64_t place = tick >> level * LEVEL_BITS;

	return &bench.bucket[(level << LEVEL_BITS) +
	    (place & ((1 << LEVEL_BITS) - 1))];
}

static void
levels_start(struct record *record)
{
	uint64_t ahead = record->due - bench.now;
	unsigned level = 0;

	while (ahead >> LEVEL_BITS * (level + 1))
		level++;
	link_at(levels_bucket(level, record->due), record);
}

static void
levels_tick(void)
{
	struct record **head, *record, *next;
	unsigned level;

	bench.now++;
	level = (unsigned)__builtin_ctzll(bench.now) / LEVEL_BITS;
	for (level = level < LEVELS ? level : LEVELS - 1; level; level--) {
		head = levels_bucket(level, bench.now);
		record = *head;
		*head = NULL;
		for (; record; record = next) {
			next = record->next;
			levels_start(record);
		}
	}
	head = levels_bucket(0, bench.now);
	while ((record = *head)) {
		unlink_record(record);
		expire(record);
	}
}

static const struct scheme schemes[] = {
    {"list", 1, unsorted_start, unlink_record, unsorted_tick},
    {"ordered_list", 1, sorted_start, unlink_record, sorted_tick},
    {"heap", 0, heap_start, heap_stop, heap_tick},
    {"simple_wheel", 0, unsorted_start, unlink_record, sorted_tick},
    {"hashed_sorted", BUCKETS, sorted_start, unlink_record, sorted_tick},
    {"hashed_unsorted", BUCKETS, unsorted_start, unlink_record, unsorted_tick},
    {"hierarchical", LEVELS << LEVEL_BITS, levels_start, unlink_record,
	levels_tick}};

static void
start(uint64_t number, uint64_t interval)
{
	bench.records[number].due = bench.now + interval;
	bench.scheme->start(&bench.records[number]);
}

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
bench_create(uint64_t timers, uint64_t range)
{
	uint64_t buckets = bench.scheme->buckets;

	if (!buckets)
		for (buckets = 1; buckets < range; buckets *= 2)
			continue;
	bench.timers = timers;
	bench.range = range;
	bench.now = bench.expired_count = bench.heap_count = 0;
	bench.mask = buckets - 1;
	bench.records = calloc(timers, sizeof(*bench.records));
	bench.expired = calloc(timers, sizeof(*bench.expired));
	bench.bucket = calloc(buckets, sizeof(*bench.bucket));
	perf_must(bench.records && bench.expired && bench.bucket, "calloc");
}

static void
bench_destroy(void)
{
	free(bench.bucket);
	free(bench.records);
	free(bench.expired);
}

/* The oracle: due[i] is the tick of a timer that is pending, otherwise 0. */
static void
check_call(uint64_t *due)
{
	uint64_t word = perf_random(&bench.random) >> 8;
	uint64_t i = perf_random_below(&bench.random, CHECK_TIMERS);
	uint64_t interval = word % 16
	    ? 1 + (word >> 8) % (word % 2 ? 16 : CHECK_RANGE - 1)
	    : (uint64_t)BUCKETS << (word >> 8) % 8;

	if (!due[i]) {
		due[i] = bench.now + interval;
		start(i, interval);
	} else if (word % 5 == 0) {
		due[i] = 0;
		bench.scheme->stop(&bench.records[i]);
	}
}

static void
check(void)
{
	uint64_t due[CHECK_TIMERS] = {0}, tick, i;

	bench_create(CHECK_TIMERS, CHECK_RANGE);
	for (tick = 1; tick <= CHECK_TICKS + CHECK_RANGE; tick++) {
		for (i = tick <= CHECK_TICKS ? tick % 8 : 0; i; i--)
			check_call(due);
		bench.scheme->tick();
		while (bench.expired_count) {
			i = bench.expired[--bench.expired_count];
			perf_must(due[i] == tick, "check: a timer's tick");
			due[i] = 0;
		}
	}
	for (i = 0; i < CHECK_TIMERS; i++)
		perf_must(!due[i], "check: a timer's end");
	bench_destroy();
}

static uint64_t
scattered(uint64_t i)
{
	return i * STRIDE_PRIME % bench.timers;
}

/* Latest first, so that ordered lists are filled at their front. */
static void
fill(void)
{
	uint64_t *interval = calloc(bench.timers, sizeof(*interval)), i;

	perf_must(interval, "calloc");
	for (i = 0; i < bench.timers; i++)
		interval[i] = draw_interval();
	qsort(interval, bench.timers, sizeof(*interval), perf_compare_ns);
	for (i = bench.timers; i-- > 0;)
		start(scattered(i), interval[i]);
	free(interval);
}

#define cpu_ns() perf_clock_ns(CLOCK_PROCESS_CPUTIME_ID)

static void
measure_calls(double cost_ns[OPERATIONS])
{
	uint64_t interval[BATCH], ns[2] = {0, 0}, from = 0, begun_ns, i;

	while (ns[START] + ns[STOP] < 2 * bench.budget_ns) {
		begun_ns = cpu_ns();
		for (i = 0; i < BATCH; i++)
			bench.scheme->stop(&bench.records[scattered(from + i)]);
		ns[STOP] += cpu_ns() - begun_ns;
		for (i = 0; i < BATCH; i++)
			interval[i] = draw_interval();
		begun_ns = cpu_ns();
		for (i = 0; i < BATCH; i++)
			start(scattered(from + i), interval[i]);
		ns[START] += cpu_ns() - begun_ns;
		from += BATCH;
	}
	cost_ns[START] = (double)ns[START] / (double)from;
	cost_ns[STOP] = (double)ns[STOP] / (double)from;
}

/* An expired timer is started again, or not where that is slow. */
static void
measure_ticks(double cost_ns[OPERATIONS])
{
	uint64_t ns = 0, restarts_ns = 0, ticks = 0, begun_ns, i;

	while (ns < bench.budget_ns &&
	    bench.expired_count < bench.timers / GONE_PART) {
		begun_ns = cpu_ns();
		for (i = 0; i < BATCH; i++)
			bench.scheme->tick();
		ns += cpu_ns() - begun_ns;
		ticks += BATCH;
		if (restarts_ns > 5 * bench.budget_ns)
			continue;
		begun_ns = cpu_ns();
		while (bench.expired_count)
			start(bench.expired[--bench.expired_count],
			    draw_interval());
		restarts_ns += cpu_ns() - begun_ns;
	}
	cost_ns[PER_TICK] = (double)ns / (double)ticks;
}

static void
measure_all(uint64_t most)
{
	static const char *const names[OPERATIONS] = {"start", "tick"};
	double cost_ns[SIZES][OPERATIONS];
	unsigned sizes = 0, k;
	char name[64];
	uint64_t n;

	for (n = 100; n <= most; n *= 10, sizes++) {
		bench.mean = n < MEAN_MIN ? MEAN_MIN : n;
		bench_create(n, RANGE_MEANS * bench.mean);
		fill();
		measure_calls(cost_ns[sizes]);
		measure_ticks(cost_ns[sizes]);
		bench_destroy();
		for (k = 0; k < OPERATIONS; k++) {
			snprintf(
			    name, sizeof(name), "%s_ns_%" PRIu64, names[k], n);
			perf_metric(name, "ns", cost_ns[sizes][k]);
		}
	}
	for (k = 0; k < OPERATIONS && sizes > 2; k++) {
		snprintf(name, sizeof(name), "slope_%s", names[k]);
		perf_metric(name, "power_of_n",
		    log10(cost_ns[sizes - 1][k] / cost_ns[sizes - 3][k]) / 2);
	}
}

int
main(int argc, char **argv)
{
	int own = argc > 1 && strcmp(argv[1], "about") != 0;
	uint64_t most;
	unsigned i;

	bench.random = perf_begin(
	    argc - own, argv + own, "the schemes of Varghese and Lauck");
	most = perf_option("most", 1000000);
	bench.budget_ns = HWT_MS(perf_option("budget_ms", 100));
	perf_options_end();
	perf_must(most >= 100 && most <= 1000000, "most from 100 to 10^6");
	for (i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
		if (argc > 1 && !strcmp(schemes[i].name, argv[1]))
			bench.scheme = &schemes[i];
	perf_must(bench.scheme, "finding such a scheme");
	check();
	measure_all(most);
	return 0;
}
