/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the programs: explore [OPTION...], or explore --help.
 *
 * Without --search: all orders by partial-order reduction. If that does not
 * end within its schedules, those with at most two preemptions, or as many as
 * the program asks for; and if that does not end either, seeded random ones.
 * One line per program and memory says how many schedules there were and
 * whether that was all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "program.h"

#define SCHEDULES 4000u
#define SEED 20240229u
#define NS_PER_SECOND UINT64_C(1000000000)
/* What --program alone may take: some six searches for each program, in three
 * memories at most. */
#define PATIENCE_NS (10 * NS_PER_SECOND)
#define SEARCHES 6u

static const struct program *const tables[] = {queue_programs, record_programs,
    place_programs, handover_programs, periodic_programs, sleep_programs,
    lifecycle_programs, shared_programs, touch_programs, purgatory_programs};

static const char usage[] =
    "explore [OPTION...]\n"
    "\n"
    "  --list             names the programs\n"
    "  --program NAME     runs those whose name contains NAME; with none of\n"
    "                     the next two options, for ten seconds in all\n"
    "  --schedules N      at most so many per search (0: until it ends)\n"
    "  --seconds N        at most about so long per search (0: what each\n"
    "                     program asks for, as without --program)\n"
    "  --memory MODEL     sc, tso or pso; without it, those that matter\n"
    "  --search KIND      plain, reduced, bounded or random\n"
    "  --preemptions N    bounded: at most so many\n"
    "  --seed N           random: the seed\n"
    "  --replay SCHEDULE  runs one schedule, with --program and --memory\n"
    "  --trace            prints each point\n"
    "\n"
    "One line per program and memory says how many schedules there were, and\n"
    "\"all\" where these were all.\n";

static struct {
	const char *name;
	const char *replay;
	uint64_t schedules, seed;
	/* Per search; 0: what the program asks for. */
	uint64_t time_ns;
	unsigned preemptions;
	int memory, search; /* -1: all */
	bool schedules_given, seconds_given, list, trace;
} options = {.name = "", .memory = -1, .search = -1, .seed = SEED};

static const char *const memories[] = {"sc", "tso", "pso"};
static const char *const searches[] = {"plain", "reduced", "bounded", "random"};

static const struct program *running;
static uint64_t programs, schedules, points, complete;

static void
begin(void)
{
	program_reset();
	if (running->begin != NULL)
		running->begin();
	script_run(running->first, running->verbs);
}

static void
end(void)
{
	script_run(running->last, running->verbs);
	if (running->end != NULL)
		running->end();
	program_finish();
}

static void
thread_run(unsigned i)
{
	program_thread(i);
	if (running->run != NULL)
		script_run(script_part(running->run, i), running->verbs);
	else
		running->thread[i]();
	sim_thread_ends();
}

#define THREAD(i)                    \
	static void thread_##i(void) \
	{                            \
		thread_run(i);       \
	}
THREAD(0)
THREAD(1)
THREAD(2)
THREAD(3)
THREAD(4)

static void (*const threads[])(void) = {
    thread_0, thread_1, thread_2, thread_3, thread_4};

static bool
has_thread(unsigned i)
{
	return running->run != NULL ? script_part(running->run, i) != NULL
				    : running->thread[i] != NULL;
}

static uint64_t
clock_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

static void
search(struct explore_limits *limits, struct explore_result *result)
{
	struct explore_program program = {
	    .name = running->name,
	    .begin = begin,
	    .end = end,
	    .idle = sim_idle,
	};
	unsigned i;

	for (i = 0; i < sizeof(threads) / sizeof(threads[0]) && has_thread(i);
	     i++)
		program.thread[i] = threads[i];
	limits->trace = options.trace;
	limits->replay = options.replay;
	explore_run(&program, limits, result);
}

/* How many schedules a search may take, by the time that a few of them did. */
static uint64_t
schedules_in_time(const struct explore_limits *limits)
{
	struct explore_limits few = *limits;
	struct explore_result result;
	uint64_t began_ns = clock_ns();
	uint64_t ns;

	few.schedules_max = options.time_ns < NS_PER_SECOND ? 10 : 200;
	search(&few, &result);
	ns = (clock_ns() - began_ns) / (result.schedules + 1) + 1;
	return options.time_ns / ns + 1;
}

/* Of what a program asks for: a part for the search that seldom ends, more for
 * the one that may, and again a part for what lies beyond. */
static uint64_t
schedules_max(const struct explore_limits *limits)
{
	uint64_t asked =
	    running->schedules > 0 ? running->schedules : SCHEDULES;

	if (options.replay != NULL)
		return 1;
	if (options.time_ns > 0)
		return schedules_in_time(limits);
	if (options.schedules_given)
		return options.schedules;
	return limits->search == EXPLORE_BOUNDED ? asked : asked / 4;
}

static void
tell_failure(
    const struct explore_limits *limits, const struct explore_result *result)
{
	(void)fflush(stdout);
	printf("explore: FAILED: %s, %s: %s\n", running->name,
	    memories[limits->memory], result->message);
	printf("  schedule: %s\n", result->schedule);
	printf("  again:    build/explore/explore --program %s --memory %s "
	       "--trace --replay '%s'\n",
	    running->name, memories[limits->memory], result->schedule);
	exit(1);
}

static unsigned
preemptions(void)
{
	if (options.preemptions > 0)
		return options.preemptions;
	return running->preemptions > 0 ? running->preemptions : 2;
}

