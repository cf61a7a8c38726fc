/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What commands write to their standard error: it goes on to ours as it comes,
 * and the end of it is kept.
 */
#ifndef HWT_DURABLE_OUTPUT_H
#define HWT_DURABLE_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#define OUTPUT_MAX 900 /* bytes that are kept */

struct output;

/* Starts the thread that forwards; it blocks all signals. Comes first. */
bool output_start(void);

/* A pipe for a command; *end is where it writes, which the caller closes when
 * the command has it. NULL: no memory, or no descriptor left. */
struct output *output_open(int *end);

/* Frees it once the command has ended; copies the end of what it wrote, and
 * returns the length. If others still have the pipe, what they write goes on
 * to our standard error. */
size_t output_end(struct output *output, char text[OUTPUT_MAX]);

#endif
