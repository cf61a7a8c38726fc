/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the programs: explore [OPTION...], or explore --help.
 *
 * Each row of rows.c (and of the modules) is run without --search in all orders
 * by partial-order reduction. If that does not end within its schedules, in
 * those with at most two preemptions, or as many as the program asks for; and
 * if that does not end either, in seeded random ones. One line per program and
 * memory says how many schedules there were and whether that was all.
 *
 * --generate N makes N programs from the seed instead, and runs each for a
 * moment in each memory. One that fails is shrunk while it fails, and printed
 * as a row: put it into rows.c when its fault is mended.
 *
 * A failure prints its schedule. The same program with --memory, --replay and
 * --trace shows it step by step.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

#define SCHEDULES 4000u
#define SCHEDULES_GENERATED 100u
#define SEED 20240229u

static const struct program *const tables[] = {
    rows, purgatory_programs, checkout_programs, NULL};

static const char usage[] =
    "explore [OPTION...]\n"
    "\n"
    "  --list             names the programs\n"
    "  --program NAME     runs that one, or those whose name contains NAME\n"
    "  --program 'FIRST; RUN; LAST'   runs these scripts: see verbs.c\n"
    "  --generate N       makes and runs N programs, from the seed\n"
    "  --schedules N      at most so many per search (0: until it ends)\n"
    "  --memory MODEL     sc, tso or pso; without it, those that matter\n"
    "  --seed N           of random searches and of generated programs\n"
    "  --replay SCHEDULE  runs one schedule, with --program and --memory\n"
    "  --trace            prints each point\n"
    "\n"
    "One line per program and memory says how many schedules there were, and\n"
    "\"all\" where these were all.\n";

static struct {
	const char *name, *replay, *memory_name;
	uint64_t schedules, seed, generate; /* UINT64_MAX: not given */
	int memory; /* -1: all */
	bool list, trace, help;
} options = {.name = "", .schedules = UINT64_MAX, .seed = SEED, .memory = -1};

static const char *const memories[] = {"sc", "tso", "pso"};
static const char *const searches[] = {"reduced", "bounded", "random"};

static const struct program *running;
static unsigned long long programs, schedules, points, complete;

static void
run_script(const char *script)
{
	script_run(
	    script, running->verbs != NULL ? running->verbs : library_verbs());
}

static void
begin(void)
{
	program_reset();
	if (running->begin != NULL)
		running->begin();
	run_script(running->first);
}

static void
end(void)
{
	run_script(running->last);
	if (running->end != NULL)
		running->end();
	program_finish();
}

static void
thread_run(unsigned i)
{
	program_thread(i);
	run_script(script_part(running->run, i));
	sim_thread_ends();
}

/* Runs the program; max 0: until the search ends. */
static struct explore_limits
search(const struct program *program, enum explore_memory memory,
    enum explore_search kind, uint64_t max, struct explore_result *result)
{
	struct explore_program explored = {
	    .begin = begin, .thread = thread_run, .end = end, .idle = sim_idle};
	struct explore_limits limits = {
	    .search = kind,
	    .memory = memory,
	    .preemptions = program->preemptions > 0 ? program->preemptions : 2,
	    .seed = options.seed,
	    .schedules_max = max,
	    .trace = options.trace,
	    .replay = options.replay,
	};

	running = program;
	while (script_part(program->run, explored.threads) != NULL)
		explored.threads++;
	explore_run(&explored, &limits, result);
	schedules += result->schedules;
	points += result->points;
	return limits;
}

static void
tell_failure(enum explore_memory memory, const struct explore_result *result)
{
	(void)fflush(stdout);
	printf("explore: FAILED: %s, %s: %s\n", running->name, memories[memory],
	    result->message);
	printf("  schedule: %s\n", result->schedule);
	printf("  again:    build/explore/explore --memory %s --trace "
	       "--replay '%s' --program ",
	    memories[memory], result->schedule);
	if (running->verbs == NULL)
		printf("'%s; %s; %s'\n", running->first, running->run,
		    running->last);
	else
		printf("%s\n", running->name);
}

/* A part of the schedules for the search that seldom ends, all for the one that
 * may, and again a part for what lies beyond. */
static bool
run_search(const struct program *program, enum explore_memory memory,
    enum explore_search kind)
{
	uint64_t max = program->schedules > 0 ? program->schedules : SCHEDULES;
	struct explore_result result;

	if (kind != EXPLORE_BOUNDED)
		max /= 4;
	if (options.schedules != UINT64_MAX)
		max = options.schedules;
	(void)search(program, memory, kind, max, &result);
	if (result.message != NULL) {
		tell_failure(memory, &result);
		exit(1);
	}
	printf("  %s %llu%s", searches[kind],
	    (unsigned long long)result.schedules,
	    result.complete ? ": all" : "");
	(void)fflush(stdout);
	complete += result.complete && kind == EXPLORE_REDUCED;
	return result.complete;
}

