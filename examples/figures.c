/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of the demo: the table of figures, then one line for each check.
 * Read it from figures_judge at the end upwards.
 */
#include "figures.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FIGURES_MAX 128

static struct {
	char name[40];
	int64_t value;
} figures[FIGURES_MAX];

static unsigned figure_count, missing_count, check_count, failure_count;

static int
figure_index(const char *name)
{
	unsigned i;

	for (i = 0; i < figure_count; i++)
		if (strcmp(figures[i].name, name) == 0)
			return (int)i;
	return -1;
}

void
figure_set(const char *name, int64_t value)
{
	if (figure_is_set(name) || figure_count == FIGURES_MAX)
		return;
	snprintf(
	    figures[figure_count].name, sizeof(figures[0].name), "%s", name);
	figures[figure_count++].value = value;
}

bool
figure_is_set(const char *name)
{
	return figure_index(name) >= 0;
}

int64_t
figure(const char *name)
{
	int i = figure_index(name);

	if (i >= 0)
		return figures[i].value;
	if (missing_count++ == 0)
		printf("  (nobody told \"%s\")\n", name);
	return -1;
}

/* The figure "<before><group>.<name>". */
static int64_t
figure_of(const char *before, const char *group, const char *name)
{
	char full[64];

	snprintf(full, sizeof(full), "%s%s.%s", before, group, name);
	return figure(full);
}

static int64_t
limits_sum(const char *before, const char *name)
{
	int64_t sum = 0;
	enum limit limit;

	for (limit = 0; limit < LIMITS; limit++)
		sum += figure_of(before, limit_name(limit), name);
	return sum;
}

static void
print_lateness(const char *title, const char *group, int64_t expected)
{
	static const char *const names[] = {
	    "late_p50_us", "late_p99_us", "late_max_us"};
	double tick_us = (double)figure("timer.tick_us");
	double late_us[3];
	int i;

	for (i = 0; i < 3; i++)
		late_us[i] = (double)figure_of("", group, names[i]);
	printf("  %-18s %8" PRId64 " %6" PRId64, title, expected,
	    figure_of("", group, "cut"));
	for (i = 0; i < 3; i++)
		printf(" %6.1f", late_us[i] / 1000);
	for (i = 0; i < 3; i++)
		printf(" %5.2f", late_us[i] / tick_us);
	printf("\n");
}

static void
print_cuts(void)
{
	static const char *const titles[LIMITS] = {"request header",
	    "keep-alive idle", "slow read", "request deadline"};
	enum limit limit;

	printf("\n  %-18s %8s %6s %20s %17s\n", "connections cut", "", "",
	    "late: ms", "late: ticks");
	printf("  %-18s %8s %6s %6s %6s %6s %5s %5s %5s\n", "by", "expected",
	    "cut", "p50", "p99", "max", "p50", "p99", "max");
	for (limit = 0; limit < LIMITS; limit++)
		print_lateness(titles[limit], limit_name(limit),
		    figure_of("client.", limit_name(limit), "begun"));
	print_lateness("all", "all", limits_sum("client.", "begun"));
	printf("  of the whole, until the worker handed it over: at most"
	       " %.1f ms\n"
	       "  control thread: woke at most %.1f ms late\n",
	    (double)figure("timer.late_max_us") / 1000,
	    (double)figure("control.lag_max_us") / 1000);
}

static void
print_count(const char *title, int64_t count, const char *note)
{
	printf("  %-24s %11" PRId64 "%s%s\n", title, count,
	    note[0] != '\0' ? "  " : "", note);
}

static void
print_timer(void)
{
	int64_t bytes = figure("timer.memory_bytes");
	int64_t pending = figure("control.pending_max");
	char note[80];

	printf("\n");
	print_count("timeouts scheduled", figure("timer.scheduled"), "");
	print_count("  rescheduled", figure("timer.rescheduled"), "");
	print_count("  cancelled", figure("timer.cancelled"), "");
	snprintf(note, sizeof(note),
	    "of them idle during a request, or moved too late: %" PRId64,
	    figure("server.spared"));
	print_count("  started", figure("timer.started"), note);
	print_count("  left at stop", figure("stop.unprocessed"), "");
	snprintf(note, sizeof(note), "in the time of %" PRId64 " ticks",
	    figure("server.ticks"));
	print_count("worker wake-ups", figure("timer.wakeups"), note);
	/* Seen each tick, so that the true most may be a little higher, and
	 * the bytes for each a little fewer. */
	snprintf(note, sizeof(note),
	    "%" PRId64 " of records, queues, wheel; at most %" PRId64
	    " pending",
	    bytes, pending);
	print_count(
	    "bytes per timeout", pending > 0 ? bytes / pending : -1, note);
}

static void
print_stop(void)
{
	printf("\n  at shutdown: %" PRId64 " connections open, %" PRId64
	       " unprocessed timeouts came back:\n"
	       "    %" PRId64 " idle (one for each connection), %" PRId64
	       " header, %" PRId64 " read, %" PRId64 " request\n",
	    figure("stop.open"), figure("stop.unprocessed"),
	    figure("stop.idle"), figure("stop.header"), figure("stop.read"),
	    figure("stop.request"));
}

/* One line that says what was compared. */
static void __attribute__((format(printf, 2, 3)))
check(bool passed, const char *format, ...)
{
	va_list values;

	check_count++;
	failure_count += !passed;
	printf("  %-7s ", passed ? "ok" : "FAILED");
	va_start(values, format);
	vprintf(format, values);
	va_end(values);
	printf("\n");
}