static bool
run_search(enum explore_memory memory, enum explore_search kind)
{
	struct explore_limits limits = {
	    .search = kind,
	    .memory = memory,
	    .preemptions = preemptions(),
	    .depth = 3,
	    .seed = options.seed,
	};
	struct explore_result result = {0};

	limits.schedules_max = schedules_max(&limits);
	search(&limits, &result);
	schedules += result.schedules;
	points += result.points;
	if (result.failed)
		tell_failure(&limits, &result);
	printf(
	    "  %s %llu", searches[kind], (unsigned long long)result.schedules);
	if (kind == EXPLORE_BOUNDED)
		printf(" (%u preemptions)", limits.preemptions);
	if (kind == EXPLORE_RANDOM)
		printf(" (seed %llu)", (unsigned long long)options.seed);
	printf("%s", result.complete ? ": all" : "");
	(void)fflush(stdout);
	return result.complete;
}

static void
run_memory(enum explore_memory memory)
{
	printf("%-36s %-3s", running->name, memories[memory]);
	if (options.search >= 0) {
		complete +=
		    run_search(memory, (enum explore_search)options.search);
	} else if (run_search(memory, EXPLORE_REDUCED)) {
		complete++;
	} else if (!run_search(memory, EXPLORE_BOUNDED)) {
		(void)run_search(memory, EXPLORE_RANDOM);
	}
	printf("\n");
}

static void
run_program(const struct program *program)
{
	running = program;
	programs++;
	if (options.memory >= 0) {
		run_memory((enum explore_memory)options.memory);
		return;
	}
	run_memory(EXPLORE_SC);
	run_memory(EXPLORE_TSO);
	if (program->pso)
		run_memory(EXPLORE_PSO);
}

/* The place of word in words; one that is not there ends the program. */
static int
choice(const char *word, const char *const *words, int count)
{
	int i;

	for (i = 0; i < count; i++) {
		if (strcmp(word, words[i]) == 0)
			return i;
	}
	(void)fprintf(stderr, "explore: what is %s? Try --help\n", word);
	exit(2);
}

static void
read_option(const char *option, const char *value)
{
	static const char *const names[] = {"--program", "--schedules",
	    "--seconds", "--memory", "--search", "--preemptions", "--seed",
	    "--replay"};

	switch (choice(option, names, 8)) {
	case 0:
		options.name = value;
		break;
	case 1:
		options.schedules = strtoull(value, NULL, 0);
		options.schedules_given = true;
		break;
	case 2:
		options.time_ns = strtoull(value, NULL, 0) * NS_PER_SECOND;
		options.seconds_given = true;
		break;
	case 3:
		options.memory = choice(value, memories, 3);
		break;
	case 4:
		options.search = choice(value, searches, 4);
		break;
	case 5:
		options.preemptions = (unsigned)strtoul(value, NULL, 0);
		break;
	case 6:
		options.seed = strtoull(value, NULL, 0);
		break;
	default:
		options.replay = value;
		break;
	}
}

static void
read_options(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0) {
			(void)fputs(usage, stdout);
			exit(0);
		}
		if (strcmp(argv[i], "--list") == 0)
			options.list = true;
		else if (strcmp(argv[i], "--trace") == 0)
			options.trace = true;
		else if (i + 1 < argc) {
			read_option(argv[i], argv[i + 1]);
			i++;
		} else
			(void)choice(argv[i], NULL, 0);
	}
}

/* A program is meant by its whole name or, where there is none such, by a part
 * of it. */
static bool
is_meant(const struct program *program, bool whole)
{
	return whole ? strcmp(program->name, options.name) == 0
		     : strstr(program->name, options.name) != NULL;
}

static unsigned
count_meant(bool whole)
{
	const struct program *program;
	unsigned count = 0;
	size_t i;

	for (i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		for (program = tables[i]; program->name != NULL; program++)
			count += is_meant(program, whole);
	}
	return count;
}

/* Who names programs waits for them. */
static void
bound_time(unsigned count)
{
	if (options.name[0] == '\0' || options.schedules_given ||
	    options.seconds_given || options.replay != NULL || options.list)
		return;
	options.time_ns = PATIENCE_NS / SEARCHES / count;
	printf("explore: some %llu s in all; --seconds 0 for what each "
	       "program asks for\n",
	    (unsigned long long)(PATIENCE_NS / NS_PER_SECOND));
}

static void
run_all(bool whole)
{
	const struct program *program;
	size_t i;

	for (i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		for (program = tables[i]; program->name != NULL; program++) {
			if (!is_meant(program, whole))
				continue;
			if (options.list)
				printf("%s\n", program->name);
			else
				run_program(program);
		}
	}
}

int
main(int argc, char **argv)
{
	bool whole;
	unsigned count;

	read_options(argc, argv);
	sim_init();
	purgatory_programs_init();
	whole = count_meant(true) > 0;
	count = count_meant(whole);
	if (count == 0) {
		(void)fprintf(stderr, "explore: no such program\n");
		return 2;
	}
	bound_time(count);
	run_all(whole);
	if (options.list)
		return 0;
	printf("explore: ok: %llu programs, %llu schedules, %llu points, "
	       "%llu searches complete\n",
	    (unsigned long long)programs, (unsigned long long)schedules,
	    (unsigned long long)points, (unsigned long long)complete);
	return 0;
}
