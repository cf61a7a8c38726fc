/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the dynamic linker's lock must not delay. It holds it while it runs
 * the constructors and destructors of a library: those of this file, built
 * with -DPLUGIN, call the functions below, which test the library of timers.
 * Each must come to its end; see test/check/observed.
 *
 *   plugin slow FILE   a destructor stops a timer whose task is slow
 *   plugin dump FILE   a destructor stops a timer that is being dumped
 *   plugin leaks FILE  a constructor makes timers while exit reports leaks
 */
#define _GNU_SOURCE
#include <hwt.h>

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void plugin_loaded(void);
void plugin_unloaded(void);

#ifdef PLUGIN

__attribute__((constructor)) static void
load(void)
{
	plugin_loaded();
}

__attribute__((destructor)) static void
unload(void)
{
	plugin_unloaded();
}

#else

static const char *what, *file;
static struct hwt *timer;
static atomic_bool task_runs, stops, exits, loads;

static void
must(int result)
{
	if (result != 0) {
		fprintf(stderr, "plugin: %d\n", result);
		_exit(1);
	}
}

static void
slow_task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	task_runs = true;
	while (!stops)
		usleep(1000);
	usleep(20000);
}

/* Until a call has the registry's lock and waits for the linker's. */
static void
make_timers(void)
{
	struct hwt *made;
	int i;

	for (i = 0; i < 200; i++) {
		must(hwt_create(&made, NULL));
		usleep(1000);
	}
}

void
plugin_loaded(void)
{
	if (strcmp(what, "leaks") != 0)
		return;
	loads = true;
	make_timers();
}

void
plugin_unloaded(void)
{
	if (strcmp(what, "leaks") == 0)
		return;
	stops = true;
	must(hwt_stop(timer, NULL));
}

static void *
open_plugin(void *unused)
{
	void *library = dlopen(file, RTLD_NOW);

	(void)unused;
	if (library == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		_exit(1);
	}
	return library;
}

static void *
dump_always(void *unused)
{
	FILE *nowhere = fopen("/dev/null", "we");

	while (nowhere != NULL && !stops) {
		(void)hwt_dump(timer, nowhere);
		task_runs = true;
	}
	return unused;
}

static void *
open_as_it_exits(void *unused)
{
	while (!exits)
		usleep(1000);
	return open_plugin(unused);
}

/* Before the library's. */
__attribute__((destructor)) static void
exit_begins(void)
{
	exits = true;
	while (what != NULL && strcmp(what, "leaks") == 0 && !loads)
		usleep(1000);
}

static void
start(void *(*run)(void *))
{
	pthread_t thread;

	must(pthread_create(&thread, NULL, run, NULL));
	must(pthread_detach(thread));
}

int
main(int argc, char **argv)
{
	struct hwt_options options = {
	    .tick_ns = HWT_MS(1), .slow_task_ns = HWT_MS(1)};
	void *library;
	int i;

	if (argc != 3)
		return 2;
	file = argv[2];
	what = argv[1];
	if (strcmp(what, "dump") == 0)
		options.flags = HWT_MANUAL;
	must(hwt_create(&timer, &options));
	if (strcmp(what, "leaks") == 0) {
		start(open_as_it_exits);
		return 0;
	}
	library = open_plugin(NULL);
	for (i = 0; i < (options.flags ? 2000 : 1); i++)
		must(hwt_new_timeout(timer, NULL, slow_task, NULL, HWT_MS(1)));
	if (options.flags)
		start(dump_always);
	while (!task_runs)
		usleep(1000);
	must(dlclose(library));
	return 0;
}

#endif
