/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes turned into calls, for libFuzzer: a run of the model whose choices the
 * bytes make. One input is the lives of two manual timers, with the same
 * operations, comparisons and looks inside as those of test/random/random.h.
 *
 *   fuzz.c     the target
 *   replay.c   a main without libFuzzer: runs the files that it is given
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

#include "test/random/random.h"

#define STEPS_MAX 600
#define LOOK_EVERY 8

static void
say_calls(void)
{
	fprintf(stderr, "calls: %" PRIu64 "\n", cover_calls());
}

static void
failed(const char *text)
{
	fprintf(stderr, "FAILED: %s\n", text);
	abort();
}

static void *
one_input(void *options)
{
	random_run(options);
	return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A thread keeps something for the timers that it has used: with one of its
 * own, an input does the same each time. */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct random_options options = {.bytes = data,
	    .size = size,
	    .steps = STEPS_MAX,
	    .inside = LOOK_EVERY};
	pthread_t thread;

	if (random_failed == NULL)
		(void)atexit(say_calls);
	random_failed = failed;
	if (size == 0 ||
	    pthread_create(&thread, NULL, one_input, &options) != 0)
		return 0;
	(void)pthread_join(thread, NULL);
	return 0;
}
