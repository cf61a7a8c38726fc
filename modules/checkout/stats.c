/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The counters of checkouts and stores, read and written for monitoring: see
 * observe/figures.h.
 */
#include <errno.h>
#include <string.h>

#include "observe/figures.h"
#include "store.h"

/* Reading a checkout. */

/* Since when the first of the list waits; UINT64_MAX: none does. The list has
 * the bookmarks of dumps, too: see dump.c. */
static uint64_t
first_since(const struct checkout_shard *shard)
{
	struct request *request = shard->list;

	while (request != NULL && is_bookmark(request))
		request = request->list_next != shard->list ? request->list_next
							    : NULL;
	return request != NULL ? *request_since(request) : UINT64_MAX;
}

static void
add_waits(struct hwt_checkout_stats *stats, const struct waits *waits)
{
	unsigned k;

	stats->wait_ns_sum += waits->sum_ns;
	if (waits->max_ns > stats->wait_ns_max)
		stats->wait_ns_max = waits->max_ns;
	for (k = 0; k < WAIT_ELEMENTS; k++)
		stats->wait_ns_histogram[k] += waits->histogram[k];
}

/* With the lock held. */
static void
add_shard(struct hwt_checkout_stats *stats, const struct checkout_shard *shard)
{
	const uint64_t *ended = shard->ended;
	uint64_t word = a64_load_seq(&shard->in_flight);

	stats->out +=
	    (word & IN_FLIGHT_MASK) - a64_load_relaxed(&shard->holding);
	stats->released += (word >> IN_FLIGHT_BITS) +
	    (a64_load_relaxed(&shard->released_high) << IN_FLIGHT_BITS);
	stats->waiting += shard->waiting;
	stats->waited += shard->waited;
	stats->woken += shard->woken;
	stats->expired += ended[HWT_GRANT_EXPIRED - HWT_GRANTED];
	stats->cancelled += ended[HWT_GRANT_CANCELLED - HWT_GRANTED];
	stats->retired += ended[HWT_GRANT_RETIRED - HWT_GRANTED];
	stats->shut_down += ended[HWT_GRANT_SHUT_DOWN - HWT_GRANTED];
	add_waits(stats, &shard->waits);
}

int
hwt_checkout_read_stats(
    const struct hwt_checkout *checkout, struct hwt_checkout_stats *stats)
{
	struct checkout_shard *shard;
	uint64_t since_ns = UINT64_MAX, first_ns, now_ns;
	int error = checkout_enter(checkout);

	if (error != 0 || stats == NULL)
		return error != 0 ? error : -EINVAL;
	memset(stats, 0, sizeof(*stats));
	for (shard = checkout->shards;
	     shard < checkout->shards + checkout->shard_count; shard++) {
		checkout_shard_lock(shard);
		add_shard(stats, shard);
		first_ns = first_since(shard);
		checkout_shard_unlock(shard);
		since_ns = first_ns < since_ns ? first_ns : since_ns;
	}
	now_ns = checkout_now(checkout);
	if (since_ns < now_ns)
		stats->longest_wait_ns = now_ns - since_ns;
	stats->granted = stats->out + stats->released;
	stats->pauses = a64_load_relaxed(&checkout->pauses);
	return 0;
}

/* Reading a store. */

static void
add_store_shard(struct hwt_store_stats *to, const struct hwt_store_stats *from)
{
	to->loaded += from->loaded;
	to->jobs += from->jobs;
	to->hits += from->hits;
	to->misses += from->misses;
	to->joined += from->joined;
	to->backed_off += from->backed_off;
	to->loads += from->loads;
	to->failures += from->failures;
	to->unloads += from->unloads;
	to->refusals += from->refusals;
}

int
hwt_store_read_stats(
    const struct hwt_store *store, struct hwt_store_stats *stats)
{
	uint32_t i;
	int error = store_enter(store);

	if (error != 0 || stats == NULL)
		return error != 0 ? error : -EINVAL;
	memset(stats, 0, sizeof(*stats));
	for (i = 0; i < store->shard_count; i++) {
		store_lock(&store->shards[i]);
		add_store_shard(stats, &store->shards[i].stats);
		store_unlock(&store->shards[i]);
	}
	stats->weight = a64_load_relaxed(&store->weight);
	return 0;
}

/* Writing. */

#define C(key, metric, type, help) \
	FIGURE(hwt_checkout_stats, key, "hwt_checkout_" metric, type, help)

