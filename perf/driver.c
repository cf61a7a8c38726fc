/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver: one round of one workload for one subject.
 *
 *   build/plain/perf/SUBJECT WORKLOAD [NAME=VALUE]...
 *   build/plain/perf/SUBJECT about
 *
 * The options and the method of a workload are at the top of its header. See
 * perf/perf.h for the output, perf/subject.h for subjects, and perf/cases for
 * what make perf measures.
 */
#define _GNU_SOURCE
#include "perf/burst.h"
#include "perf/calls.h"
#include "perf/idle.h"
#include "perf/memory.h"
#ifdef PERF_DEADLINE
#include "perf/deadline.h"
#endif

static const struct {
	const char *name;
	void (*run)(uint64_t seed);
} workloads[] = {
    {"pair", pair},
    {"touch", touch},
    {"flood", flood},
    {"burst", burst},
    {"rounds", rounds},
    {"idle", idle},
    {"memory", memory},
#ifdef PERF_DEADLINE
    {"deadline", deadline},
#endif
};

int
main(int argc, char **argv)
{
	int own = argc > 1 && strcmp(argv[1], "about") != 0;
	uint64_t seed = perf_begin(argc - own, argv + own, subject_version());
	unsigned i;

	for (i = 0; argc > 1 && i < sizeof(workloads) / sizeof(workloads[0]);
	     i++) {
		if (strcmp(argv[1], workloads[i].name) != 0)
			continue;
		workloads[i].run(seed);
		return 0;
	}
	perf_skip("no such workload");
}
