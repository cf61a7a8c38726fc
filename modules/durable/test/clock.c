/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock.so, preloaded into an engine: its real-time clock is what the file says
 * that HWT_CLOCK_FILE names. The file has two 64-bit numbers that a test
 * changes at any time: a mode, and microseconds. Mode 0: they are added to the
 * clock. Mode 1: they are the clock, which stands still. Other clocks are left
 * alone.
 *
 * Only calls of the system are used, for an allocator may ask for the time
 * before anything else is ready.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct clock_file {
	_Atomic int64_t mode, us;
};

static const struct clock_file *
clock_map(void)
{
	static const struct clock_file *_Atomic map;
	const struct clock_file *found = atomic_load(&map);
	const char *path;
	void *at;
	int file;

	if (found || !(path = getenv("HWT_CLOCK_FILE")))
		return found;
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		abort();
	at = mmap(NULL, sizeof(*found), PROT_READ, MAP_SHARED, file, 0);
	if (at == MAP_FAILED)
		abort();
	close(file);
	atomic_store(&map, at);
	return at;
}

static int64_t
clock_us(void)
{
	const struct clock_file *file = clock_map();
	struct timespec time;
	int64_t us;

	us = file ? atomic_load(&file->us) : 0;
	if (file && atomic_load(&file->mode) == 1)
		return us;
	syscall(SYS_clock_gettime, CLOCK_REALTIME, &time);
	return us + time.tv_sec * INT64_C(1000000) + time.tv_nsec / 1000;
}

int
clock_gettime(clockid_t id, struct timespec *time)
{
	int64_t us;

	if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)
		return (int)syscall(SYS_clock_gettime, id, time);
	us = clock_us();
	time->tv_sec = us / 1000000;
	time->tv_nsec = us % 1000000 * 1000;
	return 0;
}

int
gettimeofday(struct timeval *restrict time, void *restrict zone)
{
	int64_t us = clock_us();

	(void)zone;
	time->tv_sec = us / 1000000;
	time->tv_usec = us % 1000000;
	return 0;
}

time_t
time(time_t *into)
{
	time_t seconds = clock_us() / 1000000;

	if (into)
		*into = seconds;
	return seconds;
}
