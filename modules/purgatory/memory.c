/* SPDX-License-Identifier: Apache-2.0 */
/* Memory in whole pages, which can be released to the system and then read as
 * 0. The explorer has a model in its place. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include "operation.h"

#ifndef MAP_NORESERVE /* FreeBSD */
#define MAP_NORESERVE 0
#endif

size_t
memory_round(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) / page * page;
}

void *
memory_map(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

void
memory_unmap(void *memory, size_t bytes)
{
	(void)munmap(memory, bytes);
}

bool
memory_release(void *memory, size_t bytes)
{
#ifdef __linux__
	return madvise(memory, bytes, MADV_DONTNEED) == 0;
#else
	/* No advice makes pages read as 0 there: system_release. */
	return mmap(memory, bytes, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANON | MAP_FIXED, -1, 0) == memory;
#endif
}
