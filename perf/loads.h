/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What touch, burst and rounds share beyond perf.h: the memory that there is,
 * and the CPU of the other threads.
 */
#ifndef LOADS_H
#define LOADS_H

#include "perf/perf.h"

/* User and system time of all threads but the calling one. */
static inline uint64_t
loads_others_cpu_ns(void)
{
	uint64_t own_ns = perf_clock_ns(CLOCK_THREAD_CPUTIME_ID);

	return perf_cpu_ns() - own_ns;
}

static inline uint64_t
loads_available_bytes(void)
{
	FILE *info = fopen("/proc/meminfo", "r");
	unsigned long long kib = 0;
	char line[128];

	perf_must(info, "reading /proc/meminfo");
	while (fgets(line, sizeof(line), info))
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
			break;
	fclose(info);
	return kib * 1024;
}

/* Leaves the round out where its timeouts would not fit. */
static inline void
loads_need_memory(uint64_t timeouts, uint64_t bytes_each)
{
	uint64_t needed = timeouts * bytes_each + (UINT64_C(64) << 20);

	if (loads_available_bytes() < needed)
		perf_skip("%" PRIu64 " timeouts may take %" PRIu64
			  " MiB, and there is less memory available",
		    timeouts, needed >> 20);
}

#endif
