/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hwtctl, hwtd, hwt-exec and hwt-http share: the command line, messages,
 * and what the exit status says.
 */
#ifndef HWT_DURABLE_OPTIONS_H
#define HWT_DURABLE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "modules/durable/hwt_durable.h"

enum status {
	STATUS_YES,
	STATUS_NO, /* not found, or refused */
	STATUS_USAGE,
	STATUS_UNREACHABLE
};

/* An option of a program: --name, and what follows it unless it is a flag. */
struct option_row {
	const char *name; /* NULL ends a table */
	const char **value; /* NULL until it is given; "" for a flag */
	bool flag;
};

struct program {
	const char *name;
	const char *usage; /* what --help prints before what all share */
	/* Tables of options, at most two; NULL. */
	const struct option_row *rows[2];
	/* An option that may be given again: its value has commas between. */
	const char *many;
	/* The first argument that is none of an option ends the options. */
	bool command;
};

/* What the options that all programs have say; the rest is for the program to
 * fill in. */
extern struct hwt_durable_options open_options;

/* Reads the options in argv; call it before the other functions here. --help
 * and --version print a text and end the process; so does an option that is not
 * known or has a bad value, with STATUS_USAGE. Moves the arguments that are no
 * options to the front of argv, and returns their number. */
int options_read(const struct program *program, int argc, char **argv);

/* A line on stderr with the program's name. Nothing in it controls a terminal.
 */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same, and ends the process with STATUS_USAGE. */
void usage_error(const char *format, ...)
    __attribute__((noreturn, format(printf, 1, 2)));

/* These end the process if text is not what it should be. A number or a time,
 * in nanoseconds, that is not given, NULL, is otherwise. */
uint64_t option_number(const char *name, const char *text, uint64_t otherwise,
    uint64_t min, uint64_t max);
uint64_t option_seconds(const char *name, const char *text,
    uint64_t otherwise_ns, uint64_t min_ns, uint64_t max_ns);
void option_queue(const char *name, const char *text);
/* A list of them, with commas between. */
void option_queues(const char *name, const char *text);

/* Opens with open_options, or ends the process. */
struct hwt_durable *handle_open(void);

/* Whether the space has been gone for so long that it will not come back by
 * itself; it is told. */
bool space_is_gone(void);

/* What an errno value means. */
const char *system_text(int error);

/* What an error of this library means for a user, and for the exit status. */
const char *explain(int error);
enum status error_status(int error);

/* Ends the process with status, or with STATUS_NO if not all that was written
 * to stdout has got there. */
_Noreturn void finish(enum status status);

#endif
