/* SPDX-License-Identifier: Apache-2.0 */
/* The disturbers of a storm: see storm.h. */
#define _GNU_SOURCE
#include "storm.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* Threads that come and go. They leave their records to others, some of them
 * from a destructor of thread-specific data, when the library's has run. */

static pthread_key_t last_words;

static void
say_last_words(void *salt)
{
	static _Thread_local bool said;
	uint64_t random = (uintptr_t)salt;
	struct item *item = item_any(&random);

	(void)act_produce(&random);
	if (item != NULL)
		act_cancel(item, false);
	if (!said)
		(void)pthread_setspecific(last_words, salt);
	said = true;
}

static void *
brief_thread(void *salt)
{
	uint64_t random = random_seed((uintptr_t)salt);
	unsigned acts;

	for (acts = 0; acts < 16; acts++) {
		struct item *item = item_any(&random);

		if (acts % 2 == 0)
			(void)act_produce(&random);
		else if (item != NULL)
			act_cancel(item, false);
	}
	if (random_below(&random, 4) == 0)
		(void)pthread_setspecific(last_words, (char *)salt + 1);
	return NULL;
}

static void
make_key(void)
{
	stress_must(!pthread_key_create(&last_words, say_last_words),
	    "pthread_key_create");
}

void *
disturber_threads(void *salt)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	uintptr_t number = (uintptr_t)salt;

	(void)pthread_once(&once, make_key);
	while (!atomic_load_explicit(&round_.quit, memory_order_relaxed))
		stress_join(
		    stress_thread(brief_thread, (void *)(number += 64)));
	return NULL;
}

/* Signals, at each thread of the process, whose handlers do not
 * restart what they interrupt. The library's threads block all of these but
 * SIGPROF. The handler of SIGPROF holds its thread for a while, wherever that
 * is. */

static atomic_bool signals_quit;
static atomic_uint strays, handled;
static pthread_t sender;

static bool
is_of_library(void)
{
	char name[16] = "";

	(void)prctl(PR_GET_NAME, name, 0, 0, 0);
	return strncmp(name, "hwt-", 4) == 0;
}

static void
handle(int signal)
{
	int saved = errno;
	uint64_t random = stress_now_ns();

	atomic_fetch_add(&handled, 1);
	if (signal != SIGPROF && is_of_library())
		atomic_fetch_add(&strays, 1);
	if (signal == SIGPROF && random % 4 == 0)
		stress_spin(random_below(&random, 100000));
	errno = saved;
}

/* A thread may be gone since it was found. */
static void *
sender_thread(void *arg)
{
	static const int signals[] = {SIGUSR1, SIGUSR2, SIGPROF, SIGPROF};
	uint64_t random = random_seed(1000);
	struct dirent *entry;
	DIR *folder = arg;
	pid_t thread;

	while (!atomic_load(&signals_quit)) {
		rewinddir(folder);
		while ((entry = readdir(folder))) {
			thread = (pid_t)strtol(entry->d_name, NULL, 10);
			if (thread > 0)
				(void)syscall(SYS_tgkill, getpid(), thread,
				    signals[random_below(&random, 4)]);
			stress_spin(random_below(&random, 20000));
		}
	}
	closedir(folder);
	return NULL;
}

void
signals_start(void)
{
	static const int signals[] = {SIGUSR1, SIGUSR2, SIGPROF};
	struct sigaction action = {.sa_handler = handle};
	DIR *folder;
	unsigned i;

	for (i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		stress_must(!sigaction(signals[i], &action, NULL), "sigaction");
	folder = opendir("/proc/self/task");
	stress_must(folder, "/proc/self/task: %s", strerror(errno));
	sender = stress_thread(sender_thread, folder);
}

void
signals_stop(void)
{
	atomic_store(&signals_quit, true);
	stress_join(sender);
	stress_check(handled, "no signal was handled");
	stress_check(!strays,
	    "%u signals were handled in the library's threads", strays);
}

void
sigstop_begin(void)
{
	uint64_t random = random_seed(7);
	pid_t child = fork();
	int status;

	stress_must(child >= 0, "fork: %s", strerror(errno));
	if (child == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		return;
	}
	while (waitpid(child, &status, WNOHANG) == 0) {
		stress_sleep_ns(random_below(&random, HWT_MS(300)));
		(void)kill(child, SIGSTOP);
		stress_sleep_ns(random_below(&random,
		    random_below(&random, 8) ? HWT_MS(30) : HWT_MS(1000)));
		(void)kill(child, SIGCONT);
	}
	exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}
