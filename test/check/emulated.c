/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What test programs for another machine need in order to run under qemu-user.
 *
 * EXECUTING ITSELF. Criterion starts each test in a fresh process by executing
 * the test program, and so do some tests themselves. The kernel knows nothing
 * of the emulator, unless binfmt_misc was told, which takes rights that a
 * container does not have. So the program defines execve and execv itself: what
 * is executed is the emulator, with the program for an argument. Any program is
 * taken for one of that machine. EMULATOR and SYSROOT come from the Makefile,
 * and not from the environment, which a caller of execve may replace.
 *
 * MADV_WIPEONFORK. qemu 7.2 answers that it was done, and does nothing. So
 * madvise says here that there is no such thing, as an old kernel would, and
 * the library takes its other way to notice a fork.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARGUMENTS_MAX 64
#define OURS 6 /* arguments before the program's own */

__attribute__((visibility("default"))) int
execve(const char *path, char *const argv[], char *const envp[])
{
	char program[PATH_MAX] = {0};
	const char *with[OURS + ARGUMENTS_MAX] = {
	    EMULATOR, "-L", SYSROOT, "-0", argv[0], program};
	/* /proc/self/exe is a name for the emulator in the new process. */
	ssize_t length = readlink(path, program, sizeof(program) - 1);
	size_t i;

	if (length < 0)
		with[OURS - 1] = path;
	for (i = 1; argv[i] != NULL; i++) {
		if (i == ARGUMENTS_MAX) {
			errno = E2BIG;
			return -1;
		}
		with[OURS + i - 1] = argv[i];
	}
	return (int)syscall(SYS_execve, EMULATOR, with, envp);
}

/* The C library's own execv would not call our execve. */
__attribute__((visibility("default"))) int
execv(const char *path, char *const argv[])
{
	return execve(path, argv, environ);
}

__attribute__((visibility("default"))) int
madvise(void *memory, size_t bytes, int advice)
{
	if (advice == MADV_WIPEONFORK) {
		errno = EINVAL;
		return -1;
	}
	return (int)syscall(SYS_madvise, memory, bytes, advice);
}
