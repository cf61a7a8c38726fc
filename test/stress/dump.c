/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_dump and hwt_state while other threads use records again and again, each
 * use with another task, arg and period. ThreadSanitizer judges the accesses;
 * the text may show no use that never was: task, arg and period are those of
 * one call.
 */
#include "stress.h"

enum {
	THREADS = 3,
	LIVE = 64,
	DUMPS = 400
};

static struct hwt *timer;
static _Atomic bool stop;
static _Atomic uint64_t calls;

static void
once(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
}

static void
again(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
}

/* Each kind has its own task, arg and period. */
static int
use(hwt_timeout *timeout, uint64_t *random)
{
	uint64_t delay_ns = HWT_MS(random_below(random, 50));

	(void)!hwt_cancel(timer, *timeout);
	if (random_below(random, 2) == 0)
		return hwt_new_timeout(
		    timer, timeout, once, (void *)0x111, delay_ns);
	return hwt_new_periodic(
	    timer, NULL, timeout, again, (void *)0x222, delay_ns, 77000000);
}

static void *
caller(void *arg)
{
	uint64_t random = random_seed((uintptr_t)arg);
	hwt_timeout timeouts[LIVE] = {{0}};
	void *seen;
	unsigned i;

	for (i = 0; !stop; i = (i + 1) % LIVE) {
		stress_must(!use(&timeouts[i], &random), "use");
		if (hwt_state(timer, timeouts[i], &seen) > 0)
			stress_check(
			    seen == (void *)0x111 || seen == (void *)0x222,
			    "hwt_state: %p", seen);
		calls++;
	}
	for (i = 0; i < LIVE; i++)
		(void)!hwt_cancel(timer, timeouts[i]);
	return NULL;
}

/* The task of a kind, as the first line about one has it. */
static char tasks[2][192];
static uint64_t lines;

static void
judge_line(const char *line)
{
	const char *task = strstr(line, " task ");
	const char *arg = task != NULL ? strstr(task, " arg 0x") : NULL;
	bool periodic = strstr(line, " period 77000000 ns") != NULL;
	char name[192];

	if (task == NULL)
		return;
	stress_must(arg != NULL, "%s", line);
	stress_check(strcmp(arg, periodic ? " arg 0x222" : " arg 0x111") == 0,
	    "another's arg: %s", line);
	snprintf(name, sizeof(name), "%.*s", (int)(arg - task), task);
	if (tasks[periodic][0] == '\0')
		strcpy(tasks[periodic], name);
	stress_check(
	    strcmp(tasks[periodic], name) == 0, "another's task: %s", line);
	lines++;
}

static void
dump(void)
{
	char *text = NULL, *line, *next;
	size_t size = 0;
	FILE *file = open_memstream(&text, &size);

	stress_must(file != NULL, "open_memstream");
	stress_must(!hwt_dump(timer, file), "hwt_dump");
	fclose(file);
	for (line = strtok_r(text, "\n", &next); line != NULL;
	     line = strtok_r(NULL, "\n", &next))
		judge_line(line);
	free(text);
}

int
main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	uintptr_t i;

	stress_begin("dump", argc, argv);
	timer = timer_create_ns(HWT_MS(1), 64, HWT_MANUAL);
	for (i = 0; i < THREADS; i++)
		threads[i] = stress_thread(caller, (void *)(i + 1));
	/* Both kinds are there from now on. */
	while (calls < (uint64_t)THREADS * LIVE)
		stress_sleep_ns(HWT_MS(1));
	for (i = 0; i < stress_scaled(DUMPS); i++) {
		stress_phase("dump", i);
		stress_must(!hwt_advance(timer, NULL), "hwt_advance");
		dump();
	}
	stop = true;
	for (i = 0; i < THREADS; i++)
		stress_join(threads[i]);
	stress_check(strcmp(tasks[0], tasks[1]) != 0, "one task for both");
	stress_check(!hwt_stop(timer, NULL), "hwt_stop");
	stress_check(!hwt_destroy(timer), "hwt_destroy");
	return stress_end("%" PRIu64 " lines, %" PRIu64 " calls", lines, calls);
}
