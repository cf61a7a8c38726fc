/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plugin that contains the static library is unloaded, in this process and in
 * a forked child, while threads live that have used its timers: when they end,
 * they must not call what is gone. Its memory is gone with it, the page that
 * the kernel wipes in a child, too. With -DPLUGIN, this is the plugin.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
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
	assert(0);
}

/* One thread makes the timer and ends it; others use it between. */
__attribute__((visibility("default"))) int
plugin_use(int step)
{
	hwt_timeout timeout;

	if (step == 0)
		return hwt_create(&timer, NULL);
	if (step == 2)
		return hwt_stop(timer, NULL) || hwt_destroy(timer);
	return hwt_new_timeout(timer, &timeout, never, NULL, HWT_SEC(60)) ||
	    hwt_cancel(timer, timeout);
}

#else

#define THREADS 4

static pthread_barrier_t used, unloaded;
static int (*use)(int step);

static void *
use_and_stay(void *unused)
{
	assert(use(1) == 0);
	pthread_barrier_wait(&used);
	pthread_barrier_wait(&unloaded);
	return unused;
}

/* The child is one thread, and ends with status 0 when that does. */
static void *
unload_in_a_child(void *plugin)
{
	int status;
	pid_t child;

	assert(use(1) == 0);
	child = fork();
	if (child == 0) {
		assert(dlclose(plugin) == 0);
		return NULL;
	}
	assert(waitpid(child, &status, 0) == child && status == 0);
	return NULL;
}

/* Mappings of this process that are wiped in a child. */
static int
wiped_mappings(void)
{
	FILE *maps = fopen("/proc/self/smaps", "re");
	char line[4096];
	int count = 0;

	assert(maps != NULL);
	while (fgets(line, sizeof(line), maps) != NULL)
		count += strncmp(line, "VmFlags:", 8) == 0 &&
		    strstr(line, " wf") != NULL;
	fclose(maps);
	return count;
}

int
main(int argc, char **argv)
{
	pthread_t thread[THREADS];
	void *plugin;
	int i, wiped;

	assert(argc == 2);
	wiped = wiped_mappings();
	pthread_barrier_init(&used, NULL, THREADS + 1);
	pthread_barrier_init(&unloaded, NULL, THREADS + 1);
	plugin = dlopen(argv[1], RTLD_NOW);
	assert(plugin != NULL);
	*(void **)&use = dlsym(plugin, "plugin_use");
	assert(use != NULL && use(0) == 0);
	pthread_create(&thread[0], NULL, unload_in_a_child, plugin);
	pthread_join(thread[0], NULL);
	for (i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, use_and_stay, NULL);
	pthread_barrier_wait(&used);
	assert(use(2) == 0 && dlclose(plugin) == 0);
	assert(dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) == NULL);
	assert(wiped_mappings() == wiped);
	pthread_barrier_wait(&unloaded);
	for (i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	return 0;
}

#endif
