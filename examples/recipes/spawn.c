/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program from a task. The worker and the threads of a pool block almost all
 * signals, and a program inherits what the thread blocks that starts it: one
 * that is started by system or popen cannot be ended by SIGTERM. This one is
 * started without blocked signals.
 */
#include <errno.h>
#include <hwt.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include "../must.h"

static pid_t pid;
static sem_t started;

static void
start_program(hwt_timeout timeout, void *arg)
{
	char *const *command = arg;
	char *const environment[] = {NULL};
	posix_spawnattr_t attributes;
	sigset_t none;

	(void)timeout;
	sigemptyset(&none);
	must(posix_spawnattr_init(&attributes) == 0);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	must(posix_spawn(&pid, command[0], NULL, &attributes, command,
		 environment) == 0);
	posix_spawnattr_destroy(&attributes);
	sem_post(&started);
}

int
main(void)
{
	char program[] = "/bin/sleep", seconds[] = "60";
	char *command[] = {program, seconds, NULL};
	struct hwt *timer;
	int status;

	sem_init(&started, 0, 0);
	must(hwt_create(&timer, NULL) == 0);
	must(hwt_new_timeout(timer, NULL, start_program, command, 0) == 0);
	while (sem_wait(&started) != 0)
		must(errno == EINTR);
	must(kill(pid, SIGTERM) == 0);
	must(waitpid(pid, &status, 0) == pid);
	must(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	must(hwt_stop(timer, NULL) == 0 && hwt_destroy(timer) == 0);
	printf("SIGTERM has ended a program that a task had started\n");
	return 0;
}