static void
check_hostile(const struct setup *setup)
{
	int64_t begun = limits_sum("client.", "begun");
	int64_t uncut = limits_sum("client.", "uncut");
	int64_t early = limits_sum("client.", "early");
	enum limit limit;

	check(begun >= setup->hostile && uncut == 0 &&
		limits_sum("client.", "cut") == begun,
	    "all %" PRId64 " attacks of %u hostile clients were cut,"
	    " %" PRId64 " not",
	    begun, setup->hostile, uncut);
	for (limit = 0; limit < LIMITS; limit++) {
		const char *name = limit_name(limit);

		check(figure_of("", name, "cut") ==
			figure_of("client.", name, "begun"),
		    "cut by the limit \"%s\": %" PRId64 ", attacks %" PRId64,
		    name, figure_of("", name, "cut"),
		    figure_of("client.", name, "begun"));
	}
	check(figure("all.early") == 0,
	    "cut early, by the server's clock: %" PRId64, figure("all.early"));
	check(early == 0, "cut early, by the clients' clock: %" PRId64, early);
}

/* Of all together: each limit has so large a part in them that none could be
 * late on its own without being seen here. */
static void
check_lateness(void)
{
	int64_t p99_us = figure("all.late_p99_us");
	int64_t bound_us =
	    2 * figure("timer.tick_us") + figure("control.lag_max_us");

	check(p99_us >= 0 && p99_us <= bound_us,
	    "p99 lateness %.1f ms, two ticks and the control thread's"
	    " lag %.1f ms",
	    (double)p99_us / 1000, (double)bound_us / 1000);
}

static void
check_polite(const struct setup *setup)
{
	int64_t surplus = figure("all.cut") - limits_sum("client.", "cut");

	check(
	    surplus == 0, "cut by a limit though no attack: %" PRId64, surplus);
	check(figure("client.polite.begun") == setup->polite &&
		figure("client.polite.cut") == 0 &&
		figure("client.answers") > 0,
	    "polite clients: %" PRId64 ", answers %" PRId64 ", cut %" PRId64,
	    figure("client.polite.begun"), figure("client.answers"),
	    figure("client.polite.cut"));
	check(figure("wrk.requests") > 0 && figure("wrk.errors") == 0 &&
		figure("wrk.refused") == 0,
	    "wrk: %" PRId64 " requests, socket errors %" PRId64
	    ", other answers than 200 %" PRId64,
	    figure("wrk.requests"), figure("wrk.errors"),
	    figure("wrk.refused"));
}

static void
check_accounts(const struct setup *setup)
{
	static const char *const counted[] = {
	    "scheduled", "rescheduled", "cancelled", "started"};
	int64_t ended = figure("timer.started") + figure("timer.cancelled") +
	    figure("stop.unprocessed");
	int64_t guarded = figure("stop.idle") + figure("stop.idle_in_mailbox");
	size_t i;

	/* All are one-shot, so that each starts once at most. */
	check(figure("timer.scheduled") == ended,
	    "accepted %" PRId64 " = started + cancelled + unprocessed %" PRId64,
	    figure("timer.scheduled"), ended);
	for (i = 0; i < sizeof(counted) / sizeof(counted[0]); i++)
		check(figure_of("", "server", counted[i]) ==
			figure_of("", "timer", counted[i]),
		    "%s: by the server's count %" PRId64
		    ", by the timer's %" PRId64,
		    counted[i], figure_of("", "server", counted[i]),
		    figure_of("", "timer", counted[i]));
	check(figure("stop.lost") == 0 && figure("stop.strange") == 0 &&
		figure("timer.pending") == 0,
	    "timeouts lost %" PRId64 ", unknown to all %" PRId64
	    ", pending after all %" PRId64,
	    figure("stop.lost"), figure("stop.strange"),
	    figure("timer.pending"));
	check(figure("stop.open") == guarded &&
		figure("stop.open") == setup->polite,
	    "open at shutdown: %" PRId64 ", with a timeout for idle: %" PRId64
	    ", polite clients: %u",
	    figure("stop.open"), guarded, setup->polite);
}

/* Without the figures of one of the programs there is nothing to judge. One
 * that was not even started is not to blame. */
static bool
figures_are_there(void)
{
	/* How each program ends, and the last that it tells. */
	static const char *const last[][2] = {{"exit.httpd", "stop.lost"},
	    {"exit.hostile", "client.end"}, {"exit.wrk", "wrk.requests"}};
	bool are_there = true;
	size_t i;

	for (i = 0; i < sizeof(last) / sizeof(last[0]); i++) {
		if (figure_is_set(last[i][1]))
			continue;
		are_there = false;
		if (figure_is_set(last[i][0]))
			printf("\n  FAILED  without its figures: %s %" PRId64
			       "\n",
			    last[i][0], figure(last[i][0]));
	}
	return are_there;
}

bool
figures_judge(const struct setup *setup)
{
	char note[80];

	if (!figures_are_there())
		return false;
	snprintf(note, sizeof(note),
	    "%" PRId64 " a second, over %u connections of wrk",
	    figure("wrk.per_second"), setup->connections);
	printf("\n");
	print_count("requests served", figure("wrk.requests"), note);
	print_cuts();
	print_timer();
	print_stop();
	printf("\n");
	check_hostile(setup);
	check_lateness();
	check_polite(setup);
	check_accounts(setup);
	check(figure("exit.httpd") == 0 && figure("exit.hostile") == 0 &&
		figure("exit.wrk") == 0,
	    "exit status of httpd %" PRId64 ", hostile %" PRId64
	    ", wrk %" PRId64,
	    figure("exit.httpd"), figure("exit.hostile"), figure("exit.wrk"));
	check(
	    missing_count == 0, "figures that nobody told: %u", missing_count);
	printf("\n%u checks, %u failed\n", check_count, failure_count);
	return failure_count == 0;
}
