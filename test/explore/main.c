/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the programs.
 *
 * Each row of rows.c (and of the modules) is run in all orders by partial-order
 * reduction. If that does not end within its schedules, in those with at most
 * two preemptions, or as many as the program asks for; and if that does not end
 * either, in seeded random ones. One line per program and memory says how many
 * schedules there were and whether that was all.
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

static const struct program *const tables[] = {
    rows, purgatory_programs, checkout_programs, NULL};

static const char usage[] =
    "explore [OPTION...]\n"
    "\n"
    "  --program NAME     runs that one, or those whose name contains NAME\n"
    "  --program 'FIRST; RUN; LAST'   runs these scripts: see calls.c\n"
    "  --generate N       makes and runs N programs, from the seed\n"
    "  --schedules N      at most so many per search (0: until it ends)\n"
    "  --memory MODEL     sc, tso or pso; without it, those that matter\n"
    "  --seed N           of random searches and of generated programs\n"
    "  --replay SCHEDULE  runs one schedule, with --program and --memory\n"
    "  --trace            prints each point\n";

static struct {
	const char *name, *replay, *memory; /* NULL: not given */
	uint64_t schedules, seed, generate; /* UINT64_MAX: not given */
	bool trace;
} options = {.name = "", .schedules = UINT64_MAX, .seed = 20240229};

static const char *const memories[] = {"sc", "tso", "pso"};
static const char *const searches[] = {"reduced", "bounded", "random"};

static const struct program *running;
static enum explore_memory running_memory;
static struct explore_result result;
static unsigned long long programs, schedules, points, complete;

/* The linker's names for the section of all verbs. */
extern const struct verb *const __start_verbs[], *const __stop_verbs[];
struct verb library_verbs[256];

static void
collect_verbs(void)
{
	const struct verb *const *verb;
	struct verb *to = library_verbs;

	for (verb = __start_verbs; verb < __stop_verbs; verb++)
		*to++ = **verb;
}

static void
run_script(const char *script)
{
	script_run(
	    script, running->verbs != NULL ? running->verbs : library_verbs);
}

static void
begin(void)
{
	program_reset();
	run_script(running->first);
}

static void
thread_run(unsigned i)
{
	program_thread(i);
	run_script(script_part(running->run, i));
	sim_thread_ends();
}

static void
end(void)
{
	run_script(running->last);
	if (running->end != NULL)
		running->end();
	program_finish();
}

/* Runs the program, max times or as the options say. Whether it fails. */
static bool
search_fails(const struct program *program, enum explore_memory memory,
    enum explore_search kind, uint64_t max)
{
	struct explore_program explored = {
	    .begin = begin, .thread = thread_run, .end = end, .idle = sim_idle};
	struct explore_limits limits = {
	    .search = kind,
	    .memory = memory,
	    .preemptions = program->preemptions > 0 ? program->preemptions : 2,
	    .seed = options.seed,
	    .schedules_max =
		options.schedules != UINT64_MAX ? options.schedules : max,
	    .trace = options.trace,
	    .replay = options.replay,
	};

	running = program;
	running_memory = memory;
	while (script_part(program->run, explored.threads) != NULL)
		explored.threads++;
	explore_run(&explored, &limits, &result);
	schedules += result.schedules;
	points += result.points;
	return result.message != NULL;
}

static void
tell_failure(void)
{
	const char *memory = memories[running_memory];

	printf("\nexplore: FAILED: %s, %s: %s\n", running->name, memory,
	    result.message);
	printf("  schedule: %s\n", result.schedule);
	printf("  again:    build/explore/explore --memory %s --trace "
	       "--replay '%s' --program ",
	    memory, result.schedule);
	if (running->verbs == NULL)
		printf("'%s; %s; %s'\n", running->first, running->run,
		    running->last != NULL ? running->last : "");
	else
		printf("%s\n", running->name);
}

