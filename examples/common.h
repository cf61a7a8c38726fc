/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the server, the hostile clients and the driver of the demo share: the
 * names of the four limits, the clock, and the form in which a program tells
 * its figures: lines on stdout, "name value", value a whole number.
 */
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

/* What a client may not exceed. Each is a timeout on the server, and the name
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

/* The clock of hwt's timers, so that readings can be compared. */
static inline uint64_t
clock_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_SEC + (uint64_t)now.tv_nsec;
}

/* "group.name value", or "name value" when group is NULL. */
static inline void
report(const char *group, const char *name, int64_t value)
{
	printf("%s%s%s %" PRId64 "\n", group != NULL ? group : "",
	    group != NULL ? "." : "", name, value);
}

/* A whole number from the command line, at most max; ends the program when
 * text is none. */
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

/* Ends the program with its usage: status 0 if --help asks for it, 2 if the
 * command line makes no sense. */
_Noreturn static inline void
usage_tell(const char *usage, int status)
{
	fprintf(status == 0 ? stdout : stderr, "usage: %s\n", usage);
	exit(status);
}

/* To be called first. */
static inline void
usage_if_asked(const char *usage, int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--help") == 0)
		usage_tell(usage, 0);
}

#endif
