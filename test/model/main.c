/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model: random operations on manual timers against a model, while calls of the
 * system fail; and short scenarios with each call of the system failing. See
 * model.h.
 *
 *   model [--steps N] [--seed S]    so many, of one seed; a million by default
 *   model --sweep [SCENARIO]        see sweep.c
 *
 * A failure prints the command that repeats it. Compiled with HWT_FUZZ, this is
 * a function for libFuzzer, whose bytes are the choices.
 */
#include "test/model/model.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>

static struct model_options run = {.seed = 1,
    .steps = 1000000,
    .inside = 1,
    .threads = true,
    .failures = true};

/* A thread that has used no timer before, so that the run repeats itself. */
static void *
run_thread(void *unused)
{
	model_run(&run);
	return unused;
}

static void
run_in_thread(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, run_thread, NULL) != 0)
		model_failed("no thread for a run");
	(void)pthread_join(thread, NULL);
}

#ifdef HWT_FUZZ

static void
abort_with(const char *text)
{
	fprintf(stderr, "FAILED: %s\n", text);
	abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	run = (struct model_options){.bytes = data,
	    .size = size,
	    .steps = 600,
	    .inside = 8,
	    .failures = true};
	model_failed = abort_with;
	if (size > 0)
		run_in_thread();
	return 0;
}

#else

static void
failed(const char *text)
{
	printf("FAILED: %s\n", text);
	(void)fflush(stdout);
	_Exit(1);
}

static int
run_random(void)
{
	model_failed = failed;
	/* Before it can crash. */
	printf("repeat: model --seed %" PRIu64 " --steps %" PRIu64 "\n",
	    run.seed, run.steps);
	(void)fflush(stdout);
	run_in_thread();
	printf("model: seed %" PRIu64 ", %" PRIu64 " steps, %" PRIu64
	       " calls compared, %" PRIu64 " looks inside, %" PRIu64
	       " failures of the system\n",
	    run.seed, run.steps, calls_compared, checker_checks(),
	    plan_failures());
	checker_close();
	return 0;
}

int
main(int argc, char **argv)
{
	static const struct option names[] = {{"steps", 1, NULL, 'n'},
	    {"seed", 1, NULL, 's'}, {NULL, 0, NULL, 0}};
	int name;

	if (argc > 1 && strcmp(argv[1], "--sweep") == 0)
		return sweep_main(argc - 2, argv + 2);
	while ((name = getopt_long(argc, argv, "", names, NULL)) != -1) {
		if (name == 'n')
			run.steps = strtoull(optarg, NULL, 0);
		else if (name == 's')
			run.seed = strtoull(optarg, NULL, 0);
		else
			optind = argc + 1;
	}
	if (optind == argc)
		return run_random();
	fprintf(stderr,
	    "usage: model [--steps N] [--seed S] | --sweep [SCENARIO]\n");
	return 2;
}

#endif
