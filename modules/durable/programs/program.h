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

/* Each program has one. */
struct program {
	const char *name, *usage;
	struct hwt_durable_options connect;
};
extern struct program program;

/* These end the program. */
void program_fail(int status, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));
void program_usage(void) __attribute__((noreturn));

/*
 * Options. All programs have --version and --help; clients also have
 * client_options.
 */
struct program_option {
	const char *name;
	/* Where its value goes: a text, or "" of a flag; ns; a number; or a
	 * function that reads it. One is not NULL. */
	const char **text, **flag;
	uint64_t *time, *number;
	void (*read)(const char *text);
	uint64_t least, most; /* of a number */
};

extern const struct program_option client_options[];
#define CLIENT_USAGE                                                        \
	"  --server SERVER        HOST:PORT (127.0.0.1:7379), unix:PATH,\n" \
	"                         sentinel:..., cluster:... or file:DIR\n"  \
	"  --space NAME           of the queues (hwt)\n"                    \
	"  --user NAME, --password-file FILE\n"                             \
	"  --timeout TIME         of a call (5s)\n"                         \
	"A TIME is a number and ms, s, m, h or d.\n"

/* Two tables, each up to a name that is NULL. Returns the index of the first
 * word that is no option. */
int program_parse(const struct program_option *own,
    const struct program_option *shared, int argc, char **argv);

/* In ns; text moves on behind it. */
uint64_t parse_time(const char **text);

/* The first line of a file: up to size - 1 bytes, and not empty. */
void read_secret(const char *path, char *secret, size_t size);

struct hwt_durable *program_open(void);

/* A sentence about an error of hwt_durable. */
const char *error_text(int error);

/* All bytes but A-Z a-z 0-9 - _ ~ are percent-encoded, and a NUL follows. */
#define ENCODED_SIZE(length) (3 * (length) + 1)
void encode(char *to, const char *bytes, size_t length);

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
struct program_worker {
	struct hwt_durable_worker_options options;
	uint64_t grace_ns;
	struct hwt_durable *durable;
	struct hwt_durable_worker *worker;
	/* SIGTERM and SIGINT are blocked, and read from it without blocking. */
	int signals;
};

#define WORKER_OPTIONS(worker)                                       \
	{"queue", .text = &(worker).options.queue},                  \
	    {"visibility", .time = &(worker).options.visibility_ns}, \
	{                                                            \
		"grace", .time = &(worker).grace_ns                  \
	}
#define WORKER_USAGE                                                     \
	"  --visibility TIME      of a lease, which is extended (30s)\n" \
	"  --grace TIME           at SIGTERM, for what runs (30s)\n"

void program_start(struct program_worker *worker);

#endif
