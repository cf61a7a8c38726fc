/* SPDX-License-Identifier: Apache-2.0 */
/*
 * init SCALE: the first process of the machine of make check-smp. Runs all
 * programs in /stress with that scale, one after the other, says on the console
 * what came of each, and turns the machine off. test/check/run_smp reads
 *
 *   smp: machine: N processors[, LSE]
 *   smp: PROGRAM: ended with STATUS after S s
 *   smp: all ended: N
 *
 * As any process but the first it ends with 3 at once: a program that fails.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FOLDER "/stress"
#define ATOMICS (1u << 8) /* aarch64, AT_HWCAP: has LSE */

static int
is_program(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* Its exit status, or 128 and the number of the signal that has ended it. */
static int
run(const char *name, char *scale)
{
	char path[PATH_MAX];
	char *arguments[] = {path, scale, NULL};
	int status = 0;
	pid_t child;

	snprintf(path, sizeof(path), FOLDER "/%s", name);
	child = fork();
	if (child == 0) {
		execv(path, arguments);
		perror(path);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return 126;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* On the line where a program may have left the console. */
static void
run_all(char *scale)
{
	struct dirent **programs;
	int count = scandir(FOLDER, &programs, is_program, alphasort);

	for (int i = 0; i < count; i++) {
		time_t begin = time(NULL);
		int status = run(programs[i]->d_name, scale);

		printf("\nsmp: %s: ended with %d after %ld s\n",
		    programs[i]->d_name, status, (long)(time(NULL) - begin));
	}
	printf("\nsmp: all ended: %d\n", count);
}

int
main(int argc, char **argv)
{
	if (getpid() != 1 || argc < 2)
		return 3;
	setvbuf(stdout, NULL, _IOLBF, 0);
	mkdir("/proc", 0755);
	mkdir("/dev", 0755);
	mkdir("/tmp", 01777);
	if (mount("proc", "/proc", "proc", 0, NULL) != 0)
		perror("/proc");
	printf("\nsmp: machine: %ld processors%s\n",
	    sysconf(_SC_NPROCESSORS_ONLN),
	    getauxval(AT_HWCAP) & ATOMICS ? ", LSE" : "");
	run_all(argv[argc - 1]);
	sync();
	reboot(RB_POWER_OFF);
	return 1;
}
