/* SPDX-License-Identifier: Apache-2.0 */
/* What hwtctl, hwt-exec and hwt-http share. */
#ifndef HWT_DURABLE_PROGRAMS_OPTIONS_H
#define HWT_DURABLE_PROGRAMS_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "modules/durable/hwt_durable.h"

/* Exit statuses. */
enum {
	STATUS_NO = 1, /* some task is not there, or not as it must be */
	STATUS_USAGE = 2, /* nothing was sent */
	STATUS_SERVER = 3 /* the server was not reached, or refused */
};

/* In a table of getopt_long, before the program's own, which are letters of
 * lower case. */
#define OPTIONS_SHARED                                       \
	{"server", required_argument, NULL, 'S'},            \
	    {"space", required_argument, NULL, 'N'},         \
	    {"user", required_argument, NULL, 'U'},          \
	    {"password-file", required_argument, NULL, 'P'}, \
	    {"timeout", required_argument, NULL, 'T'},       \
	    {"version", no_argument, NULL, 'V'},             \
	{                                                    \
		"help", no_argument, NULL, 'H'               \
	}

#define USAGE_SHARED                                                        \
	"  --server SERVER        HOST:PORT (127.0.0.1:7379), unix:PATH,\n" \
	"                         sentinel:..., cluster:... or file:DIR\n"  \
	"  --space NAME           of the queues (hwt)\n"                    \
	"  --user NAME, --password-file FILE\n"                             \
	"  --timeout TIME         of a call (5s)\n"                         \
	"A TIME is a number and ms, s, m, h or d.\n"

/* Each program has one. */
struct program {
	const char *name, *usage;
	struct hwt_durable_options connect;
};
extern struct program program;

/* Whether it was one of the above, which is done then. */
bool option_is_shared(int option, const char *argument);

/* These end the program. */
void program_fail(int status, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));
void program_usage(void) __attribute__((noreturn));
uint64_t parse_number(const char *text, uint64_t least, uint64_t most);
uint64_t parse_time(const char *text);
/* FIRST:MOST. */
void parse_retry(const char *text, uint64_t *first_ns, uint64_t *most_ns);
struct hwt_durable *program_open(void);

/* A sentence about an error of hwt_durable. */
const char *error_text(int error);

/* Bytes that are no printable ASCII, and backslashes, as \xHH. */
void print_bytes(FILE *to, const char *bytes, size_t length);

/* What hwt-exec and hwt-http have besides. */
#define OPTIONS_WORKER                                    \
	{"queue", required_argument, NULL, 'Q'},          \
	    {"visibility", required_argument, NULL, 'I'}, \
	{                                                 \
		"grace", required_argument, NULL, 'G'     \
	}

#define USAGE_WORKER                                                     \
	"  --visibility TIME      of a lease, which is extended (30s)\n" \
	"  --grace TIME           at SIGTERM, for what runs (30s)\n"

struct program_worker {
	struct hwt_durable_worker_options options;
	uint64_t grace_ns;
	struct hwt_durable *durable;
	struct hwt_durable_worker *worker;
	/* SIGTERM and SIGINT are blocked, and read from it without blocking. */
	int signals;
};

bool option_is_worker(
    struct program_worker *worker, int option, const char *argument);
void program_start(struct program_worker *worker);

#endif
