/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What commands write to their standard error: it goes on to ours as it comes,
 * and the end of it is kept.
 */
#ifndef HWT_DURABLE_SAID_H
#define HWT_DURABLE_SAID_H

#include <stdbool.h>
#include <stddef.h>

#define SAID_MAX 900 /* bytes that are kept */

struct said;

/* Starts the thread that passes on; it blocks all signals. Comes first. */
bool said_start(void);

/* A pipe for a command; *end is where it writes, which the caller closes when
 * the command has it. NULL: no memory, or no descriptor left. */
struct said *said_open(int *end);

/* Frees it once the command has ended; copies the end of what it has said, and
 * returns the length. If others still have the pipe, what they say goes on to
 * our standard error. */
size_t said_end(struct said *said, char text[SAID_MAX]);

#endif
