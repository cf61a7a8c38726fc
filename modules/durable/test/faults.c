/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults.so, preloaded into a server: the clock and the disk as a test wants
 * them. HWT_FAULTS names a file of four 64-bit numbers that the test changes at
 * any time: ns that are added to the wall clock, errno values with which writes
 * and syncs of files fail (0: they do not), and ns for which a thread stands
 * still before each third reading of the wall clock.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)

static const struct faults {
	_Atomic int64_t wall_ns, write_error, sync_error, stall_ns;
} * faults;

__attribute__((constructor)) static void
faults_begin(void)
{
	const char *path = getenv("HWT_FAULTS");
	int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *at;

	if (fd < 0)
		return;
	at = mmap(NULL, sizeof(*faults), PROT_READ, MAP_SHARED, fd, 0);
	(void)close(fd);
	if (at != MAP_FAILED)
		faults = at;
}

int
clock_gettime(clockid_t id, struct timespec *at)
{
	static atomic_uint calls;
	struct timespec stall = {0};
	long error;
	int64_t ns;

	if (faults != NULL && id == CLOCK_REALTIME &&
	    atomic_fetch_add(&calls, 1) % 3 == 0)
		stall.tv_nsec = faults->stall_ns;
	if (stall.tv_nsec != 0)
		(void)syscall(SYS_nanosleep, &stall, NULL);
	error = syscall(SYS_clock_gettime, id, at);

	if (error != 0 || faults == NULL || id != CLOCK_REALTIME)
		return (int)error;
	ns = at->tv_sec * SECOND + at->tv_nsec + faults->wall_ns;
	*at = (struct timespec){ns / SECOND, ns % SECOND};
	return 0;
}

static int
fails(int64_t error)
{
	if (error != 0)
		errno = (int)error;
	return error != 0;
}

ssize_t
pwrite64(int fd, const void *bytes, size_t length, off64_t offset)
{
	if (faults != NULL && fails(faults->write_error))
		return -1;
	return syscall(SYS_pwrite64, fd, bytes, length, offset);
}

int
fdatasync(int fd)
{
	if (faults != NULL && fails(faults->sync_error))
		return -1;
	return (int)syscall(SYS_fdatasync, fd);
}

int
fsync(int fd)
{
	if (faults != NULL && fails(faults->sync_error))
		return -1;
	return (int)syscall(SYS_fsync, fd);
}
