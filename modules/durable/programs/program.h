/* SPDX-License-Identifier: Apache-2.0 */
/* What hwtd, hwtctl, hwt-exec and hwt-http share. */
#ifndef HWT_DURABLE_PROGRAMS_PROGRAM_H
#define HWT_DURABLE_PROGRAMS_PROGRAM_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "modules/durable/client/call.h"
#include "modules/durable/hwt_durable.h"

/* Exit statuses. */
enum {
	STATUS_NO = 1, /* some task is not there, or not as it must be */
	STATUS_USAGE = 2, /* nothing was sent */
	STATUS_SERVER = 3 /* the server was not reached, or refused */
};

/* Each program has one; without a worker, the rest of it is not used. */
struct program {
	const char *name, *usage;
	/* Up to NULL; each up to a name that is NULL. */
	const struct program_option *options[4];
	struct hwt_durable_options connect;
	struct hwt_durable_worker_options work;
	uint64_t grace_ns;
	struct hwt_durable *durable;
	struct hwt_durable_worker *worker;
};
extern struct program program;

/* These end the program. */
void program_fail(int status, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));
void program_usage(void) __attribute__((noreturn));

/*
 * Options. All programs have --version and --help, too.
 */
struct program_option {
	const char *name;
	/* Where its value goes: a text; ns; a number; or a function that reads
	 * it. One is not NULL. */
	const char **text;
	uint64_t *time, *number;
	void (*read)(const char *text);
	uint64_t least, most; /* of a number */
	bool flag; /* has no value; the text becomes "" */
};

/* Of hwtctl, hwt-exec and hwt-http. */
extern const struct program_option client_options[];
#define CLIENT_USAGE                                                        \
	"  --server SERVER        HOST:PORT (127.0.0.1:7379), unix:PATH,\n" \
	"                         sentinel:..., cluster:... or file:DIR\n"  \
	"  --space NAME           of the queues (hwt)\n"                    \
	"  --user NAME, --password-file FILE\n"                             \
	"  --timeout TIME         of a call (5s)\n"                         \
	"A TIME is a number and ms, s, m, h or d.\n"

/* Of hwt-exec and hwt-http. */
extern const struct program_option worker_options[];
#define WORKER_USAGE                                                     \
	"  --visibility TIME      of a lease, which is extended (30s)\n" \
	"  --grace TIME           at SIGTERM, for what runs (30s)\n"

/* Returns the index of the first word that is no option. */
int program_parse(int argc, char **argv);

/* In ns; text moves on behind it. */
uint64_t parse_time(const char **text);

/* The first line of a file: up to size - 2 bytes, and not empty. */
void read_first_line(const char *path, char *line, size_t size);

struct hwt_durable *program_open(void);

/* A sentence about an error of hwt_durable. */
const char *error_text(int error);

/* All bytes but A-Z a-z 0-9 - _ ~ are percent-encoded, and a NUL follows. */
#define ENCODED_SIZE(length) (3 * (length) + 1)
void encode(char *to, const char *bytes, size_t length);

/* Bytes that are no printable ASCII, and backslashes, as \xHH. */
void print_bytes(FILE *to, const char *bytes, size_t length);

/* Of an answer of HWT.ADD. */
const char *state_text(long long state);

/*
 * Commands, for durable_call. Texts must outlive it.
 */
struct words {
	size_t count;
	struct durable_word word[32 + HWT_DURABLE_BATCH_MAX];
};

void words_add_bytes(struct words *words, const void *bytes, size_t length);
void words_add(struct words *words, const char *text);

bool queue_is_valid(const char *name);

/* All queues of the space, sorted. names: the caller frees it. */
typedef char queue_name[HWT_DURABLE_QUEUE_MAX + 1];
int read_queues(struct hwt_durable *durable, queue_name **names, size_t *count);

/*
 * hwt-exec and hwt-http.
 */

/* Starts the worker. SIGPIPE, SIGTERM and SIGINT are blocked; returns a
 * signalfd of the last two. */
int program_start(void);

/* Says why an attempt has not succeeded. Returns its outcome: a failure instead
 * of the last retry, so that the dead letter has the reason. */
int program_failed(const char *id, uint32_t attempt, uint32_t max_attempts,
    int outcome, const char *reason);

#endif
