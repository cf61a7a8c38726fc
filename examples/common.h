/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of the demo share: the names of the four limits, the clock,
 * and the command line. Figures are lines on stdout, "name value". */
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

/* What a client may not exceed. Each is a timeout of the server, and the name
 * of the attack that provokes it. */
enum limit {
	LIMIT_HEADER, /* first byte of a request to the end of its header */
	LIMIT_IDLE, /* end of a response, or accept, to the next request */
	LIMIT_READ, /* a response that the client does not read on */
	LIMIT_REQUEST, /* first byte of a request to its whole response */
	LIMITS
};

static inline const char *
limit_name(enum limit limit)
{
	static const char *const names[LIMITS] = {
	    "header", "idle", "read", "request"};

	return names[limit];
}

/* The clock of hwt's timers. */
static inline uint64_t
clock_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_SEC + (uint64_t)now.tv_nsec;
}

static inline void
print_figure(const char *name, uint64_t value)
{
	printf("%s %" PRIu64 "\n", name, value);
}

/* A whole number from the command line, at most max. */
static inline uint64_t
argument_number(const char *text, uint64_t max)
{
	char *end;
	unsigned long long value = strtoull(text, &end, 10);

	if (text[0] < '0' || text[0] > '9' || *end != '\0' || value > max) {
		fprintf(
		    stderr, "%s: want a number up to %" PRIu64 "\n", text, max);
		exit(2);
	}
	return value;
}

/* Ends the program with its usage: status 0 if --help asks for it, 2 if there
 * are not so many arguments. */
static inline void
arguments_are(const char *usage, int argc, char **argv, int count)
{
	int is_help = argc == 2 && strcmp(argv[1], "--help") == 0;

	if (argc == count && !is_help)
		return;
	fprintf(is_help ? stdout : stderr, "usage: %s\n", usage);
	exit(is_help ? 0 : 2);
}

#endif