static void
run_program(const struct program *program)
{
	int memory = options.memory >= 0 ? options.memory : EXPLORE_SC;
	int last = options.memory >= 0 ? options.memory
	    : program->pso             ? EXPLORE_PSO
				       : EXPLORE_TSO;

	programs++;
	for (; memory <= last; memory++) {
		enum explore_memory m = (enum explore_memory)memory;

		printf("%-36s %-3s", program->name, memories[m]);
		if (!run_search(program, m, EXPLORE_REDUCED) &&
		    !run_search(program, m, EXPLORE_BOUNDED))
			(void)run_search(program, m, EXPLORE_RANDOM);
		printf("\n");
	}
}

/* Generated programs: a search of each kind. */

static enum explore_memory memory_of_failure;
static enum explore_search search_of_failure;

static bool
fails(const struct program *program)
{
	static const struct {
		enum explore_memory memory;
		enum explore_search search;
	} all[] = {{EXPLORE_SC, EXPLORE_BOUNDED}, {EXPLORE_SC, EXPLORE_RANDOM},
	    {EXPLORE_PSO, EXPLORE_RANDOM}};
	uint64_t max = options.schedules != UINT64_MAX ? options.schedules
						       : SCHEDULES_GENERATED;
	struct explore_result result;
	unsigned i;

	for (i = 0; i < 3; i++) {
		(void)search(
		    program, all[i].memory, all[i].search, max, &result);
		memory_of_failure = all[i].memory;
		search_of_failure = all[i].search;
		if (result.message != NULL)
			return true;
	}
	return false;
}

static void
run_generated(void)
{
	const struct program *program;
	struct explore_result result;
	uint64_t i;

	for (i = 0; i < options.generate; i++) {
		program = generate(options.seed + i);
		programs++;
		if (options.list)
			print_row(program);
		if (!fails(program))
			continue;
		program = shrink(fails);
		(void)fails(program);
		(void)search(program, memory_of_failure, search_of_failure,
		    SCHEDULES_GENERATED, &result);
		tell_failure(memory_of_failure, &result);
		printf("  a row:\n");
		print_row(program);
		exit(1);
	}
}

/* NAME: the one with that name or, if whole is false, those with it. */
static unsigned
run_named(bool whole)
{
	const struct program *const *table;
	const struct program *program;
	unsigned count = 0;

	for (table = tables; *table != NULL; table++) {
		for (program = *table; program->name != NULL; program++) {
			if (whole ? strcmp(program->name, options.name) != 0
				  : !strstr(program->name, options.name))
				continue;
			count++;
			if (options.list)
				printf("%s\n", program->name);
			else
				run_program(program);
		}
	}
	return count;
}

/* FIRST; RUN; LAST */
static void
run_scripts(void)
{
	char *text = strdup(options.name);
	char *part[3] = {text, strchr(text, ';'), NULL};
	unsigned i;

	part[2] = strchr(part[1] + 1, ';');
	if (part[2] == NULL)
		part[2] = text + strlen(text);
	for (i = 1; i < 3; i++) {
		if (*part[i] != '\0')
			*part[i]++ = '\0';
		part[i] += strspn(part[i], " ");
	}
	run_program(&(struct program){.name = "program",
	    .first = part[0],
	    .run = part[1],
	    .last = part[2],
	    .pso = true});
	free(text);
}

/* Each is given once, or followed by its value. */
static void
read_options(int argc, char **argv)
{
	static const struct {
		const char *word;
		bool *given;
		const char **text;
		uint64_t *number;
	} known[] = {{"--list", .given = &options.list},
	    {"--trace", .given = &options.trace},
	    {"--help", .given = &options.help},
	    {"--program", .text = &options.name},
	    {"--replay", .text = &options.replay},
	    {"--memory", .text = &options.memory_name},
	    {"--generate", .number = &options.generate},
	    {"--schedules", .number = &options.schedules},
	    {"--seed", .number = &options.seed}};
	int at, i, m;

	for (at = 1; at < argc && !options.help; at++) {
		for (i = 0; i < 9 && strcmp(known[i].word, argv[at]) != 0;)
			i++;
		if (i < 3)
			*known[i].given = true;
		else if (i == 9 || ++at == argc)
			options.help = true;
		else if (known[i].text != NULL)
			*known[i].text = argv[at];
		else
			*known[i].number = strtoull(argv[at], NULL, 0);
	}
	for (m = 0; m < 3 && options.memory_name != NULL; m++) {
		if (strcmp(memories[m], options.memory_name) == 0)
			options.memory = m;
	}
	if (options.replay != NULL)
		options.schedules = 1;
	if (options.help ||
	    (options.memory < 0 && options.memory_name != NULL)) {
		(void)fputs(usage, stderr);
		exit(2);
	}
}

int
main(int argc, char **argv)
{
	read_options(argc, argv);
	sim_init();
	script_names = verb_names;
	purgatory_programs_init();
	checkout_programs_init();
	if (options.generate > 0) {
		run_generated();
	} else if (strchr(options.name, ';') != NULL) {
		run_scripts();
	} else if (run_named(true) == 0 && run_named(false) == 0) {
		(void)fprintf(stderr, "explore: no such program\n");
		return 2;
	}
	if (!options.list)
		printf("explore: ok: %llu programs, %llu schedules, "
		       "%llu points, %llu searches complete\n",
		    programs, schedules, points, complete);
	return 0;
}
