/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the programs of the demo: the limits, the clock, and the command
 * line. Figures are lines on stdout, "name value". */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_SEC UINT64_C(1000000000)

/* Limits of a client. Each is a timeout of the server, and the name
 * of the attack that provokes it. */
enum limit {
	LIMIT_HEADER, /* first byte of a request to the end of its header */
	LIMIT_IDLE, /* end of a response, or accept, to the next request */
	LIMIT_READ, /* a response that the client does not read on */
	LIMITS
};

static const struct {
	const char *name;
	uint64_t ns;
} limits[LIMITS] __attribute__((unused)) = {{"header", 1500 * NS_PER_MS},
    {"idle", 2000 * NS_PER_MS}, {"read", 1000 * NS_PER_MS}};

/* The clock of hwt's timers. */
static inline uint64_t
clock_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_SEC + (uint64_t)now.tv_nsec;
}

static inline void
fail(const char *text, int error)
{
	fprintf(stderr, "%s: %s\n", text, strerror(error));
	exit(1);
}

static inline void
print_figure(const char *name, uint64_t value)
{
	printf("%s %" PRIu64 "\n", name, value);
}

/* The only argument, a number from min to max; otherwise the program ends. */
static inline uint64_t
argument_number(int argc, char **argv, uint64_t min, uint64_t max)
{
	char *end = NULL;
	uint64_t value = argc == 2 ? strtoull(argv[1], &end, 10) : 0;

	if (end != NULL && *end == '\0' && value >= min && value <= max)
		return value;
	fprintf(stderr, "usage: %s NUMBER, from %" PRIu64 " to %" PRIu64 "\n",
	    argv[0], min, max);
	exit(2);
}

#endif