/* Whether it has ended. A part of the schedules for the search that seldom
 * ends, all for the one that may, and again a part for what lies beyond. */
static bool
run_search(const struct program *program, enum explore_memory memory,
    enum explore_search kind)
{
	uint64_t max = program->schedules > 0 ? program->schedules : SCHEDULES;

	if (search_fails(program, memory, kind,
		kind == EXPLORE_BOUNDED ? max : max / 4)) {
		tell_failure();
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
	unsigned memory;

	programs++;
	for (memory = EXPLORE_SC; memory <= EXPLORE_PSO; memory++) {
		if (options.memory != NULL
			? strcmp(options.memory, memories[memory]) != 0
			: memory == EXPLORE_PSO && !program->pso)
			continue;
		printf("%-36s %-3s", program->name, memories[memory]);
		if (!run_search(program, memory, EXPLORE_REDUCED) &&
		    !run_search(program, memory, EXPLORE_BOUNDED))
			(void)run_search(program, memory, EXPLORE_RANDOM);
		printf("\n");
	}
}

static bool
generated_fails(const struct program *program)
{
	return search_fails(
		   program, EXPLORE_SC, EXPLORE_BOUNDED, SCHEDULES_GENERATED) ||
	    search_fails(
		program, EXPLORE_SC, EXPLORE_RANDOM, SCHEDULES_GENERATED) ||
	    search_fails(
		program, EXPLORE_PSO, EXPLORE_RANDOM, SCHEDULES_GENERATED);
}

static void
run_generated(void)
{
	for (; programs < options.generate; programs++) {
		if (!generated_fails(generate(options.seed + programs)))
			continue;
		(void)generated_fails(shrink(generated_fails));
		tell_failure();
		printf("  a row:\n");
		print_row(running);
		exit(1);
	}
}

/* The one with that name or, if whole is false, those with it. */
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
			run_program(program);
		}
	}
	return count;
}

/* FIRST; RUN; LAST */
static void
run_scripts(void)
{
	char *first = strdup(options.name);
	char *run = strchr(first, ';');
	char *last = strchr(run + 1, ';');

	if (last == NULL)
		last = strchr(run, '\0');
	else
		*last++ = '\0';
	*run++ = '\0';
	run_program(&(struct program){.name = "program",
	    .first = first,
	    .run = run + strspn(run, " "),
	    .last = last + strspn(last, " "),
	    .pso = true});
	free(first);
}

static bool
read_option(const char *word, const char *value)
{
	static const struct {
		const char *word;
		const char **text;
		uint64_t *number;
	} known[] = {{"--program", .text = &options.name},
	    {"--replay", .text = &options.replay},
	    {"--memory", .text = &options.memory},
	    {"--generate", .number = &options.generate},
	    {"--schedules", .number = &options.schedules},
	    {"--seed", .number = &options.seed}};
	unsigned i = 0;

	while (i < 6 && strcmp(known[i].word, word) != 0)
		i++;
	if (i == 6 || value == NULL)
		return false;
	if (known[i].text != NULL)
		*known[i].text = value;
	else
		*known[i].number = strtoull(value, NULL, 0);
	return true;
}

int
main(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--trace") == 0) {
			options.trace = true;
		} else if (!read_option(argv[i], argv[i + 1])) {
			(void)fputs(usage, stderr);
			return 2;
		} else {
			i++;
		}
	}
	sim_init();
	collect_verbs();
	script_names = verb_names;
	purgatory_programs_init();
	checkout_programs_init();
	if (options.generate > 0)
		run_generated();
	else if (strchr(options.name, ';') != NULL)
		run_scripts();
	else if (run_named(true) == 0)
		(void)run_named(false);
	if (schedules == 0) {
		(void)fprintf(stderr, "explore: no such program or memory\n");
		return 2;
	}
	printf("explore: ok: %llu programs, %llu schedules, "
	       "%llu points, %llu searches complete\n",
	    programs, schedules, points, complete);
	return 0;
}
