/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls that several systems have. Memory is mapped without reserving
 * swap: tables and arenas are mapped for the most that there can be, and cost
 * only what is touched.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sys/system.h"

#if !defined(MAP_NORESERVE) /* FreeBSD */
#define MAP_NORESERVE 0
#endif

void *
system_map(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

void
system_unmap(void *memory, size_t bytes)
{
	(void)munmap(memory, bytes);
}

#ifndef __linux__

/* No advice makes pages read as 0 there. A mapping in the place of another is
 * made in one step. */
bool
system_release(void *memory, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	return ((uintptr_t)memory | bytes) % page == 0 &&
	    mmap(memory, bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANON | MAP_FIXED, -1, 0) == memory;
}

/* A thread is as urgent there as the one that has made it. */
void
system_schedule_as_main(void)
{
}

const char *
system_environment(const char *name)
{
	return issetugid() ? NULL : getenv(name);
}

#endif