static const struct figure checkout_figures[] = {
    C(out, "out", "gauge", "Requests that are granted and not released."),
    C(waiting, "waiting", "gauge", "Requests that wait."),
    C(released, "released_total", "counter", "Grants that were released."),
    C(waited, "waits_total", "counter", "Waits that have begun."),
    C(expired, "expired_total", "counter", "Waits that a deadline has ended."),
    C(cancelled, "cancelled_total", "counter", "Waits that were cancelled."),
    C(retired, "retired_total", "counter",
	"Waits for an object that was retired."),
    C(shut_down, "shut_down_total", "counter", "Waits that a shutdown ended."),
    C(woken, "woken_total", "counter",
	"Requests that were woken to try again."),
    C(pauses, "pauses_total", "counter", "Pauses that were declared."),
};

#define S(key, metric, type, help) \
	FIGURE(hwt_store_stats, key, "hwt_store_" metric, type, help)

static const struct figure store_figures[] = {
    S(loaded, "objects", "gauge", "Objects that are loaded."),
    S(weight, "weight", "gauge", "What the loaded objects weigh."),
    S(jobs, "jobs", "gauge", "Loads and unloads that have not ended."),
    S(hits, "hits_total", "counter", "Objects that were found loaded."),
    S(misses, "misses_total", "counter", "Objects that were not there."),
    S(joined, "joined_total", "counter",
	"Objects that were found with a load or unload under way."),
    S(backed_off, "backed_off_total", "counter",
	"Objects that were refused since their load had just failed."),
    S(loads, "loads_total", "counter", "Loads that have ended."),
    S(failures, "load_failures_total", "counter", "Loads that have failed."),
    S(unloads, "unloads_total", "counter", "Objects that were unloaded."),
    S(refusals, "unload_refusals_total", "counter",
	"Unloads that the callback has refused."),
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static bool
is_format(enum hwt_format format)
{
	return format >= HWT_PROMETHEUS && format <= HWT_PROMETHEUS_SAMPLES;
}

static void
write_checkout(struct report *report, const struct hwt_checkout_stats *stats)
{
	static const char longest[] = "hwt_checkout_longest_wait_seconds";
	static const char max[] = "hwt_checkout_wait_max_seconds";

	print_figures(report);
	print_head(report, longest, "gauge",
	    "How long the request that waits longest has waited.");
	print_seconds(report, longest, "", stats->longest_wait_ns);
	print_histogram(report, "hwt_checkout_wait_seconds",
	    "How long requests have waited.", stats->wait_ns_histogram,
	    stats->wait_ns_sum);
	print_head(report, max, "gauge",
	    "The longest wait since the checkout was made.");
	print_seconds(report, max, "", stats->wait_ns_max);
}

static void
write_checkout_json(
    struct report *report, const struct hwt_checkout_stats *stats)
{
	print_figures_json(report);
	page_print(&report->page,
	    ",\"granted\":%" PRIu64 ",\"longest_wait_ns\":%" PRIu64
	    ",\"wait_ns_sum\":%" PRIu64 ",\"wait_ns_max\":%" PRIu64
	    ",\"wait_ns_histogram\":",
	    stats->granted, stats->longest_wait_ns, stats->wait_ns_sum,
	    stats->wait_ns_max);
	print_histogram_json(report, stats->wait_ns_histogram);
	page_print(&report->page, "}\n");
}

int
hwt_checkout_stats_write(
    const struct hwt_checkout *checkout, FILE *file, enum hwt_format format)
{
	struct hwt_checkout_stats stats;
	struct report report = {.page = {.file = file},
	    .figure = checkout_figures,
	    .figures = COUNT(checkout_figures),
	    .stats = &stats,
	    .kind = "checkout",
	    .heads = format == HWT_PROMETHEUS};
	char name[LABEL_BYTES];
	int error = hwt_checkout_read_stats(checkout, &stats);

	if (error != 0)
		return error;
	if (file == NULL || !is_format(format))
		return -EINVAL;
	quote_name(name, checkout->name);
	report.name = name;
	report.serial = checkout->serial;
	if (format == HWT_JSON)
		write_checkout_json(&report, &stats);
	else
		write_checkout(&report, &stats);
	return page_end(&report.page);
}

int
hwt_store_stats_write(
    const struct hwt_store *store, FILE *file, enum hwt_format format)
{
	struct hwt_store_stats stats;
	struct report report = {.page = {.file = file},
	    .figure = store_figures,
	    .figures = COUNT(store_figures),
	    .stats = &stats,
	    .kind = "store",
	    .heads = format == HWT_PROMETHEUS};
	char name[LABEL_BYTES];
	int error = hwt_store_read_stats(store, &stats);

	if (error != 0)
		return error;
	if (file == NULL || !is_format(format))
		return -EINVAL;
	quote_name(name, store->name);
	report.name = name;
	report.serial = store->serial;
	if (format != HWT_JSON) {
		print_figures(&report);
	} else {
		print_figures_json(&report);
		page_print(&report.page, "}\n");
	}
	return page_end(&report.page);
}
