/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plugin that contains the static library is unloaded. Threads that have used
 * its timers end only after that: they must not call what is not there any
 * more. Nor must a thread that forks: in its child, the plugin is unloaded
 * while the parent's timer runs. With -DPLUGIN, this is the plugin.
 *
 *   unloaded FILE  loads the plugin three times
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef PLUGIN

#include <hwt.h>

int plugin_use(int step);

static struct hwt *timer;

static void
never(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	(void)arg;
	abort();
}

/* One thread makes the timer and ends it; others use it between. */
__attribute__((visibility("default"))) int
plugin_use(int step)
{
	hwt_timeout timeout;
	int error = 0;

	if (step == 0)
		return hwt_create(&timer, NULL);
	if (step == 2) {
		error = hwt_stop(timer, NULL);
		return error != 0 ? error : hwt_destroy(timer);
	}
	error = hwt_new_timeout(timer, &timeout, never, NULL, HWT_SEC(60));
	return error != 0 ? error : hwt_cancel(timer, timeout);
}

#else

#define THREADS 4

static pthread_barrier_t used, unloaded;
static int (*use)(int step);

static void
must(int held, const char *what)
{
	if (held)
		return;
	fprintf(stderr, "unloaded: %s\n", what);
	exit(1);
}

static void *
use_and_stay(void *unused)
{
	must(use(1) == 0, "no timeout");
	pthread_barrier_wait(&used);
	pthread_barrier_wait(&unloaded);
	return unused;
}

/* The child is one thread, and ends with status 0 when that does. */
static void *
unload_in_a_child(void *plugin)
{
	int status = -1;
	pid_t child;

	must(use(1) == 0, "no timeout");
	child = fork();
	if (child == 0) {
		must(dlclose(plugin) == 0, "dlclose in a child");
		return NULL;
	}
	must(child > 0 && waitpid(child, &status, 0) == child && status == 0,
	    "a child fails");
	return NULL;
}

static void
load_and_unload(const char *file)
{
	pthread_t thread[THREADS];
	void *plugin = dlopen(file, RTLD_NOW);
	int i;

	must(plugin != NULL, file);
	*(void **)&use = dlsym(plugin, "plugin_use");
	must(use != NULL && use(0) == 0, "no timer");
	must(pthread_create(&thread[0], NULL, unload_in_a_child, plugin) == 0,
	    "no thread");
	pthread_join(thread[0], NULL);
	for (i = 0; i < THREADS; i++)
		must(pthread_create(&thread[i], NULL, use_and_stay, NULL) == 0,
		    "no thread");
	pthread_barrier_wait(&used);
	must(use(2) == 0, "the timer stays");
	must(dlclose(plugin) == 0, "dlclose");
	must(dlopen(file, RTLD_NOW | RTLD_NOLOAD) == NULL,
	    "the plugin is still there");
	pthread_barrier_wait(&unloaded);
	for (i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
}

int
main(int argc, char **argv)
{
	int turn;

	must(argc == 2, "which plugin?");
	pthread_barrier_init(&used, NULL, THREADS + 1);
	pthread_barrier_init(&unloaded, NULL, THREADS + 1);
	for (turn = 0; turn < 3; turn++)
		load_and_unload(argv[1]);
	return 0;
}

#endif
